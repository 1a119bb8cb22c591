//! `sutler:containers`

use std::time::Duration;

use sutler_containers as c;

use super::{ReadOnly, Weigh};
use crate::bindings::plugin::sutler::containers::{read, types, write};
use crate::sandbox::{CapabilityError, State};

type Answer<T> = wasmtime::Result<Result<T, types::Error>>;

/// What a replaced container gets to end where the plugin does not say.
const GRACE: Duration = Duration::from_secs(10);

impl CapabilityError for c::Error {
    fn timed_out(&self) -> bool {
        matches!(self, Self::TimedOut)
    }
}

impl Weigh for c::Status {
    fn weigh(&self) -> usize {
        self.name.len() + self.image.len() + self.spec_hash.len() + self.note.len() + 64
    }
}

impl From<c::Error> for types::Error {
    fn from(e: c::Error) -> Self {
        match e {
            c::Error::NotGranted(n) => Self::NotGranted(n.to_string()),
            c::Error::ReadOnlyCall => Self::ReadOnlyCall,
            c::Error::NotFound => Self::NotFound,
            c::Error::Conflict(m) => Self::Conflict(m),
            c::Error::Unavailable(m) => Self::Unavailable(m),
            c::Error::TimedOut => Self::Unavailable("the call's time ran out".into()),
            c::Error::Other { code, message } => Self::Other(types::Detail { code: code.into(), message }),
        }
    }
}

fn state(s: &c::Status) -> read::State {
    read::State {
        name: s.name.clone(),
        image: s.image.clone(),
        running: s.running,
        exit_code: s.exit_code,
        health: s.health.clone(),
        spec_hash: s.spec_hash.clone(),
    }
}

fn status(s: c::Status) -> read::Report {
    read::Report {
        state: state(&s),
        restarting: s.restarting,
        restarts: s.restarts,
        out_of_memory: s.out_of_memory,
        started_at: s.started_at,
        finished_at: s.finished_at,
        note: s.note,
    }
}

fn spec(s: types::Spec, extras: types::Extras) -> c::Spec {
    let file = |f: types::MountFile| c::File { path: f.path, contents: f.contents, secret: f.secret };
    c::Spec {
        name: s.name,
        image: s.image,
        command: s.command,
        env: s.env.into_iter().map(|v| (v.name, v.value)).collect(),
        files: s.files.into_iter().map(file).collect(),
        memory_bytes: s.memory_bytes,
        milli_cpus: s.milli_cpus,
        restart: match s.restart {
            types::Restart::Never => c::Restart::Never,
            types::Restart::OnFailure => c::Restart::OnFailure,
            types::Restart::UnlessStopped => c::Restart::UnlessStopped,
        },
        ports: s.ports.into_iter().map(|p| c::Port { host: p.host, container: p.container }).collect(),
        network: s.network,
        mounts: extras.mounts.into_iter().map(|m| c::Mount { volume: m.volume, path: m.path }).collect(),
        note: extras.note,
    }
}

fn bare() -> types::Extras {
    types::Extras { mounts: vec![], note: String::new() }
}

fn weight(s: &c::Spec) -> usize {
    let files = s.files.iter().map(|f| f.path.len() + f.contents.len()).sum::<usize>();
    let env = s.env.iter().map(|(k, v)| k.len() + v.len()).sum::<usize>();
    files + env + s.command.iter().map(String::len).sum::<usize>() + s.note.len() + 256
}

impl types::Host for State {}

/// `(the capability, the call, its grants)`, cloned so that a future may hold them while the state counts.
macro_rules! parts {
    ($s:ident) => {{
        let (world, call, grants, describing) =
            ($s.world.containers.clone(), $s.call.clone(), $s.grants.clone(), $s.describing());
        let world = world.filter(|_| !describing).ok_or_else(|| unavailable(describing));
        (world, call, grants)
    }};
}

fn unavailable(describing: bool) -> c::Error {
    let (code, message) = if describing {
        ("describe-is-pure", "no capability is available in describe")
    } else {
        ("not-configured", "this host has no Docker daemon configured; set [containers] in sutler.toml")
    };
    c::Error::Other { code, message: message.into() }
}

