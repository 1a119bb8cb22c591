//! What the registry holds.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::chart::Chart;

pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CHART_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CHART_CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";

pub(crate) fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256:{hex}")
}

/// A manifest and its media type.
#[derive(Clone)]
pub(crate) struct Manifest {
    pub(crate) media_type: String,
    pub(crate) bytes: Bytes,
}

#[derive(Default)]
pub(crate) struct Contents {
    /// By repository and digest.
    blobs: BTreeMap<(String, String), Bytes>,
    manifests: BTreeMap<(String, String), Manifest>,
    tags: BTreeMap<(String, String), String>,
    uploads: BTreeMap<String, Vec<u8>>,
}

impl Contents {
    /// Puts a chart into a repository under its version; the digest of its manifest and the tag.
    pub(crate) fn push_chart(&mut self, repository: &str, chart: Chart) -> (String, String) {
        let title = format!("{}-{}.tgz", chart.name, chart.version);
        let annotations = json!({
            "org.opencontainers.image.title": chart.name, "org.opencontainers.image.version": chart.version,
        });
        let config = chart.metadata.to_string().into_bytes();
        let (config_size, content_size) = (config.len(), chart.archive.len());
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": {"mediaType": CHART_CONFIG, "digest": self.push_blob(repository, config), "size": config_size},
            "layers": [{
                "mediaType": CHART_CONTENT, "digest": self.push_blob(repository, chart.archive), "size": content_size,
                "annotations": {"org.opencontainers.image.title": title},
            }],
            "annotations": annotations,
        });
        // A tag has no `+`; Helm writes `_` for it.
        let tag = chart.version.replace('+', "_");
        let digest = self.push_manifest(repository, &tag, MANIFEST, manifest.to_string().into());
        (digest, tag)
    }

    pub(crate) fn push_blob(&mut self, repository: &str, bytes: Vec<u8>) -> String {
        let digest = digest(&bytes);
        self.blobs.insert((repository.into(), digest.clone()), bytes.into());
        digest
    }

    pub(crate) fn push_manifest(
        &mut self,
        repository: &str,
        reference: &str,
        media_type: &str,
        bytes: Bytes,
    ) -> String {
        let digest = digest(&bytes);
        let manifest = Manifest { media_type: media_type.into(), bytes };
        self.manifests.insert((repository.into(), digest.clone()), manifest);
        if !reference.starts_with("sha256:") {
            self.tags.insert((repository.into(), reference.into()), digest.clone());
        }
        digest
    }

    pub(crate) fn blob(&self, repository: &str, digest: &str) -> Option<Bytes> {
        self.blobs.get(&(repository.into(), digest.into())).cloned()
    }

    /// By tag or digest, with its digest.
    pub(crate) fn manifest(&self, repository: &str, reference: &str) -> Option<(String, Manifest)> {
        let digest = match reference.starts_with("sha256:") {
            true => reference.to_owned(),
            false => self.tags.get(&(repository.into(), reference.into()))?.clone(),
        };
        let manifest = self.manifests.get(&(repository.into(), digest.clone()))?.clone();
        Some((digest, manifest))
    }

    /// The tags after `last`, in order; `None` for an unknown repository.
    pub(crate) fn tags(&self, repository: &str, last: &str) -> Option<Vec<String>> {
        let mut of_repository =
            self.tags.keys().filter(|(r, _)| r == repository).map(|(_, t)| t.clone()).peekable();
        of_repository.peek()?;
        Some(of_repository.filter(|t| t.as_str() > last).collect())
    }

    pub(crate) fn begin_upload(&mut self) -> String {
        let id = uuid::Uuid::new_v4().to_string();
        self.uploads.insert(id.clone(), Vec::new());
        id
    }

    /// Adds to an upload; its size so far.
    pub(crate) fn upload(&mut self, id: &str, bytes: &[u8]) -> Option<usize> {
        let upload = self.uploads.get_mut(id)?;
        upload.extend_from_slice(bytes);
        Some(upload.len())
    }

    /// Ends an upload; false when the digest is another one.
    pub(crate) fn end_upload(&mut self, repository: &str, id: &str, wanted: &str) -> Option<bool> {
        let bytes = self.uploads.remove(id)?;
        let right = digest(&bytes) == wanted;
        if right {
            self.push_blob(repository, bytes);
        }
        Some(right)
    }

    /// Whether a manifest names only blobs that are here.
    pub(crate) fn complete(&self, repository: &str, manifest: &Value) -> bool {
        let layers = manifest["layers"].as_array().into_iter().flatten();
        layers
            .chain([&manifest["config"]])
            .filter_map(|d| d["digest"].as_str())
            .all(|d| self.blobs.contains_key(&(repository.to_owned(), d.to_owned())))
    }
}
