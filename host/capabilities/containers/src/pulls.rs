//! Pulls of images: each goes on by itself, since it may take longer than a call, and any number of calls wait for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::auth::DockerCredentials;
use bollard::query_parameters::CreateImageOptions;
use futures::StreamExt as _;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use crate::{Error, Image};

/// How long a failure is told to those who come back for it, before the pull is begun anew.
const TOLD: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
enum Progress {
    /// Layers that are there, and those that are known.
    Running(usize, usize),
    Ended(Result<(), Error>, Instant),
}

impl Progress {
    /// Nobody waits for it any more, and what it came to may be another by now.
    fn is_old(&self) -> bool {
        matches!(self, Self::Ended(outcome, at) if outcome.is_ok() || at.elapsed() > TOLD)
    }
}

/// Ends its pull when the last one who knows of it is gone.
#[derive(Debug)]
struct Pull {
    progress: watch::Receiver<Progress>,
    task: AbortHandle,
}

impl Drop for Pull {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The pulls that are going on, by image.
#[derive(Debug, Default)]
pub(crate) struct Pulls(Mutex<HashMap<String, Arc<Pull>>>);

impl Pulls {
    /// Waits at most `patience` for the image; begins its pull where none is going on.
    ///
    /// # Errors
    /// `Other` with code `pulling` while it goes on, with `image` where it cannot be had.
    pub(crate) async fn wait(
        &self,
        docker: &Docker,
        image: &Image,
        login: Option<DockerCredentials>,
        longest: Duration,
        patience: Duration,
    ) -> Result<(), Error> {
        let name = image.pinned();
        let pull = {
            let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if all.get(&name).is_some_and(|pull| pull.progress.borrow().is_old()) {
                all.remove(&name);
            }
            let begin = || Arc::new(begin(docker.clone(), name.clone(), login, longest));
            all.entry(name.clone()).or_insert_with(begin).clone()
        };
        let mut progress = pull.progress.clone();
        let ended = progress.wait_for(|p| matches!(p, Progress::Ended(..)));
        let outcome = match tokio::time::timeout(patience, ended).await {
            Ok(Ok(p)) => match &*p {
                Progress::Ended(outcome, _) => outcome.clone(),
                Progress::Running(..) => Ok(()),
            },
            Ok(Err(_)) => Err(Error::Unavailable(format!("the pull of {name} was cut off"))),
            Err(_) => {
                let message = match *pull.progress.borrow() {
                    Progress::Running(there, known) if known > 0 => {
                        format!("image {name} is being pulled: {there} of {known} layers")
                    }
                    _ => format!("image {name} is being pulled"),
                };
                return Err(Error::Other { code: "pulling", message });
            }
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.get(&name).is_some_and(|p| Arc::ptr_eq(p, &pull)) {
            all.remove(&name);
        }
        outcome
    }
}

fn begin(docker: Docker, name: String, login: Option<DockerCredentials>, longest: Duration) -> Pull {
    let (tell, progress) = watch::channel(Progress::Running(0, 0));
    let task = tokio::spawn(async move {
        let outcome = match tokio::time::timeout(longest, pull(&docker, &name, login, &tell)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(refused(&name, &format!("it took longer than {} s", longest.as_secs()))),
        };
        tracing::info!(event = "image-pulled", image = name, pulled = outcome.is_ok());
        tell.send_replace(Progress::Ended(outcome, Instant::now()));
    });
    Pull { progress, task: task.abort_handle() }
}

async fn pull(
    docker: &Docker,
    name: &str,
    login: Option<DockerCredentials>,
    tell: &watch::Sender<Progress>,
) -> Result<(), Error> {
    let options = CreateImageOptions { from_image: Some(name.to_owned()), ..CreateImageOptions::default() };
    let mut lines = docker.create_image(Some(options), None, login);
    let mut layers: HashMap<String, bool> = HashMap::new();
    while let Some(line) = lines.next().await {
        let line = line.map_err(|e| match Error::of(&format!("pull {name}"), e) {
            Error::NotFound => refused(name, "the registry has no such image, or asks for credentials"),
            Error::Other { message, .. } => refused(name, &message),
            other => other,
        })?;
        let (Some(id), Some(status)) = (line.id, line.status) else { continue };
        if layers.len() < 1000 || layers.contains_key(&id) {
            layers.insert(id, matches!(status.as_str(), "Pull complete" | "Already exists"));
        }
        tell.send_replace(Progress::Running(layers.values().filter(|done| **done).count(), layers.len()));
    }
    Ok(())
}

fn refused(name: &str, why: &str) -> Error {
    let message = format!(
        "image {name} cannot be had: {why}; check its name, and the credentials under [registries] in sutler.toml"
    );
    Error::Other { code: "image", message }
}
