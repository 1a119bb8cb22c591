//! cosign's signatures of a chart's manifest, by key: layers at the tag `sha256-HEX.sig` (cosign's simple signing,
//! the default up to version 2), or Sigstore bundles that refer to the manifest (the default from version 3 on).
//! Certificates and transparency logs are not looked at: the operator's keys alone decide.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use p256::ecdsa::signature::Verifier as _;
use p256::ecdsa::{Signature, VerifyingKey};
use p256::pkcs8::DecodePublicKey as _;
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use sutler_model::Digest;

use super::auth::Operation;
use super::client::{Bounds, Clock, Remote, Request};
use super::error::RegistryError;
use super::reference::ChartUrl;

/// Bytes of a manifest, an index or a signature.
const LIMIT: u64 = 1 << 20;
/// Signatures of one kind that are looked at.
const MOST: usize = 32;
const SIMPLE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
const SIMPLE_SIGNATURE: &str = "dev.cosignproject.cosign/signature";
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
const STATEMENT: &str = "application/vnd.in-toto+json";
const SIGNED: &str = "https://sigstore.dev/cosign/sign/v1";
/// Manifests, and their index.
const ACCEPT: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";

/// Keys of which one must have signed.
#[derive(Debug, Clone)]
pub(crate) struct Signers(Vec<VerifyingKey>);

impl Signers {
    /// # Errors
    /// In words, for a file that is not one or several PEM public keys (ECDSA, P-256), as `cosign generate-key-pair`
    /// writes them.
    pub(crate) fn read(file: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(file).unwrap_or_default();
        let pems = text.split_inclusive("-----END PUBLIC KEY-----").map(str::trim).filter(|p| !p.is_empty());
        let one = |(n, pem): (usize, &str)| {
            VerifyingKey::from_public_key_pem(pem).map_err(|e| {
                let n = n + 1;
                format!(
                    "key {n} is no PEM public key of ECDSA P-256, as `cosign generate-key-pair` writes it: {e}"
                )
            })
        };
        let keys = pems.enumerate().map(one).collect::<Result<Vec<_>, _>>()?;
        if keys.is_empty() { Err("it holds no public key".into()) } else { Ok(Self(keys)) }
    }

    /// Whether one of the keys made this signature (DER, base64) of these bytes.
    fn made(&self, signature: &str, of: &[u8]) -> bool {
        let der = STANDARD.decode(signature.trim()).unwrap_or_default();
        Signature::from_der(&der).is_ok_and(|s| self.0.iter().any(|key| key.verify(of, &s).is_ok()))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    #[serde(default)]
    media_type: String,
    artifact_type: Option<String>,
    digest: String,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Manifest {
    layers: Vec<Part>,
}

#[derive(Deserialize)]
struct Index {
    manifests: Vec<Part>,
}

/// What cosign signs (its SIGNATURE_SPEC.md, after the simple signing of containers/image).
#[derive(Deserialize)]
struct Simple {
    critical: Critical,
}

#[derive(Deserialize)]
struct Critical {
    image: Image,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Image {
    docker_manifest_digest: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Bundle {
    dsse_envelope: Option<Envelope>,
}

/// DSSE 1.0.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Envelope {
    payload: String,
    payload_type: String,
    signatures: Vec<EnvelopeSignature>,
}

#[derive(Deserialize)]
struct EnvelopeSignature {
    sig: String,
}

/// in-toto's.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Statement {
    predicate_type: String,
    subject: Vec<Subject>,
}

#[derive(Deserialize)]
struct Subject {
    digest: BTreeMap<String, String>,
}

/// What one signature is worth.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Worth {
    Nothing,
    /// Not by one of the keys.
    Strange,
    /// By one of the keys, and of something else.
    Other,
    Good,
}

/// Looks for a signature of the manifest with this digest.
///
/// # Errors
/// `NotSigned` where no key signed it; what the registry does wrong.
pub(super) async fn check(
    signers: &Signers,
    remote: &Remote,
    url: &ChartUrl,
    digest: Digest,
    clock: Clock,
) -> Result<(), RegistryError> {
    let search = Search { signers, remote, url, digest, clock };
    let mut best = search.simple().await?;
    if best != Worth::Good {
        best = best.max(search.bundles().await?);
    }
    let why = match best {
        Worth::Good => {
            tracing::info!(event = "helm.verified", chart = %url, %digest, by = "cosign");
            return Ok(());
        }
        Worth::Other => "one of the keys signed, but another manifest than this",
        Worth::Strange => "what signed it is none of the keys, or the signature is damaged",
        Worth::Nothing => {
            "there is no signature beside it; `cosign sign --key COSIGN.KEY REGISTRY/PATH@DIGEST` makes one"
        }
    };
    Err(RegistryError::NotSigned { chart: url.to_string(), key: "cosign-key", why: why.into() })
}

struct Search<'a> {
    signers: &'a Signers,
    remote: &'a Remote,
    url: &'a ChartUrl,
    digest: Digest,
    clock: Clock,
}

