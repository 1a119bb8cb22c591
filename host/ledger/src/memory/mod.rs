mod claim;
mod ledger;
mod state;

pub use ledger::{Hook, Memory, Moment};
