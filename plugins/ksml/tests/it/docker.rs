//! Applications as containers.

use serde_json::{Value, json};
use sutler_sdk::Action::{Create, Delete, Update};
use sutler_sdk::containers::Restart;
use sutler_sdk::testing::{Session, reset, world};

use crate::{NONE, settings, with};

fn session() -> Session<ksml::Ksml> {
    reset(json!({
        "target": "docker", "image": "registry.example/ksml:9", "network": "kafka",
        "env": {"JAVA_TOOL_OPTIONS": "-Xmx1g"}, "grace-seconds": 5,
    }));
    Session::new("orders", "prod", Some("acme"))
}

fn sasl(password: &str) -> Value {
    with(settings(), json!({"kafka": {"security": {"type": "sasl", "username": "u", "password": password}}}))
}

/// The one container's file.
fn file(path: &str) -> Option<(String, bool)> {
    world(|w| {
        let container = w.containers.values().next()?;
        let file = container.spec.files.iter().find(|f| f.path == path)?;
        Some((String::from_utf8(file.contents.clone()).unwrap(), file.secret))
    })
}

fn runner() -> Value {
    serde_json::from_str(&file("/ksml/config/ksml-runner.yaml").unwrap().0).unwrap()
}

#[test]
fn it_comes_settles_stays_and_goes() {
    let mut s = session();
    let plan = s.plan(Create, settings(), NONE).unwrap();
    assert_eq!((&plan["action"], &plan["steps"]), (&json!("Action::Create"), &json!(["release", "ready"])));
    let made = s.apply(Create, settings(), NONE).unwrap();
    assert_eq!(
        (&made["phase"], &made["ready"], &made["chart"], &made["chartVersion"], &made["revision"]),
        (&json!("Running"), &json!(true), &json!("registry.example/ksml"), &json!("9"), &json!(1))
    );
    world(|w| {
        let spec = &w.containers.values().next().unwrap().spec;
        assert_eq!((spec.memory_bytes, spec.milli_cpus), (4 << 30, 1000));
        assert_eq!((spec.restart, spec.network.as_deref()), (Restart::UnlessStopped, Some("kafka")));
        assert_eq!(spec.command, ["/ksml/config/ksml-runner.yaml"]);
        assert_eq!((spec.env.len(), spec.env[0].name.as_str()), (1, "JAVA_TOOL_OPTIONS"));
        assert_eq!(w.volumes.len(), 1);
    });
    assert_eq!(s.apply(Create, settings(), NONE).unwrap(), made, "repeated");
    assert_eq!(s.plan(Update, settings(), settings()).unwrap()["action"], "Action::NoOp");
    let seen = s.inspect(settings(), made.clone()).unwrap();
    assert_eq!((&seen["settings"], &seen["outputs"], &seen["differences"]), (&settings(), &made, &json!([])));
    let at = s.locate(settings()).unwrap();
    assert_eq!(
        (at[0].cluster.as_deref(), at[0].container.as_deref()),
        (Some("docker:"), made["release"].as_str())
    );
    let gone = s.plan(Delete, NONE, settings()).unwrap();
    assert!(gone["warnings"].to_string().contains("-store"), "{gone}");
    s.apply(Delete, NONE, settings()).unwrap();
    assert_eq!(s.apply(Delete, NONE, NONE).unwrap(), json!({}), "gone already");
    assert!(world(|w| w.containers.is_empty() && w.volumes.is_empty() && w.releases.is_empty()));
    assert_eq!(s.inspect(settings(), NONE).unwrap()["presence"], "Presence::Absent");
}

