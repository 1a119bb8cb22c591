//! The Docker daemon of the world in memory: containers run as soon as they are asked for.

pub(crate) mod containers_read {
    use super::super::{World, world};
    use crate::containers::{Extras, Spec, State, Status};
    use crate::wit::sutler::containers::types::Error;

    impl World {
        pub(super) fn check_containers(&self, verb: &str, writes: bool) -> Result<(), Error> {
            if self.refused.contains(verb) {
                return Err(Error::NotGranted(format!("{verb} is not granted")));
            }
            if writes && self.read_only { Err(Error::ReadOnlyCall) } else { Ok(()) }
        }
    }

    pub(crate) fn inspect(name: &str) -> Result<State, Error> {
        status(name).map(|s| s.state)
    }
    pub(crate) fn list() -> Result<Vec<State>, Error> {
        Ok(world(|w| w.containers.values().map(|c| c.status.state.clone()).collect()))
    }
    pub(crate) fn logs(_: &str, _: u32) -> Result<Vec<String>, Error> {
        Err(Error::NotFound)
    }
    pub(crate) fn status(name: &str) -> Result<Status, Error> {
        world(|w| {
            w.check_containers("status", false)?;
            w.containers.get(name).map(|c| c.status.clone()).ok_or(Error::NotFound)
        })
    }
    pub(crate) fn same(spec: &Spec, extras: &Extras) -> Result<bool, Error> {
        let wanted = super::text(spec, extras);
        world(|w| Ok(w.containers.get(&spec.name).is_some_and(|c| c.status.state.spec_hash == wanted)))
    }
    pub(crate) fn volume(name: &str) -> Result<String, Error> {
        world(|w| w.volumes.get(name).cloned().ok_or(Error::NotFound))
    }
}

pub(crate) mod containers_write {
    use super::super::{Container, world};
    use crate::containers::{Extras, Restart, Spec, State, Status};
    use crate::wit::sutler::containers::types::Error;

    pub(crate) fn run(spec: &Spec) -> Result<(), Error> {
        run_with(spec, &Extras { mounts: vec![], note: String::new() }, 10)
    }
    pub(crate) fn stop(name: &str, _: u32) -> Result<(), Error> {
        world(|w| {
            w.check_containers("stop", true)?;
            w.writes.push(format!("stop {name}"));
            w.containers.get_mut(name).map(|c| c.status.state.running = false).ok_or(Error::NotFound)
        })
    }
    pub(crate) fn remove(name: &str) -> Result<(), Error> {
        world(|w| {
            w.check_containers("remove", true)?;
            w.writes.push(format!("remove {name}"));
            w.containers.remove(name).map(|_| ()).ok_or(Error::NotFound)
        })
    }
    pub(crate) fn run_with(spec: &Spec, extras: &Extras, _: u32) -> Result<(), Error> {
        world(|w| {
            w.check_containers("run", true)?;
            for mount in &extras.mounts {
                w.volumes.entry(mount.volume.clone()).or_default();
            }
            let spec_hash = super::text(spec, extras);
            if w.containers.get(&spec.name).is_some_and(|c| {
                c.status.state.spec_hash == spec_hash
                    && (c.status.state.running || spec.restart == Restart::Never)
            }) {
                return Ok(());
            }
            w.writes.push(format!("run {}", spec.name));
            let state = State {
                name: spec.name.clone(),
                image: spec.image.clone(),
                running: true,
                exit_code: None,
                health: None,
                spec_hash,
            };
            let status = Status {
                state,
                restarting: false,
                restarts: 0,
                out_of_memory: false,
                started_at: Some("2026-01-01T00:00:00Z".into()),
                finished_at: None,
                note: extras.note.clone(),
            };
            w.containers.insert(spec.name.clone(), Container { spec: spec.clone(), status });
            Ok(())
        })
    }
    pub(crate) fn make_volume(name: &str, note: &str) -> Result<(), Error> {
        world(|w| {
            w.check_containers("make-volume", true)?;
            w.writes.push(format!("make-volume {name}"));
            w.volumes.insert(name.into(), note.into());
            Ok(())
        })
    }
    pub(crate) fn remove_volume(name: &str) -> Result<(), Error> {
        world(|w| {
            w.check_containers("remove-volume", true)?;
            w.volumes
                .remove(name)
                .map(|_| w.writes.push(format!("remove-volume {name}")))
                .ok_or(Error::NotFound)
        })
    }
}

/// All that a container is made of, as the host's hash covers it.
fn text(spec: &crate::containers::Spec, extras: &crate::containers::Extras) -> String {
    format!("{spec:?} {extras:?}")
}
