//! Pulling through the capability: versions, digests, caches, grants.

use std::collections::BTreeMap;

use serde_json::json;
use sutler_helm::{ChartReference, Error, Helm};
use sutler_model::{Effective, Mode};
use sutler_testkit::registry::{Misbehaviour, Registry, RegistryOptions};

use crate::support::{archive, call, chart, engine, grants, helm};

struct Pull {
    registry: Registry,
    helm: Helm,
    grants: Effective<sutler_helm::Grants>,
    folder: tempfile::TempDir,
}

impl Pull {
    async fn start() -> Self {
        let registry = Registry::start(RegistryOptions::default()).await;
        let folder = tempfile::tempdir().unwrap();
        let helm = Self::helm(&registry, &folder);
        let grants = grants(json!({"charts": [format!("oci://{}/charts/*", registry.host())]}));
        Self { registry, helm, grants, folder }
    }

    fn helm(registry: &Registry, folder: &tempfile::TempDir) -> Helm {
        let plain = serde_json::from_value(json!({"plain-http": true})).unwrap();
        helm(folder.path(), &BTreeMap::from([(registry.host(), plain)]), None, engine())
    }

    fn reference(&self, version: Option<&str>, digest: Option<&str>) -> ChartReference {
        ChartReference {
            url: format!("oci://{}/charts/app", self.registry.host()),
            version: version.map(Into::into),
            digest: digest.map(Into::into),
        }
    }

    async fn pull(&self, version: Option<&str>, digest: Option<&str>) -> Result<sutler_helm::Chart, Error> {
        self.helm.pull(&call(Mode::Plan), &self.grants, &self.reference(version, digest)).await
    }

    fn paths(&self) -> Vec<String> {
        self.registry.requests().iter().map(|r| format!("{} {}", r.method, r.path)).collect()
    }
}

#[tokio::test]
async fn versions_ranges_and_digests() {
    let p = Pull::start().await;
    for version in ["1.0.0", "1.1.0", "1.2.0+build.5", "2.0.0-rc.1"] {
        p.registry.push_archive(chart("app", version), "charts/app").unwrap();
    }
    for (version, expected) in [
        (Some("1.0.0"), "1.0.0"),
        (Some("^1.0"), "1.2.0+build.5"),
        (Some("~1.1"), "1.1.0"),
        (Some("1.2.0+build.5"), "1.2.0+build.5"),
        (Some("2.0.0-rc.1"), "2.0.0-rc.1"),
        (Some(">=2.0.0-0"), "2.0.0-rc.1"),
        (None, "1.2.0+build.5"),
    ] {
        assert_eq!(p.pull(version, None).await.unwrap().version, expected, "{version:?}");
    }
    let pinned = p.pull(Some("1.0.0"), None).await.unwrap().digest.to_string();
    let chart = p.pull(Some("1.1.0"), Some(&pinned)).await.unwrap();
    assert_eq!((chart.version.as_str(), chart.digest.to_string()), ("1.0.0", pinned), "the digest wins");
    let tags = p.helm.tags(&call(Mode::Plan), &p.grants, &p.reference(None, None).url).await.unwrap();
    assert_eq!(tags, ["1.0.0", "1.1.0", "1.2.0_build.5", "2.0.0-rc.1"]);
}

#[tokio::test]
async fn what_does_not_exist() {
    let p = Pull::start().await;
    p.registry.push_archive(chart("app", "1.0.0"), "charts/app").unwrap();
    let zero = format!("sha256:{}", "0".repeat(64));
    for (version, digest, part) in [
        (Some("9.9.9"), None, "has no version 9.9.9"),
        (Some("^9"), None, "has no version that fits ^9"),
        (Some("latest"), None, "fits nothing, so it is a tag: has no version latest"),
        (Some("a b"), None, "neither a version nor a range"),
        (None, Some(zero.as_str()), "has no version sha256:000"),
        (None, Some("sha256:x"), "digest"),
    ] {
        let e = p.pull(version, digest).await.unwrap_err();
        let part = part.rsplit(": ").next().unwrap();
        assert!(matches!(&e, Error::Registry(m) if m.contains(part)), "{version:?}: {e:?}");
    }
    let other = ChartReference {
        url: format!("oci://{}/charts/none", p.registry.host()),
        version: None,
        digest: None,
    };
    let e = p.helm.pull(&call(Mode::Plan), &p.grants, &other).await.unwrap_err();
    assert!(e.to_string().contains("charts/none does not exist"), "{e}");
}

