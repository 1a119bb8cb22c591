//! `verify`: charts that somebody of the keyring signed, and no others.

use std::collections::BTreeMap;

use pgp::crypto::hash::HashAlgorithm;
use pgp::packet::SubpacketData;
use pgp::types::Duration;
use serde_json::{Value, json};
use sutler_helm::{Chart, ChartReference, Error};
use sutler_model::{Digest, Mode};
use sutler_testkit::registry::{Registry, RegistryOptions};

use crate::hostile::{CONFIG, CONTENT, MANIFEST};
use crate::signing::{exported, key, living, revoked, rsa, signed, signed_as, text};
use crate::support::{call, chart, engine, grants, helm};

const PROVENANCE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";

struct Signed {
    registry: Registry,
    folder: tempfile::TempDir,
    archive: Vec<u8>,
}

impl Signed {
    async fn new() -> Self {
        let registry = Registry::start(RegistryOptions::default()).await;
        Self { registry, folder: tempfile::tempdir().unwrap(), archive: chart("app", "1.0.0") }
    }

    fn digest(&self) -> String {
        Digest::of(&self.archive).to_string()
    }

    fn layer(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = self.registry.push_blob("charts/app", bytes.to_vec());
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    }

    fn push(&self, provenance: &[&str]) {
        let mut layers = vec![self.layer(CONTENT, &self.archive)];
        layers.extend(provenance.iter().map(|p| self.layer(PROVENANCE, p.as_bytes())));
        let config = json!({"mediaType": CONFIG, "digest": format!("sha256:{:064}", 0), "size": 2});
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": layers});
        self.registry.push_manifest("charts/app", "1.0.0", MANIFEST, manifest.to_string());
    }

    async fn pull(&self, folder: &std::path::Path, keyring: Option<&str>) -> Result<Chart, Error> {
        let mut table = json!({"plain-http": true});
        if let Some(keyring) = keyring {
            let file = folder.join("keyring.asc");
            std::fs::write(&file, keyring).unwrap();
            table["verify"] = json!(file);
        }
        let tables = BTreeMap::from([(self.registry.host(), serde_json::from_value(table).unwrap())]);
        let helm = helm(folder, &tables, None, engine());
        let url = format!("oci://{}/charts/app", self.registry.host());
        let reference = ChartReference { url: url.clone(), version: Some("1.0.0".into()), digest: None };
        helm.pull(&call(Mode::Plan), &grants(json!({"charts": [url]})), &reference).await
    }
}

#[tokio::test]
async fn a_chart_that_somebody_of_the_keyring_signed() {
    let s = Signed::new().await;
    let (one, two) = (key(true), key(false));
    let keyring = exported(&one.to_public_key()) + "\n" + &exported(&two.to_public_key());
    let subkey = &two.secret_subkeys[0].key;
    for provenance in [signed(&text(&s.digest()), &one.primary_key), signed(&text(&s.digest()), subkey)] {
        let folder = tempfile::tempdir().unwrap();
        s.push(&[&provenance]);
        assert_eq!(s.pull(folder.path(), Some(&keyring)).await.unwrap().version, "1.0.0");
    }
    // Another process checks what is on disk again, and downloads nothing.
    s.pull(s.folder.path(), Some(&keyring)).await.unwrap();
    s.registry.forget_requests();
    s.pull(s.folder.path(), Some(&keyring)).await.unwrap();
    assert!(s.registry.requests().iter().all(|r| r.method == "HEAD"), "{:?}", s.registry.requests());
    let e = s.pull(s.folder.path(), Some(&exported(&one.to_public_key()))).await.unwrap_err();
    assert!(e.to_string().contains("not in the keyring"), "the key is gone from the ring: {e}");
    let long = exported(&living(&one, u32::MAX));
    s.push(&[&signed(&text(&s.digest()), &one.primary_key)]);
    s.pull(s.folder.path(), Some(&long)).await.unwrap();
}

