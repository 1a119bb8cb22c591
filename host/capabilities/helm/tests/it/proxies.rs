//! Registries behind an HTTP proxy.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use sutler_helm::{ChartReference, Error};
use sutler_model::Mode;
use sutler_testkit::registry::{Registry, RegistryOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{call, chart, engine, grants, helm};

/// Sends every connection to one address, as the client's first line asks for it.
struct Proxy {
    address: String,
    heads: Arc<Mutex<Vec<String>>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    async fn start(registry: String, refuses: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let heads = Arc::new(Mutex::new(Vec::new()));
        let seen = heads.clone();
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(one(client, registry.clone(), refuses, seen.clone()));
            }
        });
        Self { address, heads, task }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

async fn one(
    mut client: TcpStream,
    registry: String,
    refuses: bool,
    heads: Arc<Mutex<Vec<String>>>,
) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.ok()?);
    }
    let text = String::from_utf8_lossy(&head).into_owned();
    heads.lock().unwrap().push(text.clone());
    if refuses {
        let answer = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
        return client.write_all(answer).await.ok();
    }
    let mut server = TcpStream::connect(registry).await.ok()?;
    if text.starts_with("CONNECT ") {
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.ok()?;
    } else {
        server.write_all(&head).await.ok()?;
    }
    tokio::io::copy_bidirectional(&mut client, &mut server).await.ok().map(drop)
}

async fn pull(host: &str, table: Value) -> Result<String, Error> {
    let folder = tempfile::tempdir().unwrap();
    let tables = BTreeMap::from([(host.to_owned(), serde_json::from_value(table).unwrap())]);
    let helm = helm(folder.path(), &tables, None, engine());
    let url = format!("oci://{host}/charts/app");
    let reference = ChartReference { url: url.clone(), version: Some("1.0.0".into()), digest: None };
    helm.pull(&call(Mode::Plan), &grants(json!({"charts": [url]})), &reference).await.map(|c| c.version)
}

async fn registry(tls: bool) -> Registry {
    let registry = Registry::start(RegistryOptions { tls, ..RegistryOptions::default() }).await;
    registry.push_archive(chart("app", "1.0.0"), "charts/app").unwrap();
    registry
}

#[tokio::test]
async fn without_tls() {
    let registry = registry(false).await;
    let proxy = Proxy::start(registry.host(), false).await;
    let address = format!("http://{}", proxy.address);
    assert_eq!(
        pull("registry.example", json!({"plain-http": true, "proxy": address})).await.unwrap(),
        "1.0.0"
    );
    let heads = proxy.heads();
    assert!(heads[0].starts_with("HEAD http://registry.example/v2/charts/app/manifests/1.0.0 "), "{heads:?}");
    // Loopback addresses go there only where the table says so.
    pull(&registry.host(), json!({"plain-http": true, "proxy": "none"})).await.unwrap();
    pull(&registry.host(), json!({"plain-http": true})).await.unwrap();
    assert_eq!(proxy.heads().len(), heads.len());
    pull(&registry.host(), json!({"plain-http": true, "proxy": proxy.address})).await.unwrap();
    assert!(proxy.heads().len() > heads.len());
}

#[tokio::test]
async fn with_tls_and_a_password_of_its_own() {
    let registry = registry(true).await;
    let proxy = Proxy::start(registry.host(), false).await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, registry.ca_pem().unwrap()).unwrap();
    let port = registry.host().rsplit(':').next().unwrap().to_owned();
    let host = format!("localhost:{port}");
    let address = format!("http://gate:open-it@{}", proxy.address);
    pull(&host, json!({"ca": ca, "proxy": address, "username": "u", "password": "hunter2"})).await.unwrap();
    let heads = proxy.heads();
    assert!(heads.iter().all(|h| h.starts_with(&format!("CONNECT {host} "))), "{heads:?}");
    assert!(heads[0].to_ascii_lowercase().contains("proxy-authorization: basic "), "{heads:?}");
}

#[tokio::test]
async fn a_proxy_that_refuses() {
    let proxy = Proxy::start("127.0.0.1:1".into(), true).await;
    let address = format!("http://gate:open-it@{}", proxy.address);
    let e = pull("registry.example", json!({"proxy": address})).await.unwrap_err();
    let text = e.to_string();
    assert!(matches!(e, Error::Unavailable(_)) && text.contains("proxy authorization required"), "{text}");
    assert!(!text.contains("open-it"), "{text}");
}
