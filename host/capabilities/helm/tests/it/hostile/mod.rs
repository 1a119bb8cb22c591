//! Artifacts and registries that attack, lie or break: each is refused with its own error, within its time, leaves
//! nothing in the cache, and no other host sees a credential.

mod answers;
mod archives;
mod logins;
mod manifests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sutler_helm::{ChartReference, Error};
use sutler_model::Mode;
use sutler_testkit::registry::{Auth, Fault, Registry, RegistryOptions};

use crate::support::{call, engine, grants, helm};

pub(crate) const CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
pub(crate) const CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const REPOSITORY: &str = "charts/app";

/// The error's kind: what a plugin would do about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// For good.
    Registry,
    TooLarge,
    /// May be tried again.
    Unavailable,
    TimedOut,
}

/// A registry with one user, and another host that must not hear of them.
struct Place {
    registry: Registry,
    other: Registry,
    version: Option<&'static str>,
    deadline: Duration,
}

type Prepare = fn(&mut Place);

/// What is wrong, the error's kind and a part of its text, and how it is made.
type Case = (&'static str, Kind, &'static str, Prepare);

impl Place {
    async fn new() -> Self {
        let auth = Auth::Basic { user: "robot".into(), password: "hunter2".into() };
        Self {
            registry: Registry::start(RegistryOptions { auth, ..RegistryOptions::default() }).await,
            other: Registry::start(RegistryOptions::default()).await,
            version: Some("1.0.0"),
            deadline: Duration::from_secs(20),
        }
    }

    fn blob(&self, bytes: impl Into<Vec<u8>>) -> Value {
        let bytes = bytes.into();
        let size = bytes.len();
        json!({"mediaType": CONTENT, "digest": self.registry.push_blob(REPOSITORY, bytes), "size": size})
    }

    fn manifest(&self, text: impl Into<bytes::Bytes>) {
        self.registry.push_manifest(REPOSITORY, "1.0.0", MANIFEST, text);
    }

    fn artifact(&self, config: &str, layers: &Value) {
        let config = json!({"mediaType": config, "digest": format!("sha256:{:064}", 0), "size": 2});
        self.manifest(json!({"schemaVersion": 2, "config": config, "layers": layers}).to_string());
    }

    /// A chart's artifact around any bytes.
    fn archive(&self, bytes: Vec<u8>) {
        let layer = self.blob(bytes);
        self.artifact(CONFIG, &json!([layer]));
    }

    fn good(&self) {
        self.archive(crate::support::chart("app", "1.0.0"));
    }

    /// Answers every request whose path has this part.
    fn answers(&self, part: &'static str, fault: Fault) {
        self.registry.answer_with(move |r| r.path.contains(part).then(|| fault.clone()));
    }

    async fn refused(&self, what: &str, kind: Kind, says: &str) {
        let host = self.registry.host();
        let folder = tempfile::tempdir().unwrap();
        let login = json!({"plain-http": true, "username": "robot", "password": "hunter2"});
        let tables = BTreeMap::from([(host.clone(), serde_json::from_value(login).unwrap())]);
        let helm = helm(folder.path(), &tables, None, engine());
        let url = format!("oci://{host}/{REPOSITORY}");
        let reference =
            ChartReference { url: url.clone(), version: self.version.map(Into::into), digest: None };
        let started = Instant::now();
        let call = sutler_model::Call { deadline: started + self.deadline, ..call(Mode::Plan) };
        let got = helm.pull(&call, &grants(json!({"charts": [url]})), &reference).await;
        let e = got.map(drop).expect_err(what);
        let text = e.to_string();
        let found = match e {
            Error::Registry(_) => Kind::Registry,
            Error::TooLarge(_) => Kind::TooLarge,
            Error::Unavailable(_) => Kind::Unavailable,
            Error::TimedOut => Kind::TimedOut,
            e => panic!("{what}: {e:?}"),
        };
        assert!(found == kind && text.contains(says), "{what}: {found:?}: {text}");
        let names = text.contains(&host) && text.contains(REPOSITORY);
        assert!(names || kind == Kind::TimedOut, "{what} names registry and repository: {text}");
        assert!(!text.contains("hunter2") && text.len() < 1000, "{what}: {text}");
        assert!(
            started.elapsed() < self.deadline + Duration::from_secs(2),
            "{what}: {:?}",
            started.elapsed()
        );
        assert_eq!(files(&folder.path().join("charts")), 0, "{what}: something is left in the cache");
        let seen = self.other.requests();
        assert!(seen.iter().all(|r| r.authorization.is_none()), "{what}: {seen:?}");
    }
}

fn files(folder: &std::path::Path) -> usize {
    std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .map(|path| if path.is_dir() { files(&path) } else { 1 })
        .sum()
}

async fn all_refused(cases: &[Case]) {
    for (what, kind, says, prepare) in cases {
        let mut place = Place::new().await;
        prepare(&mut place);
        place.refused(what, *kind, says).await;
    }
}

#[tokio::test]
async fn the_cases_stand_on_a_chart_that_is_taken() {
    let place = Place::new().await;
    place.good();
    let folder = tempfile::tempdir().unwrap();
    let login = json!({"plain-http": true, "username": "robot", "password": "hunter2"});
    let tables = BTreeMap::from([(place.registry.host(), serde_json::from_value(login).unwrap())]);
    let helm = helm(folder.path(), &tables, None, engine());
    let url = format!("oci://{}/{REPOSITORY}", place.registry.host());
    let reference = ChartReference { url: url.clone(), version: Some("1.0.0".into()), digest: None };
    helm.pull(&call(Mode::Plan), &grants(json!({"charts": [url]})), &reference).await.unwrap();
    assert_eq!(files(&folder.path().join("charts")), 2, "manifest and content are kept");
}