impl State {
    async fn run_container(&mut self, asked: c::Spec, grace: Duration) -> Answer<()> {
        let (world, call, grants) = parts!(self);
        let bytes = weight(&asked);
        let work = async move { world?.run(&call, &grants.containers, &asked, grace).await };
        Ok(self.through("containers run", bytes, work).await?.map_err(Into::into))
    }
}

impl read::Host for State {
    async fn inspect(&mut self, name: String) -> Answer<read::State> {
        Ok(self.status(name).await?.map(|s| s.state))
    }

    async fn list(&mut self) -> Answer<Vec<read::State>> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.list(&call, &grants.containers).await };
        let found = self.through("containers list", 64, work).await?;
        Ok(found.map(|all| all.iter().map(state).collect()).map_err(Into::into))
    }

    async fn logs(&mut self, name: String, tail_lines: u32) -> Answer<Vec<String>> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.logs(&call, &grants.containers, &name, tail_lines).await };
        Ok(self.through("containers logs", 64, work).await?.map_err(Into::into))
    }

    async fn status(&mut self, name: String) -> Answer<read::Report> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.status(&call, &grants.containers, &name).await };
        Ok(self.through("containers status", 64, work).await?.map(status).map_err(Into::into))
    }

    async fn same(&mut self, asked: types::Spec, extras: types::Extras) -> Answer<bool> {
        let (world, call, grants) = parts!(self);
        let asked = spec(asked, extras);
        let bytes = weight(&asked);
        let work = async move { world?.same(&call, &grants.containers, &asked).await };
        Ok(self.through("containers same", bytes, work).await?.map_err(Into::into))
    }

    async fn volume(&mut self, name: String) -> Answer<String> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.volume(&call, &grants.containers, &name).await };
        Ok(self.through("containers volume", 64, work).await?.map_err(Into::into))
    }
}

impl write::Host for State {
    async fn run(&mut self, asked: types::Spec) -> Answer<()> {
        self.run_container(spec(asked, bare()), GRACE).await
    }

    async fn stop(&mut self, name: String, grace_seconds: u32) -> Answer<()> {
        let (world, call, grants) = parts!(self);
        let grace = Duration::from_secs(grace_seconds.into());
        let work = async move { world?.stop(&call, &grants.containers, &name, grace).await };
        Ok(self.through("containers stop", 64, work).await?.map_err(Into::into))
    }

    async fn remove(&mut self, name: String) -> Answer<()> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.remove(&call, &grants.containers, &name).await };
        Ok(self.through("containers remove", 64, work).await?.map_err(Into::into))
    }

    async fn run_with(
        &mut self,
        asked: types::Spec,
        extras: types::Extras,
        grace_seconds: u32,
    ) -> Answer<()> {
        self.run_container(spec(asked, extras), Duration::from_secs(grace_seconds.into())).await
    }

    async fn make_volume(&mut self, name: String, note: String) -> Answer<()> {
        let (world, call, grants) = parts!(self);
        let bytes = note.len() + 64;
        let work = async move { world?.make_volume(&call, &grants.containers, &name, &note).await };
        Ok(self.through("containers make-volume", bytes, work).await?.map_err(Into::into))
    }

    async fn remove_volume(&mut self, name: String) -> Answer<()> {
        let (world, call, grants) = parts!(self);
        let work = async move { world?.remove_volume(&call, &grants.containers, &name).await };
        Ok(self.through("containers remove-volume", 64, work).await?.map_err(Into::into))
    }
}

impl write::Host for ReadOnly {
    async fn run(&mut self, _: types::Spec) -> Answer<()> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
    async fn stop(&mut self, _: String, _: u32) -> Answer<()> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
    async fn remove(&mut self, _: String) -> Answer<()> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
    async fn run_with(&mut self, _: types::Spec, _: types::Extras, _: u32) -> Answer<()> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
    async fn make_volume(&mut self, _: String, _: String) -> Answer<()> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
    async fn remove_volume(&mut self, _: String) -> Answer<()> {
        Ok(Err(types::Error::ReadOnlyCall))
    }
}
