//! Helm charts as archives.

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use flate2::{Compression, GzBuilder};
use serde_json::Value;

/// Why a chart could not be packaged or read.
#[derive(Debug, thiserror::Error)]
pub enum ChartError {
    #[error("{path} could not be read: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("{0} holds no chart: no folder in it has a Chart.yaml")]
    NoCharts(PathBuf),
    #[error("{what} is no chart: {why}")]
    NotAChart { what: String, why: String },
}

/// A chart with what its Chart.yaml says.
pub(crate) struct Chart {
    pub(crate) name: String,
    pub(crate) version: String,
    /// Chart.yaml as JSON: the OCI config of a chart.
    pub(crate) metadata: Value,
    pub(crate) archive: Vec<u8>,
}

/// Packages a chart's folder as `helm package` does: a tar.gz of `NAME/…`. The same folder gives the same bytes.
///
/// # Errors
/// When the folder is no chart or cannot be read.
pub fn package(folder: &Path) -> Result<Vec<u8>, ChartError> {
    let read = |path: &Path| {
        std::fs::read(path).map_err(|source| ChartError::Read { path: path.to_owned(), source })
    };
    let (name, _, _) = described(&folder.display().to_string(), &read(&folder.join("Chart.yaml"))?)?;
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort_by_key(|f| (f != &folder.join("Chart.yaml"), f.clone()));
    let mut archive = tar::Builder::new(GzBuilder::new().mtime(0).write(Vec::new(), Compression::default()));
    for file in files {
        let inside = Path::new(&name).join(file.strip_prefix(folder).unwrap_or(&file));
        let contents = read(&file)?;
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.len() as u64);
        header.set_mode(0o644);
        header.set_mtime(0);
        let failed = |source| ChartError::Read { path: file.clone(), source };
        archive.append_data(&mut header, inside, contents.as_slice()).map_err(failed)?;
    }
    let failed = |source| ChartError::Read { path: folder.to_owned(), source };
    let mut gzip = archive.into_inner().map_err(failed)?;
    gzip.flush().map_err(failed)?;
    gzip.finish().map_err(failed)
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), ChartError> {
    let failed = |source| ChartError::Read { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        if entry.file_name() == ".git" {
            continue;
        }
        if path.is_dir() { collect(&path, files)? } else { files.push(path) }
    }
    Ok(())
}

/// Name, version and the whole of a Chart.yaml.
fn described(what: &str, text: &[u8]) -> Result<(String, String, Value), ChartError> {
    let bad = |why: String| ChartError::NotAChart { what: what.into(), why };
    let metadata: Value = serde_saphyr::from_slice(text).map_err(|e| bad(format!("Chart.yaml: {e}")))?;
    let text = |field: &str| {
        let value = metadata[field].as_str().filter(|v| !v.is_empty());
        value.map(str::to_owned).ok_or_else(|| bad(format!("Chart.yaml has no {field}")))
    };
    Ok((text("name")?, text("version")?, metadata))
}

impl Chart {
    /// Reads an archive's Chart.yaml.
    pub(crate) fn of_archive(archive: Vec<u8>) -> Result<Self, ChartError> {
        let bad = |why: String| ChartError::NotAChart { what: "the archive".into(), why };
        let mut text = None;
        {
            let mut tar = tar::Archive::new(GzDecoder::new(archive.as_slice()));
            for entry in tar.entries().map_err(|e| bad(e.to_string()))? {
                let mut entry = entry.map_err(|e| bad(e.to_string()))?;
                let path = entry.path().map_err(|e| bad(e.to_string()))?.into_owned();
                if path.components().count() == 2 && path.ends_with("Chart.yaml") {
                    let mut bytes = Vec::new();
                    entry.read_to_end(&mut bytes).map_err(|e| bad(e.to_string()))?;
                    text = Some(bytes);
                    break;
                }
            }
        }
        let text = text.ok_or_else(|| bad("it has no NAME/Chart.yaml".into()))?;
        let (name, version, metadata) = described("the archive", &text)?;
        Ok(Self { name, version, metadata, archive })
    }
}

/// The chart folders in a folder, or the folder itself where it is one; subcharts are not looked for.
pub(crate) fn find(folder: &Path) -> Result<Vec<PathBuf>, ChartError> {
    let mut found = Vec::new();
    search(folder, &mut found)?;
    found.sort();
    if found.is_empty() { Err(ChartError::NoCharts(folder.to_owned())) } else { Ok(found) }
}

fn search(folder: &Path, found: &mut Vec<PathBuf>) -> Result<(), ChartError> {
    if folder.join("Chart.yaml").is_file() {
        found.push(folder.to_owned());
        return Ok(());
    }
    let failed = |source| ChartError::Read { path: folder.to_owned(), source };
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_dir() {
            search(&path, found)?;
        }
    }
    Ok(())
}
