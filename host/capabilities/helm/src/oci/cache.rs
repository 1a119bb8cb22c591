//! Chart blobs on disk by digest, for all plugins and over restarts; a folder for each repository, since a grant on
//! one repository opens no other's blobs. A blob is read whole, so that one in use may be removed.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use sutler_model::Digest;

use super::reference::ChartUrl;
use crate::config::ConfigError;

#[derive(Debug, Clone)]
pub(super) struct Disk {
    root: PathBuf,
    limit: u64,
}

impl Disk {
    pub(super) fn open(root: PathBuf, limit: u64) -> Result<Self, ConfigError> {
        std::fs::create_dir_all(&root)
            .map_err(|e| ConfigError::Cache { path: root.clone(), why: e.to_string() })?;
        Ok(Self { root, limit })
    }

    fn folder(&self, url: &ChartUrl) -> PathBuf {
        self.root.join(Digest::of(url.to_string().as_bytes()).hex())
    }

    /// The blob, if it is there and still has its digest; a damaged one is removed.
    pub(super) async fn get(&self, url: &ChartUrl, digest: Digest) -> Option<Bytes> {
        let path = self.folder(url).join(digest.hex());
        tokio::task::spawn_blocking(move || {
            let bytes = std::fs::read(&path).ok()?;
            if Digest::of(&bytes) != digest {
                tracing::warn!(event = "helm.cache.damaged", path = %path.display());
                let _ = std::fs::remove_file(&path);
                return None;
            }
            // The time of the last use decides what goes first; losing it costs a download.
            let _ = std::fs::File::options()
                .write(true)
                .open(&path)
                .and_then(|f| f.set_modified(std::time::SystemTime::now()));
            Some(Bytes::from(bytes))
        })
        .await
        .ok()
        .flatten()
    }

    /// Keeps a blob. A full disk is no reason to fail a pull, so a failure is only told to the log.
    pub(super) async fn put(&self, url: &ChartUrl, digest: Digest, bytes: Bytes) {
        let (folder, root, limit) = (self.folder(url), self.root.clone(), self.limit);
        let done = tokio::task::spawn_blocking(move || {
            write(&folder, &digest.hex(), &bytes)?;
            shrink(&root, limit)
        })
        .await;
        if let Ok(Err(e)) = done {
            tracing::warn!(event = "helm.cache.write", root = %self.root.display(), error = %e);
        }
    }
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    use std::io::Write as _;
    std::fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(bytes)?;
    file.as_file().sync_data()?;
    file.persist(folder.join(name))?;
    Ok(())
}

/// Removes the files used longest ago until the rest fits.
fn shrink(root: &Path, limit: u64) -> std::io::Result<()> {
    let mut files = Vec::new();
    for folder in std::fs::read_dir(root)? {
        let Ok(inner) = std::fs::read_dir(folder?.path()) else { continue };
        for file in inner.flatten() {
            let Ok(meta) = file.metadata() else { continue };
            if meta.is_file() {
                files.push((meta.modified().unwrap_or(std::time::UNIX_EPOCH), meta.len(), file.path()));
            }
        }
    }
    let mut total: u64 = files.iter().map(|(_, len, _)| len).sum();
    files.sort();
    for (_, len, path) in files {
        if total <= limit {
            break;
        }
        if std::fs::remove_file(&path).is_ok() {
            total = total.saturating_sub(len);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blob(byte: u8, len: usize) -> (Digest, Bytes) {
        let bytes = Bytes::from(vec![byte; len]);
        (Digest::of(&bytes), bytes)
    }

    #[tokio::test]
    async fn blobs_are_kept_by_repository_and_checked() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path().join("cache"), 1 << 20).unwrap();
        let (a, b): (ChartUrl, ChartUrl) = ("oci://r/a".parse().unwrap(), "oci://r/b".parse().unwrap());
        let (digest, bytes) = blob(1, 10);
        disk.put(&a, digest, bytes.clone()).await;
        assert_eq!(disk.get(&a, digest).await, Some(bytes));
        assert_eq!(disk.get(&b, digest).await, None, "another repository's");
        let file = disk.folder(&a).join(digest.hex());
        std::fs::write(&file, "damaged").unwrap();
        assert_eq!(disk.get(&a, digest).await, None);
        assert!(!file.exists(), "the damaged file is gone");
    }

    #[tokio::test]
    async fn the_oldest_goes_first() {
        let folder = tempfile::tempdir().unwrap();
        let disk = Disk::open(folder.path().into(), 250).unwrap();
        let url: ChartUrl = "oci://r/a".parse().unwrap();
        let blobs: Vec<_> = (0..3).map(|i| blob(i, 100)).collect();
        for (i, (digest, bytes)) in blobs.iter().enumerate() {
            disk.put(&url, *digest, bytes.clone()).await;
            let path = disk.folder(&url).join(digest.hex());
            let time = std::time::SystemTime::now() - std::time::Duration::from_secs(100 - i as u64);
            if path.exists() {
                std::fs::File::options().write(true).open(path).unwrap().set_modified(time).unwrap();
            }
        }
        assert!(disk.get(&url, blobs[0].0).await.is_none());
        assert!(disk.get(&url, blobs[1].0).await.is_some());
        assert!(disk.get(&url, blobs[2].0).await.is_some());
    }
}
