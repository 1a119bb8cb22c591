//! Calls, specs and grants of tests.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sutler_containers::{Containers, ContainersConfig, Daemon, Grants, NoLogins, Restart, Spec};
use sutler_model::{Application, Call, Effective, Fence, Identifier, Layer, Mode, Owner};
use sutler_testkit::docker::RUNNER;

pub(crate) fn call(tenant: &str, mode: Mode) -> Call {
    let id = |s: &str| Identifier::parse(s).unwrap();
    let application =
        Application { id: id("orders"), environment: id("prod"), tenant: Some(id(tenant)), instance: None };
    Call {
        plugin: "ksml".parse().unwrap(),
        owner: Owner { application, pair: "deployment/ksml".parse().unwrap() },
        mode,
        request_id: "r-1".into(),
        job: None,
        deadline: Instant::now() + Duration::from_secs(60),
        fence: Fence::endless(),
    }
}

pub(crate) fn grants(toml: &str) -> Effective<Grants> {
    let grants: Grants = toml::from_str(toml).unwrap();
    Effective::new(vec![(Layer::Plugin("ksml".into()), Arc::new(grants))])
}

/// Everything that tests of other things than grants need.
pub(crate) fn all() -> Effective<Grants> {
    grants("images = ['sutler.test/*', '127.0.0.1:15000/*']\nvolumes = true\nports = ['18000-18999']\n")
}

pub(crate) fn containers(socket: &Path, timeout_seconds: u64) -> Containers {
    let config =
        ContainersConfig { socket: socket.to_owned(), timeout_seconds, ..ContainersConfig::default() };
    Containers::new(Arc::new(Daemon::new(&config)), Arc::new(NoLogins))
}

pub(crate) fn spec(name: &str) -> Spec {
    Spec {
        name: name.into(),
        image: RUNNER.into(),
        command: vec![],
        env: vec![("KSML_DEFINITIONS".into(), "/tmp".into())],
        files: vec![],
        memory_bytes: 256 << 20,
        milli_cpus: 500,
        restart: Restart::UnlessStopped,
        ports: vec![],
        network: None,
        mounts: vec![],
        note: "{}".into(),
    }
}
