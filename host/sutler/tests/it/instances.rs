//! Two instances of a control plane on one host, as the example configures them: whatever has equal names never meets.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use sutler_access::hash_token;
use sutler_testkit::checkout;
use sutler_testkit::http::{Answered, Caller, SampleRequest, renewed};

use crate::life::{chart, settings};
use crate::support::{Wanted, World};

/// `examples/instances/sutler.toml` with its registry, its cluster and its tokens as a test has them.
fn example() -> String {
    let file = checkout().join("examples/instances/sutler.toml");
    let mut config = std::fs::read_to_string(file).unwrap().replace("registry.example", "REGISTRY");
    for own in ["[catalog]\ndir = \"plugins\"\n", "[kubernetes]\n"] {
        assert!(config.contains(own), "{own}");
        config = config.replace(own, "");
    }
    for (digit, token) in [("1", "emea-token"), ("2", "apac-token"), ("3", "platform-token")] {
        let hash = format!("sha256:{}", digit.repeat(64));
        assert!(config.contains(&hash));
        config = config.replace(&hash, &hash_token(token));
    }
    config
}

async fn world_of(config: &str) -> World {
    let world = Wanted::new().plugin("ksml").config(config).start().await;
    world.registry.push_chart(&chart(), "charts/ksml").unwrap();
    world
}

fn at(world: &World, base: &str, token: &str) -> Caller {
    Caller::new(format!("{}{base}", world.host.url)).with_token(token)
}

/// The application `orders` of `acme`: the same in every instance.
fn orders() -> SampleRequest {
    SampleRequest::new("deployment/ksml")
}

fn named(id: &str) -> Value {
    renewed(&orders().application("id", id).create(settings()).body())
}

fn refusal(answered: &Answered) -> (u16, &str) {
    (answered.status, answered.json["error"]["code"].as_str().unwrap_or_default())
}

