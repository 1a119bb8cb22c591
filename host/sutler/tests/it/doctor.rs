//! `sutler doctor` and `sutler rbac print`.

use std::io::{Seek as _, Write as _};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};
use sutler_testkit::{RealWorld, real, sutler_binary};

use crate::support::{GRANTS, Wanted};

const APPLICATIONS: &str = r#"
[[plugins.namespace.grants.kubernetes]]
verbs = ["get", "list"]
kinds = ["apps/Deployment"]
namespaces = ["ksml-{tenant}"]

[plugins.namespace.grants.helm]
charts = ["oci://registry.example/charts/*"]
namespaces = ["ksml-{tenant}"]
kinds = ["apps/Deployment", "Service", "Secret"]

[plugins.namespace.grants.logs]
namespaces = ["monitoring"]
any-owner = true
"#;

/// With a ledger beside the configuration, unless that names one.
pub(crate) fn sutler(config: &Path, arguments: &[&str]) -> Output {
    command(config, arguments).output().unwrap()
}

pub(crate) fn command(config: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(sutler_binary());
    if !std::fs::read_to_string(config).unwrap().contains("[ledger]") {
        command.env("SUTLER__LEDGER__PATH", config.with_file_name("ledger.db"));
    }
    command.args(arguments).arg("--config").arg(config);
    command
}

pub(crate) fn text(o: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&o.stdout), String::from_utf8_lossy(&o.stderr))
}

