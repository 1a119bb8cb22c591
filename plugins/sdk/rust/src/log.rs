//! The host's log. Secrets that the host handed out are redacted there.

use serde_json::{Value, json};

use crate::raw;
pub use crate::wit::sutler::host::log::Level;

/// `fields` is a JSON object.
pub fn write(level: Level, message: &str, fields: &Value) {
    raw::log::write(level, message, &fields.to_string());
}

pub fn debug(message: &str) {
    write(Level::Debug, message, &json!({}));
}
pub fn info(message: &str) {
    write(Level::Info, message, &json!({}));
}
pub fn warn(message: &str) {
    write(Level::Warn, message, &json!({}));
}
pub fn error(message: &str) {
    write(Level::Error, message, &json!({}));
}
