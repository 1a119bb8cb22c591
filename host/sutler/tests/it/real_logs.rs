//! Logs at scale, on a real cluster: twenty pods that write, through restarts, a rotation, cut connections and an API
//! server that is killed, while several follow through the built host.
//!
//! The host has an API server of its own, beside the cluster's on the same etcd, so that it can be killed without
//! disturbing anybody else, and a way there whose connections can be cut.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sutler_testkit::http::client;
use sutler_testkit::{RealWorld, SutlerProcess, guest, real};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

const PODS: usize = 20;
/// Lines a second of each.
const RATE: usize = 50;
/// Lines of 1 kB that the first pod writes at once, after its first line: more than a kubelet keeps in one file
/// (10 MiB).
const BURST: usize = 11_500;

/// An API server beside the cluster's own.
struct Second {
    arguments: Vec<String>,
    folder: PathBuf,
    port: u16,
    child: Child,
}

impl Second {
    async fn start(world: &RealWorld, folder: &Path) -> Self {
        let cluster = world.kubeconfig.parent().unwrap();
        let id = std::fs::read_to_string(cluster.join("apiserver.pid")).unwrap();
        let line = std::fs::read(format!("/proc/{}/cmdline", id.trim())).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let theirs = ["--audit", "--secure-port", "--bind-address", "--endpoint-reconciler-type"];
        let mut arguments: Vec<String> = String::from_utf8(line)
            .unwrap()
            .split('\0')
            .filter(|a| !a.is_empty() && !theirs.iter().any(|t| a.starts_with(t)))
            .map(str::to_owned)
            .collect();
        arguments.extend([
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".into(),
            // The cluster's Service leads to the other one alone.
            "--endpoint-reconciler-type=none".into(),
        ]);
        let child = Self::spawn(&arguments, cluster, folder);
        let mut second = Self { arguments, folder: folder.into(), port, child };
        second.ready(world).await;
        second
    }

    fn spawn(arguments: &[String], cluster: &Path, folder: &Path) -> Child {
        let log = std::fs::File::create(folder.join("apiserver.log")).unwrap();
        Command::new(&arguments[0])
            .args(&arguments[1..])
            .current_dir(cluster)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .unwrap()
    }

    async fn ready(&mut self, world: &RealWorld) {
        let until = Instant::now() + Duration::from_secs(120);
        let address = format!("https://127.0.0.1:{}", self.port);
        while world.run(&world.kubectl, &["--server", &address, "get", "--raw", "/readyz"]).is_err() {
            let log = || std::fs::read_to_string(self.folder.join("apiserver.log")).unwrap_or_default();
            assert!(Instant::now() < until, "the second API server is not ready: {}", log());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Killed, and started anew.
    async fn restart(&mut self, world: &RealWorld) {
        self.child.kill().await.unwrap();
        self.child = Self::spawn(&self.arguments, world.kubeconfig.parent().unwrap(), &self.folder);
        self.ready(world).await;
    }
}

/// A way to a port whose connections can be cut.
struct Way {
    port: u16,
    cut: tokio::sync::watch::Sender<()>,
    _ways: JoinSet<()>,
}

impl Way {
    async fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = tokio::sync::watch::Sender::new(());
        let (mut ways, cuts) = (JoinSet::new(), cut.subscribe());
        ways.spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((mut near, _)) = listener.accept().await {
                let mut cuts = cuts.clone();
                cuts.mark_unchanged();
                open.spawn(async move {
                    let Ok(mut far) = TcpStream::connect(("127.0.0.1", server)).await else { return };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = cuts.changed() => {}
                    }
                    let _ = near.shutdown().await;
                });
            }
        });
        Self { port, cut, _ways: ways }
    }
}

struct Site {
    world: RealWorld,
    namespace: String,
    folder: TempDir,
    second: Second,
    way: Way,
    host: SutlerProcess,
    seconds: usize,
}

