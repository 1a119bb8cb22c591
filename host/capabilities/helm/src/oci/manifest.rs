//! The manifest of a chart: which blobs it names (OCI image 1.1 §manifest; media types as Helm 4).

use serde::Deserialize;
use sutler_model::Digest;

use super::error::RegistryError;
use super::reference::ChartUrl;

const CONFIG_TYPE: &str = "application/vnd.cncf.helm.config.v1+json";
const CONTENT_TYPE: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const LEGACY_CONTENT_TYPE: &str = "application/tar+gzip";
const PROVENANCE_TYPE: &str = "application/vnd.cncf.helm.chart.provenance.v1.prov";
/// What a client asks for, since what it gets may be no chart.
pub(super) const ACCEPTED: &str =
    "application/vnd.oci.image.manifest.v1+json, application/vnd.docker.distribution.manifest.v2+json";

/// A blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) digest: Digest,
    /// Bytes.
    pub(super) size: u64,
}

/// The blobs of a chart. Its config repeats Chart.yaml, so nobody reads it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) content: Part,
    pub(super) provenance: Option<Part>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
}

/// Set for an index of several images.
#[derive(Deserialize)]
struct Index {
    manifests: Option<serde::de::IgnoredAny>,
}

pub(super) fn not_a_chart(url: &ChartUrl, why: impl Into<String>) -> RegistryError {
    RegistryError::NotAChart { chart: url.to_string(), why: why.into() }
}

/// The blobs that a manifest names; that of the signature only where it is wanted.
///
/// # Errors
/// `NotAChart`
pub(super) fn parts(url: &ChartUrl, manifest: &[u8], signed: bool) -> Result<Parts, RegistryError> {
    let wrong = |why: &str| not_a_chart(url, why);
    if serde_json::from_slice::<Index>(manifest).is_ok_and(|i| i.manifests.is_some()) {
        return Err(wrong("its manifest is an index of several artifacts; name the chart's own by `digest`"));
    }
    let manifest: Manifest =
        serde_json::from_slice(manifest).map_err(|_| wrong("its manifest is not an OCI image manifest"))?;
    if manifest.config.media_type != CONFIG_TYPE {
        let found: String = manifest.config.media_type.chars().take(100).collect();
        return Err(wrong(&format!("it is an artifact of type {found}, not {CONFIG_TYPE}")));
    }
    let one = |types: &[&str], several: &str| -> Result<Option<Part>, RegistryError> {
        let mut of_type = manifest.layers.iter().filter(|d| types.contains(&d.media_type.as_str()));
        let Some(first) = of_type.next() else { return Ok(None) };
        if of_type.next().is_some() {
            return Err(wrong(several));
        }
        let digest = first.digest.parse().map_err(|_| wrong("one of its layers has no sha256 digest"))?;
        Ok(Some(Part { digest, size: first.size }))
    };
    let content =
        one(&[CONTENT_TYPE, LEGACY_CONTENT_TYPE], "its manifest has more than one layer with a chart")?
            .ok_or_else(|| wrong("its manifest has no layer with a chart"))?;
    let provenance = match signed {
        true => one(&[PROVENANCE_TYPE], "its manifest has more than one layer with a signature")?,
        false => None,
    };
    Ok(Parts { content, provenance })
}
