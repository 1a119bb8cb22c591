//! `cosign-key`: charts whose manifest one of the keys signed, and no others.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use p256::ecdsa::signature::Signer as _;
use p256::ecdsa::{Signature, SigningKey};
use p256::pkcs8::{EncodePublicKey as _, LineEnding};
use serde_json::{Value, json};
use sutler_helm::{Chart, ChartReference, Error};
use sutler_model::{Digest, Mode};
use sutler_testkit::registry::{Fault, Registry, RegistryOptions};

use crate::hostile::{CONFIG, CONTENT, MANIFEST};
use crate::support::{call, chart, engine, grants, helm};

const SIMPLE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle.v0.3+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";
const STATEMENT: &str = "application/vnd.in-toto+json";

fn key(n: u8) -> SigningKey {
    SigningKey::from_slice(&[n; 32]).unwrap()
}

fn pem(key: &SigningKey) -> String {
    key.verifying_key().to_public_key_pem(LineEnding::LF).unwrap()
}

fn sign(key: &SigningKey, bytes: &[u8]) -> String {
    let signature: Signature = key.sign(bytes);
    STANDARD.encode(signature.to_der())
}

/// A registry with one chart, and its digest.
struct Shelf {
    registry: Registry,
    digest: String,
}

impl Shelf {
    async fn new() -> Self {
        let shelf =
            Self { registry: Registry::start(RegistryOptions::default()).await, digest: String::new() };
        let layer = shelf.blob(CONTENT, &chart("app", "1.0.0"));
        let config = json!({"mediaType": CONFIG, "digest": format!("sha256:{:064}", 0), "size": 2});
        let manifest = json!({"schemaVersion": 2, "config": config, "layers": [layer]}).to_string();
        shelf.registry.push_manifest("charts/app", "1.0.0", MANIFEST, manifest.clone());
        Self { digest: Digest::of(manifest.as_bytes()).to_string(), ..shelf }
    }

    fn hex(&self) -> &str {
        self.digest.trim_start_matches("sha256:")
    }

    fn blob(&self, media_type: &str, bytes: &[u8]) -> Value {
        let digest = self.registry.push_blob("charts/app", bytes.to_vec());
        json!({"mediaType": media_type, "digest": digest, "size": bytes.len()})
    }

    /// As cosign 2 leaves it; `of` is the digest that was signed.
    fn simple(&self, key: &SigningKey, of: &str) {
        let payload = json!({"critical": {"identity": {"docker-reference": "r/charts/app"},
            "image": {"docker-manifest-digest": of}, "type": "cosign container image signature"}, "optional": null})
        .to_string();
        let mut layer = self.blob(SIMPLE, payload.as_bytes());
        layer["annotations"] = json!({"dev.cosignproject.cosign/signature": sign(key, payload.as_bytes())});
        self.layers(&[layer]);
    }

    fn layers(&self, layers: &[Value]) {
        let config = self.blob("application/vnd.oci.image.config.v1+json", b"{}");
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers});
        let tag = format!("sha256-{}.sig", self.hex());
        self.registry.push_manifest("charts/app", &tag, MANIFEST, manifest.to_string());
    }

    /// As cosign 3 leaves it in a registry without a list of referrers.
    fn bundle(&self, key: &SigningKey, of: &str, predicate: &str) {
        let hex = of.trim_start_matches("sha256:");
        let statement = json!({"_type": "https://in-toto.io/Statement/v1", "predicateType": predicate,
            "subject": [{"digest": {"sha256": hex}}], "predicate": {}})
        .to_string();
        let signed = format!("DSSEv1 {} {STATEMENT} {} {statement}", STATEMENT.len(), statement.len());
        let bundle = json!({"mediaType": BUNDLE, "verificationMaterial": {"publicKey": {"hint": "x"}},
            "dsseEnvelope": {"payload": STANDARD.encode(&statement), "payloadType": STATEMENT,
                "signatures": [{"sig": sign(key, signed.as_bytes())}]}});
        let layer = self.blob(BUNDLE, bundle.to_string().as_bytes());
        let config = self.blob("application/vnd.oci.empty.v1+json", b"{}");
        let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "artifactType": BUNDLE,
            "config": config, "layers": [layer]})
        .to_string();
        let digest = Digest::of(manifest.as_bytes()).to_string();
        self.registry.push_manifest("charts/app", &digest, MANIFEST, manifest.clone());
        let entry =
            json!({"mediaType": MANIFEST, "artifactType": BUNDLE, "digest": digest, "size": manifest.len()});
        let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [entry]}).to_string();
        self.registry.push_manifest("charts/app", &format!("sha256-{}", self.hex()), INDEX, index);
    }

    async fn pull(&self, keys: &str) -> Result<Chart, Error> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("cosign.pub");
        std::fs::write(&file, keys).unwrap();
        let table = json!({"plain-http": true, "cosign-key": file});
        let tables = BTreeMap::from([(self.registry.host(), serde_json::from_value(table).unwrap())]);
        let helm = helm(folder.path(), &tables, None, engine());
        let url = format!("oci://{}/charts/app", self.registry.host());
        let reference = ChartReference { url: url.clone(), version: Some("1.0.0".into()), digest: None };
        let pulled = helm.pull(&call(Mode::Plan), &grants(json!({"charts": [url]})), &reference).await;
        if pulled.is_err() {
            assert_eq!(
                std::fs::read_dir(folder.path().join("charts")).unwrap().count(),
                0,
                "it is in the cache"
            );
        }
        pulled
    }

    async fn refused(&self, keys: &str, says: &str) {
        let e = self.pull(keys).await.map(drop).expect_err(says);
        let told = |m: &str| m.contains("`cosign-key`") && m.contains(says) && m.contains("charts/app");
        assert!(matches!(&e, Error::Registry(m) if told(m)), "{says}: {e:?}");
    }
}

