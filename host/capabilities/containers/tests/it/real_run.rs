//! On a real daemon: what a container is made of, and that running it ends right wherever it was cut off.

use std::time::Duration;

use sutler_containers::{File, Port, Restart};
use sutler_model::Mode;

use crate::real::site;
use crate::support::{all, call, spec};

fn file(path: &str, contents: &str, secret: bool) -> File {
    File { path: path.into(), contents: contents.into(), secret }
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_containers_are_as_asked_for_and_have_no_more() {
    let Some(s) = site() else { return };
    let acme = call("made", Mode::Apply);
    let mut wanted = spec("made-orders");
    wanted.ports.push(Port { host: 18_080, container: 8080 });
    wanted.files =
        vec![file("/a/new/folder/plain.txt", "plain", false), file("/tmp/secret.txt", "hunter2", true)];
    s.world.run(&acme, &all(), &wanted, Duration::ZERO).await.unwrap();
    let made = s.docker.inspect("made-orders").unwrap();
    let host = &made["HostConfig"];
    assert_eq!((&host["Memory"], &host["MemorySwap"]), (&(256 << 20).into(), &(256 << 20).into()));
    assert_eq!((&host["NanoCpus"], &host["PidsLimit"]), (&500_000_000.into(), &4096.into()));
    assert_eq!((&host["Privileged"], &host["NetworkMode"]), (&false.into(), &"bridge".into()));
    assert_eq!((&host["CapDrop"][0], &host["CapAdd"]), (&"ALL".into(), &serde_json::Value::Null));
    assert_eq!(host["SecurityOpt"][0], "no-new-privileges");
    assert!(host["Binds"].is_null() && host["Mounts"].is_null(), "{host}");
    assert_eq!(host["RestartPolicy"]["Name"], "unless-stopped");
    assert_eq!(host["PortBindings"]["8080/tcp"][0]["HostIp"], "127.0.0.1");
    let labels = &made["Config"]["Labels"];
    assert_eq!(labels["sutler.dev/owner"], acme.owner.hash());
    assert_eq!(
        (&labels["sutler.dev/tenant"], &labels["sutler.dev/plugin"]),
        (&"made".into(), &"ksml".into())
    );
    assert!(!made.to_string().contains("hunter2"));
    let is = |mode, user, text: &str| (mode, user, text.to_owned());
    assert_eq!(s.docker.file("made-orders", "/a/new/folder/plain.txt"), is(0o444, 0, "plain"));
    assert_eq!(s.docker.file("made-orders", "/tmp/secret.txt"), is(0o400, 65532, "hunter2"));
    let (mode, ..) = s.docker.file("made-orders", "/tmp");
    assert_eq!(mode, 0o755, "the image's own folder stays as it was");
    s.world.remove(&acme, &all(), "made-orders").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_running_is_repeatable_from_anywhere() {
    let Some(s) = site() else { return };
    let acme = call("again", Mode::Apply);
    let mut wanted = spec("again-orders");
    wanted.files = vec![file("/conf/a.txt", "one", false)];
    let id = || s.docker.inspect("again-orders").unwrap()["Id"].as_str().unwrap().to_owned();
    let run = |wanted: &sutler_containers::Spec| {
        let (world, acme, wanted) = (s.world.clone(), acme.clone(), wanted.clone());
        async move { world.run(&acme, &all(), &wanted, Duration::from_secs(2)).await.unwrap() }
    };
    run(&wanted).await;
    let first = id();
    assert_eq!(s.world.same(&acme, &all(), &wanted).await, Ok(true));
    run(&wanted).await;
    assert_eq!(id(), first, "an equal spec is left alone");

    // Cut off after it was made: nothing was put in, and it was not started.
    let mut labels = Vec::new();
    let made = s.docker.inspect("again-orders").unwrap();
    for (key, value) in made["Config"]["Labels"].as_object().unwrap() {
        labels.extend(["--label".to_owned(), format!("{key}={}", value.as_str().unwrap())]);
    }
    s.docker.run(&["rm", "--force", "again-orders"]);
    let mut words = vec!["create", "--name", "again-orders", "--env", "KSML_DEFINITIONS=/tmp"];
    words.extend(labels.iter().map(String::as_str));
    words.push(sutler_testkit::docker::RUNNER);
    s.docker.run(&words);
    assert_eq!(s.world.same(&acme, &all(), &wanted).await, Ok(false));
    run(&wanted).await;
    assert_eq!(s.docker.file("again-orders", "/conf/a.txt").2, "one");
    assert_eq!(s.docker.inspect("again-orders").unwrap()["State"]["Running"], true);

    // Stopped, and stopped and taken away, before another one was made.
    let second = id();
    s.docker.run(&["stop", "--time", "1", "again-orders"]);
    run(&wanted).await;
    assert_eq!(
        (id(), s.docker.inspect("again-orders").unwrap()["State"]["Running"].clone()),
        (second.clone(), true.into())
    );
    wanted.files = vec![file("/conf/a.txt", "two", false)];
    s.docker.run(&["stop", "--time", "1", "again-orders"]);
    run(&wanted).await;
    assert_ne!(id(), second, "another spec is another container");
    assert_eq!(s.docker.file("again-orders", "/conf/a.txt").2, "two");
    s.docker.run(&["rm", "--force", "again-orders"]);
    run(&wanted).await;
    assert_eq!(s.world.status(&acme, &all(), "again-orders").await.unwrap().restarts, 0);

    // Its process dies: Docker starts it again, with what was put in.
    s.docker.kill_process("again-orders");
    let status = loop {
        let status = s.world.status(&acme, &all(), "again-orders").await.unwrap();
        if status.restarts == 1 && status.running {
            break status;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!((status.exit_code, status.note.as_str()), (None, "{}"));
    assert_eq!(s.docker.file("again-orders", "/conf/a.txt").2, "two");
    s.world.stop(&acme, &all(), "again-orders", Duration::from_secs(2)).await.unwrap();
    s.world.stop(&acme, &all(), "again-orders", Duration::from_secs(2)).await.unwrap();
    let stopped = s.world.status(&acme, &all(), "again-orders").await.unwrap();
    assert_eq!((stopped.running, stopped.exit_code), (false, Some(0)));
    s.world.remove(&acme, &all(), "again-orders").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn real_docker_a_job_runs_once() {
    let Some(s) = site() else { return };
    let acme = call("job", Mode::Apply);
    let mut wanted = spec("job-orders");
    wanted.restart = Restart::Never;
    wanted.env.push(("KSML_RUN_SECONDS".into(), "1".into()));
    s.world.run(&acme, &all(), &wanted, Duration::ZERO).await.unwrap();
    let ended = loop {
        let status = s.world.status(&acme, &all(), "job-orders").await.unwrap();
        if !status.running {
            break status;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!((ended.exit_code, ended.restarting), (Some(0), false));
    s.world.run(&acme, &all(), &wanted, Duration::ZERO).await.unwrap();
    let still = s.world.status(&acme, &all(), "job-orders").await.unwrap();
    assert_eq!((still.started_at, still.running), (ended.started_at, false), "what has run is not run again");
    s.world.remove(&acme, &all(), "job-orders").await.unwrap();
}