#[tokio::test]
async fn charts_that_nobody_of_the_keyring_signed() {
    let s = Signed::new().await;
    let (ours, other, certifier) = (key(true), key(true), key(false));
    let good = text(&s.digest());
    let provenance = signed(&good, &ours.primary_key);
    let ring = exported(&ours.to_public_key());
    let sign = |text: &str| signed(text, &ours.primary_key);
    let zero = format!("sha256:{}", "0".repeat(64));
    let cases: Vec<(&str, Vec<String>, &str, &str)> = vec![
        ("no provenance", vec![], &ring, "there is no provenance file beside it"),
        ("two of them", vec![provenance.clone(), sign(&zero)], &ring, "more than one layer with a signature"),
        ("no signature", vec![good.clone()], &ring, "not a clear-signed text"),
        ("half of it", vec![provenance[..provenance.len() - 80].into()], &ring, "provenance file"),
        ("another key", vec![signed(&good, &other.primary_key)], &ring, "is not in the keyring"),
        ("another text", vec![provenance.replace("apiVersion: v2", "apiVersion: v1")], &ring, "is not valid"),
        ("text before it", vec![format!("files: {{}}\n{provenance}")], &ring, "not a clear-signed text"),
        ("text after it", vec![format!("{provenance}files: {{}}\n")], &ring, "not a clear-signed text"),
        ("another archive", vec![sign(&text(&zero))], &ring, "was signed"),
        (
            "another chart",
            vec![sign(&good.replace("app-1.0.0", "app-1.0.1"))],
            &ring,
            "no checksum of app-1.0.0.tgz",
        ),
        ("no sums", vec![sign("name: app\n")], &ring, "lists no checksums"),
        ("sums that are none", vec![sign("name: app\n\n...\nfiles: [1]\n")], &ring, "lists no checksums"),
    ];
    let certifies = exported(&certifier.to_public_key());
    let (revoked, expired) = (exported(&revoked(&ours)), exported(&living(&ours, 1)));
    let old = rsa();
    let old_ring = exported(&old.to_public_key());
    let unusable = "expired, revoked or not for signing";
    let more: Vec<(&str, Vec<String>, &str, &str)> = vec![
        ("a key for certificates", vec![signed(&good, &certifier.primary_key)], &certifies, unusable),
        ("SHA-1", vec![signed_as(&good, &old, HashAlgorithm::Sha1, vec![])], &old_ring, "too weak"),
        ("a revoked key", vec![provenance.clone()], &revoked, unusable),
        ("an expired key", vec![provenance.clone()], &expired, unusable),
    ];
    for (what, provenance, ring, says) in cases.into_iter().chain(more) {
        let folder = tempfile::tempdir().unwrap();
        s.push(&provenance.iter().map(String::as_str).collect::<Vec<_>>());
        let e = s.pull(folder.path(), Some(ring)).await.map(drop).expect_err(what);
        assert!(
            matches!(&e, Error::Registry(m) if m.contains(says) && m.contains("charts/app")),
            "{what}: {e:?}"
        );
        let kept = std::fs::read_dir(folder.path().join("charts")).unwrap().count();
        assert_eq!(kept, 0, "{what}: something is left in the cache");
    }
    s.push(&[]);
    s.pull(s.folder.path(), None).await.expect("nobody asked for a signature");
}

#[tokio::test]
async fn a_signature_that_expired_and_a_file_that_is_too_large() {
    let s = Signed::new().await;
    let ours = key(true);
    let ring = exported(&ours.to_public_key());
    let over = vec![SubpacketData::SignatureExpirationTime(Duration::from_secs(1))];
    s.push(&[&signed_as(&text(&s.digest()), &ours, HashAlgorithm::Sha256, over)]);
    let e = s.pull(s.folder.path(), Some(&ring)).await.unwrap_err();
    assert!(e.to_string().contains("the signature of its provenance file expired"), "{e}");
    s.push(&[&"x".repeat((1 << 20) + 1)]);
    let e = s.pull(s.folder.path(), Some(&ring)).await.unwrap_err();
    assert!(matches!(&e, Error::TooLarge(m) if m.contains("the provenance file")), "{e:?}");
}
