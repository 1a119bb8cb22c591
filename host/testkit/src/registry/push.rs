//! Pushes charts and one-layer images into a registry that somebody else runs (OCI distribution 1.1 §push).

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;
use reqwest::{Client, RequestBuilder, StatusCode};
use serde_json::{Value, json};

use super::chart::{Chart, ChartError, package};
use super::store::digest;

const CHART_CONFIG: &str = "application/vnd.cncf.helm.config.v1+json";
const CHART_CONTENT: &str = "application/vnd.cncf.helm.chart.content.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const IMAGE_CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

#[derive(Debug, thiserror::Error)]
pub enum PushError {
    #[error(transparent)]
    Chart(#[from] ChartError),
    #[error("the registry could not be reached: {0}")]
    Http(#[from] reqwest::Error),
    #[error("{what}: the registry answered {status}: {text}")]
    Refused { what: String, status: StatusCode, text: String },
    #[error("{what}: {why}")]
    Local { what: String, why: String },
}

/// A registry to push to.
#[derive(Debug, Clone)]
pub struct Target {
    /// `http://127.0.0.1:5000`
    pub url: String,
    pub login: Option<(String, String)>,
    /// PEM of the registry's authority.
    pub ca: Option<Vec<u8>>,
}

impl Target {
    fn client(&self) -> Result<Client, PushError> {
        // Whoever comes first installs the same one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder().no_proxy();
        if let Some(pem) = &self.ca {
            builder = builder.tls_certs_only([reqwest::Certificate::from_pem(pem)?]);
        }
        Ok(builder.build()?)
    }

    fn signed(&self, request: RequestBuilder) -> RequestBuilder {
        match &self.login {
            Some((user, password)) => request.basic_auth(user, Some(password)),
            None => request,
        }
    }

    /// Packages and pushes a chart's folder as `REPOSITORY:VERSION`; answers the manifest's digest.
    ///
    /// # Errors
    /// `PushError`
    pub async fn push_chart(&self, folder: &Path, repository: &str) -> Result<String, PushError> {
        self.push_chart_archive(package(folder)?, repository).await
    }

    /// As [`Self::push_chart`], with the archive at hand.
    ///
    /// # Errors
    /// `PushError`
    pub async fn push_chart_archive(&self, archive: Vec<u8>, repository: &str) -> Result<String, PushError> {
        let chart = Chart::of_archive(archive)?;
        let config = chart.metadata.to_string().into_bytes();
        let tag = chart.version.replace('+', "_");
        self.push(repository, &tag, (CHART_CONFIG, config), (CHART_CONTENT, chart.archive)).await
    }

    /// Pushes an image that holds one static program at `/PROGRAM`, its entry point.
    ///
    /// # Errors
    /// `PushError`
    pub async fn push_image(&self, program: &Path, repository: &str, tag: &str) -> Result<String, PushError> {
        let bytes = std::fs::read(program).map_err(|e| local(program, e))?;
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        self.push_files(&[(name.as_str(), bytes)], repository, tag).await
    }

    /// Pushes an image that holds these files, all executable; the first is its entry point.
    ///
    /// # Errors
    /// `PushError`
    pub async fn push_files(
        &self,
        files: &[(&str, Vec<u8>)],
        repository: &str,
        tag: &str,
    ) -> Result<String, PushError> {
        let packed = |e: std::io::Error| local("an image's layer", e);
        let mut tar = tar::Builder::new(Vec::new());
        for folder in ["tmp", "etc"] {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(tar::EntryType::Directory);
            header.set_mode(0o1777);
            header.set_size(0);
            tar.append_data(&mut header, folder, std::io::empty()).map_err(packed)?;
        }
        for (path, bytes) in files {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o755);
            header.set_size(bytes.len() as u64);
            tar.append_data(&mut header, path, bytes.as_slice()).map_err(packed)?;
        }
        let layer = tar.into_inner().map_err(packed)?;
        let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
        gzip.write_all(&layer).map_err(packed)?;
        let zipped = gzip.finish().map_err(packed)?;
        let entry = files.first().map(|(path, _)| format!("/{path}"));
        let config = json!({
            "architecture": "amd64", "os": "linux",
            "config": {"Entrypoint": [entry], "User": "65532"},
            "rootfs": {"type": "layers", "diff_ids": [digest(&layer)]},
        });
        self.push(repository, tag, (IMAGE_CONFIG, config.to_string().into_bytes()), (LAYER, zipped)).await
    }

    /// Pushes the first image of an OCI image layout in a tar, as `cargo xtask image` makes it.
    ///
    /// # Errors
    /// `PushError`, also where the archive lacks what it names.
    pub async fn push_archive(
        &self,
        archive: &Path,
        repository: &str,
        tag: &str,
    ) -> Result<String, PushError> {
        let files = unpacked(archive).map_err(|e| local(archive, e))?;
        let file = |path: String| {
            let lacking = format!("there is no {path} in it");
            files.get(&path).ok_or_else(|| local(archive, std::io::Error::other(lacking)))
        };
        let blob = |described: &Value| {
            let digest = described["digest"].as_str().unwrap_or_default().to_owned();
            file(format!("blobs/{}", digest.replace(':', "/"))).map(|bytes| (digest, bytes))
        };
        let parsed = |bytes: &[u8]| serde_json::from_slice(bytes).map_err(|e| local(archive, e.into()));
        let index: Value = parsed(file("index.json".into())?)?;
        let (digest, bytes) = blob(&index["manifests"][0])?;
        let manifest: Value = parsed(bytes)?;
        let layers = manifest["layers"].as_array().cloned().unwrap_or_default();
        let client = self.client()?;
        for described in layers.iter().chain([&manifest["config"]]) {
            let (digest, bytes) = blob(described)?;
            self.blob(&client, repository, &digest, bytes.clone()).await?;
        }
        self.manifest(&client, repository, tag, bytes.clone()).await?;
        Ok(digest)
    }

    async fn push(
        &self,
        repository: &str,
        tag: &str,
        config: (&str, Vec<u8>),
        layer: (&str, Vec<u8>),
    ) -> Result<String, PushError> {
        let client = self.client()?;
        let mut described = Vec::new();
        for (media_type, bytes) in [config, layer] {
            let digest = digest(&bytes);
            described.push(json!({"mediaType": media_type, "digest": digest, "size": bytes.len()}));
            self.blob(&client, repository, &digest, bytes).await?;
        }
        let layer = described.pop().unwrap_or_default();
        let config = described.pop().unwrap_or_default();
        let manifest: Value =
            json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer]});
        let bytes = manifest.to_string().into_bytes();
        let digest = digest(&bytes);
        self.manifest(&client, repository, tag, bytes).await?;
        Ok(digest)
    }

    async fn manifest(
        &self,
        client: &Client,
        repository: &str,
        tag: &str,
        bytes: Vec<u8>,
    ) -> Result<(), PushError> {
        let put = client
            .put(format!("{}/v2/{repository}/manifests/{tag}", self.url))
            .header("content-type", MANIFEST);
        accepted(self.signed(put).body(bytes).send().await?, "pushing a manifest").await.map(drop)
    }

    async fn blob(
        &self,
        client: &Client,
        repository: &str,
        digest: &str,
        bytes: Vec<u8>,
    ) -> Result<(), PushError> {
        let start = client.post(format!("{}/v2/{repository}/blobs/uploads/", self.url));
        let started = accepted(self.signed(start).send().await?, "starting an upload").await?;
        let place = started.headers().get("location").and_then(|v| v.to_str().ok()).unwrap_or_default();
        let place = if place.starts_with('/') { format!("{}{place}", self.url) } else { place.to_owned() };
        let joint = if place.contains('?') { '&' } else { '?' };
        let put = client
            .put(format!("{place}{joint}digest={digest}"))
            .header("content-type", "application/octet-stream");
        accepted(self.signed(put).body(bytes).send().await?, "uploading a blob").await.map(drop)
    }
}

fn local(what: impl AsRef<Path>, why: std::io::Error) -> PushError {
    PushError::Local { what: what.as_ref().display().to_string(), why: why.to_string() }
}

/// The files of a tar, by path.
fn unpacked(archive: &Path) -> std::io::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(std::fs::File::open(archive)?).entries()? {
        let mut entry = entry?;
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes)?;
        files.insert(entry.path()?.display().to_string(), bytes);
    }
    Ok(files)
}

async fn accepted(response: reqwest::Response, what: &str) -> Result<reqwest::Response, PushError> {
    if response.status().is_success() {
        return Ok(response);
    }
    let (what, status) = (what.to_owned(), response.status());
    Err(PushError::Refused { what, status, text: response.text().await.unwrap_or_default() })
}