#[tokio::test]
async fn addresses_and_grants() {
    let p = Pull::start().await;
    p.registry.push_archive(chart("app", "1.0.0"), "private/app").unwrap();
    for (url, part) in [
        ("https://charts.example/stable".to_owned(), "only OCI registries are supported"),
        (
            format!("oci://{}/private/app", p.registry.host()),
            "add to [plugins.ksml.grants] in sutler.toml: helm.charts = [",
        ),
        (format!("oci://{}/charts/app:1.0.0", p.registry.host()), "put it in `version`"),
    ] {
        let reference = ChartReference { url, version: Some("1.0.0".into()), digest: None };
        let e = p.helm.pull(&call(Mode::Plan), &p.grants, &reference).await.unwrap_err();
        assert!(e.to_string().contains(part), "{e}");
    }
    assert!(p.registry.requests().is_empty(), "nothing was asked");
}

#[tokio::test]
async fn downloaded_once_and_found_again() {
    let p = Pull::start().await;
    p.registry.push_archive(chart("app", "1.0.0"), "charts/app").unwrap();
    p.pull(Some("1.0.0"), None).await.unwrap();
    p.registry.forget_requests();
    p.pull(Some("1.0.0"), None).await.unwrap();
    assert_eq!(p.paths(), Vec::<String>::new(), "the digest of the tag is trusted for a while");

    // Another process finds the files, and asks for the digest alone.
    let again = Pull { helm: Pull::helm(&p.registry, &p.folder), ..p };
    again.pull(Some("1.0.0"), None).await.unwrap();
    assert_eq!(again.paths(), ["HEAD /v2/charts/app/manifests/1.0.0"]);
}

#[tokio::test]
async fn a_damaged_file_is_pulled_again() {
    let p = Pull::start().await;
    p.registry.push_archive(chart("app", "1.0.0"), "charts/app").unwrap();
    p.pull(Some("1.0.0"), None).await.unwrap();
    for repository in std::fs::read_dir(p.folder.path().join("charts")).unwrap() {
        for file in std::fs::read_dir(repository.unwrap().path()).unwrap() {
            std::fs::write(file.unwrap().path(), "damaged").unwrap();
        }
    }
    let again = Pull { helm: Pull::helm(&p.registry, &p.folder), ..p };
    assert_eq!(again.pull(Some("1.0.0"), None).await.unwrap().version, "1.0.0");
    assert!(again.paths().iter().any(|r| r.contains("/blobs/")));
}

#[tokio::test]
async fn many_at_once_download_once() {
    let p = Pull::start().await;
    p.registry.push_archive(chart("app", "1.0.0"), "charts/app").unwrap();
    let all = futures::future::join_all((0..20).map(|_| p.pull(Some("1.0.0"), None))).await;
    assert!(all.iter().all(Result::is_ok));
    assert_eq!(p.paths().iter().filter(|r| r.contains("/blobs/")).count(), 1);
}

#[tokio::test]
async fn one_who_runs_out_of_time_does_not_stop_the_others() {
    let p = Pull::start().await;
    p.registry.push_archive(chart("app", "1.0.0"), "charts/app").unwrap();
    p.registry.misbehave(Misbehaviour::Delay(std::time::Duration::from_millis(400)));
    let mut hasty = call(Mode::Plan);
    // Enough for the digest, not for the rest.
    hasty.deadline = std::time::Instant::now() + std::time::Duration::from_millis(600);
    let reference = p.reference(Some("1.0.0"), None);
    let (first, second) =
        tokio::join!(p.helm.pull(&hasty, &p.grants, &reference), p.pull(Some("1.0.0"), None));
    assert_eq!(first, Err(Error::TimedOut));
    assert_eq!(second.unwrap().version, "1.0.0");
}

