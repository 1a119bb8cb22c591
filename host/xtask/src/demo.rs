//! The demonstration: builds what is needed, then hands over to the testkit's `sutler-demo`.

use std::path::Path;
use std::process::Command;

use anyhow::Result;

use crate::DemoArgs;
use crate::build;
use crate::process::call;
use crate::project::Project;
use crate::tools;

pub fn run(project: &Project, args: &DemoArgs) -> Result<()> {
    println!("First everything is built, once: the wasm target, Helm's engine (Go), the plugins, the host.");
    build::everything(project, false)?;
    let real = args.cluster.as_deref().zip(args.registry.as_deref());
    call(command(project, real)?.args(args.keep.then_some("--keep")))
}

/// With what is built already, on embedded parts or on a real cluster and registry.
pub fn show(project: &Project, real: Option<(&Path, &str)>) -> Result<()> {
    call(&mut command(project, real)?)
}

fn command(project: &Project, real: Option<(&Path, &str)>) -> Result<Command> {
    let binaries = project.target.join("debug");
    let mut demo = Command::new(binaries.join("sutler-demo"));
    demo.env("SUTLER_BIN", binaries.join("sutler"));
    demo.arg("--plugins").arg(project.target.join("plugins"));
    demo.arg("--chart").arg(project.root.join("examples/charts/ksml"));
    if let Some((cluster, registry)) = real {
        let program = project.target.join("ksml-runner");
        let script = project.root.join("host/testkit/images/ksml-runner/build.sh");
        call(Command::new(script).arg(&program).env("PATH", tools::go(project)?.path()))?;
        demo.arg("--cluster").arg(cluster).args(["--registry", registry]).arg("--program").arg(program);
    }
    Ok(demo)
}
