//! The rights of a host for logs, on a real API server: an account with exactly what `sutler rbac print` prints.

use std::io::{Seek as _, Write as _};
use std::process::Command;

use sutler_testkit::http::client;
use sutler_testkit::{RealWorld, SutlerProcess, guest, real, sutler_binary};

fn config(folder: &std::path::Path, kubeconfig: &std::path::Path, located: &str, granted: &str) -> String {
    format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n[catalog]\ndir = {:?}\n\
         [kubernetes.clusters.default]\nkubeconfig = {kubeconfig:?}\n\
         [plugins.kafka-connect.config]\nnamespaces = [{located:?}]\nselector = \"app=writer\"\n\
         [plugins.kafka-connect.grants.logs]\nnamespaces = {granted}\nany-owner = true\n",
        folder.join("plugins")
    )
}

/// Two namespaces with a pod that says where it is.
fn places(world: &RealWorld, names: &[&str]) {
    for name in names {
        world.run(&world.kubectl, &["create", "namespace", name]).unwrap();
        world
            .run(
                &world.kubectl,
                &["-n", name, "wait", "--for=create", "serviceaccount/default", "--timeout=60s"],
            )
            .unwrap();
        let script = format!("echo here is {name}; sleep 1000");
        let words = ["-n", name, "run", "writer", "--labels=app=writer", "--image=localhost/busybox:1"];
        let how = ["--image-pull-policy=IfNotPresent", "--command", "--", "/bin/sh", "-c", &script];
        world.run(&world.kubectl, &[words.as_slice(), how.as_slice()].concat()).unwrap();
    }
    for name in names {
        world
            .run(
                &world.kubectl,
                &["-n", name, "wait", "--for=condition=Ready", "pod/writer", "--timeout=120s"],
            )
            .unwrap();
    }
}

/// A kubeconfig of the service account that has the rights which are printed for this configuration.
fn account(world: &RealWorld, folder: &std::path::Path, home: &str, config: &str) -> std::path::PathBuf {
    let file = folder.join("sutler.toml");
    std::fs::write(&file, config).unwrap();
    let account = format!("{home}/reader");
    let printed = Command::new(sutler_binary())
        .args(["rbac", "print", "--service-account", &account, "--config"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let mut roles = tempfile::tempfile().unwrap();
    roles.write_all(&printed.stdout).unwrap();
    roles.rewind().unwrap();
    world.run_with(&world.kubectl, &["apply", "-f", "-"], roles.into()).unwrap();
    world.run(&world.kubectl, &["-n", home, "create", "serviceaccount", "reader"]).unwrap();
    let token = world.run(&world.kubectl, &["-n", home, "create", "token", "reader"]).unwrap();
    let admin = std::fs::read_to_string(&world.kubeconfig).unwrap();
    let cluster = admin.lines().find(|l| l.starts_with("clusters:")).unwrap();
    let kubeconfig = folder.join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: x\n{cluster}\n\
         users: [{{name: u, user: {{token: {}}}}}]\ncontexts: [{{name: x, context: {{cluster: test, user: u}}}}]\n",
        token.trim()
    );
    std::fs::write(&kubeconfig, text).unwrap();
    kubeconfig
}

async fn logs(host: &SutlerProcess, follow: bool) -> (u16, String) {
    let url = format!(
        "{}/logs?kind=tool&type=kafka-connect&tenant=acme&application=orders&environment=prod&follow={follow}",
        host.url
    );
    let mut answer = client().get(url).send().await.unwrap();
    let (status, mut text) = (answer.status().as_u16(), String::new());
    while let Some(chunk) = answer.chunk().await.unwrap() {
        text.push_str(&String::from_utf8_lossy(&chunk));
        // A stream that follows does not end.
        if follow && text.contains('\n') {
            break;
        }
    }
    (status, text)
}

#[tokio::test(flavor = "multi_thread")]
async fn real_rbac_for_logs_is_what_is_needed_and_no_more() {
    let Some(world) = real() else { return };
    let (listed, other) =
        (format!("real-listed-{}", std::process::id()), format!("real-other-{}", std::process::id()));
    places(&world, &[&listed, &other]);
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("plugins")).unwrap();
    std::fs::copy(guest("kafka-connect"), folder.path().join("plugins/kafka-connect.wasm")).unwrap();
    let only = format!("[{listed:?}]");
    let kubeconfig =
        account(&world, folder.path(), &listed, &config(folder.path(), &world.kubeconfig, &listed, &only));
    let start = async |located: &str, granted: &str| {
        SutlerProcess::start(&config(folder.path(), &kubeconfig, located, granted), &[]).await
    };
    // In the listed namespace: everything that reading takes.
    let host = start(&listed, &only).await;
    for follow in [false, true] {
        let (status, text) = logs(&host, follow).await;
        assert!(status == 200 && text.contains(&format!("here is {listed}")), "{status} {text}");
    }
    drop(host);
    // Elsewhere the host refuses by its own configuration, and says what would have to be granted.
    let host = start(&other, &only).await;
    let (status, text) = logs(&host, false).await;
    assert!(status == 403 && text.contains(&format!("{other} is not granted")), "{status} {text}");
    drop(host);
    // Were its configuration wider than its rights, the cluster would refuse.
    let host = start(&other, "[\"*\"]").await;
    for follow in [false, true] {
        let (status, text) = logs(&host, follow).await;
        assert!(status != 200 && text.contains("forbidden") && !text.contains("here is"), "{status} {text}");
    }
    drop(host);
    let can = |verb: &str, what: &str, namespace: &str| {
        let who = format!("system:serviceaccount:{listed}:reader");
        let words = ["auth", "can-i", verb, what, "-n", namespace, "--as", &who];
        world.run(&world.kubectl, &words).is_ok()
    };
    for (verb, what) in [("get", "pods"), ("list", "pods"), ("watch", "pods"), ("get", "pods/log")] {
        assert!(can(verb, what, &listed) && !can(verb, what, &other), "{verb} {what}");
    }
    for (verb, what) in
        [("delete", "pods"), ("create", "pods/exec"), ("get", "configmaps"), ("list", "secrets")]
    {
        assert!(!can(verb, what, &listed) && !can(verb, what, &other), "{verb} {what}");
    }
    world.run(&world.kubectl, &["delete", "namespace", &listed, &other, "--wait=false"]).unwrap();
}
