//! Logs of pods and of Docker's containers: bounded reads for plugins, streams for people. It never decides which pods
//! a caller may see: grants do. It never loses a line without saying so, and never keeps more than a MiB a stream and a
//! container.

mod capability;
mod container;
mod error;
mod follow;
mod grant;
mod hub;
mod line;
mod output;
mod parse;
mod rbac;
mod reader;
mod release;
mod resume;

pub use capability::{Logs, TailOptions};
pub use error::Error;
pub use grant::{Grants, Reach};
pub use line::{LogLine, LogSource, Since, Source, StreamOptions};
pub use sutler_kubernetes::{Container, Pod};
