//! Real sockets: slow clients, too many, clients that leave, the end of a host, TLS.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use expect_test::expect;
use sutler_api::{Api, ApiConfig, Running, Server, ServerOptions, TlsConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::fake::{Fake, access, api, body, fake, get, post, send, shown};

struct Host {
    address: SocketAddr,
    api: Api,
    stop: CancellationToken,
    run: JoinHandle<Vec<Running>>,
}

async fn host(fake: &Arc<Fake>, config: ApiConfig, tls: Option<TlsConfig>) -> Host {
    let options = ServerOptions::from(&config);
    let api = api(fake, access(), config);
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), tls, options).unwrap();
    let (address, stop) = (server.address(), CancellationToken::new());
    let (router, stopped, own) = (sutler_api::router(&api), stop.clone(), api.clone());
    let run = tokio::spawn(async move { server.run(router, &own, stopped).await.unwrap() });
    Host { address, api, stop, run }
}

fn http(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: sutler\r\nauthorization: Bearer caller\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn read(stream: &mut TcpStream) -> String {
    let mut out = Vec::new();
    tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut out)).await.unwrap().unwrap();
    String::from_utf8(out).unwrap()
}

async fn until(what: &str, done: impl Fn() -> bool) {
    let began = Instant::now();
    while !done() {
        assert!(began.elapsed() < Duration::from_secs(10), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn quick() -> ApiConfig {
    ApiConfig {
        body_timeout_seconds: 1,
        header_timeout_seconds: 1,
        shutdown_grace_seconds: 1,
        ..ApiConfig::default()
    }
}

#[tokio::test]
async fn a_slow_body_is_408() {
    let host = host(&fake(), quick(), None).await;
    let mut client = TcpStream::connect(host.address).await.unwrap();
    let whole = http("/plan", &body("r-1").to_string());
    client.write_all(&whole.as_bytes()[..whole.len() - 10]).await.unwrap();
    let answer = read(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("connection: close"), "{answer}");
    assert!(
        answer.ends_with(
            r#"{"error":{"code":"request-timeout","message":"the body did not arrive within 1 s"}}"#
        ),
        "{answer}"
    );
}

#[tokio::test]
async fn clients_that_do_not_finish_their_headers_are_cut_off() {
    let host = host(&fake(), quick(), None).await;
    for begun in ["", "PRI", "GET /healthz HTTP/1.1\r\nhost: sut"] {
        let mut client = TcpStream::connect(host.address).await.unwrap();
        client.write_all(begun.as_bytes()).await.unwrap();
        let began = Instant::now();
        read(&mut client).await;
        assert!(began.elapsed() < Duration::from_secs(4), "{begun:?}");
    }
    // Also the second request of a connection.
    let mut client = TcpStream::connect(host.address).await.unwrap();
    client.write_all(b"GET /healthz HTTP/1.1\r\nhost: sutler\r\n\r\nGET /hea").await.unwrap();
    let began = Instant::now();
    assert!(read(&mut client).await.starts_with("HTTP/1.1 200 "));
    assert!(began.elapsed() < Duration::from_secs(4));
    let mut client = TcpStream::connect(host.address).await.unwrap();
    client
        .write_all(
            format!("GET /healthz HTTP/1.1\r\nhost: sutler\r\nx: {}\r\n\r\n", "x".repeat(100_000)).as_bytes(),
        )
        .await
        .unwrap();
    assert!(read(&mut client).await.starts_with("HTTP/1.1 431 "));
}

#[tokio::test]
async fn overload_is_503_before_any_work() {
    let fake = fake();
    let api = api(&fake, access(), ApiConfig { max_concurrent_requests: 1, ..ApiConfig::default() });
    let router = sutler_api::router(&api);
    let first = tokio::spawn({
        let router = router.clone();
        async move { send(&router, post("/plan", body("slow").to_string())).await }
    });
    until("the first runs", || api.running().len() == 1).await;
    expect![[r#"
        503 retry-after: 1
        {"error":{"code":"overloaded","message":"this host is at its limit of 1 requests at once; try again in 1 s"}}"#]].assert_eq(&shown(send(&router, post("/plan", body("r-2").to_string())).await).await);
    assert_eq!(send(&router, get("/healthz")).await.status(), 200, "health answers under load");
    assert!(fake.plans.lock().unwrap().is_empty());
    fake.go.notify_one();
    assert_eq!(first.await.unwrap().status(), 200);
    assert_eq!(send(&router, post("/plan", body("r-3").to_string())).await.status(), 200);
}

#[tokio::test]
async fn an_apply_goes_on_when_its_client_leaves() {
    let fake = fake();
    let host = host(&fake, ApiConfig::default(), None).await;
    let mut client = TcpStream::connect(host.address).await.unwrap();
    client.write_all(http("/apply", &body("slow").to_string()).as_bytes()).await.unwrap();
    until("it runs", || host.api.running().len() == 1).await;
    drop(client);
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(host.api.running().len(), 1, "the work holds its place");
    host.stop.cancel();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!host.run.is_finished(), "a stopping host waits for it");
    fake.go.notify_one();
    fake.applied.notified().await;
    assert_eq!(host.run.await.unwrap(), []);
    assert_eq!(host.api.running(), []);
}

#[tokio::test]
async fn a_stopping_host_lets_requests_finish() {
    let fake = fake();
    let host = host(&fake, ApiConfig::default(), None).await;
    let mut idle = TcpStream::connect(host.address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nhost: sutler\r\n\r\n").await.unwrap();
    let mut client = TcpStream::connect(host.address).await.unwrap();
    client.write_all(http("/plan", &body("slow").to_string()).as_bytes()).await.unwrap();
    until("it runs", || host.api.running().iter().any(|r| r.route == "/plan")).await;
    host.stop.cancel();
    assert!(read(&mut idle).await.starts_with("HTTP/1.1 200 "), "idle connections end");
    until("no new connection", || std::net::TcpStream::connect(host.address).is_err()).await;
    assert!(!host.run.is_finished());
    fake.go.notify_one();
    let answer = read(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("connection: close"), "{answer}");
    assert_eq!(host.run.await.unwrap(), []);
}

#[tokio::test]
async fn what_does_not_finish_is_named() {
    let fake = fake();
    let host = host(&fake, quick(), None).await;
    let mut client = TcpStream::connect(host.address).await.unwrap();
    let request =
        http("/plan", &body("slow").to_string()).replacen("host:", "x-request-id: mine\r\nhost:", 1);
    client.write_all(request.as_bytes()).await.unwrap();
    until("it runs", || host.api.running().len() == 1).await;
    let began = Instant::now();
    host.stop.cancel();
    let left = host.run.await.unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1) && began.elapsed() < Duration::from_secs(5));
    let left: Vec<_> =
        left.iter().map(|r| (r.method, r.route, &*r.request_id, r.caller.as_deref())).collect();
    assert_eq!(left, [("POST", "/plan", "mine", Some("axual"))]);
    assert_eq!(read(&mut client).await, "");
}

#[tokio::test]
async fn listening_that_cannot_be() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = Server::bind(address, None, (&ApiConfig::default()).into()).unwrap_err().to_string();
    assert!(
        error.contains(&address.to_string())
            && error.ends_with("another process listens there; stop it or choose another port"),
        "{error}"
    );
    let tls = TlsConfig {
        certificate: "/nonexistent/tls.crt".into(),
        key: "/nonexistent/tls.key".into(),
        client_ca: None,
    };
    let error = Server::bind("127.0.0.1:0".parse().unwrap(), Some(tls), (&ApiConfig::default()).into())
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("cannot read the certificate /nonexistent/tls.crt: "), "{error}");
}

struct Authority {
    certificate: rcgen::Certificate,
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
}

fn authority() -> Authority {
    let key = rcgen::KeyPair::generate().unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    Authority { certificate, issuer: rcgen::Issuer::new(params, key) }
}

/// (certificate, key), PEM.
fn issue(authority: &Authority, name: &str) -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
    (params.signed_by(&key, &authority.issuer).unwrap().pem(), key.serialize_pem())
}

