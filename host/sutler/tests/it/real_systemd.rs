//! The unit for systemd, by systemd's own tools.

use std::path::PathBuf;
use std::process::Command;

use sutler_testkit::{checkout, real, sutler_binary};

fn folder() -> PathBuf {
    checkout().join("examples/deploy/systemd")
}

fn run(program: &str, arguments: &[&str]) -> String {
    let out = Command::new(program).args(arguments).env("SYSTEMD_COLORS", "0").output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success(), "{program} {arguments:?}: {text}");
    text
}

#[test]
fn real_systemd_takes_the_unit_and_finds_it_locked_down() {
    if real().is_none() {
        return;
    }
    let scratch = tempfile::tempdir().unwrap();
    let unit = std::fs::read_to_string(folder().join("sutler.service")).unwrap();
    // The compiler inside needs pages that are written first and executed then.
    assert!(unit.contains("\nMemoryDenyWriteExecute=no\n"));
    let there = unit.replace("=/usr/bin/sutler ", &format!("={} ", sutler_binary().display()));
    assert_ne!(unit, there);
    let file = scratch.path().join("sutler.service");
    std::fs::write(&file, there).unwrap();
    let file = file.to_str().unwrap();
    let said = run("systemd-analyze", &["verify", file]);
    assert!(!said.contains("sutler.service"), "{said}");
    // Exposure in tenths, from 0 (none) to 100.
    run("systemd-analyze", &["security", "--offline=yes", "--threshold=15", file]);
}

#[test]
fn real_systemd_makes_the_user_and_the_folders() {
    if real().is_none() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    std::fs::create_dir(root.path().join("etc")).unwrap();
    let at = format!("--root={}", root.path().display());
    let file = |name: &str| folder().join(name).display().to_string();
    run("systemd-sysusers", &[&at, &file("sutler.sysusers")]);
    let users = std::fs::read_to_string(root.path().join("etc/passwd")).unwrap();
    assert!(users.contains("sutler:"), "{users}");
    run("systemd-tmpfiles", &[&at, "--create", &file("sutler.tmpfiles")]);
    for made in ["etc/sutler/secrets", "usr/lib/sutler/plugins"] {
        assert!(root.path().join(made).is_dir(), "{made}");
    }
}
