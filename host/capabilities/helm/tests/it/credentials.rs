//! `docker-config`: logins from files, and tokens for what they hold.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use sutler_helm::{ChartReference, Error, Helm, RegistryConfig};
use sutler_model::Mode;
use sutler_testkit::registry::{Auth, Fault, Registry, RegistryOptions};

use crate::support::{call, chart, engine, grants, helm};

struct World {
    registry: Registry,
    folder: tempfile::TempDir,
}

impl World {
    async fn new(auth: Auth) -> Self {
        let registry = Registry::start(RegistryOptions { auth, ..RegistryOptions::default() }).await;
        for version in ["1.0.0", "2.0.0"] {
            registry.push_archive(chart("app", version), "charts/app").unwrap();
        }
        Self { registry, folder: tempfile::tempdir().unwrap() }
    }

    fn write(&self, entry: &Value) {
        let config = json!({"auths": {self.registry.host(): entry}});
        std::fs::write(self.folder.path().join("config.json"), config.to_string()).unwrap();
    }

    fn helm(&self, folder: &Path) -> Helm {
        let file = self.folder.path().join("config.json");
        let table: RegistryConfig =
            serde_json::from_value(json!({"plain-http": true, "docker-config": file})).unwrap();
        helm(folder, &BTreeMap::from([(self.registry.host(), table)]), None, engine())
    }

    async fn pull(&self, helm: &Helm, version: &str) -> Result<(), Error> {
        let url = format!("oci://{}/charts/app", self.registry.host());
        let reference = ChartReference { url: url.clone(), version: Some(version.into()), digest: None };
        helm.pull(&call(Mode::Plan), &grants(json!({"charts": [url]})), &reference).await.map(drop)
    }
}

fn auth(user: &str, password: &str) -> Value {
    json!({"auth": base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"))})
}

#[tokio::test]
async fn a_password_that_changes_is_read_again() {
    for bearer in [false, true] {
        let (user, password) = ("robot".to_owned(), "right-one".to_owned());
        let expires = Duration::from_secs(300);
        let kind =
            if bearer { Auth::Bearer { user, password, expires } } else { Auth::Basic { user, password } };
        let w = World::new(kind).await;
        w.write(&auth("robot", "wrong-one"));
        let helm = w.helm(w.folder.path());
        let e = w.pull(&helm, "1.0.0").await.unwrap_err();
        assert!(e.to_string().contains("refused the credentials of user robot (401)"), "{e}");
        assert!(!e.to_string().contains("wrong-one"), "{e}");
        w.write(&auth("robot", "right-one"));
        w.pull(&helm, "1.0.0").await.unwrap();
        w.pull(&helm, "2.0.0").await.unwrap();
        assert_eq!(w.registry.tokens_issued(), usize::from(bearer), "one token, until it expires");
    }
}

#[tokio::test]
async fn tokens_end_and_are_asked_for_again() {
    let (user, password) = ("robot".to_owned(), "right-one".to_owned());
    let w = World::new(Auth::Bearer { user, password, expires: Duration::ZERO }).await;
    w.write(&auth("robot", "right-one"));
    let helm = w.helm(w.folder.path());
    // Each is over before it can be used: a new one once, and then no more.
    let e = w.pull(&helm, "1.0.0").await.unwrap_err();
    assert!(e.to_string().contains("refused the credentials"), "{e}");
    assert!(w.registry.tokens_issued() <= 2, "{}", w.registry.tokens_issued());
}

#[tokio::test]
async fn an_identity_token_is_changed_for_one() {
    let w = World::new(Auth::None).await;
    w.write(&json!({"auth": "MDAwOg==", "identitytoken": "refresh-me"}));
    let realm = format!("Bearer realm=\"{}/token\",service=\"s\"", w.registry.url());
    w.registry.answer_with(move |r| match (r.path.as_str(), r.method.as_str(), r.authorization.as_deref()) {
        ("/token", "POST", None) => {
            Some(Fault::new(200, "application/json", r#"{"access_token": "a", "expires_in": 300}"#))
        }
        ("/token", _, _) => Some(Fault::new(405, "application/json", "")),
        (_, _, Some("Bearer a")) => None,
        _ => Some(Fault::new(401, "application/json", "").header("www-authenticate", realm.clone())),
    });
    w.pull(&w.helm(w.folder.path()), "1.0.0").await.unwrap();
    let seen = w.registry.requests();
    assert_eq!(seen.iter().filter(|r| r.path == "/token").count(), 1, "{seen:?}");
    assert!(
        seen.iter().all(|r| !format!("{r:?}").contains("refresh-me")),
        "it is in the body alone: {seen:?}"
    );

    w.registry.answer_with(|r| {
        let realm = "Bearer realm=\"http://127.0.0.1:1/token\"";
        (r.path != "/token").then(|| Fault::new(401, "text/plain", "").header("www-authenticate", realm))
    });
    let other = tempfile::tempdir().unwrap();
    let e = w.pull(&w.helm(other.path()), "1.0.0").await.unwrap_err();
    assert!(!e.to_string().contains("refresh-me"), "{e}");
}

#[tokio::test]
async fn a_ready_token_and_no_entry() {
    let w = World::new(Auth::None).await;
    w.write(&json!({"registrytoken": "ready"}));
    w.registry.answer_with(|r| {
        let ready = r.authorization.as_deref() == Some("Bearer ready");
        (!ready).then(|| Fault::new(401, "text/plain", ""))
    });
    w.pull(&w.helm(w.folder.path()), "1.0.0").await.unwrap();
    std::fs::write(w.folder.path().join("config.json"), "{}").unwrap();
    let other = tempfile::tempdir().unwrap();
    let e = w.pull(&w.helm(other.path()), "1.0.0").await.unwrap_err();
    assert!(e.to_string().contains("refused a request without credentials"), "{e}");
}