impl Site {
    async fn start(world: RealWorld) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let second = Second::start(&world, folder.path()).await;
        let way = Way::to(second.port).await;
        let namespace = format!("real-follow-{}", std::process::id());
        world.run(&world.kubectl, &["create", "namespace", &namespace]).unwrap();
        let plugins = folder.path().join("plugins");
        std::fs::create_dir(&plugins).unwrap();
        std::fs::copy(guest("kafka-connect"), plugins.join("kafka-connect.wasm")).unwrap();
        let kubeconfig = folder.path().join("kubeconfig");
        let text = std::fs::read_to_string(&world.kubeconfig).unwrap();
        let server = text.split("https://").nth(1).unwrap().split(['"', ',', '}', '\n']).next().unwrap();
        std::fs::write(&kubeconfig, text.replace(server, &format!("127.0.0.1:{}", way.port))).unwrap();
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nadmin-listen = \"127.0.0.1:0\"\n[log]\nformat = \"json\"\n\
             [catalog]\ndir = {plugins:?}\n[kubernetes.clusters.default]\nkubeconfig = {kubeconfig:?}\n\
             [plugins.kafka-connect.config]\nnamespaces = [\"{namespace}\"]\nselector = \"app=writer\"\n\
             [plugins.kafka-connect.grants.logs]\nnamespaces = [\"{namespace}\"]\nany-owner = true\n"
        );
        let host = SutlerProcess::start(&config, &[]).await;
        let seconds = std::env::var("SUTLER_LOG_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(20);
        Self { world, namespace, folder, second, way, host, seconds }
    }

    fn kubectl(&self, words: &[&str]) -> String {
        self.world.run(&self.world.kubectl, &[&["-n", &self.namespace], words].concat()).unwrap()
    }

    /// Lines of a pod, numbered from 1 on over all its runs. The first comes at once, the others once it may go on:
    /// a kubelet would rotate the burst before anybody follows, where the pods take long to start.
    fn lines(&self, pod: usize) -> usize {
        self.seconds * RATE + if pod == 0 { BURST } else { 0 }
    }

    /// The folder of this machine, which is the node, where a file says that the pods may go on.
    fn go(&self) -> PathBuf {
        self.folder.path().join("go")
    }

    fn pods(&self) {
        std::fs::create_dir(self.go()).unwrap();
        let one = |n: usize| {
            let (lines, burst) = (self.lines(n), self.lines(n) - self.lines(1));
            let script = format!(
                "i=$(cat /s/i 2>/dev/null || echo 0); pad=$(printf %1000s)\n\
                 if [ $i = 0 ]; then i=1; echo 1; until [ -e /go/on ]; do usleep 100000; done; fi\n\
                 while [ $i -lt {burst} ]; do i=$((i+1)); echo \"$i $pad\"; done\n\
                 while [ $i -lt {lines} ]; do\n\
                 if [ -e /s/stop ]; then rm /s/stop; echo $i > /s/i; exit 1; fi\n\
                 j=0; while [ $j -lt 10 -a $i -lt {lines} ]; do i=$((i+1)); j=$((j+1)); echo $i; done; usleep 200000\n\
                 done"
            );
            json!({"apiVersion": "v1", "kind": "Pod",
                "metadata": {"name": format!("w-{n}"), "namespace": self.namespace, "labels": {"app": "writer"}},
                "spec": {"restartPolicy": "OnFailure", "terminationGracePeriodSeconds": 0,
                    "automountServiceAccountToken": false,
                    "volumes": [{"name": "s", "emptyDir": {}}, {"name": "go", "hostPath": {"path": self.go()}}],
                    "containers": [{"name": "c", "image": "localhost/busybox:1", "imagePullPolicy": "IfNotPresent",
                        "command": ["/bin/sh", "-c", script],
                        "volumeMounts": [{"name": "s", "mountPath": "/s"}, {"name": "go", "mountPath": "/go"}]}]}})
        };
        let list =
            json!({"apiVersion": "v1", "kind": "List", "items": (0..PODS).map(one).collect::<Vec<_>>()});
        let file = self.folder.path().join("pods.json");
        std::fs::write(&file, list.to_string()).unwrap();
        self.kubectl(&["wait", "--for=create", "serviceaccount/default", "--timeout=60s"]);
        self.kubectl(&["apply", "-f", file.to_str().unwrap()]);
        self.kubectl(&[
            "wait",
            "--for=jsonpath={.status.containerStatuses[0].started}=true",
            "pods",
            "--all",
            "--timeout=120s",
        ]);
    }

    fn restart(&self, pod: &str) {
        self.kubectl(&["exec", pod, "--", "/bin/touch", "/s/stop"]);
    }

    /// Files of the first pod's log that the kubelet has put aside.
    fn rotated(&self) -> usize {
        let logs = self.world.kubeconfig.parent().unwrap().join("pod-logs");
        let begin = format!("{}_w-0_", self.namespace);
        let of_pod = |e: &std::fs::DirEntry| e.file_name().to_string_lossy().starts_with(&begin);
        let folder = std::fs::read_dir(logs).unwrap().flatten().find(of_pod).unwrap().path().join("c");
        std::fs::read_dir(folder).unwrap().count() - 1
    }
}