impl Search<'_> {
    fn hex(&self) -> String {
        self.digest.to_string().trim_start_matches("sha256:").to_owned()
    }

    /// `None`: it is not there. What is asked for by its digest has that digest.
    async fn get(
        &self,
        path: &str,
        digest: Option<&str>,
        what: &'static str,
    ) -> Result<Option<Bytes>, RegistryError> {
        let repository = self.url.repository();
        let (at, expected) = match digest {
            None => (self.remote.url(&format!("{repository}/{path}"))?, None),
            // A text that is no digest is nothing's.
            Some(text) => match text.parse::<Digest>() {
                Ok(d) => (self.remote.url(&format!("{repository}/{path}/{d}"))?, Some(d)),
                Err(_) => return Ok(None),
            },
        };
        let accept = if path == "blobs" { "*/*" } else { ACCEPT };
        let request = Request { repository, operation: Operation::Pull, accept, what, clock: self.clock };
        let response = self.remote.send(Method::GET, at, &request).await?;
        match response.status() {
            StatusCode::OK => {
                let of = self.url.to_string();
                let bounds = Bounds { what, of: &of, most: LIMIT, size: None, digest: expected };
                self.remote.body(response, &bounds, self.clock).await.map(Some)
            }
            StatusCode::TOO_MANY_REQUESTS => Err(self.remote.status(StatusCode::TOO_MANY_REQUESTS, what)),
            s if s.is_client_error() => Ok(None),
            s => Err(self.remote.status(s, what)),
        }
    }

    async fn simple(&self) -> Result<Worth, RegistryError> {
        let tag = format!("manifests/sha256-{}.sig", self.hex());
        let manifest = self.get(&tag, None, "the manifest of its signatures").await?;
        let manifest = manifest.and_then(|m| serde_json::from_slice::<Manifest>(&m).ok());
        let layers = manifest.map(|m| m.layers).unwrap_or_default();
        let mut best = Worth::Nothing;
        for layer in layers.iter().filter(|l| l.media_type == SIMPLE).take(MOST) {
            let payload = self.get("blobs", Some(&layer.digest), "its signature").await?;
            let worth = match (payload, layer.annotations.get(SIMPLE_SIGNATURE)) {
                (Some(payload), Some(signature)) if self.signers.made(signature, &payload) => {
                    let simple = serde_json::from_slice::<Simple>(&payload);
                    of_this(simple.is_ok_and(|s| {
                        s.critical
                            .image
                            .docker_manifest_digest
                            .parse()
                            .is_ok_and(|d: Digest| d == self.digest)
                    }))
                }
                _ => Worth::Strange,
            };
            best = best.max(worth);
            if best == Worth::Good {
                break;
            }
        }
        Ok(best)
    }

    async fn bundles(&self) -> Result<Worth, RegistryError> {
        let what = "the list of its signatures";
        let listed = match self.get(&format!("referrers/{}", self.digest), None, what).await? {
            Some(list) => Some(list),
            // Registries that do not keep that list have it under a tag (OCI distribution 1.1, referrers tag schema).
            None => self.get(&format!("manifests/sha256-{}", self.hex()), None, what).await?,
        };
        let listed = listed.and_then(|l| serde_json::from_slice::<Index>(&l).ok());
        let manifests = listed.map(|l| l.manifests).unwrap_or_default();
        let bundles =
            manifests.iter().filter(|m| m.artifact_type.as_ref().is_none_or(|t| t.starts_with(BUNDLE)));
        let mut best = Worth::Nothing;
        for manifest in bundles.take(MOST) {
            best = best.max(self.bundle(&manifest.digest).await?);
            if best == Worth::Good {
                break;
            }
        }
        Ok(best)
    }

    async fn bundle(&self, digest: &str) -> Result<Worth, RegistryError> {
        let manifest = self.get("manifests", Some(digest), "the manifest of its signature").await?;
        let manifest = manifest.and_then(|m| serde_json::from_slice::<Manifest>(&m).ok());
        let layers = manifest.map(|m| m.layers).unwrap_or_default();
        let Some(layer) = layers.iter().find(|l| l.media_type.starts_with(BUNDLE)) else {
            return Ok(Worth::Nothing);
        };
        let bundle = self.get("blobs", Some(&layer.digest), "its signature").await?;
        let bundle = bundle.and_then(|b| serde_json::from_slice::<Bundle>(&b).ok());
        let Some(envelope) = bundle.and_then(|b| b.dsse_envelope) else { return Ok(Worth::Strange) };
        let payload = STANDARD.decode(&envelope.payload).unwrap_or_default();
        let statement = serde_json::from_slice::<Statement>(&payload).ok();
        // Attestations are bundles as well, and no signatures of a chart.
        let ours = |s: &Statement| s.predicate_type == SIGNED && envelope.payload_type == STATEMENT;
        let Some(statement) = statement.filter(ours) else { return Ok(Worth::Nothing) };
        let mut signed = format!("DSSEv1 {} {STATEMENT} {} ", STATEMENT.len(), payload.len()).into_bytes();
        signed.extend_from_slice(&payload);
        if !envelope.signatures.iter().take(MOST).any(|s| self.signers.made(&s.sig, &signed)) {
            return Ok(Worth::Strange);
        }
        let hex = self.hex();
        Ok(of_this(statement.subject.iter().any(|s| s.digest.get("sha256") == Some(&hex))))
    }
}

const fn of_this(is: bool) -> Worth {
    if is { Worth::Good } else { Worth::Other }
}
