//! Containers on the local Docker daemon for plugins, behind grants. It never gives a container privileges, a folder of
//! the host or the host's network, and never touches what another owner made. Nothing of it is in memory: a container's
//! labels say whose it is and how it was asked for.

mod body;
mod capability;
mod config;
mod daemon;
mod error;
mod files;
mod grant;
mod image;
mod log;
mod pulls;
mod run;
mod spec;
mod status;
mod volumes;

pub use capability::{Containers, Login, Logins, NoLogins};
pub use config::ContainersConfig;
pub use daemon::{Daemon, Owned};
pub use error::Error;
pub use grant::{BadPorts, Grants, Ports};
pub use image::{BadImagePattern, Image, ImagePattern, InvalidImage};
pub use log::{Log, LogQuery, Now};
pub use spec::{File, Mount, Port, Restart, Spec};
pub use status::Status;
