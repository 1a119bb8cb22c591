mod file;
mod keys;
mod texts;

pub use keys::Keys;
pub(crate) use texts::Sealed;