enum Item {
    Line {
        number: usize,
        time: String,
    },
    /// Its bounds, where it has them.
    Gap {
        from: Option<String>,
        to: Option<String>,
    },
}

/// What one follower was told, in its order.
#[derive(Default)]
struct Told {
    pods: BTreeMap<String, Vec<Item>>,
    gaps: Vec<Value>,
    lines: usize,
}

/// Of one log, so that they are written alike; in text, a second comes before its fractions without the `Z`.
fn time(of: &Value) -> Option<String> {
    of.as_str().map(|t| t.trim_end_matches('Z').to_owned())
}

impl Told {
    fn take(&mut self, line: &str) {
        let item: Value = serde_json::from_str(line).unwrap();
        assert!(item.get("end").is_none(), "{item}");
        let (pod, told) = if let Some(gap) = item.get("gap") {
            self.gaps.push(gap.clone());
            (&gap["pod"], Item::Gap { from: time(&gap["from"]), to: time(&gap["to"]) })
        } else {
            self.lines += 1;
            let number = item["line"].as_str().unwrap().split(' ').next().unwrap().parse().unwrap();
            (&item["pod"], Item::Line { number, time: time(&item["timestamp"]).unwrap() })
        };
        self.pods.entry(pod.as_str().unwrap().to_owned()).or_default().push(told);
    }

    /// Answers how many numbers are missing, each of which lies at a gap.
    fn judge(&self, site: &Site, whole: bool, what: &str) -> usize {
        assert_eq!(self.pods.len(), PODS, "{what}");
        let of = |n: usize| (n, &self.pods[&format!("w-{n}")]);
        (0..PODS).map(of).map(|(n, told)| judge(told, whole, site.lines(n), &format!("{what}: w-{n}"))).sum()
    }
}

/// Each number at most once and in order; what is missing lies within the bounds of the gaps between its neighbours.
fn judge(told: &[Item], whole: bool, lines: usize, what: &str) -> usize {
    let (mut last, mut at) = (whole.then_some(0), String::new());
    let (mut missing, mut gaps) = (0, Vec::new());
    for item in told {
        let (number, time) = match item {
            Item::Gap { from, to } => {
                gaps.push((from, to));
                continue;
            }
            Item::Line { number, time } => (*number, time),
        };
        if let Some(last) = last {
            assert!(number > last, "{what} tells {number} after {last}");
            missing += number - last - 1;
            let begins = |(from, _): &(&Option<String>, _)| from.as_ref().is_none_or(|f| *f <= at);
            let ends = |(_, to): &(_, &Option<String>)| to.as_ref().is_none_or(|t| t >= time);
            assert!(
                number == last + 1 || (gaps.iter().any(begins) && gaps.iter().any(ends)),
                "{what} tells {last} at {at} and then {number} at {time}, with the gaps {gaps:?}"
            );
        }
        (last, at) = (Some(number), time.clone());
        gaps.clear();
    }
    assert!(last == Some(lines) || !gaps.is_empty(), "{what} ends with {last:?} of {lines}");
    missing
}

