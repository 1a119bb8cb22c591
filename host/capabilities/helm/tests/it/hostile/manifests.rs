//! Manifests, and lists of tags.

use serde_json::json;
use sutler_testkit::registry::{Fault, FaultBody};

use super::Kind::{Registry, TooLarge};
use super::{CONFIG, CONTENT, Case, all_refused};

#[tokio::test]
async fn manifests() {
    const NO_MANIFEST: &str = "not an OCI image manifest";
    let cases: &[Case] = &[
        ("no JSON", Registry, NO_MANIFEST, |p| p.manifest("<oci>")),
        ("half a JSON", Registry, NO_MANIFEST, |p| p.manifest(r#"{"config": {"mediaType""#)),
        ("a list", Registry, NO_MANIFEST, |p| p.manifest("[]")),
        ("nothing", Registry, NO_MANIFEST, |p| p.manifest("")),
        ("an index", Registry, "an index of several artifacts", |p| {
            p.manifest(json!({"schemaVersion": 2, "manifests": []}).to_string());
        }),
        ("an image", Registry, "an artifact of type application/vnd.oci.image.config.v1+json", |p| {
            p.artifact("application/vnd.oci.image.config.v1+json", &json!([p.blob("x")]));
        }),
        ("a type without end", Registry, "an artifact of type xxxxx", |p| {
            p.artifact(&"x".repeat(100_000), &json!([]));
        }),
        ("no layers", Registry, "no layer with a chart", |p| p.artifact(CONFIG, &json!([]))),
        ("another layer", Registry, "no layer with a chart", |p| {
            p.artifact(CONFIG, &json!([{"mediaType": "application/zip", "digest": "sha256:0", "size": 1}]));
        }),
        ("two charts", Registry, "more than one layer with a chart", |p| {
            p.artifact(CONFIG, &json!([p.blob("x"), p.blob("y")]));
        }),
        ("another hash", Registry, "no sha256 digest", |p| {
            let digest = format!("sha512:{:0128}", 0);
            p.artifact(CONFIG, &json!([{"mediaType": CONTENT, "digest": digest, "size": 1}]));
        }),
        ("a digest with a path", Registry, "no sha256 digest", |p| {
            p.artifact(CONFIG, &json!([{"mediaType": CONTENT, "digest": "sha256:../../../x", "size": 1}]));
        }),
        ("no size", Registry, NO_MANIFEST, |p| {
            p.artifact(CONFIG, &json!([{"mediaType": CONTENT, "digest": "sha256:0"}]));
        }),
        ("a size below zero", Registry, NO_MANIFEST, |p| {
            p.artifact(CONFIG, &json!([{"mediaType": CONTENT, "digest": "sha256:0", "size": -1}]));
        }),
        ("2 GB", TooLarge, "the content of", |p| {
            let mut layer = p.blob("x");
            layer["size"] = json!(2_u64 << 30);
            p.artifact(CONFIG, &json!([layer]));
        }),
    ];
    all_refused(cases).await;
}

#[tokio::test]
async fn answers_instead_of_manifests() {
    let cases: &[Case] = &[
        ("another manifest", Registry, "the manifest of", |p| {
            p.good();
            p.registry.misbehave(sutler_testkit::registry::Misbehaviour::WrongManifest);
        }),
        ("5 MB", TooLarge, "the manifest of", |p| p.manifest(vec![b' '; 5 << 20])),
        ("a manifest of 2 GB", TooLarge, "the manifest of", |p| {
            p.good();
            let fault = Fault::new(200, "application/json", "").body(FaultBody::Claim(2 << 30));
            p.registry.answer_with(move |r| {
                (r.method == "GET" && r.path.contains("/manifests/")).then(|| fault.clone())
            });
        }),
        ("a manifest without end", TooLarge, "the manifest of", |p| {
            p.good();
            let fault = Fault::new(200, "application/json", "").body(FaultBody::Endless);
            p.registry.answer_with(move |r| {
                (r.method == "GET" && r.path.contains("/manifests/")).then(|| fault.clone())
            });
        }),
        ("a page", Registry, "it is no OCI registry", |p| {
            p.answers("/manifests/", Fault::new(200, "text/html; charset=utf-8", "<html>"));
        }),
        ("a page that is not there", Registry, "it is no OCI registry", |p| {
            p.answers("/manifests/", Fault::new(404, "text/html", "<html>"));
        }),
        ("a version that is not there", Registry, "has no version 1.0.0", |_| {}),
        ("a digest that is none", Registry, "the manifest", |p| {
            p.good();
            let fault =
                Fault::new(410, "application/json", "{}").header("docker-content-digest", "sha256:../x");
            p.answers("/manifests/", fault);
        }),
    ];
    all_refused(cases).await;
}

#[tokio::test]
async fn lists_of_tags() {
    let cases: &[Case] = &[
        ("no list", Registry, "its list of tags is not JSON", |p| {
            p.version = Some("^1");
            p.answers("/tags/list", Fault::new(200, "application/json", "[1, 2]"));
        }),
        ("a page", Registry, "it is no OCI registry", |p| {
            p.version = Some("^1");
            p.answers("/tags/list", Fault::new(404, "text/html", "<html>"));
        }),
        ("pages without end", Registry, "more than 20000 entries or 100 pages", |p| {
            p.version = Some("^1");
            let page = Fault::new(200, "application/json", r#"{"tags": ["1.0.0"]}"#);
            p.answers("/tags/list", page.header("link", "<?n=1000&last=1.0.0>; rel=\"next\""));
        }),
        ("tags without end", Registry, "more than 20000 entries or 100 pages", |p| {
            p.version = Some("^1");
            let tags: Vec<String> = (0..20_001).map(|i| format!("1.0.{i}")).collect();
            p.answers("/tags/list", Fault::new(200, "application/json", json!({"tags": tags}).to_string()));
        }),
        ("a page of 2 GB", TooLarge, "the list of tags", |p| {
            p.version = Some("^1");
            let page = Fault::new(200, "application/json", "").body(FaultBody::Claim(2 << 30));
            p.answers("/tags/list", page);
        }),
        ("the next page elsewhere", Registry, "names another host", |p| {
            p.version = Some("^1");
            let next = format!("<{}/v2/charts/app/tags/list>; rel=\"next\"", p.other.url());
            let page = Fault::new(200, "application/json", r#"{"tags": []}"#);
            p.answers("/tags/list", page.header("link", next));
        }),
        ("tags that are none", Registry, "has no version that fits ^1", |p| {
            p.version = Some("^1");
            let tags = r#"{"tags": ["../1.0.0", "1.0.0/x", "", "1.0.0 ", "latest"]}"#;
            p.answers("/tags/list", Fault::new(200, "application/json", tags));
        }),
    ];
    all_refused(cases).await;
}
