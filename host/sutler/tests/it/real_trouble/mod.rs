//! The built binary between a real API server that does what it likes and its own sudden death: whatever happens,
//! operations end right, or say truly why they did not.

mod killed;
mod model;
mod operations;
mod site;
mod talk;
