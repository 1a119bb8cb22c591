//! The files of a chart archive, read into memory and nowhere else; hostile ones are refused.

use std::collections::BTreeMap;
use std::io::Read as _;

use bytes::Bytes;

/// All files together, unpacked, archives of subcharts included.
pub const MAX_UNPACKED: u64 = 100 << 20;
pub const MAX_FILES: usize = 10_000;
/// Charts within archives within archives.
const MAX_DEPTH: usize = 8;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArchiveError {
    #[error("its archive cannot be read: {0}")]
    Damaged(String),
    #[error("its archive has an entry outside its folder: {0:?}")]
    Outside(String),
    #[error("its archive has a link or a device: {0:?}; charts may hold files and folders only")]
    Special(String),
    #[error("its archive unpacks to more than {MAX_UNPACKED} bytes")]
    Bomb,
    #[error("its archive holds more than {MAX_FILES} files")]
    Files,
    #[error("its archives are nested more than {MAX_DEPTH} deep")]
    Depth,
    #[error("its archive has several top-level folders: {0:?} and {1:?}")]
    Folders(String, String),
    #[error("{0} is missing from its archive")]
    Missing(&'static str),
    #[error("{file} cannot be read: {why}")]
    Yaml { file: String, why: String },
    #[error("{0}")]
    Metadata(String),
}

/// What one chart may still use; shared with the archives of its subcharts.
pub(crate) struct Budget {
    bytes: u64,
    files: usize,
    depth: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { bytes: MAX_UNPACKED, files: MAX_FILES, depth: MAX_DEPTH }
    }
}

impl Budget {
    pub(crate) fn deeper<T>(
        &mut self,
        f: impl FnOnce(&mut Self) -> Result<T, ArchiveError>,
    ) -> Result<T, ArchiveError> {
        self.depth = self.depth.checked_sub(1).ok_or(ArchiveError::Depth)?;
        let out = f(self);
        self.depth += 1;
        out
    }
}

/// Contents by path below the one top-level folder.
pub(crate) type Files = BTreeMap<String, Bytes>;

fn damaged(e: &std::io::Error) -> ArchiveError {
    ArchiveError::Damaged(e.to_string())
}

/// The folder and the path below it. Archives from Windows use `\`.
fn split(name: &str) -> Result<(String, String), ArchiveError> {
    let outside = || ArchiveError::Outside(name.chars().take(200).collect());
    let plain = name.replace('\\', "/");
    let plain = plain.strip_prefix("./").unwrap_or(&plain);
    let mut parts = Vec::new();
    for part in plain.trim_end_matches('/').split('/') {
        match part {
            "" | ".." => return Err(outside()),
            "." => {}
            p if p.contains(['\0', ':']) && p.len() == 2 => return Err(outside()),
            p if p.contains('\0') => return Err(outside()),
            p => parts.push(p),
        }
    }
    let (folder, rest) = parts.split_first().ok_or_else(outside)?;
    Ok(((*folder).to_owned(), rest.join("/")))
}

/// Unpacks a gzipped tar with one top-level folder.
pub(crate) fn unpack(archive: &[u8], budget: &mut Budget) -> Result<Files, ArchiveError> {
    // tar's own reading of long names and headers is covered by the same bound as the files.
    let stream = flate2::read::MultiGzDecoder::new(archive).take(budget.bytes.saturating_add(32 << 20));
    let mut tar = tar::Archive::new(stream);
    let mut out = Files::new();
    let mut top: Option<String> = None;
    for entry in tar.entries().map_err(|e| damaged(&e))? {
        let mut entry = entry.map_err(|e| damaged(&e))?;
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() || kind.is_pax_local_extensions() {
            continue;
        }
        if !(kind.is_file() || kind.is_dir() || kind.is_contiguous()) {
            return Err(ArchiveError::Special(name.chars().take(200).collect()));
        }
        let (folder, path) = split(&name)?;
        match &top {
            Some(t) if *t != folder => return Err(ArchiveError::Folders(t.clone(), folder)),
            Some(_) => {}
            None => top = Some(folder),
        }
        budget.files = budget.files.checked_sub(1).ok_or(ArchiveError::Files)?;
        if kind.is_dir() {
            continue;
        }
        if path.is_empty() {
            return Err(ArchiveError::Outside(name));
        }
        // The header's size is a claim: what counts is what comes.
        let mut data = Vec::new();
        let read = (&mut entry)
            .take(budget.bytes.saturating_add(1))
            .read_to_end(&mut data)
            .map_err(|e| damaged(&e))? as u64;
        budget.bytes = budget.bytes.checked_sub(read).ok_or(ArchiveError::Bomb)?;
        let text = data.strip_prefix(b"\xEF\xBB\xBF".as_slice()).map(<[u8]>::to_vec).unwrap_or(data);
        out.insert(path, Bytes::from(text));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (name, expected) in [
            ("app/Chart.yaml", Some(("app", "Chart.yaml"))),
            ("./app/templates/x.yaml", Some(("app", "templates/x.yaml"))),
            ("app\\templates\\x.yaml", Some(("app", "templates/x.yaml"))),
            ("app/./x", Some(("app", "x"))),
            ("app/", Some(("app", ""))),
            ("../x", None),
            ("app/../../x", None),
            ("app\\..\\x", None),
            ("/etc/passwd", None),
            ("c:/x", None),
            ("", None),
            ("app//x", None),
        ] {
            let got = split(name).ok();
            assert_eq!(got.as_ref().map(|(a, b)| (a.as_str(), b.as_str())), expected, "{name}");
        }
    }
}