#[test]
fn what_the_chart_would_mount_is_put_in() {
    let mut s = session();
    let all = with(
        sasl("pw"),
        json!({
            "schemas": {"Reading.avsc": "{}"}, "logging": {"level": "WARN", "loggers": {"org.apache.kafka": "ERROR"}},
            "metrics": {"enabled": true, "port": 9100}, "errorHandling": {"consume": {"log": true, "stopOnError": false}},
            "schemaRegistry": {"url": "http://registry:8081"},
        }),
    );
    s.apply(Create, all, NONE).unwrap();
    let runner = runner();
    let ksml = &runner["ksml"];
    assert_eq!(ksml["definitions"], json!({"main": "main.yaml"}));
    assert_eq!(ksml["applicationServer"], json!({"enabled": true, "host": "0.0.0.0", "port": 8080}));
    assert_eq!(ksml["prometheus"], json!({"enabled": true, "host": "0.0.0.0", "port": 9100}));
    assert_eq!(ksml["errorHandling"]["consume"], json!({"log": true, "handler": "continueOnFail"}));
    assert_eq!(ksml["notations"]["avro"]["schemaRegistry"], "confluent");
    assert_eq!(
        (&ksml["schemaDirectory"], &ksml["storageDirectory"]),
        (&json!("/ksml/schemas"), &json!("/ksml-store"))
    );
    assert_eq!(runner["kafka"]["bootstrap.servers"], "kafka:9092");
    assert_eq!(file("/ksml/definitions/main.yaml"), Some(("streams: {}\n".into(), false)));
    assert_eq!(file("/ksml/schemas/Reading.avsc"), Some(("{}".into(), false)));
    let (login, secret) = file("/ksml-secrets/kafka.properties").unwrap();
    assert!(secret && login.contains("password=\"pw\""), "{login}");
    let (logging, _) = file("/ksml/logging/logback.xml").unwrap();
    assert!(
        logging.contains("root level=\"WARN\"")
            && logging.contains("name=\"org.apache.kafka\" level=\"ERROR\"")
    );
    assert!(world(|w| w.containers.values().all(|c| {
        c.spec.env.iter().any(|v| v.name == "LOGBACK_CONFIGURATION_FILE") && !c.status.note.contains("pw")
    })));
}

#[test]
fn secrets_are_compared_and_never_told() {
    let mut s = session();
    s.apply(Create, sasl("TOP-SECRET"), NONE).unwrap();
    assert_eq!(s.plan(Update, sasl("TOP-SECRET"), NONE).unwrap()["action"], "Action::NoOp");
    let other = s.plan(Update, sasl("OTHER"), NONE).unwrap();
    assert_eq!(other["action"], "Action::Update");
    let larger = s.plan(Update, with(sasl("TOP-SECRET"), json!({"size": "M"})), NONE).unwrap();
    let drift = s.inspect(sasl("OTHER"), NONE).unwrap();
    assert_eq!(drift["differences"][0]["at"], "/kafka/security/password");
    for answer in [&other, &larger, &drift, &s.inspect(sasl("TOP-SECRET"), NONE).unwrap()] {
        assert!(!answer.to_string().contains("TOP-SECRET"), "{answer}");
    }
    let mut kept = sasl("");
    kept["kafka"]["security"].as_object_mut().unwrap().remove("password");
    assert_eq!(s.inspect(kept, NONE).unwrap()["differences"], json!([]), "a caller that keeps none");
}

#[test]
fn stopped_and_started() {
    let mut s = session();
    s.apply(Create, settings(), NONE).unwrap();
    let still = with(settings(), json!({"running": false}));
    assert_eq!(s.apply(Update, still.clone(), settings()).unwrap()["phase"], "Stopped");
    assert!(world(|w| w.containers.is_empty() && w.volumes.len() == 2));
    assert_eq!(s.plan(Update, still.clone(), still.clone()).unwrap()["action"], "Action::NoOp");
    assert_eq!(s.inspect(still.clone(), NONE).unwrap()["differences"], json!([]));
    assert_eq!(s.apply(Update, settings(), still).unwrap()["phase"], "Running");
    assert!(world(|w| w.containers.len() == 1 && w.volumes.len() == 1));
}

#[test]
fn a_container_that_was_stopped_by_hand_is_started() {
    let mut s = session();
    s.apply(Create, settings(), NONE).unwrap();
    world(|w| {
        let state = &mut w.containers.values_mut().next().unwrap().status.state;
        (state.running, state.exit_code) = (false, Some(137));
    });
    let seen = s.inspect(settings(), NONE).unwrap();
    assert_eq!(
        (&seen["differences"][0]["at"], &seen["outputs"]["phase"]),
        (&json!("/container/running"), &json!("Failed"))
    );
    s.apply(Update, settings(), settings()).unwrap();
    assert_eq!(s.inspect(settings(), NONE).unwrap()["differences"], json!([]));
}

