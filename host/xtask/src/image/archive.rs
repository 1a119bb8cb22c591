//! An image as one file: an OCI image layout (image spec 1.1) as a tar, as `docker load`, `podman load`, `ctr images
//! import` and `skopeo copy oci-archive:` take it.

use std::io::Write as _;

use anyhow::{Context, Result, bail};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::files::Files;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An image of one layer, called `name` (`REPOSITORY:TAG`), that runs as `config` says.
pub(super) fn of(layer: &[u8], config: Value, name: &str) -> Result<Vec<u8>> {
    let Some((_, tag)) = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) else {
        bail!("the image's name {name:?} has no tag: write REPOSITORY:TAG");
    };
    let mut files = Files::new();
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(layer)?;
    let packed = blob(&mut files, LAYER, &gzip.finish()?)?;
    let config = json!({
        "architecture": architecture()?, "os": "linux", "created": "1970-01-01T00:00:00Z", "config": config,
        "rootfs": {"type": "layers", "diff_ids": [digest(layer)]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "cargo xtask image"}],
    });
    let config = blob(&mut files, CONFIG, config.to_string().as_bytes())?;
    let manifest = json!({"schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [packed]});
    let mut described = blob(&mut files, MANIFEST, manifest.to_string().as_bytes())?;
    if let Some(fields) = described.as_object_mut() {
        let names = json!({"io.containerd.image.name": full(name), "org.opencontainers.image.ref.name": tag});
        fields.insert("annotations".into(), names);
    }
    let index = json!({"schemaVersion": 2, "manifests": [described]});
    files.bytes("index.json", index.to_string().as_bytes())?;
    files.bytes("oci-layout", json!({"imageLayoutVersion": "1.0.0"}).to_string().as_bytes())?;
    let of_docker = json!([{"Config": path(&config), "RepoTags": [name], "Layers": [path(&packed)]}]);
    files.bytes("manifest.json", of_docker.to_string().as_bytes())?;
    files.finish()
}

/// A name as containerd and the kubelet know it: a short one is Docker Hub's.
fn full(name: &str) -> String {
    match name.split_once('/') {
        None => format!("docker.io/library/{name}"),
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => name.to_owned(),
        Some(_) => format!("docker.io/{name}"),
    }
}

fn digest(bytes: &[u8]) -> String {
    let hash = Sha256::digest(bytes);
    hash.iter().fold("sha256:".to_owned(), |text, byte| format!("{text}{byte:02x}"))
}

/// Adds a blob and describes it.
fn blob(files: &mut Files, media_type: &str, bytes: &[u8]) -> Result<Value> {
    let described = json!({"mediaType": media_type, "digest": digest(bytes), "size": bytes.len()});
    files.bytes(&path(&described), bytes)?;
    Ok(described)
}

/// Where a blob lies in the layout.
fn path(described: &Value) -> String {
    let digest = described.get("digest").and_then(Value::as_str).unwrap_or_default();
    format!("blobs/{}", digest.replace(':', "/"))
}

fn architecture() -> Result<&'static str> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(anyhow::anyhow!("{other}")).context("images are made on x86_64 and aarch64"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::Read as _;

    use super::*;

    #[test]
    fn every_digest_leads_to_what_it_names() {
        let archive = of(b"layer", json!({"User": "1"}), "registry.example:5000/sutler:1").unwrap();
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(archive.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(entry.path().unwrap().display().to_string(), bytes);
        }
        let parsed = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
        let follow = |described: &Value| {
            let bytes = &files[&path(described)];
            assert_eq!(described["digest"], digest(bytes));
            assert_eq!(described["size"], bytes.len());
            bytes.clone()
        };
        let index = parsed(&files["index.json"]);
        let manifest = parsed(&follow(&index["manifests"][0]));
        let config = parsed(&follow(&manifest["config"]));
        assert_eq!(config["config"]["User"], "1");
        let mut layer = Vec::new();
        let packed = follow(&manifest["layers"][0]);
        flate2::read::GzDecoder::new(packed.as_slice()).read_to_end(&mut layer).unwrap();
        assert_eq!(layer, b"layer");
        assert_eq!(config["rootfs"]["diff_ids"][0], digest(&layer));
        let of_docker = parsed(&files["manifest.json"]);
        assert_eq!(of_docker[0]["RepoTags"][0], "registry.example:5000/sutler:1");
        assert!(files.contains_key(of_docker[0]["Config"].as_str().unwrap()));
    }

    #[test]
    fn short_names_are_docker_hubs() {
        for (name, known) in [
            ("sutler:1", "docker.io/library/sutler:1"),
            ("team/sutler:1", "docker.io/team/sutler:1"),
            ("localhost/sutler:1", "localhost/sutler:1"),
            ("registry:5000/sutler:1", "registry:5000/sutler:1"),
        ] {
            assert_eq!(full(name), known);
        }
    }

    #[test]
    fn a_name_without_a_tag_is_refused() {
        let error = of(b"", json!({}), "registry.example:5000/sutler").unwrap_err();
        assert!(error.to_string().contains("REPOSITORY:TAG"), "{error}");
    }
}
