//! The example of a runtime provisioner, and the environment variables of the component that it follows.

use std::process::{Command, Output};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sutler_access::hash_token;
use sutler_testkit::http::{Caller, SampleRequest};
use sutler_testkit::registry::{Auth, RegistryOptions};
use sutler_testkit::{SutlerProcess, checkout, guest, sutler_binary};

use crate::life::{chart, settings};
use crate::support::Wanted;

/// `examples/runtime-provisioner/sutler.toml` with its registry, its cluster and its tokens as a test has them.
fn example() -> String {
    let file = checkout().join("examples/runtime-provisioner/sutler.toml");
    let config = std::fs::read_to_string(file).unwrap();
    let (before, rest) = config.split_once("[registries.").unwrap();
    assert!(before.contains("[kubernetes]"), "{before}");
    // The test has those tables already.
    let (_, rest) = rest.split_once("\n[plugins.ksml.config]").unwrap();
    let mut config = format!("[plugins.ksml.config]{rest}").replace("registry.example", "REGISTRY");
    config = config.replace("version = \"1.2.3\"", "");
    for (digit, token) in [("1", "emea-token"), ("2", "apac-token")] {
        let hash = format!("sha256:{}", digit.repeat(64));
        assert!(config.contains(&hash));
        config = config.replace(&hash, &hash_token(token));
    }
    config
}

#[tokio::test(flavor = "multi_thread")]
async fn the_example_serves_applications_and_logs() {
    let world = Wanted::new().plugin("ksml").plugin("kafka-connect").config(&example()).start().await;
    world.registry.push_chart(&chart(), "charts/ksml").unwrap();
    let at = |instance: &str, token: &str| {
        Caller::new(format!("{}/instances/{instance}", world.host.url)).with_token(token)
    };
    for (instance, token) in [("emea", "emea-token"), ("apac", "apac-token")] {
        let caller = at(instance, token);
        let body = SampleRequest::new("deployment/ksml").create(settings()).body();
        let answered = caller.apply(&body).await;
        assert_eq!(answered.json["outcome"], "succeeded", "{}", answered.text);
        let outputs = &answered.json["resources"][0]["outputs"];
        assert_eq!(outputs["namespace"], format!("{instance}-acme"));
    }
    let handles = at("emea", "emea-token").get("/handles").await;
    assert!(handles.text.contains("kafka-connect") && handles.text.contains("ksml"), "{}", handles.text);
    let logs = "/logs?kind=tool&type=kafka-connect&tenant=acme&application=orders&environment=prod";
    let read = at("emea", "emea-token").get(logs).await;
    assert_eq!((read.status, read.text.as_str()), (200, ""), "no worker is there");
    // apac's namespaces do not hold Kafka Connect's.
    let read = at("apac", "apac-token").get(logs).await;
    assert_eq!(read.status, 403, "{}", read.text);
    // The other instance's token opens nothing.
    assert_eq!(at("emea", "apac-token").get("/handles").await.status, 403);
}

/// Without any table about KSML: the variables alone make a provisioner of it.
#[tokio::test(flavor = "multi_thread")]
async fn the_predecessors_variables_are_enough() {
    let auth = Auth::Basic { user: "robot".into(), password: "hunter2".into() };
    let options = RegistryOptions { auth, ..RegistryOptions::default() };
    let site = Wanted::new().plugin("ksml").registry(options, "plain-http = true").site().await;
    site.registry.push_chart(&chart(), "charts/ksml").unwrap();
    let values = site.folder.path().join("values.yaml");
    std::fs::write(&values, "podLabels: {from: custom-values-file}\n").unwrap();
    let url = format!("oci://{}/charts", site.registry.host());
    let variables = [
        ("REGISTRY_URL", url.as_str()),
        ("CHART_NAME", "ksml"),
        ("NAMESPACE", "default"),
        ("REGISTRY_AUTH_ENABLED", "true"),
        ("REGISTRY_USERNAME", "robot"),
        ("REGISTRY_PASSWORD", "hunter2"),
        ("CUSTOM_VALUES_FILE", values.to_str().unwrap()),
        ("BASIC_AUTH_ENABLED", "true"),
    ];
    let host = SutlerProcess::start(&site.config, &variables).await;
    let body = SampleRequest::new("deployment/ksml").create(settings()).body();
    let answered = Caller::new(&host.url).apply(&body).await;
    assert_eq!(answered.json["outcome"], "succeeded", "{}", answered.text);
    assert_eq!(answered.json["resources"][0]["outputs"]["namespace"], "default");
    let sets: Vec<_> = site.cluster.objects().into_iter().filter(|o| o["kind"] == "StatefulSet").collect();
    assert_eq!(sets.len(), 1);
    let log = host.log_lines().join("\n");
    for (name, _) in variables.iter().filter(|(name, _)| *name != "REGISTRY_AUTH_ENABLED") {
        assert!(log.contains(&format!("\"variable\":\"{name}\"")), "{name}: {log}");
    }
    assert!(!log.contains("hunter2"), "{log}");
    drop(host);

    // The file has the last word.
    let other = format!("{}\n[plugins.ksml.config]\nnamespace = \"elsewhere\"\n", site.config);
    let host = SutlerProcess::start(&other, &variables).await;
    let refused = Caller::new(&host.url)
        .post("/plan", &SampleRequest::new("deployment/ksml").create(settings()).body())
        .await;
    assert!(refused.text.contains("elsewhere"), "the grants are for that namespace alone: {}", refused.text);
    drop(host);

    let insecure = [&variables[..], &[("INSECURE_SKIP_TLS_VERIFY", "true")]].concat();
    let ended = SutlerProcess::try_start(&site.config, &insecure).await.map(drop).unwrap_err().to_string();
    assert!(ended.contains("INSECURE_SKIP_TLS_VERIFY") && ended.contains("ca in [registries."), "{ended}");
    assert!(!ended.contains("hunter2"), "{ended}");
}

