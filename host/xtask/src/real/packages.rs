//! Debian's and Ubuntu's packages that real tests stand on.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::process::{call, on_path, output};

const FOR_TESTS: &[&str] = &[
    "containerd",
    "runc",
    "containernetworking-plugins",
    "busybox-static",
    "iptables",
    "iproute2",
    "procps",
    "openssl",
    "curl",
    "docker-registry",
    "docker.io",
    "jq",
    "apache2-utils",
    "gnupg",
    "postgresql",
    "faketime",
    "systemd",
];

/// Installs what is missing of the real tests' packages.
pub fn ensure() -> Result<()> {
    if on_path("dpkg-query").is_none() {
        bail!(
            "real tests install {} with apt-get, which is not here: provide them and start the cluster with \
             host/testkit/kubernetes/up.sh",
            FOR_TESTS.join(", ")
        );
    }
    let missing: Vec<&str> = FOR_TESTS.iter().copied().filter(|package| !installed(package)).collect();
    match missing.is_empty() {
        true => Ok(()),
        false => install(&missing),
    }
}

fn installed(package: &str) -> bool {
    output(Command::new("dpkg-query").args(["--show", "--showformat", "${db:Status-Status}", package]))
        .is_ok_and(|status| status == "installed")
}

/// `apt-get update` and `install`, told to the person at the terminal first.
pub fn install(packages: &[&str]) -> Result<()> {
    println!("installing packages: {}", packages.join(" "));
    let apt = |words: &[&str]| {
        let mut command = Command::new("apt-get");
        command.args(["--quiet", "--quiet"]).args(words).env("DEBIAN_FRONTEND", "noninteractive");
        command.stdin(Stdio::null());
        call(&mut command)
    };
    apt(&["update"]).context("refreshing the package lists")?;
    let mut words = vec!["install", "--yes", "--no-install-recommends"];
    words.extend_from_slice(packages);
    apt(&words).with_context(|| {
        format!("install them by hand: apt-get install --no-install-recommends {}", packages.join(" "))
    })
}
