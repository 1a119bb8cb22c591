//! The chart registry over plain HTTP calls.

use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Method;
use sha2::{Digest as _, Sha256};
use sutler_testkit::http::{Answered, Caller};
use sutler_testkit::registry::{Auth, ChartError, Misbehaviour, Pushed, Registry, RegistryOptions, package};

use super::fetch;

fn chart(folder: &Path, name: &str, version: &str) -> std::path::PathBuf {
    let chart = folder.join(name);
    std::fs::create_dir_all(chart.join("templates")).unwrap();
    std::fs::write(chart.join("Chart.yaml"), format!("apiVersion: v2\nname: {name}\nversion: {version}\n"))
        .unwrap();
    std::fs::write(chart.join("values.yaml"), "size: 1\n").unwrap();
    std::fs::write(chart.join("templates/cm.yaml"), "kind: ConfigMap\n").unwrap();
    chart
}

async fn with_chart(options: RegistryOptions) -> (Registry, Pushed, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::start(options).await;
    let pushed = registry.push_chart(&chart(folder.path(), "web", "1.0.0+one"), "team/web").unwrap();
    (registry, pushed, folder)
}

async fn layer(caller: &Caller, manifest: &Answered) -> (String, u64) {
    let layer = &manifest.json["layers"][0];
    let digest = layer["digest"].as_str().unwrap().to_owned();
    assert_eq!(layer["mediaType"], "application/vnd.cncf.helm.chart.content.v1.tar+gzip");
    let head = caller.send(Method::HEAD, &format!("/v2/team/web/blobs/{digest}"), "", None).await;
    assert_eq!(head.status, 200);
    (digest, layer["size"].as_u64().unwrap())
}

#[tokio::test]
async fn a_chart_is_pulled_by_tag_and_digest() {
    let (registry, pushed, folder) = with_chart(RegistryOptions::default()).await;
    assert_eq!(pushed.url, format!("oci://{}/team/web", registry.host()));
    assert_eq!(pushed.tag, "1.0.0_one");
    let caller = Caller::new(registry.url());
    assert_eq!(caller.get("/v2/").await.status, 200);
    let by_tag = caller.get("/v2/team/web/manifests/1.0.0_one").await;
    let by_digest = caller.get(&format!("/v2/team/web/manifests/{}", pushed.digest)).await;
    assert_eq!(by_tag.text, by_digest.text);
    assert_eq!(by_tag.headers["docker-content-digest"], pushed.digest.as_str());
    assert_eq!(by_tag.headers["content-type"], "application/vnd.oci.image.manifest.v1+json");
    assert_eq!(by_tag.json["config"]["mediaType"], "application/vnd.cncf.helm.config.v1+json");
    let head = caller.send(Method::HEAD, "/v2/team/web/manifests/1.0.0_one", "", None).await;
    assert_eq!(head.headers["content-length"], by_tag.text.len().to_string().as_str());
    let (digest, size) = layer(&caller, &by_tag).await;
    let blob = fetch(format!("{}/v2/team/web/blobs/{digest}", registry.url())).await;
    let bytes = blob.bytes().await.unwrap();
    assert_eq!(bytes, package(&folder.path().join("web")).unwrap(), "the same folder gives the same bytes");
    let hex: String = Sha256::digest(&bytes).iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!((digest, size), (format!("sha256:{hex}"), bytes.len() as u64));
    let config = by_tag.json["config"]["digest"].as_str().unwrap();
    assert_eq!(caller.get(&format!("/v2/team/web/blobs/{config}")).await.json["version"], "1.0.0+one");
    for unknown in
        ["/v2/team/web/manifests/2.0.0", "/v2/other/manifests/1.0.0_one", "/v2/team/web/blobs/sha256:0"]
    {
        let missing = caller.get(unknown).await;
        assert_eq!((missing.status, missing.json["errors"].is_array()), (404, true), "{unknown}");
    }
}

#[tokio::test]
async fn tags_are_paged() {
    let folder = tempfile::tempdir().unwrap();
    let registry = Registry::start(RegistryOptions::default()).await;
    for version in ["1.0.0", "1.1.0", "2.0.0"] {
        registry.push_chart(&chart(folder.path(), "web", version), "web").unwrap();
    }
    let caller = Caller::new(registry.url());
    let first = caller.get("/v2/web/tags/list?n=2").await;
    assert_eq!(first.json["tags"], serde_json::json!(["1.0.0", "1.1.0"]));
    let next = first.headers["link"].to_str().unwrap().split(['<', '>']).nth(1).unwrap().to_owned();
    let second = caller.get(&next).await;
    assert_eq!((&second.json["tags"], second.headers.get("link")), (&serde_json::json!(["2.0.0"]), None));
    assert_eq!(caller.get("/v2/nobody/tags/list").await.status, 404);
}