fn client(authority: &Authority, identity: Option<&(String, String)>) -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let root = reqwest::Certificate::from_pem(authority.certificate.pem().as_bytes()).unwrap();
    let mut builder = reqwest::Client::builder()
        .tls_certs_only([root])
        .timeout(Duration::from_secs(10))
        .pool_max_idle_per_host(0);
    if let Some((certificate, key)) = identity {
        builder =
            builder.identity(reqwest::Identity::from_pem(format!("{certificate}{key}").as_bytes()).unwrap());
    }
    builder.build().unwrap()
}

#[tokio::test]
async fn tls_with_client_certificates_and_reload() {
    let (server_ca, client_ca, next_ca) = (authority(), authority(), authority());
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let put = |ca: &Authority| {
        let (certificate, key) = issue(ca, "localhost");
        std::fs::write(at("tls.key"), key).unwrap();
        std::fs::write(at("tls.crt"), certificate).unwrap();
    };
    put(&server_ca);
    std::fs::write(at("ca.crt"), client_ca.certificate.pem()).unwrap();
    let tls = TlsConfig { certificate: at("tls.crt"), key: at("tls.key"), client_ca: Some(at("ca.crt")) };
    let host = host(&fake(), ApiConfig::default(), Some(tls)).await;
    let url = format!("https://localhost:{}/healthz", host.address.port());
    let mine = issue(&client_ca, "axual");
    assert_eq!(client(&server_ca, Some(&mine)).get(&url).send().await.unwrap().status(), 200);
    assert!(client(&server_ca, None).get(&url).send().await.is_err(), "without a certificate");
    let foreign = issue(&server_ca, "axual");
    assert!(client(&server_ca, Some(&foreign)).get(&url).send().await.is_err(), "of another authority");
    // A broken file changes nothing; a good one is taken up without a restart.
    std::fs::write(at("tls.crt"), "half a file").unwrap();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert_eq!(client(&server_ca, Some(&mine)).get(&url).send().await.unwrap().status(), 200);
    put(&next_ca);
    let renewed = client(&next_ca, Some(&mine));
    let began = Instant::now();
    while renewed.get(&url).send().await.is_err() {
        assert!(began.elapsed() < Duration::from_secs(15), "the new certificate is not used");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    host.stop.cancel();
    assert_eq!(host.run.await.unwrap(), []);
}