/// Follows to the end; `slow`: at most 128 kB each 100 ms. `first` gets a permit with the first line of the first pod.
async fn follow(url: String, query: &'static str, slow: bool, first: Arc<Semaphore>) -> Told {
    let url = format!(
        "{url}/logs?kind=tool&type=kafka-connect&tenant=acme&application=orders&environment=prod&follow=true{query}"
    );
    let mut answer = client().get(url).header("accept", "application/x-ndjson").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    let (mut told, mut rest, mut taken, mut seen) = (Told::default(), Vec::new(), 0, false);
    while let Some(chunk) = answer.chunk().await.unwrap() {
        rest.extend_from_slice(&chunk);
        taken += chunk.len();
        let end = rest.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        for line in rest.drain(..end).collect::<Vec<u8>>().split(|b| *b == b'\n').filter(|l| !l.is_empty()) {
            told.take(std::str::from_utf8(line).unwrap());
        }
        if !seen && told.pods.contains_key("w-0") {
            seen = true;
            first.add_permits(1);
        }
        if slow && taken > 128 << 10 {
            taken = 0;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
    told
}

#[tokio::test(flavor = "multi_thread")]
async fn real_logs_of_twenty_pods_through_trouble() {
    let Some(world) = real() else { return };
    let mut site = Site::start(world).await;
    site.pods();
    let first = Arc::new(Semaphore::new(0));
    let begin = |query, slow| tokio::spawn(follow(site.host.url.clone(), query, slow, Arc::clone(&first)));
    let mut followers =
        vec![("all", begin("", false)), ("all again", begin("", false)), ("slow", begin("", true))];
    let all = tokio::time::timeout(Duration::from_secs(60), first.acquire_many(3)).await;
    all.expect("not every follower has the first line").unwrap().forget();
    std::fs::write(site.go().join("on"), "").unwrap();
    let began = Instant::now();
    // At these tenths of the time.
    let step = Duration::from_secs(site.seconds as u64) / 10;
    let at = async |tenth: u32| tokio::time::sleep((step * tenth).saturating_sub(began.elapsed())).await;
    at(1).await;
    site.way.cut.send_replace(());
    followers.push(("tail", begin("&tailLines=10", false)));
    at(2).await;
    site.restart("w-18");
    at(3).await;
    site.restart("w-19");
    followers.push(("since", begin("&sinceSeconds=2", false)));
    at(4).await;
    site.way.cut.send_replace(());
    let world = site.world.clone();
    site.second.restart(&world).await;
    followers.push(("late", begin("", false)));
    let mut lines = 0;
    for (what, follower) in followers {
        let told = tokio::time::timeout(Duration::from_secs(120), follower).await.expect(what).unwrap();
        // The late one finds what the kubelet still has; so does the slow one, which may come too late for some.
        let whole = what.starts_with("all") || what == "slow";
        let missing = told.judge(&site, whole, what);
        println!("{what}: {} lines, {missing} missing, {} gaps {:?}", told.lines, told.gaps.len(), told.gaps);
        if what.starts_with("all") {
            let all: usize = (0..PODS).map(|n| site.lines(n)).sum();
            // A rotation at the very moment of a cut destroys lines of one pod.
            assert_eq!(told.lines + missing, all, "{what}");
            let elsewhere = told.gaps.iter().filter(|g| g["pod"] != "w-0").count();
            assert_eq!(elsewhere, 0, "{:?}", told.gaps);
        }
        lines += told.lines;
    }
    assert!(site.rotated() > 0, "the kubelet rotated no log");
    let restarts =
        site.kubectl(&["get", "pods", "-o", "jsonpath={.items[*].status.containerStatuses[0].restartCount}"]);
    assert_eq!(restarts.split(' ').map(|n| n.parse::<u32>().unwrap()).sum::<u32>(), 2, "{restarts}");
    eprintln!("figure: {lines} lines to 6 followers of {PODS} pods for {} s", site.seconds);
    site.kubectl(&["delete", "namespace", &site.namespace, "--wait=false"]);
}
