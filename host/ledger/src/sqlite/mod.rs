mod audit;
mod begin;
mod broken;
mod check;
mod claim;
mod commit;
mod desk;
mod export;
mod keep;
mod ledger;
mod migrations;
mod open;
mod place;
mod read;
mod readers;
mod row;
mod takes;
#[cfg(any(feature = "testing", feature = "failpoints"))]
mod trouble;
mod writer;

pub use ledger::Sqlite;
pub use open::SqliteOptions;
