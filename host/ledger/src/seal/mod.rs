mod file;
mod keys;

pub use keys::Keys;
