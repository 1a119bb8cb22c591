//! Files that are no plugins, pairs that are taken, reloads.

use serde_json::{Value, json};
use sutler_testkit::http::SampleRequest;
use sutler_testkit::{
    core_module, future_version, guest, hostile, no_exports, random_bytes, truncated, unknown_import,
    wrong_export_type,
};

use crate::support::{GRANTS, Wanted, World};

async fn namespace_serves(world: &World) {
    let body = SampleRequest::new("target/kubernetes-namespace").create(json!({})).body();
    let answer = world.post("/plan", &body).await;
    assert_eq!(answer.json["outcome"], "planned", "{}", answer.text);
}

#[tokio::test]
async fn files_that_are_no_plugins_are_refused_by_name() {
    let wasm = std::fs::read(guest("hostile")).unwrap();
    let table: Vec<(&str, Vec<u8>, &str)> = vec![
        ("core-module", core_module(), "core WebAssembly module"),
        ("random-bytes", random_bytes(), "not a WebAssembly component"),
        ("truncated", truncated(), "not a WebAssembly component"),
        ("empty", vec![], "the file is empty; copy it again"),
        ("unknown-import", unknown_import(), "sutler offers the imports of"),
        ("future", future_version(), "sutler"),
        ("no-exports", no_exports(), "does not export sutler:provisioner/provisioner"),
        ("wrong-export", wrong_export_type(), "provisioner"),
        ("describe-trap", hostile(&wasm, "describe-trap"), "describe"),
        ("describe-loop", hostile(&wasm, "describe-loop"), "more than"),
        ("two-pairs-equal", hostile(&wasm, "two-pairs-equal"), "tool/hostile twice"),
        ("no-pairs", hostile(&wasm, "no-pairs"), "no pair"),
        ("bad-schema", hostile(&wasm, "bad-schema"), "settings schema of tool/hostile"),
        ("not-json", hostile(&wasm, "not-json-schema"), "is not JSON"),
        ("bad-outputs", hostile(&wasm, "bad-outputs-schema"), "outputs schema of tool/hostile"),
        ("huge-schema", hostile(&wasm, "huge-schema"), "at most 65536"),
        ("remote-ref", hostile(&wasm, "remote-ref"), "tool/hostile"),
        ("file-ref", hostile(&wasm, "file-ref"), "tool/hostile"),
        ("bad-name", hostile(&wasm, "bad-name"), "not usable"),
        ("empty-name", hostile(&wasm, "empty-name"), "not usable"),
        ("bad-step", hostile(&wasm, "bad-step"), "step"),
        ("endless-step", hostile(&wasm, "endless-step"), "time-out"),
        ("equal-steps", hostile(&wasm, "equal-steps"), "step"),
        ("claims-namespace", hostile(&wasm, "claims-namespace"), "which plugin namespace serves"),
    ];
    let world = Wanted::new().plugin("namespace").config(GRANTS).start().await;
    for (name, bytes, _) in &table {
        std::fs::write(world.plugin_file(&format!("{name}.wasm")), bytes).unwrap();
    }
    std::fs::write(world.plugin_file("Bad Name.wasm"), &wasm).unwrap();
    world.reload().await;
    for (name, _, words) in &table {
        let plugin = world.plugin(name).await;
        let reason = plugin["reason"].as_str().unwrap_or_default();
        assert_eq!(plugin["state"], "refused", "{name}: {plugin}");
        assert!(reason.contains(words), "{name}: {reason}");
    }
    assert!(world.plugin("Bad Name").await["reason"].as_str().unwrap().contains("rename"));
    namespace_serves(&world).await;
    assert_eq!(pairs(&world).await, ["target/kubernetes-namespace"]);
}

async fn pairs(world: &World) -> Vec<String> {
    let handles = world.api().get("/handles").await.json;
    let list = handles["handles"].as_array().cloned().unwrap_or_else(|| panic!("{handles}"));
    list.iter().map(|h| format!("{}/{}", h["kind"].as_str().unwrap(), h["type"].as_str().unwrap())).collect()
}

#[tokio::test]
async fn two_claimants_at_one_start_neither_serves() {
    let wasm = std::fs::read(guest("hostile")).unwrap();
    let world = Wanted::new()
        .bytes("first", wasm.clone())
        .bytes("second", wasm.clone())
        .plugin("namespace")
        .config(GRANTS)
        .start()
        .await;
    for name in ["first", "second"] {
        let reason = world.plugin(name).await["reason"].as_str().unwrap_or_default().to_owned();
        assert!(
            reason.contains("first") && reason.contains("second") && reason.contains("tool/hostile"),
            "{reason}"
        );
    }
    assert_eq!(pairs(&world).await, ["target/kubernetes-namespace"]);
    // One of them goes; the other may have it.
    std::fs::remove_file(world.plugin_file("second.wasm")).unwrap();
    world.reload().await;
    assert_eq!(pairs(&world).await, ["target/kubernetes-namespace", "tool/hostile"]);
    // It owns the pair now, whoever comes.
    std::fs::write(world.plugin_file("a-third.wasm"), &wasm).unwrap();
    world.reload().await;
    assert_eq!(world.plugin("first").await["state"], "loaded");
    assert_eq!(world.plugin("a-third").await["state"], "refused");
}