#[tokio::test]
async fn basic_users_are_asked_for_their_password() {
    let auth = Auth::Basic { user: "u".into(), password: "p".into() };
    let (registry, _, _folder) = with_chart(RegistryOptions { auth, ..Default::default() }).await;
    let url = format!("{}/v2/team/web/manifests/1.0.0_one", registry.url());
    let get = async |password: Option<&str>| {
        let request = sutler_testkit::http::client().get(&url);
        let request = if password.is_some() { request.basic_auth("u", password) } else { request };
        request.send().await.unwrap()
    };
    let refused = get(None).await;
    assert_eq!(
        (
            refused.status().as_u16(),
            refused.headers()["www-authenticate"].to_str().unwrap().starts_with("Basic ")
        ),
        (401, true)
    );
    assert_eq!(get(Some("wrong")).await.status(), 401);
    assert_eq!(get(Some("p")).await.status(), 200);
}

#[tokio::test]
async fn tokens_are_for_one_repository_and_end() {
    let expires = Duration::from_secs(1);
    let auth = Auth::Bearer { user: "u".into(), password: "p".into(), expires };
    let (registry, _, _folder) = with_chart(RegistryOptions { auth, ..Default::default() }).await;
    let caller = Caller::new(registry.url());
    let manifest = "/v2/team/web/manifests/1.0.0_one";
    let refused = caller.get(manifest).await;
    let challenge = refused.headers["www-authenticate"].to_str().unwrap().to_owned();
    assert_eq!(
        challenge,
        format!(
            "Bearer realm=\"{}/token\",service=\"sutler-test-registry\",scope=\"repository:team/web:pull\"",
            registry.url()
        )
    );
    let token = async |scope: &str, password: &str| {
        let url = format!("{}/token?service=sutler-test-registry&scope={scope}", registry.url());
        let basic = STANDARD.encode(format!("u:{password}"));
        let request =
            sutler_testkit::http::client().get(url).header("authorization", format!("Basic {basic}"));
        let answer: serde_json::Value = request.send().await.unwrap().json().await.unwrap();
        answer["token"].as_str().map(str::to_owned)
    };
    assert_eq!(token("repository:team/web:pull", "wrong").await, None);
    let other = token("repository:team/other:pull", "p").await.unwrap();
    assert_eq!(caller.clone().with_token(other).get(manifest).await.status, 401);
    let right = token("repository:team/web:pull", "p").await.unwrap();
    assert_eq!(registry.tokens_issued(), 2);
    assert_eq!(caller.clone().with_token(right.as_str()).get(manifest).await.status, 200);
    tokio::time::sleep(expires).await;
    assert_eq!(caller.with_token(right).get(manifest).await.status, 401);
}

#[tokio::test]
async fn tls_is_of_its_own_authority() {
    let (registry, _, _folder) = with_chart(RegistryOptions { tls: true, ..Default::default() }).await;
    let url = format!("{}/v2/", registry.url());
    assert!(url.starts_with("https://"));
    // The client of this workspace has no TLS: rustls itself is the judge.
    let mut roots = rustls::RootCertStore::empty();
    let pem = registry.ca_pem().unwrap();
    let der = rustls::pki_types::CertificateDer::from(
        STANDARD.decode(pem.lines().filter(|l| !l.contains("-----")).collect::<String>()).unwrap(),
    );
    roots.add(der).unwrap();
    let handshake = async |roots: rustls::RootCertStore| {
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = tokio::net::TcpStream::connect(registry.host()).await.unwrap();
        let name = "127.0.0.1".try_into().unwrap();
        let connector = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config));
        let mut stream = connector.connect(name, stream).await?;
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        stream.write_all(b"GET /v2/ HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await?;
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text).await;
        Ok::<_, std::io::Error>(text)
    };
    assert!(handshake(roots).await.unwrap().starts_with("HTTP/1.1 200 OK"));
    assert!(handshake(rustls::RootCertStore::empty()).await.is_err());
}

