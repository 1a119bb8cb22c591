//! The way to the Docker daemon: one client, times that end, and what is asked of more than one container.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bollard::models::ContainerSummary;
use bollard::query_parameters::ListContainersOptions;
use bollard::{API_DEFAULT_VERSION, Docker};
use sutler_model::{Call, Owner};
use tokio::sync::OnceCell;

use crate::{ContainersConfig, Error};

/// Seconds that bollard itself may wait: never less than what is bounded here.
const UNBOUNDED: u64 = 7 * 24 * 3600;

/// A Docker daemon. It is connected at the first use, so that one that is not up does not stop the host.
#[derive(Debug)]
pub struct Daemon {
    config: ContainersConfig,
    client: OnceCell<Docker>,
}

/// A container that some owner's call made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owned {
    pub name: String,
    pub running: bool,
    /// `sutler.dev/owner`, `sutler.dev/plugin` and the like.
    pub labels: HashMap<String, String>,
    created: SystemTime,
}

impl Owned {
    /// How long ago it was made, by this machine's clock; `None` for the future.
    pub fn age(&self) -> Option<Duration> {
        self.created.elapsed().ok()
    }
}

impl Daemon {
    pub fn new(config: &ContainersConfig) -> Self {
        Self { config: config.clone(), client: OnceCell::new() }
    }

    pub(crate) const fn config(&self) -> &ContainersConfig {
        &self.config
    }

    /// The client, in a version that the daemon speaks.
    pub(crate) async fn client(&self) -> Result<&Docker, Error> {
        let doing = "reach the Docker daemon";
        self.client
            .get_or_try_init(|| async {
                let socket = self.config.socket.to_string_lossy();
                let connected = async {
                    Docker::connect_with_unix(&socket, UNBOUNDED, API_DEFAULT_VERSION)?
                        .negotiate_version()
                        .await
                };
                self.in_time(doing, connected).await
            })
            .await
    }

    /// The same within what is left of a call.
    pub(crate) async fn client_for(&self, call: &Call) -> Result<&Docker, Error> {
        tokio::time::timeout(call.left(), self.client()).await.unwrap_or(Err(Error::TimedOut))
    }

    const fn each(&self) -> Duration {
        Duration::from_secs(self.config.timeout_seconds)
    }

    fn slow(&self, doing: &str) -> Error {
        let seconds = self.config.timeout_seconds;
        Error::Unavailable(format!("could not {doing}: the Docker daemon did not answer within {seconds} s"))
    }

    /// One request of nobody's call.
    async fn in_time<T>(
        &self,
        doing: &str,
        request: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, Error> {
        let answer = tokio::time::timeout(self.each(), request).await;
        answer.map_err(|_| self.slow(doing))?.map_err(|e| Error::of(doing, e))
    }

    /// One request within what is left of the call, and within the time of each request and `more`.
    pub(crate) async fn bounded<T>(
        &self,
        call: &Call,
        doing: &str,
        more: Duration,
        request: impl Future<Output = Result<T, bollard::errors::Error>>,
    ) -> Result<T, Error> {
        let left = call.left();
        if left.is_zero() {
            return Err(Error::TimedOut);
        }
        match tokio::time::timeout(left.min(self.each() + more), request).await {
            Ok(answer) => answer.map_err(|e| Error::of(doing, e)),
            Err(_) if call.left().is_zero() => Err(Error::TimedOut),
            Err(_) => Err(self.slow(doing)),
        }
    }

    /// The daemon's version, for people.
    ///
    /// # Errors
    /// `Unavailable`, and what the daemon says.
    pub async fn version(&self) -> Result<String, Error> {
        let doing = "ask the Docker daemon for its version";
        let asked = self.client().await?.version();
        Ok(self.in_time(doing, asked).await?.version.unwrap_or_default())
    }

    /// Every container with an owner's label, running or not.
    ///
    /// # Errors
    /// `Unavailable`, and what the daemon says.
    pub async fn owned(&self) -> Result<Vec<Owned>, Error> {
        let doing = "list containers";
        let asked = self.client().await?.list_containers(Some(labelled(&[Owner::LABEL.to_owned()])));
        Ok(self.in_time(doing, asked).await?.into_iter().map(owned).collect())
    }
}

/// All containers, running or not, with these labels: `KEY` or `KEY=VALUE`.
pub(crate) fn labelled(labels: &[String]) -> ListContainersOptions {
    ListContainersOptions {
        all: true,
        filters: Some(HashMap::from([("label".to_owned(), labels.to_vec())])),
        ..ListContainersOptions::default()
    }
}

fn owned(c: ContainerSummary) -> Owned {
    Owned {
        name: name_of(&c),
        running: c.state.is_some_and(|s| s.to_string() == "running"),
        created: UNIX_EPOCH
            + Duration::from_secs(c.created.and_then(|s| s.try_into().ok()).unwrap_or_default()),
        labels: c.labels.unwrap_or_default(),
    }
}

/// Docker writes names with a slash before them.
pub(crate) fn name_of(c: &ContainerSummary) -> String {
    let names = c.names.iter().flatten();
    names.map(|n| n.trim_start_matches('/')).find(|n| !n.contains('/')).unwrap_or_default().to_owned()
}