#[tokio::test]
async fn a_manifest_that_one_of_the_keys_signed() {
    let (ours, other) = (key(7), key(8));
    let two = pem(&other) + "\n" + &pem(&ours);
    let (simple, bundle) = (Shelf::new().await, Shelf::new().await);
    simple.simple(&ours, &simple.digest);
    bundle.bundle(&ours, &bundle.digest, SIGNED);
    for shelf in [simple, bundle] {
        for keys in [&pem(&ours), &two] {
            assert_eq!(shelf.pull(keys).await.unwrap().version, "1.0.0");
        }
        shelf.refused(&pem(&other), "none of the keys").await;
    }
}

#[tokio::test]
async fn a_manifest_that_nobody_signed() {
    let (ours, zero) = (key(7), format!("sha256:{}", "0".repeat(64)));
    let keys = pem(&ours);
    Shelf::new().await.refused(&keys, "there is no signature beside it").await;
    let of_another = Shelf::new().await;
    of_another.simple(&ours, &zero);
    of_another.refused(&keys, "another manifest than this").await;
    of_another.bundle(&ours, &zero, SIGNED);
    of_another.refused(&keys, "another manifest than this").await;
    // What else is attested of it signs nothing.
    let attested = Shelf::new().await;
    attested.bundle(&ours, &attested.digest, "https://slsa.dev/provenance/v1");
    attested.refused(&keys, "there is no signature beside it").await;
    // One signature of another manifest does not hide the right one.
    of_another.bundle(&ours, &of_another.digest, SIGNED);
    of_another.pull(&keys).await.unwrap();
    for (layer, says) in [
        (json!({"mediaType": SIMPLE, "digest": zero, "size": 2}), "none of the keys"),
        (json!({"mediaType": SIMPLE, "digest": "../../blobs", "size": 2}), "none of the keys"),
        (json!({"mediaType": CONTENT, "digest": zero, "size": 2}), "there is no signature beside it"),
    ] {
        let shelf = Shelf::new().await;
        shelf.layers(&[layer]);
        shelf.refused(&keys, says).await;
    }
}

#[tokio::test]
async fn a_registry_in_trouble_is_not_an_unsigned_chart() {
    let shelf = Shelf::new().await;
    shelf.simple(&key(7), &shelf.digest);
    shelf.registry.answer_with(|r| r.path.ends_with(".sig").then(|| Fault::new(503, "text/plain", "later")));
    let e = shelf.pull(&pem(&key(7))).await.unwrap_err();
    assert!(matches!(&e, Error::Unavailable(m) if m.contains("503")), "{e:?}");
    shelf.registry.behave();
    shelf.pull(&pem(&key(7))).await.unwrap();
}

/// What cosign itself left in a registry.
#[tokio::test]
async fn signatures_that_cosign_made() {
    let files = sutler_testkit::checkout().join("host/capabilities/helm/tests/cosign");
    let ours = std::fs::read_to_string(files.join("cosign.pub")).unwrap();
    for name in ["simple", "bundle"] {
        let text = std::fs::read_to_string(files.join(format!("{name}.json"))).unwrap();
        let left: Value = serde_json::from_str(&text).unwrap();
        let shelf =
            Shelf { registry: Registry::start(RegistryOptions::default()).await, digest: String::new() };
        for blob in left["blobs"].as_array().unwrap() {
            shelf.registry.push_blob("charts/app", STANDARD.decode(blob.as_str().unwrap()).unwrap());
        }
        for m in left["manifests"].as_array().unwrap() {
            let [reference, media_type, text] =
                ["reference", "mediaType", "text"].map(|k| m[k].as_str().unwrap());
            shelf.registry.push_manifest("charts/app", reference, media_type, text.to_owned());
        }
        assert_eq!(shelf.pull(&ours).await.unwrap().name, "signed", "{name}");
        shelf.refused(&pem(&key(7)), "none of the keys").await;
    }
}
