//! The demonstration: a host with its plugins against a cluster and a registry.

use anyhow::{Result, bail};

use crate::DemoArgs;
use crate::build::{self, Built};
use crate::project::Project;

pub fn run(project: &Project, args: &DemoArgs) -> Result<()> {
    let built = build::everything(project, true)?;
    let place = args.cluster.as_ref().map_or("a cluster of its own".into(), |c| c.display().to_string());
    let Built { host, plugins } = built;
    bail!(
        "{} and {} plugins are built; the demonstration against {place} is not written",
        host.display(),
        plugins.len()
    )
}
