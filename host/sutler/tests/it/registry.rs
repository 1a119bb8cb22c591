//! Registries that fail: what the caller hears.

use serde_json::json;
use sutler_testkit::SutlerProcess;
use sutler_testkit::http::Caller;
use sutler_testkit::registry::{Auth, Misbehaviour, RegistryOptions};

use crate::life::{KSML, chart, request, settings};
use crate::support::{Wanted, World};

async fn plan(world: &World) -> serde_json::Value {
    let answered = world.post("/plan", &request().create(settings()).body()).await;
    assert_eq!(answered.status, 200, "{}", answered.text);
    answered.json
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_a_registry_is_said() {
    let world = Wanted::new().plugin("ksml").config(KSML).start().await;
    let gone = plan(&world).await;
    assert_eq!(gone["outcome"], "failed", "{gone}");
    assert!(gone["reason"].as_str().unwrap().contains("charts/ksml"), "{gone}");
    world.registry.push_chart(&chart(), "charts/ksml").unwrap();
    for (how, word) in [
        (Misbehaviour::WrongDigest, "digest"),
        (Misbehaviour::DropBlob, "404 for the content"),
        (Misbehaviour::Status(503), "503"),
        (Misbehaviour::NotARegistry, "registry"),
    ] {
        world.registry.misbehave(how.clone());
        let answer = plan(&world).await;
        assert_eq!(answer["outcome"], "failed", "{how:?}: {answer}");
        assert!(answer["reason"].as_str().unwrap().contains(word), "{how:?}: {answer}");
    }
    world.registry.behave();
    assert_eq!(plan(&world).await["outcome"], "planned");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_is_wrong_is_said_and_never_shown() {
    let auth = || Auth::Basic { user: "reader".into(), password: "right-password".into() };
    let table = "ca = \"FOLDER/ca.pem\"\nusername = \"reader\"\npassword = \"wrong-password\"\n";
    let options = RegistryOptions { auth: auth(), tls: true, ..RegistryOptions::default() };
    let world = Wanted::new().plugin("ksml").config(KSML).registry(options.clone(), table).start().await;
    world.registry.push_chart(&chart(), "charts/ksml").unwrap();
    let answer = plan(&world).await;
    let reason = answer["reason"].as_str().unwrap();
    assert_eq!(answer["outcome"], "failed");
    assert!(reason.contains("401") || reason.contains("refuse"), "{reason}");
    assert!(
        !answer.to_string().contains("wrong-password")
            && !world.host.log_lines().join("\n").contains("wrong-password")
    );
    let right = table.replace("wrong", "right");
    let world = Wanted::new().plugin("ksml").config(KSML).registry(options, &right).start().await;
    world.registry.push_chart(&chart(), "charts/ksml").unwrap();
    assert_eq!(plan(&world).await["outcome"], "planned");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_users_credentials_are_used_only_where_the_configuration_says_so() {
    use std::os::unix::fs::PermissionsExt as _;
    for (key, outcome) in [("", "failed"), ("\n[helm]\nuser-credentials = true\n", "planned")] {
        let auth = Auth::Basic { user: "reader".into(), password: "right-password".into() };
        let options = RegistryOptions { auth, ..RegistryOptions::default() };
        let wanted = Wanted::new().plugin("ksml").config(&format!("{KSML}{key}"));
        let site = wanted.registry(options, "plain-http = true").site().await;
        site.registry.push_chart(&chart(), "charts/ksml").unwrap();
        let home = site.folder.path().join("home");
        std::fs::create_dir_all(home.join(".docker")).unwrap();
        std::fs::write(home.join(".docker/config.json"), r#"{"credsStore": "of-tests"}"#).unwrap();
        let helper = home.join("docker-credential-of-tests");
        let answer = r#"{"Username": "reader", "Secret": "right-password"}"#;
        let script =
            format!("#!/bin/sh\ntouch {}/asked\necho right-password >&2\necho '{answer}'\n", home.display());
        std::fs::write(&helper, script).unwrap();
        std::fs::set_permissions(&helper, std::fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("{}:{}", home.display(), std::env::var("PATH").unwrap());
        // What was compiled before stays of use.
        let cache = std::env::var("XDG_CACHE_HOME")
            .unwrap_or_else(|_| format!("{}/.cache", std::env::var("HOME").unwrap()));
        let home_folder = home.to_str().unwrap();
        let variables = [
            ("HOME", home_folder),
            ("PATH", &path),
            ("XDG_CACHE_HOME", &cache),
            ("DOCKER_CONFIG", ""),
            ("XDG_CONFIG_HOME", ""),
            ("HELM_REGISTRY_CONFIG", ""),
            ("HELM_CONFIG_HOME", ""),
        ];
        let host = SutlerProcess::start(&site.config, &variables).await;
        let answered = Caller::new(&host.url).post("/plan", &request().create(settings()).body()).await;
        assert_eq!(answered.json["outcome"], outcome, "{}", answered.text);
        assert_eq!(home.join("asked").exists(), outcome == "planned", "whether the helper was asked");
        let told = host.log_lines().join("\n") + &answered.text;
        assert!(!told.contains("right-password"), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn archives_that_attack_are_refused() {
    let world = Wanted::new().plugin("ksml").config(KSML).start().await;
    for (what, file, size) in
        [("traversal", "ksml/../../../etc/passwd", 10_usize), ("bomb", "ksml/templates/zeros", 200 << 20)]
    {
        world.registry.push_archive(archive(file, size), "charts/ksml").unwrap();
        let answer = plan(&world).await;
        assert_eq!(answer["outcome"], "failed", "{what}: {answer}");
        assert_eq!(answer["retryable"], json!(false), "{what}: {answer}");
    }
}

/// A chart with one more file of zeros.
fn archive(file: &str, size: usize) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    let chart = format!("apiVersion: v2\nname: ksml\nversion: 9.{size}.0\n");
    for (name, bytes) in [("ksml/Chart.yaml", chart.as_bytes().to_vec()), (file, vec![0; size])] {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        // `set_path` refuses what an attacker writes.
        let field = &mut header.as_old_mut().name;
        field[..name.len()].copy_from_slice(name.as_bytes());
        header.set_cksum();
        tar.append(&header, bytes.as_slice()).unwrap();
    }
    tar.into_inner().unwrap().finish().unwrap()
}
