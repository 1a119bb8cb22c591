//! Logins, TLS and redirects.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use sutler_helm::{Chart, ChartReference, Error, RegistryConfig};
use sutler_model::Mode;
use sutler_testkit::registry::{Auth, Misbehaviour, Registry, RegistryOptions};

use crate::support::{call, chart, engine, grants, helm};

async fn start(auth: Auth, tls: bool) -> Registry {
    let registry = Registry::start(RegistryOptions { auth, tls, ..RegistryOptions::default() }).await;
    registry.push_archive(chart("app", "1.0.0"), "charts/app").unwrap();
    registry
}

fn user(password: &str) -> (String, String) {
    ("robot".into(), password.into())
}

async fn pull(registry: &Registry, config: Value) -> Result<Chart, Error> {
    let folder = tempfile::tempdir().unwrap();
    let config: RegistryConfig = serde_json::from_value(config).unwrap();
    let helm = helm(folder.path(), &BTreeMap::from([(registry.host(), config)]), None, engine());
    let url = format!("oci://{}/charts/app", registry.host());
    let reference = ChartReference { url: url.clone(), version: Some("^1".into()), digest: None };
    helm.pull(&call(Mode::Plan), &grants(json!({"charts": [url]})), &reference).await
}

fn refused(got: Result<Chart, Error>, part: &str) {
    let e = got.unwrap_err();
    assert!(matches!(&e, Error::Registry(m) if m.contains(part) && !m.contains("hunter2")), "{e:?}");
}

#[tokio::test]
async fn basic() {
    let (user, password) = user("hunter2");
    let registry = start(Auth::Basic { user, password }, false).await;
    pull(&registry, json!({"plain-http": true, "username": "robot", "password": "hunter2"})).await.unwrap();
    refused(
        pull(&registry, json!({"plain-http": true, "username": "robot", "password": "wrong"})).await,
        "refused the credentials of user robot (401)",
    );
    refused(
        pull(&registry, json!({"plain-http": true})).await,
        "refused a request without credentials (401)",
    );
}

#[tokio::test]
async fn bearer() {
    let (user, password) = user("hunter2");
    let registry = start(Auth::Bearer { user, password, expires: Duration::from_secs(300) }, false).await;
    pull(&registry, json!({"plain-http": true, "username": "robot", "password": "hunter2"})).await.unwrap();
    assert_eq!(registry.tokens_issued(), 1, "one token for the whole pull");
    refused(
        pull(&registry, json!({"plain-http": true, "username": "robot", "password": "wrong"})).await,
        "refused the credentials of user robot",
    );
    refused(
        pull(&registry, json!({"plain-http": true, "token": "hunter2"})).await,
        "refused the configured token",
    );
    let basic = registry
        .requests()
        .into_iter()
        .filter(|r| r.authorization.as_deref().is_some_and(|a| a.starts_with("Basic")));
    assert!(basic.into_iter().all(|r| r.path == "/token"), "the password goes to the token endpoint alone");
}

#[tokio::test]
async fn anonymous_tokens() {
    let registry = start(
        Auth::Bearer { user: String::new(), password: String::new(), expires: Duration::from_secs(60) },
        false,
    )
    .await;
    pull(&registry, json!({"plain-http": true})).await.unwrap();
}

#[tokio::test]
async fn a_private_authority() {
    let (user, password) = user("hunter2");
    let registry = start(Auth::Basic { user, password }, true).await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, registry.ca_pem().unwrap()).unwrap();
    let login = |more: Value| {
        let mut all = json!({"username": "robot", "password": "hunter2"});
        all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        all
    };
    pull(&registry, login(json!({"ca": ca}))).await.unwrap();
    registry.forget_requests();
    for config in [login(json!({})), login(json!({"plain-http": true}))] {
        let e = pull(&registry, config).await.unwrap_err();
        assert!(!e.to_string().contains("hunter2"), "{e}");
    }
    assert!(registry.requests().is_empty(), "no request without trust");
}

#[tokio::test]
async fn credentials_stay_with_their_host() {
    let (user, password) = user("hunter2");
    let registry = start(Auth::Basic { user, password }, false).await;
    let other = start(Auth::None, false).await;
    registry.misbehave(Misbehaviour::Redirect(format!("{}/elsewhere", other.url())));
    pull(&registry, json!({"plain-http": true, "username": "robot", "password": "hunter2"})).await.unwrap();
    let seen = other.requests();
    assert!(!seen.is_empty() && seen.iter().all(|r| r.authorization.is_none()), "{seen:?}");
}

#[tokio::test]
async fn redirects_that_are_not_followed() {
    let registry = start(Auth::None, false).await;
    registry.misbehave(Misbehaviour::Redirect("http://169.254.169.254/latest".into()));
    refused(pull(&registry, json!({"plain-http": true})).await, "link-local addresses are not followed");
    registry.misbehave(Misbehaviour::Redirect("file:///etc".into()));
    refused(pull(&registry, json!({"plain-http": true})).await, "only https is followed");
    let secure = start(Auth::None, true).await;
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, secure.ca_pem().unwrap()).unwrap();
    secure.misbehave(Misbehaviour::Redirect(registry.url()));
    refused(pull(&secure, json!({"ca": ca})).await, "only https is followed");
    registry.behave();
    registry.misbehave(Misbehaviour::Redirect(String::new()));
    refused(pull(&registry, json!({"plain-http": true})).await, "redirects more than 5 times");
}

#[tokio::test]
async fn nobody_there() {
    let registry = start(Auth::None, false).await;
    let host = registry.host();
    drop(registry);
    let folder = tempfile::tempdir().unwrap();
    let config: RegistryConfig = serde_json::from_value(json!({"plain-http": true})).unwrap();
    let helm = helm(folder.path(), &BTreeMap::from([(host.clone(), config)]), None, engine());
    let url = format!("oci://{host}/charts/app");
    let reference = ChartReference { url: url.clone(), version: Some("1.0.0".into()), digest: None };
    let e = helm.pull(&call(Mode::Plan), &grants(json!({"charts": [url]})), &reference).await.unwrap_err();
    assert!(matches!(&e, Error::Unavailable(m) if m.contains("cannot be reached")), "{e:?}");
}
