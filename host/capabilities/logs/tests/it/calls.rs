//! Calls, and what they are granted.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sutler_logs::{Grants, LogSource};
use sutler_model::{Application, Call, Effective, Identifier, Layer, Mode, Owner};

pub(crate) fn owner(tenant: &str) -> Owner {
    let id = |s: &str| Identifier::parse(s).unwrap();
    Owner {
        application: Application {
            id: id("orders"),
            environment: id("prod"),
            tenant: Some(id(tenant)),
            instance: None,
        },
        pair: "deployment/ksml".parse().unwrap(),
    }
}

pub(crate) fn call() -> Call {
    Call {
        plugin: "ksml".parse().unwrap(),
        owner: owner("acme"),
        mode: Mode::Locate,
        request_id: "r-1".into(),
        deadline: Instant::now() + Duration::from_secs(20),
        job: None,
        fence: sutler_model::Fence::endless(),
    }
}

/// The plugin's layer, from TOML.
pub(crate) fn grants(toml: &[&str]) -> Effective<Grants> {
    let layer = |t: &&str| (Layer::Plugin("ksml".into()), Arc::new(toml::from_str::<Grants>(t).unwrap()));
    Effective::new(toml.iter().map(layer).collect())
}

pub(crate) fn open_grants() -> Effective<Grants> {
    grants(&["namespaces = ['*']\nany-owner = true"])
}

pub(crate) fn source(namespace: &str) -> LogSource {
    LogSource { cluster: None, namespace: namespace.into(), label_selector: String::new(), container: None }
}
