//! Logs of pods: bounded reads for plugins, streams for people. It never decides which pods a caller may see: grants do.

mod line;

pub use line::{LogLine, LogSource, Since, StreamOptions};
