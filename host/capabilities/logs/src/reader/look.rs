//! What the pod tells of a container whose log is followed.

use std::time::{Duration, Instant};

use sutler_kubernetes::{Container, Error, Pod};

use super::{FIRST_PAUSE, Reader};
use crate::output::Closed;

/// A container that waits to run, or to run again, is looked at this often.
pub(super) const LOOK: Duration = Duration::from_secs(2);
/// How long a pod is asked whether its container runs anew, where a line came that does not join on: it tells of that a
/// little later than the log does. A kubelet that ended the stream by itself ended it with the container, most likely.
pub(super) const ANEW_AFTER_END: Duration = Duration::from_secs(10);
pub(super) const ANEW_AFTER_CUT: Duration = Duration::from_secs(1);

/// What the pod says about the container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    Gone,
    Over,
    Waiting,
    Running,
    /// It runs anew, and what was left of the run before is read.
    Restarted,
    Unknown,
}

impl Reader {
    /// How the container is now. Where it ran again meanwhile, the end of the run before is read first.
    pub(super) async fn look(&mut self, clean: bool) -> Result<Look, Closed> {
        let pod = match self.cluster.pod(&self.key.namespace, &self.key.pod).await {
            Ok(pod) if pod.uid == self.key.uid => pod,
            Ok(_) | Err(Error::NotFound) => return Ok(Look::Gone),
            Err(_) => return Ok(Look::Unknown),
        };
        let Some(container) = pod.containers.iter().find(|c| c.name == self.key.container) else {
            return Ok(Look::Gone);
        };
        if container.restarts > self.restarts {
            self.restarted(container.restarts, clean).await?;
            return Ok(Look::Restarted);
        }
        Ok(state(&pod, container))
    }

    /// As [`Reader::look`], and again for so long where the pod tells of no new run.
    pub(super) async fn anew(&mut self, patience: Duration) -> Result<Look, Closed> {
        let until = Instant::now() + patience;
        loop {
            let look = self.look(false).await?;
            if matches!(look, Look::Restarted | Look::Gone | Look::Over) || Instant::now() >= until {
                return Ok(look);
            }
            tokio::time::sleep(FIRST_PAUSE).await;
        }
    }

    /// The container that ended will run again or not: waits for one of the two without reading its log anew.
    pub(super) async fn await_run(&mut self) -> Result<(), Closed> {
        loop {
            tokio::time::sleep(LOOK).await;
            match self.look(true).await? {
                Look::Waiting | Look::Unknown => {}
                Look::Gone | Look::Over | Look::Running | Look::Restarted => return Ok(()),
            }
        }
    }
}

fn state(pod: &Pod, container: &Container) -> Look {
    // An init container that ended well is done; one that will be tried again waits.
    if pod.is_over() || (container.init && container.terminated) {
        Look::Over
    } else if container.running {
        Look::Running
    } else {
        Look::Waiting
    }
}