#[tokio::test]
async fn what_is_no_chart() {
    let p = Pull::start().await;
    let push = |tag: &str, config: &str, layers: serde_json::Value| {
        let manifest = json!({"schemaVersion": 2, "config": {"mediaType": config, "digest": "sha256:0", "size": 2}, "layers": layers});
        p.registry.push_manifest(
            "charts/app",
            tag,
            "application/vnd.oci.image.manifest.v1+json",
            manifest.to_string(),
        );
    };
    let helm = "application/vnd.cncf.helm.config.v1+json";
    let content = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
    let blob = |bytes: Vec<u8>| {
        let size = bytes.len();
        (p.registry.push_blob("charts/app", bytes), size)
    };
    let (good, size) = blob(chart("app", "1.0.0"));
    let (bad, bad_size) = blob(b"not gzip".to_vec());
    let (evil, evil_size) = blob(archive(&[("app/../../x", b"x")]));
    let layer =
        |media: &str, digest: &str, size: usize| json!({"mediaType": media, "digest": digest, "size": size});
    let provenance = layer("application/vnd.cncf.helm.chart.provenance.v1.prov", "sha256:1", 3);
    push("1.0.0", "application/vnd.oci.image.config.v1+json", json!([layer(content, &good, size)]));
    push("1.0.1", helm, json!([provenance.clone()]));
    push("1.0.2", helm, json!([layer(content, &bad, bad_size)]));
    push("1.0.3", helm, json!([layer(content, &evil, evil_size)]));
    push("1.0.4", helm, json!([layer(content, &good, 21 << 20)]));
    push("2.0.0", helm, json!([layer("application/tar+gzip", &good, size), provenance]));
    for (version, part) in [
        ("1.0.0", "it is an artifact of type application/vnd.oci.image.config.v1+json"),
        ("1.0.1", "has no layer with a chart"),
        ("1.0.2", "its archive cannot be read"),
        ("1.0.3", "outside its folder"),
    ] {
        let e = p.pull(Some(version), None).await.unwrap_err();
        assert!(matches!(&e, Error::Registry(m) if m.contains(part)), "{version}: {e:?}");
    }
    assert!(matches!(p.pull(Some("1.0.4"), None).await, Err(Error::TooLarge(_))));
    assert_eq!(p.pull(Some("2.0.0"), None).await.unwrap().version, "1.0.0", "the old media type");
}

#[tokio::test]
async fn what_the_registry_gets_wrong() {
    let p = Pull::start().await;
    p.registry.push_archive(chart("app", "1.0.0"), "charts/app").unwrap();
    let retryable = |e: &Error| matches!(e, Error::Unavailable(_));
    for (how, again, part) in [
        (Misbehaviour::WrongDigest, false, "the content of"),
        (Misbehaviour::WrongManifest, false, "the manifest of"),
        (Misbehaviour::DropBlob, false, "answered 404 for the content"),
        (Misbehaviour::Truncate, true, "cannot be reached"),
        (Misbehaviour::Status(503), true, "answered 503"),
        (Misbehaviour::Status(403), false, "refused a request without credentials (403)"),
        (Misbehaviour::NotARegistry, false, "it is no OCI registry, and only those work"),
        (Misbehaviour::Delay(std::time::Duration::from_secs(6)), true, "did not answer within 5 s"),
    ] {
        // Nothing cached.
        let folder = tempfile::tempdir().unwrap();
        let helm = Pull::helm(&p.registry, &folder);
        p.registry.misbehave(how.clone());
        let e = helm.pull(&call(Mode::Plan), &p.grants, &p.reference(Some("1.0.0"), None)).await.unwrap_err();
        assert!(retryable(&e) == again && e.to_string().contains(part), "{how:?}: {e:?}");
    }
    p.registry.behave();
    p.pull(Some("1.0.0"), None).await.unwrap();
}

#[tokio::test]
async fn the_call_has_its_own_end() {
    let p = Pull::start().await;
    p.registry.misbehave(Misbehaviour::Delay(std::time::Duration::from_secs(30)));
    let mut call = call(Mode::Plan);
    call.deadline = std::time::Instant::now() + std::time::Duration::from_millis(300);
    let started = std::time::Instant::now();
    assert_eq!(p.helm.pull(&call, &p.grants, &p.reference(Some("1.0.0"), None)).await, Err(Error::TimedOut));
    assert!(started.elapsed() < std::time::Duration::from_secs(3));
}

#[tokio::test]
async fn lists_in_pages() {
    let p = Pull::start().await;
    for i in 0..1500 {
        p.registry.push_manifest(
            "charts/app",
            &format!("1.0.{i}"),
            "application/vnd.oci.image.manifest.v1+json",
            "{}",
        );
    }
    let tags = p.helm.tags(&call(Mode::Plan), &p.grants, &p.reference(None, None).url).await.unwrap();
    assert_eq!(tags.len(), 1500);
    assert_eq!(p.paths().iter().filter(|r| r.contains("/tags/list")).count(), 2);
}