#[test]
fn one_that_is_not_well_has_failed() {
    for (health, exit) in [(Some("unhealthy"), None), (None, Some(3))] {
        let mut s = session();
        s.apply(Create, settings(), NONE).unwrap();
        world(|w| {
            let state = &mut w.containers.values_mut().next().unwrap().status.state;
            (state.running, state.health, state.exit_code) =
                (exit.is_none(), health.map(str::to_owned), exit);
        });
        let seen = s.inspect(settings(), NONE).unwrap();
        assert_eq!((&seen["outputs"]["phase"], &seen["outputs"]["ready"]), (&json!("Failed"), &json!(false)));
    }
}

#[test]
fn a_job() {
    let mut s = session();
    let job = with(settings(), json!({"restartPolicy": "never"}));
    s.apply(Create, job.clone(), NONE).unwrap();
    world(|w| {
        let c = w.containers.values_mut().next().unwrap();
        assert_eq!(c.spec.restart, Restart::Never);
        (c.status.state.running, c.status.state.exit_code) = (false, Some(0));
    });
    let seen = s.inspect(job.clone(), NONE).unwrap();
    assert_eq!((&seen["outputs"]["phase"], &seen["differences"]), (&json!("Completed"), &json!([])));
    assert_eq!(s.plan(Update, job.clone(), job.clone()).unwrap()["action"], "Action::NoOp");
    let other = with(job.clone(), json!({"size": "M"}));
    assert!(s.plan(Update, other, job).unwrap()["warnings"].to_string().contains("runs again"));
}

#[test]
fn what_docker_cannot_do() {
    let s = session();
    for (over, said) in [
        (json!({"replicas": 2}), "one container"),
        (json!({"networkPolicy": {"enabled": true}}), "network policies"),
        (json!({"metrics": {"enabled": true, "serviceMonitor": {"enabled": true}}}), "ServiceMonitors"),
    ] {
        let refused = s.plan(Create, with(settings(), over), NONE).unwrap_err();
        assert!(refused.code == "unsupported-settings" && refused.reason.contains(said), "{refused:?}");
    }
    let warned = s.plan(Create, with(settings(), json!({"storeSize": "2Gi"})), NONE).unwrap();
    assert!(warned["warnings"].to_string().contains("not enforced"), "{warned}");
}

#[test]
fn cancelling_goes_back_and_keeps_what_is_stored() {
    let mut s = session();
    s.apply(Create, settings(), NONE).unwrap();
    s.cancel(&[("main", Create, settings(), NONE)]).unwrap();
    assert!(world(|w| w.containers.is_empty() && w.volumes.len() == 1));
    s.apply(Create, settings(), NONE).unwrap();
    let larger = with(settings(), json!({"size": "M"}));
    s.apply(Update, larger.clone(), settings()).unwrap();
    s.cancel(&[("main", Update, larger, settings())]).unwrap();
    assert_eq!(s.inspect(settings(), NONE).unwrap()["differences"], json!([]));
    let still = with(settings(), json!({"running": false}));
    s.apply(Update, still.clone(), settings()).unwrap();
    assert_eq!(s.cancel(&[("main", Update, still, settings())]).unwrap_err().code, "cannot-cancel");
}

#[test]
fn the_configuration_is_of_one_target() {
    for (config, said) in [
        (json!({"target": "docker"}), "needs image"),
        (json!({"chart": "oci://r.example/ksml", "network": "kafka"}), "are for target"),
        (json!({"target": "podman", "image": "a"}), "podman"),
    ] {
        reset(config);
        let s = Session::<ksml::Ksml>::new("orders", "prod", Some("acme"));
        let refused = s.plan(Create, settings(), NONE).unwrap_err();
        assert!(refused.reason.contains(said), "{refused:?}");
    }
}

#[test]
fn what_cannot_be_had_for_the_new_one_leaves_the_old_one() {
    let mut s = session();
    s.apply(Create, settings(), NONE).unwrap();
    // As it is where the volume is somebody else's by now.
    world(|w| w.refused.insert("make-volume".into()));
    s.apply(Update, with(settings(), json!({"size": "M"})), settings()).unwrap_err();
    assert!(world(|w| w.containers.values().all(|c| c.spec.milli_cpus == 1000 && c.status.state.running)));
    assert_eq!(s.inspect(settings(), NONE).unwrap()["differences"], json!([]));
}

#[test]
fn equal_applications_have_names_of_their_own_in_kafka() {
    let mut s = session();
    let made = s.apply(Create, settings(), NONE).unwrap();
    assert_eq!(runner()["kafka"]["application.id"], made["release"]);
}
