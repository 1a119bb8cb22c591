//! The demonstration: builds what is needed, then hands over to the testkit's `sutler-demo`.

use anyhow::Result;

use crate::DemoArgs;
use crate::build;
use crate::process::call;
use crate::project::Project;

pub fn run(project: &Project, args: &DemoArgs) -> Result<()> {
    println!("First everything is built, once: the wasm target, Helm's engine (Go), the plugins, the host.");
    let built = build::everything(project, false)?;
    let mut demo = std::process::Command::new(project.target.join("debug/sutler-demo"));
    demo.arg("--plugins").arg(project.target.join("plugins"));
    demo.arg("--chart").arg(project.root.join("examples/charts/ksml"));
    if let (Some(cluster), Some(registry)) = (&args.cluster, &args.registry) {
        let program = project.target.join("ksml-runner");
        call(
            std::process::Command::new(project.root.join("host/testkit/images/ksml-runner/build.sh"))
                .arg(&program),
        )?;
        demo.arg("--cluster").arg(cluster).arg("--registry").arg(registry).arg("--program").arg(program);
    }
    if args.keep {
        demo.arg("--keep");
    }
    demo.env("SUTLER_BIN", &built.host);
    call(&mut demo)
}
