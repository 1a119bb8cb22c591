//! `sutler:logs`

use std::time::Duration;

use sutler_kubernetes::Pod;
use sutler_logs as l;

use super::Weigh;
use crate::bindings::plugin::sutler::logs::read;
use crate::sandbox::{CapabilityError, State};

type Answer<T> = wasmtime::Result<Result<T, read::Error>>;

impl CapabilityError for l::Error {
    fn timed_out(&self) -> bool {
        matches!(self, Self::TimedOut)
    }
}

impl Weigh for Pod {
    fn weigh(&self) -> usize {
        self.name.len() + self.phase.len() + self.containers.iter().map(|c| c.name.len()).sum::<usize>()
    }
}

fn pod_out(p: Pod) -> read::Pod {
    read::Pod {
        restarts: p.containers.iter().map(|c| c.restarts).sum(),
        containers: p.containers.into_iter().map(|c| c.name).collect(),
        name: p.name,
        phase: p.phase,
    }
}

impl From<l::Error> for read::Error {
    fn from(e: l::Error) -> Self {
        match e {
            l::Error::NotGranted(n) => Self::NotGranted(n.to_string()),
            l::Error::NotFound => Self::NotFound,
            l::Error::Unavailable(m) => Self::Unavailable(m),
            l::Error::TimedOut => Self::Unavailable("the call's time ran out".into()),
            l::Error::Other { code, message } => Self::Other(read::Detail { code: code.into(), message }),
        }
    }
}

fn unavailable(describing: bool) -> l::Error {
    if describing {
        l::Error::Other { code: "describe-is-pure", message: "no capability is available in describe".into() }
    } else {
        l::Error::Other {
            code: "not-configured",
            message: "this host has no cluster configured; set [kubernetes] in sutler.toml".into(),
        }
    }
}

impl read::Host for State {
    async fn pods(
        &mut self,
        cluster: Option<String>,
        namespace: String,
        label_selector: String,
    ) -> Answer<Vec<read::Pod>> {
        let (world, call, grants, describing) =
            (self.world.logs.clone(), self.call.clone(), self.grants.clone(), self.describing());
        let work = async move {
            let world = world.filter(|_| !describing).ok_or_else(|| unavailable(describing))?;
            world.pods(&call, &grants.logs, cluster.as_deref(), &namespace, &label_selector).await
        };
        let out = self.through("the pods of a namespace", 64, work).await?;
        Ok(out.map(|v| v.into_iter().map(pod_out).collect()).map_err(Into::into))
    }

    async fn tail(
        &mut self,
        cluster: Option<String>,
        namespace: String,
        pod: String,
        options: read::Options,
    ) -> Answer<Vec<String>> {
        let (world, call, grants, describing) =
            (self.world.logs.clone(), self.call.clone(), self.grants.clone(), self.describing());
        let work = async move {
            let world = world.filter(|_| !describing).ok_or_else(|| unavailable(describing))?;
            let options = l::TailOptions {
                container: options.container,
                previous: options.previous,
                since: options.since_milliseconds.map(Duration::from_millis),
                tail_lines: options.tail_lines,
                limit_bytes: options.limit_bytes,
            };
            world.tail(&call, &grants.logs, cluster.as_deref(), &namespace, &pod, &options).await
        };
        Ok(self.through("the logs of a pod", 64, work).await?.map_err(Into::into))
    }
}