pub(crate) fn findings(o: &Output, area: &str, level: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_json::from_slice(&o.stdout).unwrap_or_else(|e| panic!("{e}: {}", text(o)));
    all.into_iter().filter(|f| f["area"] == area && f["level"] == level).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_names_rights_that_are_lacking_and_what_to_do() {
    let site = Wanted::new().plugin("namespace").config(&format!("{GRANTS}{APPLICATIONS}")).site().await;
    for name in ["ksml-acme", "other"] {
        site.cluster.seed(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    }
    let config = site.folder.path().join("sutler.toml");
    let without_hostile = site.config.split("[plugins.hostile").next().unwrap();
    std::fs::write(&config, format!("{without_hostile}{APPLICATIONS}")).unwrap();
    let run = |arguments: &[&str]| sutler(&config, &[&["doctor", "--output", "json"], arguments].concat());

    let fine = run(&[]);
    assert!(fine.status.success(), "{}", text(&fine));
    let rights = findings(&fine, "rights", "ok");
    let places: Vec<&str> = rights.iter().filter_map(|f| f["what"].as_str()).collect();
    assert_eq!(
        places.len(),
        3,
        "the cluster, monitoring and the one namespace like ksml-{{tenant}}: {places:?}"
    );
    assert!(places.iter().any(|p| p.contains("in namespace ksml-acme")), "{places:?}");
    assert_eq!(findings(&fine, "cluster", "ok").len(), 1);

    site.cluster.deny("patch", "deployments");
    site.cluster.deny("get", "pods/log");
    let lacking = run(&[]);
    assert_eq!(lacking.status.code(), Some(1), "{}", text(&lacking));
    let wrong = findings(&lacking, "rights", "wrong");
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(
        wrong.iter().any(|f| f["what"]
            .as_str()
            .unwrap()
            .contains("lacks get pods/log, patch deployments.apps")
            && f["todo"]
                == "sutler rbac print --plugin namespace --namespace ksml-acme | kubectl apply -f -"),
        "{wrong:?}"
    );

    site.cluster.deny("list", "namespaces");
    let blind = run(&["--namespace", "ksml-new"]);
    assert!(text(&blind).contains("in namespace ksml-new"), "{}", text(&blind));
    assert_eq!(findings(&blind, "cluster", "warning").len(), 1);

    drop(site.cluster);
    let away = run(&[]);
    assert_eq!(away.status.code(), Some(1));
    assert!(findings(&away, "cluster", "wrong")[0]["what"].as_str().unwrap().contains("cannot be reached"));
}

#[tokio::test(flavor = "multi_thread")]
async fn roles_are_printed_for_the_grants() {
    let site = Wanted::new().plugin("namespace").config(APPLICATIONS).site().await;
    let config = site.folder.path().join("sutler.toml");
    std::fs::write(&config, &site.config).unwrap();
    let o = sutler(
        &config,
        &[
            "rbac",
            "print",
            "--namespace",
            "ksml-acme",
            "--namespace",
            "other",
            "--service-account",
            "platform/sutler",
        ],
    );
    assert!(o.status.success(), "{}", text(&o));
    expect_test::expect![[r#"
        ---
        apiVersion: rbac.authorization.k8s.io/v1
        kind: Role
        metadata:
          labels:
            app.kubernetes.io/managed-by: sutler
          name: sutler-namespace
          namespace: monitoring
        rules:
        - apiGroups:
          - ""
          resources:
          - pods
          verbs:
          - get
          - list
          - watch
        - apiGroups:
          - ""
          resources:
          - pods/log
          verbs:
          - get
        ---
        apiVersion: rbac.authorization.k8s.io/v1
        kind: RoleBinding
        metadata:
          labels:
            app.kubernetes.io/managed-by: sutler
          name: sutler-namespace
          namespace: monitoring
        roleRef:
          apiGroup: rbac.authorization.k8s.io
          kind: Role
          name: sutler-namespace
        subjects:
        - kind: ServiceAccount
          name: sutler
          namespace: platform
        ---
        apiVersion: rbac.authorization.k8s.io/v1
        kind: ClusterRole
        metadata:
          annotations:
            sutler.dev/namespaces: bind it in each namespace ksml-{tenant}
          labels:
            app.kubernetes.io/managed-by: sutler
          name: sutler-namespace-ksml-tenant
        rules:
        - apiGroups:
          - ""
          resources:
          - pods
          - pods/log
          verbs:
          - get
          - list
        - apiGroups:
          - ""
          resources:
          - secrets
          verbs:
          - get
          - list
          - watch
          - create
          - update
          - patch
          - delete
        - apiGroups:
          - ""
          resources:
          - services
          verbs:
          - get
          - list
          - watch
          - create
          - update
          - patch
          - delete
        - apiGroups:
          - apps
          resources:
          - deployments
          verbs:
          - get
          - list
          - watch
          - create
          - update
          - patch
          - delete
        ---
        apiVersion: rbac.authorization.k8s.io/v1
        kind: RoleBinding
        metadata:
          labels:
            app.kubernetes.io/managed-by: sutler
          name: sutler-namespace-ksml-tenant
          namespace: ksml-acme
        roleRef:
          apiGroup: rbac.authorization.k8s.io
          kind: ClusterRole
          name: sutler-namespace-ksml-tenant
        subjects:
        - kind: ServiceAccount
          name: sutler
          namespace: platform
    "#]]
    .assert_eq(&String::from_utf8_lossy(&o.stdout));
    let unknown = sutler(&config, &["rbac", "print", "--plugin", "ksml"]);
    assert!(text(&unknown).contains("there is no [plugins.ksml]; known are namespace"), "{}", text(&unknown));
    let account = sutler(&config, &["rbac", "print", "--service-account", "sutler"]);
    assert!(text(&account).contains("write NAMESPACE/NAME"), "{}", text(&account));
}

fn kubectl(world: &RealWorld, arguments: &[&str], input: &[u8]) -> String {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(input).unwrap();
    file.rewind().unwrap();
    world.run_with(&world.kubectl, arguments, file.into()).unwrap()
}

/// A service account without rights, and then with exactly the printed roles; reached as a pod would.
#[test]
fn real_roles_are_enough_for_the_account_of_a_pod() {
    let Some(world) = real() else { return };
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("plugins")).unwrap();
    std::fs::copy(sutler_testkit::guest("namespace"), folder.path().join("plugins/namespace.wasm")).unwrap();
    let config = folder.path().join("sutler.toml");
    let plugins = folder.path().join("plugins");
    std::fs::write(&config, format!("[catalog]\ndir = {plugins:?}\n[kubernetes]\n{GRANT}{APPLICATIONS}"))
        .unwrap();
    for name in ["doctor", "ksml-doctor", "monitoring"] {
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
        kubectl(&world, &["apply", "-f", "-"], namespace.to_string().as_bytes());
    }
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sutler", "namespace": "doctor"}});
    kubectl(&world, &["apply", "-f", "-"], account.to_string().as_bytes());
    let token = kubectl(&world, &["create", "token", "sutler", "-n", "doctor"], b"");
    let view = kubectl(&world, &["config", "view", "--raw", "--minify", "-o", "json"], b"");
    let cluster: Value = serde_json::from_str::<Value>(&view).unwrap()["clusters"][0]["cluster"].take();
    let server = cluster["server"].as_str().unwrap().trim_start_matches("https://").to_owned();
    let (address, port) = server.rsplit_once(':').unwrap();
    let ca = match cluster["certificate-authority-data"].as_str() {
        Some(data) => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.decode(data).unwrap()
        }
        None => std::fs::read(cluster["certificate-authority"].as_str().unwrap()).unwrap(),
    };
    let secrets = folder.path().join("serviceaccount");
    std::fs::create_dir(&secrets).unwrap();
    std::fs::write(secrets.join("token"), token.trim()).unwrap();
    std::fs::write(secrets.join("ca.crt"), ca).unwrap();
    std::fs::write(secrets.join("namespace"), "doctor").unwrap();
    // Where a pod finds its account, seen by this process alone.
    let script = "mount -t tmpfs none /run && mkdir -p /run/secrets/kubernetes.io && \
                  cp -r \"$SECRETS\" /run/secrets/kubernetes.io/serviceaccount && exec \"$0\" \"$@\"";
    let doctor = || {
        Command::new("unshare")
            .args(["--mount", "sh", "-c", script])
            .arg(sutler_binary())
            .args(["doctor", "--output", "json", "--namespace", "ksml-doctor", "--config"])
            .arg(&config)
            .env_remove("KUBECONFIG")
            .env("SECRETS", &secrets)
            .env("SUTLER__LEDGER__PATH", folder.path().join("ledger.db"))
            .env("KUBERNETES_SERVICE_HOST", address)
            .env("KUBERNETES_SERVICE_PORT", port)
            .output()
            .unwrap()
    };
    let without = doctor();
    assert_eq!(without.status.code(), Some(1), "{}", text(&without));
    assert_eq!(
        findings(&without, "cluster", "ok").len(),
        1,
        "the pod's account is known: {}",
        text(&without)
    );
    assert_eq!(findings(&without, "rights", "wrong").len(), 3, "{}", text(&without));
    let roles = sutler(
        &config,
        &["rbac", "print", "--namespace", "ksml-doctor", "--service-account", "doctor/sutler"],
    );
    assert!(roles.status.success(), "{}", text(&roles));
    kubectl(&world, &["apply", "-f", "-"], &roles.stdout);
    let with = doctor();
    assert!(with.status.success(), "{}", text(&with));
    assert_eq!(findings(&with, "rights", "ok").len(), 3, "{}", text(&with));
    kubectl(&world, &["delete", "-f", "-"], &roles.stdout);
    kubectl(&world, &["delete", "namespace", "doctor", "ksml-doctor", "monitoring"], b"");
}

const GRANT: &str = r#"
[[plugins.namespace.grants.kubernetes]]
verbs = ["get", "apply", "delete"]
kinds = ["Namespace"]
"#;