#[tokio::test]
async fn the_operator_decides_who_owns_a_pair() {
    let wasm = std::fs::read(guest("hostile")).unwrap();
    let config = "\n[pairs]\n\"tool/hostile\" = \"second\"\n";
    let world = Wanted::new().bytes("first", wasm.clone()).bytes("second", wasm).config(config).start().await;
    assert_eq!(world.plugin("second").await["state"], "loaded");
    assert!(
        world.plugin("first").await["reason"].as_str().unwrap().contains("[pairs] gives to plugin second")
    );
}

#[tokio::test]
async fn a_broken_file_never_replaces_a_working_one() {
    let world = Wanted::new().plugin("namespace").plugin("hostile").config(GRANTS).start().await;
    let digest = world.plugin("namespace").await["digest"].clone();
    std::fs::write(world.plugin_file("namespace.wasm"), random_bytes()).unwrap();
    world.reload().await;
    let plugin = world.plugin("namespace").await;
    assert_eq!((&plugin["state"], &plugin["digest"]), (&json!("outdated"), &digest), "{plugin}");
    assert!(plugin["reason"].as_str().unwrap().contains("not a WebAssembly component"));
    namespace_serves(&world).await;
    // A newcomer's claim to a taken pair leaves its own predecessor in place as well.
    let wasm = std::fs::read(guest("hostile")).unwrap();
    std::fs::write(world.plugin_file("hostile.wasm"), hostile(&wasm, "claims-namespace")).unwrap();
    world.reload().await;
    assert_eq!(world.plugin("hostile").await["state"], "outdated");
    assert_eq!(pairs(&world).await, ["target/kubernetes-namespace", "tool/hostile"]);
    // What is mended serves again, and what is gone does not.
    std::fs::copy(guest("namespace"), world.plugin_file("namespace.wasm")).unwrap();
    std::fs::remove_file(world.plugin_file("hostile.wasm")).unwrap();
    world.reload().await;
    assert_eq!(world.plugin("namespace").await["reason"], Value::Null);
    assert_eq!(pairs(&world).await, ["target/kubernetes-namespace"]);
    let gone =
        world.post("/plan", &SampleRequest::new("tool/hostile").create(json!({"do": "ok"})).body()).await;
    assert_eq!((gone.status, &gone.json["code"]), (200, &json!("pair-not-handled")));
}

#[tokio::test]
async fn settings_beside_the_file_are_read_and_mistakes_in_them_named() {
    let world = Wanted::new().plugin("namespace").start().await;
    let beside = world.plugin_file("namespace.toml");
    std::fs::write(&beside, "[limits]\nmemory-mb = 3\n").unwrap();
    world.reload().await;
    let plugin = world.plugin("namespace").await;
    let reason = plugin["reason"].as_str().unwrap();
    assert!(reason.contains("namespace.toml") && reason.contains("memory-mb"), "{reason}");
    assert_eq!(plugin["state"], "outdated");
    std::fs::write(&beside, "[[grants.kubernetes]]\nverbs = [\"get\"]\nkinds = [\"Namespace\"]\n").unwrap();
    world.reload().await;
    namespace_serves(&world).await;
}

#[tokio::test]
async fn what_is_no_file_is_refused_and_a_rotated_secret_is_read() {
    let config = format!("{GRANTS}\n[plugins.hostile.secrets.password]\nfile = \"FOLDER/password\"\n");
    let world = Wanted::new().plugin("hostile").plugin("namespace").config(&config).start().await;
    let made = std::process::Command::new("mkfifo").arg(world.plugin_file("pipe.wasm")).status().unwrap();
    assert!(made.success());
    world.reload().await;
    assert!(world.plugin("pipe").await["reason"].as_str().unwrap().contains("not a regular file"));
    assert!(world.plugin("hostile").await["reason"].as_str().unwrap().contains("password"));
    for secret in ["first-secret", "second-secret"] {
        std::fs::write(world.folder.path().join("password"), secret).unwrap();
        world.reload().await;
        let body =
            SampleRequest::new("tool/hostile").create(json!({"do": "leak-secret", "in": ["apply"]})).body();
        let answer = world.post("/apply", &body).await.json;
        assert_eq!(answer["resources"][0]["outputs"]["answer"], secret, "{answer}");
    }
}

#[tokio::test]
async fn describe_has_no_capability() {
    let wasm = std::fs::read(guest("hostile")).unwrap();
    let world = Wanted::new().bytes("hostile", hostile(&wasm, "describe-read")).config(GRANTS).start().await;
    let handles = world.api().get("/handles").await.json;
    assert!(handles["handles"][0]["summary"].as_str().unwrap().starts_with("describe-is-pure"), "{handles}");
    assert!(world.cluster.requests().iter().all(|r| !r.path.contains("configmaps")));
}
