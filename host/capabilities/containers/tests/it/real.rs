//! On a real daemon: whose containers are whose, volumes, images, logs.

use std::time::Duration;

use sutler_containers::{Containers, Error, LogQuery, Mount, Now, Spec};
use sutler_model::{Fence, Mode};
use sutler_testkit::docker::{RealDocker, real_docker};
use sutler_testkit::registry::Target;
use tokio::task::JoinSet;

use crate::support::{all, call, containers, grants, spec};

pub(crate) struct Site {
    pub(crate) docker: RealDocker,
    pub(crate) world: Containers,
    pub(crate) folder: tempfile::TempDir,
}

/// A client of the real daemon, which has the image.
pub(crate) fn site() -> Option<Site> {
    let docker = real_docker()?;
    let folder = tempfile::tempdir().unwrap();
    docker.load_runner(folder.path());
    Some(Site { world: containers(&docker.socket, 60), docker, folder })
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_owners_with_equal_names_do_not_meet() {
    let Some(s) = site() else { return };
    let (acme, other) = (call("owners-acme", Mode::Apply), call("owners-other", Mode::Apply));
    let wanted = spec("owners-orders");
    s.world.run(&acme, &all(), &wanted, Duration::ZERO).await.unwrap();
    let id = s.docker.inspect("owners-orders").unwrap()["Id"].clone();
    let refused = s.world.run(&other, &all(), &wanted, Duration::ZERO).await;
    assert!(matches!(&refused, Err(Error::Conflict(why)) if why.contains("owners-orders")), "{refused:?}");
    assert_eq!(s.world.status(&other, &all(), "owners-orders").await, Err(Error::NotFound));
    assert_eq!(s.world.stop(&other, &all(), "owners-orders", Duration::ZERO).await, Err(Error::NotFound));
    assert_eq!(s.world.remove(&other, &all(), "owners-orders").await, Err(Error::NotFound));
    assert_eq!(s.world.logs(&other, &all(), "owners-orders", 1).await, Err(Error::NotFound));
    assert_eq!(s.world.same(&other, &all(), &wanted).await, Ok(false));
    assert_eq!(s.world.list(&other, &all()).await, Ok(vec![]));
    let names = |found: Vec<sutler_containers::Status>| found.into_iter().map(|s| s.name).collect::<Vec<_>>();
    assert_eq!(names(s.world.list(&acme, &all()).await.unwrap()), ["owners-orders"]);
    // Nor does anybody take what a person made.
    s.docker.run(&["create", "--name", "owners-by-hand", sutler_testkit::docker::RUNNER]);
    let taken = s.world.run(&acme, &all(), &spec("owners-by-hand"), Duration::ZERO).await;
    assert!(matches!(taken, Err(Error::Conflict(_))), "{taken:?}");

    s.world.make_volume(&acme, &all(), "owners-data", "mine").await.unwrap();
    assert_eq!(s.world.volume(&acme, &all(), "owners-data").await, Ok("mine".into()));
    assert_eq!(s.world.volume(&other, &all(), "owners-data").await, Err(Error::NotFound));
    assert_eq!(s.world.remove_volume(&other, &all(), "owners-data").await, Err(Error::NotFound));
    let mut mounts = spec("owners-thief");
    mounts.mounts.push(Mount { volume: "owners-data".into(), path: "/data".into() });
    let stolen = s.world.run(&other, &all(), &mounts, Duration::ZERO).await;
    assert!(matches!(stolen, Err(Error::Conflict(_))), "{stolen:?}");
    assert_eq!(s.docker.inspect("owners-thief"), None);

    assert_eq!(s.docker.inspect("owners-orders").unwrap()["Id"], id, "it was left alone");
    s.world.remove(&acme, &all(), "owners-orders").await.unwrap();
    assert_eq!(s.world.remove(&acme, &all(), "owners-orders").await, Err(Error::NotFound));
    s.world.remove_volume(&acme, &all(), "owners-data").await.unwrap();
    s.docker.run(&["rm", "owners-by-hand"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_volumes_outlive_containers() {
    let Some(s) = site() else { return };
    let acme = call("volumes", Mode::Apply);
    let mut wanted = spec("volumes-orders");
    wanted.mounts.push(Mount { volume: "volumes-store".into(), path: "/store".into() });
    s.world.run(&acme, &all(), &wanted, Duration::ZERO).await.unwrap();
    let in_use = s.world.remove_volume(&acme, &all(), "volumes-store").await;
    assert!(matches!(in_use, Err(Error::Conflict(_))), "{in_use:?}");
    // Its folder is the user's, who has no rights besides.
    let text = s.docker.run(&["volume", "inspect", "volumes-store"]);
    let place = serde_json::from_str::<serde_json::Value>(&text).unwrap()[0]["Mountpoint"].clone();
    use std::os::unix::fs::MetadataExt as _;
    let folder = std::fs::metadata(place.as_str().unwrap()).unwrap();
    assert_eq!((folder.uid(), folder.gid(), folder.mode() & 0o777), (65532, 65532, 0o750));
    std::fs::write(format!("{}/kept", place.as_str().unwrap()), "state").unwrap();
    wanted.milli_cpus = 400;
    s.world.run(&acme, &all(), &wanted, Duration::ZERO).await.unwrap();
    assert_eq!(s.docker.file("volumes-orders", "/store/kept").2, "state");
    s.world.remove(&acme, &all(), "volumes-orders").await.unwrap();
    // Another note makes it anew.
    s.world.make_volume(&acme, &all(), "volumes-store", "").await.unwrap();
    assert!(std::fs::exists(format!("{}/kept", place.as_str().unwrap())).unwrap());
    s.world.make_volume(&acme, &all(), "volumes-store", "other").await.unwrap();
    assert!(!std::fs::exists(format!("{}/kept", place.as_str().unwrap())).unwrap());
    s.world.remove_volume(&acme, &all(), "volumes-store").await.unwrap();
    assert_eq!(s.world.remove_volume(&acme, &all(), "volumes-store").await, Err(Error::NotFound));
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_pulls_what_is_not_there() {
    let Some(s) = site() else { return };
    let acme = call("pulls", Mode::Apply);
    let registry = std::env::var("SUTLER_REAL_REGISTRY").unwrap();
    let plain = Target { url: format!("http://{registry}"), login: None, ca: None };
    let program = s.folder.path().join("runner/ksml-runner");
    let digest = plain.push_image(&program, "images/pulled", "1").await.unwrap();
    let granted = grants(&format!("images = ['{registry}/*']"));
    for image in [format!("{registry}/images/pulled:1"), format!("{registry}/images/pulled@{digest}")] {
        let mut wanted = spec("pulls-orders");
        wanted.image = image.clone();
        // It may take longer than one call waits.
        let done = loop {
            match s.world.run(&acme, &granted, &wanted, Duration::ZERO).await {
                Err(Error::Other { code: "pulling", message }) => {
                    assert!(message.contains(&image), "{message}")
                }
                other => break other,
            }
        };
        done.unwrap();
        assert_eq!(s.world.status(&acme, &granted, "pulls-orders").await.unwrap().image, image);
    }
    let before = s.docker.inspect("pulls-orders").unwrap()["Id"].clone();
    let mut wanted = spec("pulls-orders");
    wanted.image = format!("{registry}/images/none:1");
    let absent = loop {
        match s.world.run(&acme, &granted, &wanted, Duration::ZERO).await {
            Err(Error::Other { code: "pulling", .. }) => {}
            other => break other,
        }
    };
    let Err(Error::Other { code: "image", message }) = absent else { panic!("{absent:?}") };
    assert!(message.contains("images/none:1") && message.contains("[registries]"), "{message}");
    assert_eq!(
        s.docker.inspect("pulls-orders").unwrap()["Id"],
        before,
        "what runs stays until there is a new one"
    );
    s.world.remove(&acme, &granted, "pulls-orders").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_counts_containers_of_a_tenant() {
    let Some(s) = site() else { return };
    let granted = grants("images = ['sutler.test/*']\nmax-containers = 1");
    let (acme, other) = (call("count-acme", Mode::Apply), call("count-other", Mode::Apply));
    s.world.run(&acme, &granted, &spec("count-1"), Duration::ZERO).await.unwrap();
    s.world.run(&acme, &granted, &spec("count-1"), Duration::ZERO).await.unwrap();
    let one_more = s.world.run(&acme, &granted, &spec("count-2"), Duration::ZERO).await.unwrap_err();
    assert!(one_more.to_string().contains("max-containers = 2"), "{one_more}");
    s.world.run(&other, &granted, &spec("count-3"), Duration::ZERO).await.unwrap();
    for (call, name) in [(&acme, "count-1"), (&other, "count-3")] {
        s.world.remove(call, &granted, name).await.unwrap();
    }

    let (granted, mut tried) = (grants("images = ['sutler.test/*']\nmax-containers = 3"), JoinSet::new());
    for n in 0..8 {
        let (world, acme, granted) = (s.world.clone(), acme.clone(), granted.clone());
        tried.spawn(async move {
            world.run(&acme, &granted, &spec(&format!("count-at-once-{n}")), Duration::ZERO).await
        });
    }
    let ran = tried.join_all().await.into_iter().filter(Result::is_ok).count();
    let there = s.docker.run(&["ps", "--all", "--quiet", "--filter", "name=count-at-once"]).lines().count();
    for n in 0..8 {
        let _ = s.world.remove(&acme, &granted, &format!("count-at-once-{n}")).await;
    }
    assert_eq!((ran, there), (3, 3), "of eight at once");
}

/// What a new container needs is looked for before the old one is taken away.
#[tokio::test(flavor = "multi_thread")]
async fn real_docker_an_update_that_cannot_run_leaves_what_runs() {
    let Some(s) = site() else { return };
    let acme = call("stays", Mode::Apply);
    let granted = grants("images = ['sutler.test/*']\nvolumes = true\nnetworks = ['bridge', 'stays-*']");
    let wanted = spec("stays-orders");
    s.world.run(&acme, &granted, &wanted, Duration::ZERO).await.unwrap();
    s.docker.run(&["volume", "create", "stays-foreign"]);
    let elsewhere = Spec { network: Some("stays-nowhere".into()), ..wanted.clone() };
    let mount = Mount { volume: "stays-foreign".into(), path: "/data".into() };
    let foreign = Spec { mounts: vec![mount], ..wanted.clone() };
    for (changed, why) in [(elsewhere, "no network stays-nowhere"), (foreign, "stays-foreign")] {
        let refused = s.world.run(&acme, &granted, &changed, Duration::ZERO).await.unwrap_err();
        assert!(refused.to_string().contains(why), "{refused}");
        assert_eq!(s.world.same(&acme, &granted, &wanted).await, Ok(true), "{why}");
    }
    s.world.remove(&acme, &granted, "stays-orders").await.unwrap();
    s.docker.run(&["volume", "rm", "stays-foreign"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_logs_are_read_by_their_owner() {
    let Some(s) = site() else { return };
    let acme = call("tail", Mode::Apply);
    s.world.run(&acme, &all(), &spec("tail-orders"), Duration::ZERO).await.unwrap();
    let log = s.world.log(&acme, &all(), "tail-orders").unwrap();
    let Now::Lives { id } = log.now().await.unwrap() else { panic!("it runs") };
    let mut pieces = log.read(&id, &LogQuery { follow: true, ..LogQuery::default() }).await.unwrap();
    use futures::StreamExt as _;
    let (stderr, first) = pieces.next().await.unwrap().unwrap();
    assert!(!stderr && first.ends_with(b"INFO started with 0 definition(s) from /tmp: []\n"), "{first:?}");
    pieces.next().await.unwrap().unwrap();
    let lines = s.world.logs(&acme, &all(), "tail-orders", 1).await.unwrap();
    assert!(lines.len() == 1 && lines[0].starts_with("INFO line "), "{lines:?}");
    let lost =
        sutler_model::Call { fence: Fence::until(std::time::Instant::now()), ..call("tail", Mode::Apply) };
    assert_eq!(s.world.remove(&lost, &all(), "tail-orders").await, Err(Error::TimedOut));
    assert!(s.docker.inspect("tail-orders").is_some());
    s.world.remove(&acme, &all(), "tail-orders").await.unwrap();
    assert_eq!(log.now().await, Ok(Now::Gone));
}