fn check(config: &str, variables: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("sutler.toml");
    std::fs::write(&file, config).unwrap();
    let mut sutler = Command::new(sutler_binary());
    sutler.args(["config", "check", "--config"]).arg(file).envs(variables.iter().copied()).output().unwrap()
}

/// In base64, until the file names one: then a host that still has the variable starts as well, and the file counts.
#[tokio::test(flavor = "multi_thread")]
async fn the_registrys_authority_comes_from_its_variable_or_the_file() {
    let options = RegistryOptions { tls: true, ..RegistryOptions::default() };
    let site = Wanted::new().plugin("ksml").registry(options, "").site().await;
    site.registry.push_chart(&chart(), "charts/ksml").unwrap();
    let url = format!("oci://{}/charts", site.registry.host());
    let ca = STANDARD.encode(site.registry.ca_pem().unwrap());
    let other = STANDARD.encode("no authority at all");
    let variables = |ca| {
        let base = [("REGISTRY_URL", url.as_str()), ("CHART_NAME", "ksml"), ("CHART_VERSION", "0.1.0")];
        let more =
            [("NAMESPACE", "default"), ("DISTRIBUTED_TRACING_ENABLED", "true"), ("CLIENT_CA_FILE", ca)];
        [base, more].concat()
    };
    let table = format!("[registries.\"{}\"]\n", site.registry.host());
    let file = site.folder.path().join("ca.pem");
    let named = site.config.replace(&table, &format!("{table}ca = {file:?}\n"));
    assert_ne!(named, site.config);
    let body = SampleRequest::new("deployment/ksml").create(settings()).body();
    for (config, ca, trusted) in
        [(&site.config, ca.as_str(), true), (&named, other.as_str(), true), (&site.config, "", false)]
    {
        let variables = variables(ca);
        let host = SutlerProcess::start(config, &variables).await;
        let planned = Caller::new(&host.url).post("/plan", &body).await;
        assert_eq!(planned.json["changes"][0]["action"] == "create", trusted, "{}", planned.text);
        assert_eq!(planned.text.contains("UnknownIssuer"), !trusted, "{}", planned.text);
        let checked = check(config, &variables);
        assert!(checked.status.success(), "{checked:?}");
        let log = host.log_lines().join("\n");
        let said = String::from_utf8([checked.stdout, checked.stderr].concat()).unwrap();
        // What the file overrides is not told of.
        let overridden = |name: &str| name == "CLIENT_CA_FILE" && *config == named;
        assert!(!(overridden("CLIENT_CA_FILE") && said.contains("CLIENT_CA_FILE")), "{said}");
        let counts = |(name, value): &&(&str, &str)| !value.is_empty() && !overridden(name);
        for (name, value) in variables.iter().filter(counts) {
            assert!(log.contains(&format!("\"variable\":\"{name}\"")), "{name}: {log}");
            assert!(said.contains(&format!("the environment variable {name} is")), "{name}: {said}");
            assert!(*name != "CLIENT_CA_FILE" || !(said.contains(value) || log.contains(value)), "{said}");
        }
    }
}

/// Containers need no cluster, whatever the predecessor's variables say.
#[test]
fn the_variables_leave_docker_alone() {
    let plugins = tempfile::tempdir().unwrap();
    std::fs::copy(guest("ksml"), plugins.path().join("ksml.wasm")).unwrap();
    let config = format!(
        "[catalog]\ndir = {:?}\n[containers]\n[plugins.ksml.config]\ntarget = \"docker\"\nimage = \"r.example/ksml:1\"\n",
        plugins.path()
    );
    let variables = [
        ("REGISTRY_URL", "oci://r.example/charts"),
        ("CHART_NAME", "ksml"),
        ("NAMESPACE", "apps"),
        ("KUBECONFIG", "/nowhere"),
    ];
    let checked = check(&config, &variables);
    let said = String::from_utf8([checked.stdout, checked.stderr].concat()).unwrap();
    assert!(checked.status.success() && said.contains("no cluster"), "{said}");
    assert!(said.contains("the environment variable NAMESPACE is"), "{said}");
}

#[test]
fn a_password_in_the_registrys_address_is_never_shown() {
    let plugins = tempfile::tempdir().unwrap();
    let config = format!("[catalog]\ndir = {:?}\n", plugins.path());
    let url = ("REGISTRY_URL", "oci://user:hunter2@r.example/charts");
    let checked = check(&config, &[url, ("CHART_NAME", "ksml"), ("NAMESPACE", "apps")]);
    let said = String::from_utf8([checked.stdout, checked.stderr].concat()).unwrap();
    assert!(!checked.status.success() && !said.contains("hunter2"), "{said}");
    assert!(said.contains("set REGISTRY_USERNAME and REGISTRY_PASSWORD"), "{said}");
}