#[tokio::test]
async fn it_misbehaves_as_told() {
    let (registry, pushed, _folder) = with_chart(RegistryOptions::default()).await;
    let caller = Caller::new(registry.url());
    let manifest = caller.get(&format!("/v2/team/web/manifests/{}", pushed.digest)).await;
    let path = format!("/v2/team/web/blobs/{}", manifest.json["layers"][0]["digest"].as_str().unwrap());
    let blob = async || fetch(format!("{}{path}", registry.url())).await;
    let right = blob().await.bytes().await.unwrap();

    registry.misbehave(Misbehaviour::WrongDigest);
    let wrong = blob().await.bytes().await.unwrap();
    assert!(wrong.len() == right.len() && wrong != right);
    registry.misbehave(Misbehaviour::Truncate);
    assert!(blob().await.bytes().await.is_err());
    registry.misbehave(Misbehaviour::DropBlob);
    assert_eq!(blob().await.status(), 404);
    registry.misbehave(Misbehaviour::Redirect(format!("{}/elsewhere", registry.url())));
    let moved = caller.get(&path).await;
    assert_eq!(moved.status, 307);
    let elsewhere = fetch(moved.headers["location"].to_str().unwrap()).await;
    assert_eq!(elsewhere.bytes().await.unwrap(), right);
    registry.misbehave(Misbehaviour::WrongManifest);
    assert_ne!(caller.get(&format!("/v2/team/web/manifests/{}", pushed.digest)).await.text, manifest.text);
    registry.misbehave(Misbehaviour::Status(503));
    assert_eq!(caller.get("/v2/").await.status, 503);
    registry.misbehave(Misbehaviour::NotARegistry);
    assert!(caller.get("/v2/").await.text.contains("<html>"));
    registry.behave();
    assert_eq!(blob().await.bytes().await.unwrap(), right);
}

#[tokio::test]
async fn others_can_push() {
    let registry = Registry::start(RegistryOptions::default()).await;
    let caller = Caller::new(registry.url());
    let digest =
        format!("sha256:{}", Sha256::digest("{}").iter().map(|b| format!("{b:02x}")).collect::<String>());
    let begun = caller.send(Method::POST, "/v2/a/blobs/uploads/", "", None).await;
    let location = begun.headers["location"].to_str().unwrap().to_owned();
    let wrong = caller.send(Method::PUT, &format!("{location}?digest=sha256:0"), "", Some("{}".into())).await;
    assert_eq!((begun.status, wrong.status), (202, 400));
    let one = caller
        .send(Method::POST, &format!("/v2/a/blobs/uploads/?digest={digest}"), "", Some("{}".into()))
        .await;
    assert_eq!(one.status, 201);
    let manifest =
        |digest: &str| format!(r#"{{"schemaVersion":2,"config":{{"digest":"{digest}"}},"layers":[]}}"#);
    let put = async |body: String| {
        caller.send(Method::PUT, "/v2/a/manifests/t", "application/x", Some(body)).await.status
    };
    assert_eq!(put(manifest("sha256:0")).await, 400);
    assert_eq!(put(manifest(&digest)).await, 201);
    assert_eq!(caller.get("/v2/a/manifests/t").await.headers["content-type"], "application/x");
}

#[tokio::test]
async fn a_folder_of_charts_is_served() {
    let folder = tempfile::tempdir().unwrap();
    chart(folder.path(), "one", "1.0.0");
    let two = chart(&folder.path().join("nested"), "two", "2.0.0");
    chart(&two.join("charts"), "sub", "0.1.0");
    let registry = Registry::serve_folder(folder.path()).await.unwrap();
    let caller = Caller::new(registry.url());
    assert_eq!(caller.get("/v2/charts/one/manifests/1.0.0").await.status, 200);
    assert_eq!(caller.get("/v2/charts/two/manifests/2.0.0").await.status, 200);
    assert_eq!(caller.get("/v2/charts/sub/tags/list").await.status, 404);

    let empty = tempfile::tempdir().unwrap();
    assert!(matches!(Registry::serve_folder(empty.path()).await.err(), Some(ChartError::NoCharts(_))));
    std::fs::write(empty.path().join("Chart.yaml"), "name: x\n").unwrap();
    let nameless = Registry::serve_folder(empty.path()).await.err().unwrap().to_string();
    assert!(nameless.contains("no version"), "{nameless}");
}
