//! Nothing is allowed that is not granted, and a refusal names the key that lacks. No daemon is asked for that.

use std::path::Path;
use std::time::Duration;

use sutler_containers::{Error, Grants, Mount, Port, Spec};
use sutler_model::Mode;

use crate::support::{call, containers, grants, spec};

const NOWHERE: &str = "/no/such/socket";

async fn refusal(toml: &str, change: impl FnOnce(&mut Spec)) -> String {
    let mut asked = spec("orders");
    change(&mut asked);
    let world = containers(Path::new(NOWHERE), 1);
    let call = call("acme", Mode::Apply);
    world.run(&call, &grants(toml), &asked, Duration::ZERO).await.unwrap_err().to_string()
}

#[tokio::test]
async fn what_is_not_granted_is_named() {
    let image = "images = ['sutler.test/*']\n";
    let (nothing, reaches): (fn(&mut Spec), &str) = (|_| {}, "socket is not there");
    let port: fn(&mut Spec) = |s| s.ports.push(Port { host: 8080, container: 80 });
    let volume: fn(&mut Spec) = |s| s.mounts.push(Mount { volume: "data".into(), path: "/data".into() });
    let network: fn(&mut Spec) = |s| s.network = Some("kafka".into());
    let unlimited: fn(&mut Spec) = |s| (s.memory_bytes, s.milli_cpus) = (0, 0);
    for (toml, change, said) in [
        ("", nothing, "images = [\"REGISTRY/IMAGE\"]"),
        ("images = ['other.test/*']", nothing, "images = [\"sutler.test/ksml-runner:docker\"]"),
        (image, nothing, reaches),
        ("images = ['sutler.test/*']\nnames = ['ksml-*']", nothing, "names = [\"orders\"]"),
        (image, port, "ports = [\"8080\"]"),
        ("images = ['sutler.test/*']\nports = ['9000-9100']", port, "ports = [\"8080\"]"),
        ("images = ['sutler.test/*']\nports = ['8000-8100']", port, reaches),
        (image, volume, "volumes = true"),
        ("images = ['sutler.test/*']\nvolumes = true", volume, reaches),
        (image, network, "networks = [\"kafka\"]"),
        ("images = ['sutler.test/*']\nnetworks = ['kafka']", network, reaches),
        ("images = ['sutler.test/*']\nmax-memory-mib = 255", nothing, "max-memory-mib = 256"),
        ("images = ['sutler.test/*']\nmax-memory-mib = 256", nothing, reaches),
        ("images = ['sutler.test/*']\nmax-memory-mib = 256", unlimited, "memory without a limit"),
        ("images = ['sutler.test/*']\nmax-milli-cpus = 499", nothing, "max-milli-cpus = 500"),
        ("images = ['sutler.test/*']\nmax-milli-cpus = 500", unlimited, "CPU without a limit"),
    ] {
        let text = refusal(toml, change).await;
        assert!(text.contains(said), "{toml}: {text}");
        assert!(said == reaches || text.contains("[plugins.ksml.grants]"), "{text}");
    }
}

#[tokio::test]
async fn what_nobody_may_grant() {
    let every = "images = ['sutler.test/*']\nnetworks = ['*']\nvolumes = true\nports = ['1-65535']";
    let host: fn(&mut Spec) = |s| s.network = Some("host".into());
    let other: fn(&mut Spec) = |s| s.network = Some("container:other".into());
    let root: fn(&mut Spec) = |s| s.mounts.push(Mount { volume: "data".into(), path: "/".into() });
    let folder: fn(&mut Spec) = |s| s.mounts.push(Mount { volume: "/etc".into(), path: "/data".into() });
    let up: fn(&mut Spec) = |s| s.mounts.push(Mount { volume: "data".into(), path: "/a/../b".into() });
    let zero: fn(&mut Spec) = |s| s.ports.push(Port { host: 0, container: 80 });
    for (change, said) in [
        (host, "never gets the host's network"),
        (other, "never gets the host's network"),
        (root, "is no path in a container"),
        (folder, "is no name of a container or volume"),
        (up, "is no path in a container"),
        (zero, "from 1 to 65535"),
    ] {
        let text = refusal(every, change).await;
        assert!(text.contains(said), "{text}");
    }
}

#[tokio::test]
async fn a_plan_cannot_write() {
    let world = containers(Path::new(NOWHERE), 1);
    let (call, grants) = (call("acme", Mode::Plan), grants("images = ['sutler.test/*']\nvolumes = true"));
    let wrote = [
        world.run(&call, &grants, &spec("orders"), Duration::ZERO).await,
        world.stop(&call, &grants, "orders", Duration::ZERO).await,
        world.remove(&call, &grants, "orders").await,
        world.make_volume(&call, &grants, "data", "").await,
        world.remove_volume(&call, &grants, "data").await,
    ];
    assert!(wrote.iter().all(|w| *w == Err(Error::ReadOnlyCall)), "{wrote:?}");
}

#[test]
fn keys_are_read_as_written() {
    for bad in ["images = ['*.example/a']", "ports = ['0']", "ports = ['9-8']", "privileged = true"] {
        assert!(toml::from_str::<Grants>(bad).is_err(), "{bad}");
    }
    let none = toml::from_str::<Grants>("").unwrap();
    assert_eq!(none, Grants::default());
    assert!(none.images.is_empty() && !none.volumes && !none.public_ports);
}
