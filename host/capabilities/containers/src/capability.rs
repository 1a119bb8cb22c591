//! `sutler:containers` for one call: read-only check, grants, ownership, then the daemon.

use std::sync::Arc;
use std::time::Duration;

use bollard::query_parameters::{
    InspectContainerOptions, LogsOptions, RemoveContainerOptions, StopContainerOptions,
};
use futures::StreamExt as _;
use futures::future::BoxFuture;
use sutler_model::{Call, Effective, Owner, Secret};

use crate::daemon::{labelled, name_of};
use crate::pulls::Pulls;
use crate::spec::check_name;
use crate::status::Found;
use crate::{Daemon, Error, Grants, Status, grant};

const MOST_LINES: u32 = 10_000;
const MOST_BYTES: usize = 1 << 20;

/// How a pull signs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Login {
    Basic { username: String, password: Secret },
    Identity(Secret),
    Token(Secret),
}

/// The credentials of registries, which the host holds.
pub trait Logins: Send + Sync {
    /// For `docker.io`, `registry.example:5000`; `None` for a pull without credentials.
    ///
    /// # Errors
    /// Words without a secret.
    fn login<'a>(&'a self, registry: &'a str) -> BoxFuture<'a, Result<Option<Login>, String>>;
}

/// No credentials for any registry.
#[derive(Debug)]
pub struct NoLogins;

impl Logins for NoLogins {
    fn login<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Option<Login>, String>> {
        Box::pin(async { Ok(None) })
    }
}

/// What plugins are given.
#[derive(Clone)]
pub struct Containers {
    pub(crate) daemon: Arc<Daemon>,
    pub(crate) pulls: Arc<Pulls>,
    pub(crate) logins: Arc<dyn Logins>,
    /// Held from counting to creating, so that no two take the last place.
    pub(crate) making: Arc<tokio::sync::Mutex<()>>,
}

impl std::fmt::Debug for Containers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Containers").field("daemon", &self.daemon).finish_non_exhaustive()
    }
}

/// Whether the call may change anything, still.
pub(crate) fn writes(call: &Call) -> Result<(), Error> {
    if !call.mode.writes() {
        return Err(Error::ReadOnlyCall);
    }
    if call.left().is_zero() { Err(Error::TimedOut) } else { Ok(()) }
}

/// What has the name.
pub(crate) enum Named {
    Nobody,
    Ours(Box<Found>),
    Foreign,
}

impl Containers {
    pub fn new(daemon: Arc<Daemon>, logins: Arc<dyn Logins>) -> Self {
        Self { daemon, pulls: Arc::default(), logins, making: Arc::default() }
    }

    pub(crate) async fn look(&self, call: &Call, name: &str) -> Result<Named, Error> {
        let doing = format!("inspect container {name}");
        let asked =
            self.daemon.client_for(call).await?.inspect_container(name, None::<InspectContainerOptions>);
        match self.daemon.bounded(call, &doing, Duration::ZERO, asked).await {
            // Docker also takes the beginning of an id for a name.
            Ok(found) if found.name.as_deref().map(|n| n.trim_start_matches('/')) != Some(name) => {
                Ok(Named::Nobody)
            }
            Ok(found) => {
                Ok(Found::of(found, &call.owner)?
                    .map_or(Named::Foreign, |found| Named::Ours(Box::new(found))))
            }
            Err(Error::NotFound) => Ok(Named::Nobody),
            Err(e) => Err(e),
        }
    }

    /// The owner's container of this name.
    pub(crate) async fn find(&self, call: &Call, name: &str) -> Result<Found, Error> {
        match self.look(call, name).await? {
            Named::Ours(found) => Ok(*found),
            Named::Nobody | Named::Foreign => Err(Error::NotFound),
        }
    }

    /// How a container is.
    ///
    /// # Errors
    /// `NotGranted`; `NotFound` also for another owner's; what the daemon says.
    pub async fn status(&self, call: &Call, grants: &Effective<Grants>, name: &str) -> Result<Status, Error> {
        check_name(name)?;
        grant::name(grants, name, &call.owner)?;
        Ok(self.find(call, name).await?.status)
    }