#[track_caller]
fn outputs(answered: &Answered) -> Value {
    assert_eq!(answered.json["outcome"], "succeeded", "{}", answered.text);
    answered.json["resources"][0]["outputs"].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_applications_of_two_instances_never_meet() {
    let world = world_of(&example()).await;
    let (emea, apac) = (at(&world, "/instances/emea", "emea-token"), at(&world, "/apac", "apac-token"));
    // The same request id, too: the tokens are two callers.
    let body = orders().id("r-1").create(settings()).body();
    let (one, two) = (outputs(&emea.apply(&body).await), outputs(&apac.apply(&body).await));
    assert_eq!((&one["namespace"], &two["namespace"]), (&json!("emea-acme"), &json!("apac-acme")));
    assert_ne!(one["release"], two["release"], "a name follows from the instance");
    let set = |namespace: &str| {
        let all = world.cluster.objects().into_iter();
        all.filter(|o| o["kind"] == "StatefulSet" && o["metadata"]["namespace"] == namespace)
            .collect::<Vec<_>>()
    };
    assert_eq!((set("emea-acme").len(), set("apac-acme").len()), (1, 1));
    logs_are_of_one_instance(&emea, &apac).await;
    operations_are_of_one_instance(&world, &emea, &apac).await;
    audit_is_of_one_instance(&world, &emea, &apac).await;
    nothing_is_labelled_by_instance(&world).await;

    let delete = renewed(&orders().delete(settings()).body());
    assert_eq!(emea.apply(&delete).await.json["outcome"], "succeeded");
    let inspect = orders().expect("main", settings(), two).body();
    assert_eq!(emea.post("/inspect", &inspect).await.json["resources"][0]["presence"], "absent");
    assert_eq!(apac.post("/inspect", &inspect).await.json["resources"][0]["presence"], "present");
    assert_eq!((set("emea-acme").len(), set("apac-acme").len()), (0, 1));
}

async fn logs_are_of_one_instance(emea: &Caller, apac: &Caller) {
    let path = "/logs?kind=deployment&type=ksml&tenant=acme&application=orders&environment=prod&tailLines=5";
    let mut seen = Vec::new();
    for instance in [emea, apac] {
        let read = instance.get(path).await;
        assert_eq!(read.status, 200, "{}", read.text);
        let text = instance.send(http::Method::GET, &format!("{path}&timestamps=true"), "", None).await.text;
        let pods: BTreeSet<String> =
            text.lines().filter_map(|l| Some(l.split_once('/')?.0.to_owned())).collect();
        assert!(!pods.is_empty(), "{text}");
        seen.push(pods);
    }
    assert!(seen[0].is_disjoint(&seen[1]), "{seen:?}");
    let other = apac.get(&format!("{path}&instance=emea")).await;
    assert_eq!(refusal(&other), (403, "forbidden"), "{}", other.text);
}

async fn operations_are_of_one_instance(world: &World, emea: &Caller, apac: &Caller) {
    let root = at(world, "", "platform-token");
    let (shared_emea, shared_apac) =
        (at(world, "/instances/emea", "platform-token"), at(world, "/apac", "platform-token"));
    // The platform's own operation in each instance.
    for shared in [&shared_emea, &shared_apac] {
        outputs(&shared.apply(&renewed(&orders().create(settings()).body())).await);
    }
    let of = |list: Answered| -> Vec<(String, Value)> {
        let all = list.json["operations"].as_array().cloned().unwrap_or_default();
        all.iter().map(|o| (o["operationId"].as_str().unwrap().to_owned(), o["instance"].clone())).collect()
    };
    let (in_emea, in_apac) =
        (of(shared_emea.get("/operations").await), of(shared_apac.get("/operations").await));
    assert!(matches!(&in_emea[..], [(_, i)] if *i == "emea"), "{in_emea:?}");
    assert!(matches!(&in_apac[..], [(_, i)] if *i == "apac"), "{in_apac:?}");
    assert_eq!(of(root.get("/operations").await).len(), 2);
    assert_eq!(of(root.get("/operations?instance=apac").await), in_apac);
    assert_eq!(refusal(&shared_apac.get("/operations?instance=emea").await), (403, "forbidden"));
    let id = &in_emea[0].0;
    for path in [format!("/operations/{id}"), format!("/operations/{id}/events")] {
        assert_eq!((root.get(&path).await.status, shared_emea.get(&path).await.status), (200, 200), "{path}");
        // Not 403: that would tell that it is there. Nor has the instance's own token anything to do with it.
        for elsewhere in [&shared_apac, apac, emea] {
            assert_eq!(refusal(&elsewhere.get(&path).await), (404, "not-found"), "{path}");
        }
    }
}

/// Each instance has had two changes by now: by its own token and by the platform's.
async fn audit_is_of_one_instance(world: &World, emea: &Caller, apac: &Caller) {
    let of = |list: Answered| -> Vec<(String, String)> {
        let text = |v: &Value| v.as_str().unwrap_or_default().to_owned();
        let all = list.json["entries"].as_array().unwrap_or_else(|| panic!("{}", list.text));
        all.iter().map(|e| (text(&e["instance"]), text(&e["actor"]))).collect()
    };
    let (own, shared) = ("instances/emea", "control-plane");
    let in_emea = of(emea.get("/audit").await);
    assert_eq!(in_emea, [shared, own].map(|actor| ("emea".to_owned(), actor.to_owned())));
    // The right is each token's own.
    assert_eq!(refusal(&apac.get("/audit").await), (403, "forbidden"));
    let platform = at(world, "/apac", "platform-token");
    let in_apac = of(platform.get("/audit").await);
    assert_eq!(in_apac, [shared, "instances/apac"].map(|actor| ("apac".to_owned(), actor.to_owned())));
    assert_eq!(of(at(world, "", "platform-token").get("/audit").await).len(), 4);
    assert_eq!(refusal(&emea.get("/audit?instance=apac").await), (403, "forbidden"));
    assert_eq!(refusal(&platform.get("/audit?instance=emea").await), (403, "forbidden"));
}

async fn nothing_is_labelled_by_instance(world: &World) {
    let metrics = world.admin().get("/metrics").await.text;
    assert!(
        metrics.contains("route=\"/apply\"") && metrics.contains("route=\"/operations/{id}\""),
        "{metrics}"
    );
    for name in ["emea", "apac", "acme", "unmatched"] {
        assert!(!metrics.contains(name), "{name} in {metrics}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_for_the_routes_of_its_instance() {
    let world = world_of(&example()).await;
    let plan = |instance: Option<&str>, tenant: &str| {
        let request = orders().application("tenant", tenant).create(settings());
        instance.map_or_else(|| request.clone(), |i| request.clone().application("instance", i)).body()
    };
    for (base, token, instance, tenant, expected) in [
        ("/instances/emea", "emea-token", None, "acme", 200),
        ("/instances/emea", "emea-token", Some("emea"), "acme", 200),
        ("/instances/emea", "emea-token", Some("apac"), "acme", 403),
        ("/instances/emea", "emea-token", None, "initech", 403),
        ("/instances/emea", "apac-token", None, "acme", 403),
        ("/instances/emea", "platform-token", None, "globex", 200),
        ("/instances/emea", "platform-token", None, "initech", 403),
        ("/instances/emea", "no-token", None, "acme", 401),
        ("/apac", "apac-token", None, "initech", 200),
        ("/apac", "emea-token", Some("emea"), "acme", 403),
        ("/instances/apac", "apac-token", None, "acme", 404),
        ("/instances/apac", "platform-token", None, "acme", 404),
        ("/instances/unheard-of", "platform-token", None, "acme", 403),
        ("", "emea-token", Some("emea"), "acme", 403),
        ("", "platform-token", Some("emea"), "acme", 200),
        ("", "platform-token", Some("emea"), "initech", 403),
        ("", "platform-token", Some("us"), "acme", 403),
        ("", "platform-token", None, "acme", 403),
    ] {
        let answered = at(&world, base, token).post("/plan", &plan(instance, tenant)).await;
        let case = format!("{base} {token} {instance:?} {tenant}: {}", answered.text);
        assert_eq!(answered.status, expected, "{case}");
        assert!(expected != 200 || answered.json["outcome"] == "planned", "{case}");
    }
    for (base, path, token, expected) in [
        ("", "/handles", "emea-token", 403),
        ("", "/operations", "emea-token", 403),
        ("/instances/emea", "/handles", "emea-token", 200),
        ("/apac", "/handles", "emea-token", 403),
        ("/apac", "/healthz", "apac-token", 404),
        ("/apac", "/openapi.json", "no-token", 200),
    ] {
        assert_eq!(at(&world, base, token).get(path).await.status, expected, "{base}{path} {token}");
    }
    let document = at(&world, "/apac", "").get("/openapi.json").await.json;
    assert_eq!(document["servers"][0]["url"], "/apac", "{document}");
    assert!(document["paths"]["/apply"].is_object() && document["paths"]["/healthz"].is_null());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_plugin_is_told_and_granted_ends_at_the_instance() {
    // The plugin's own grants would allow it: emea's namespaces are granted to it.
    let config = example().replace("namespace = \"apac-{tenant}\"\n", "namespace = \"emea-{tenant}\"\n");
    let world = world_of(&config).await;
    let apac = at(&world, "/apac", "apac-token");
    let before = world.cluster.resource_version();
    let refused = apac.apply(&renewed(&orders().create(settings()).body())).await;
    assert_eq!(refused.json["code"], "not-granted", "{}", refused.text);
    let reason = refused.json["reason"].as_str().unwrap();
    assert!(reason.contains("[instances.apac]") && reason.contains("namespaces = "), "{reason}");
    assert_eq!(world.cluster.resource_version(), before);
    outputs(&at(&world, "/instances/emea", "emea-token").apply(&named("orders")).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quota_refuses_what_would_be_over_it() {
    let world = world_of(&example()).await;
    let emea = at(&world, "/instances/emea", "emea-token");
    let sized = |id: &str, size: &str, replicas: u32, running: bool| {
        let mut settings = settings();
        settings["size"] = json!(size);
        settings["replicas"] = json!(replicas);
        settings["running"] = json!(running);
        renewed(&orders().application("id", id).change("main", "update", settings).body())
    };
    outputs(&emea.apply(&named("one")).await);
    // Two at once, and one place.
    let (two, three) = (named("two"), named("three"));
    let (two, three) = tokio::join!(emea.apply(&two), emea.apply(&three));
    let (kept, over) = if two.status == 200 { ("two", three) } else { ("three", two) };
    assert_eq!(refusal(&over), (403, "quota-exceeded"), "{}", over.text);
    let quota = json!({"of": "tenant", "measure": "applications", "used": 2, "asked": 1, "limit": 2});
    assert_eq!(over.json["error"]["quota"], quota);
    assert!(!over.headers.contains_key("retry-after"), "waiting frees nothing");
    let planned = emea.post("/plan", &named("four")).await;
    assert_eq!(planned.json["error"]["quota"], quota, "{}", planned.text);
    // Others have their own.
    let globex = renewed(&orders().application("tenant", "globex").create(settings()).body());
    outputs(&emea.apply(&globex).await);
    outputs(&at(&world, "/apac", "apac-token").apply(&named("four")).await);

    // 500 for each by now; 4 replicas of S would be 4000.
    let large = emea.apply(&sized("one", "S", 4, true)).await;
    let quota = json!({"of": "tenant", "measure": "milli-cpus", "used": 1000, "asked": 3500, "limit": 2000});
    assert_eq!((large.status, &large.json["error"]["quota"]), (403, &quota), "{}", large.text);
    outputs(&emea.apply(&sized("one", "XS", 3, true)).await);
    assert_eq!(emea.post("/plan", &sized(kept, "S", 1, true)).await.status, 403);
    outputs(&emea.apply(&sized("one", "XS", 3, false)).await);
    outputs(&emea.apply(&sized(kept, "S", 1, true)).await);
    assert_eq!(
        refusal(&emea.post("/plan", &named("four")).await),
        (403, "quota-exceeded"),
        "stopped is there"
    );

    let delete = renewed(&orders().application("id", "one").delete(settings()).body());
    assert_eq!(emea.apply(&delete).await.json["outcome"], "succeeded");
    outputs(&emea.apply(&named("four")).await);
}

/// A token for every instance is not one for an instance that nobody configured: no quota and no namespace would hold.
#[tokio::test(flavor = "multi_thread")]
async fn a_misspelt_instance_is_none() {
    let all = example().replace("instances = [\"emea\", \"apac\"]", "instances = [\"*\"]");
    assert_ne!(all, example());
    let world = world_of(&all).await;
    let before = world.cluster.resource_version();
    let body = renewed(&orders().create(settings()).body());
    let in_body = renewed(&orders().application("instance", "emeaa").create(settings()).body());
    for (base, body) in [("/instances/emeaa", &body), ("", &in_body)] {
        let refused = at(&world, base, "platform-token").post("/apply", body).await;
        assert_eq!(refusal(&refused), (404, "not-found"), "{}", refused.text);
        assert!(refused.text.contains("there is no instance \\\"emeaa\\\" here"), "{}", refused.text);
    }
    assert_eq!(world.cluster.resource_version(), before);
    outputs(&at(&world, "/instances/emea", "platform-token").apply(&body).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plugin_that_cannot_use_its_config_names_the_table() {
    let config =
        example().replace("namespace = \"apac-{tenant}\"\n", "namespace = \"apac-{tenant}\"\nchrat = 1\n");
    let world = world_of(&config).await;
    let body = renewed(&orders().create(settings()).body());
    let refused = at(&world, "/apac", "apac-token").post("/plan", &body).await;
    assert_eq!(refused.json["code"], "invalid-config", "{}", refused.text);
    let reason = refused.json["reason"].as_str().unwrap();
    assert!(
        reason.ends_with("correct [instances.apac] config.ksml (over [plugins.ksml.config])"),
        "{reason}"
    );
}
