//! Against a real kubelet, also through a connection that is cut again and again.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::json;
use sutler_kubernetes::{Cluster, ClusterConfig, Clusters, Propagation, Reference};
use sutler_logs::{LogLine, LogSource, Logs, StreamOptions, TailOptions};

use crate::server::{call, open_grants};

struct World {
    cluster: Cluster,
    kubeconfig: std::path::PathBuf,
    namespace: String,
}

impl World {
    async fn new(name: &str, script: &str) -> Option<Self> {
        let kubeconfig = sutler_testkit::real()?.kubeconfig;
        let config = ClusterConfig { kubeconfig: Some(kubeconfig.clone()), ..ClusterConfig::default() };
        let cluster = Cluster::connect("default", &config).await.unwrap();
        let namespace = format!("real-logs-{name}-{}", std::process::id());
        let ns = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        cluster.create(&ns, "test", false).await.unwrap();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": namespace},
            "spec": {"terminationGracePeriodSeconds": 0, "automountServiceAccountToken": false, "containers": [
                {"name": "c", "image": "localhost/busybox:1", "imagePullPolicy": "IfNotPresent", "command": ["/bin/sh", "-c", script]}]}});
        // The namespace's service account is made a moment later.
        for _ in 0..100 {
            match cluster.create(&pod, "test", false).await {
                Ok(_) => break,
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
        Some(Self { cluster, kubeconfig, namespace })
    }

    fn source(&self) -> LogSource {
        LogSource {
            cluster: None,
            namespace: self.namespace.clone(),
            label_selector: String::new(),
            container: None,
        }
    }

    /// Reads `n` items, within a minute.
    async fn read(&self, cluster: &Cluster, options: StreamOptions, n: usize) -> Vec<String> {
        let logs = Logs::new(Arc::new(Clusters::of(vec![cluster.clone()])));
        let stream = logs.stream(&call(), &open_grants(), vec![self.source()], options).await.unwrap();
        let show = |l: LogLine| match l {
            LogLine::Line { text, .. } => text.to_string(),
            gap => format!("{gap:?}"),
        };
        tokio::time::timeout(Duration::from_secs(60), stream.take(n).map(show).collect())
            .await
            .expect("more lines")
    }

    async fn remove(self) {
        let of = Reference {
            cluster: None,
            api_version: "v1".into(),
            kind: "Namespace".into(),
            namespace: None,
            name: self.namespace.clone(),
        };
        self.cluster.delete(&of, None, Propagation::Background).await.unwrap();
    }
}

fn follow() -> StreamOptions {
    StreamOptions { follow: true, ..StreamOptions::default() }
}

fn numbers(n: usize) -> Vec<String> {
    (1..=n).map(|i| format!("line {i}")).collect()
}

/// A proxy that lets each connection live for so long.
async fn cutting(to: String, life: Duration) -> u16 {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            let to = to.clone();
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(&to).await.unwrap();
                let _ = tokio::time::timeout(life, tokio::io::copy_bidirectional(&mut near, &mut far)).await;
            });
        }
    });
    port
}

#[tokio::test]
async fn real_lines_come_once_over_cut_connections() {
    let script = "i=0; while [ $i -lt 400 ]; do i=$((i+1)); echo line $i; usleep 20000; done; sleep 1000";
    let Some(w) = World::new("cut", script).await else { return };
    let text = std::fs::read_to_string(&w.kubeconfig).unwrap();
    let server =
        text.split("https://").nth(1).unwrap().split(['"', '\n', ',', '}']).next().unwrap().to_owned();
    let port = cutting(server.clone(), Duration::from_millis(700)).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    std::fs::write(&path, text.replace(&server, &format!("127.0.0.1:{port}"))).unwrap();
    let config = ClusterConfig { kubeconfig: Some(path), ..ClusterConfig::default() };
    let cut = Cluster::connect("default", &config).await.unwrap();
    assert_eq!(w.read(&cut, follow(), 400).await, numbers(400));
    let tail = StreamOptions { tail_lines: Some(3), ..StreamOptions::default() };
    assert_eq!(w.read(&w.cluster, tail, 10).await, numbers(400)[397..]);
    let logs = Logs::new(Arc::new(Clusters::of(vec![w.cluster.clone()])));
    let options = TailOptions { tail_lines: 2, ..TailOptions::default() };
    let tail = logs.tail(&call(), &open_grants(), None, &w.namespace, "p", &options).await.unwrap();
    assert_eq!(tail, numbers(400)[398..]);
    w.remove().await;
}

#[tokio::test]
async fn real_restarts_are_followed() {
    let script = "for i in 1 2 3 4 5; do echo line $i; done; sleep 2; echo line 6; exit 1";
    let Some(w) = World::new("restart", script).await else { return };
    let got = w.read(&w.cluster, follow(), 18).await;
    assert_eq!(got, [numbers(6), numbers(6), numbers(6)].concat());
    w.remove().await;
}