    /// The owner's containers, by name.
    ///
    /// # Errors
    /// What the daemon says.
    pub async fn list(&self, call: &Call, grants: &Effective<Grants>) -> Result<Vec<Status>, Error> {
        let label = format!("{}={}", Owner::LABEL, call.owner.hash());
        let asked = self.daemon.client_for(call).await?.list_containers(Some(labelled(&[label])));
        let found = self.daemon.bounded(call, "list containers", Duration::ZERO, asked).await?;
        let mut names: Vec<String> = found.iter().map(name_of).collect();
        names.sort();
        let mut out = Vec::new();
        for name in names {
            match self.status(call, grants, &name).await {
                Ok(status) => out.push(status),
                // Gone meanwhile, or not in reach.
                Err(Error::NotFound | Error::NotGranted(_)) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(out)
    }

    /// The last lines of a container: at most 10,000 and 1 MiB.
    ///
    /// # Errors
    /// `NotGranted`, `NotFound`, and what the daemon says.
    pub async fn logs(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        name: &str,
        tail_lines: u32,
    ) -> Result<Vec<String>, Error> {
        check_name(name)?;
        grant::name(grants, name, &call.owner)?;
        let found = self.find(call, name).await?;
        let most = if tail_lines == 0 { 100 } else { tail_lines.min(MOST_LINES) };
        let options =
            LogsOptions { stdout: true, stderr: true, tail: most.to_string(), ..LogsOptions::default() };
        let mut frames = self.daemon.client_for(call).await?.logs(&found.id, Some(options));
        let read = async {
            let mut text = Vec::new();
            while let Some(frame) = frames.next().await {
                text.extend_from_slice(&frame?.into_bytes());
                if text.len() > MOST_BYTES {
                    text.truncate(MOST_BYTES);
                    break;
                }
            }
            Ok(text)
        };
        let text =
            self.daemon.bounded(call, &format!("read the log of {name}"), Duration::ZERO, read).await?;
        Ok(String::from_utf8_lossy(&text).lines().map(str::to_owned).collect())
    }

    /// Ends a container, by its image's stop signal and after `grace` by force. One that has ended stays as it is.
    ///
    /// # Errors
    /// `ReadOnlyCall`, `NotGranted`, `NotFound`, and what the daemon says.
    pub async fn stop(
        &self,
        call: &Call,
        grants: &Effective<Grants>,
        name: &str,
        grace: Duration,
    ) -> Result<(), Error> {
        writes(call)?;
        check_name(name)?;
        grant::name(grants, name, &call.owner)?;
        let found = self.find(call, name).await?;
        self.end(call, &found, grace).await
    }

    pub(crate) async fn end(&self, call: &Call, found: &Found, grace: Duration) -> Result<(), Error> {
        let seconds = i32::try_from(grace.as_secs()).unwrap_or(i32::MAX);
        let options = StopContainerOptions { t: Some(seconds), ..StopContainerOptions::default() };
        let asked = self.daemon.client_for(call).await?.stop_container(&found.id, Some(options));
        self.daemon.bounded(call, &format!("stop container {}", found.status.name), grace, asked).await
    }

    /// Takes a container away, running or not, with the volumes without a name.
    ///
    /// # Errors
    /// `ReadOnlyCall`, `NotGranted`, `NotFound`, and what the daemon says.
    pub async fn remove(&self, call: &Call, grants: &Effective<Grants>, name: &str) -> Result<(), Error> {
        writes(call)?;
        check_name(name)?;
        grant::name(grants, name, &call.owner)?;
        let found = self.find(call, name).await?;
        self.take_away(call, &found).await
    }

    pub(crate) async fn take_away(&self, call: &Call, found: &Found) -> Result<(), Error> {
        let options = RemoveContainerOptions { v: true, force: true, ..RemoveContainerOptions::default() };
        let asked = self.daemon.client_for(call).await?.remove_container(&found.id, Some(options));
        let doing = format!("remove container {}", found.status.name);
        match self.daemon.bounded(call, &doing, Duration::ZERO, asked).await {
            // A removal that was cut off before goes on in the daemon.
            Err(Error::Conflict(why)) if why.contains("already in progress") => {
                Err(Error::Unavailable(format!("{why}; try again")))
            }
            other => other,
        }
    }
}
