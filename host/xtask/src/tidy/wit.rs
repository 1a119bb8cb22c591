//! A released contract never changes: while `wit/` carries a released version, it equals that copy.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub fn check(wit: &Path) -> Result<Vec<String>> {
    let current = files(wit)?;
    let Some(version) = current.values().find_map(|content| version(content)) else {
        return Ok(vec![format!("{} declares no version of sutler:provisioner", wit.display())]);
    };
    let released = wit.join("released").join(&version);
    if !released.is_dir() {
        return Ok(Vec::new()); // work on the next version
    }
    let frozen = files(&released)?;
    let mut names: Vec<&PathBuf> = current.keys().chain(frozen.keys()).collect();
    names.sort();
    names.dedup();
    let changed = names.into_iter().filter(|name| current.get(*name) != frozen.get(*name));
    Ok(changed
        .map(|name| {
            format!("wit/{} differs from released {version}: raise the version first", name.display())
        })
        .collect())
}

fn version(content: &str) -> Option<String> {
    let name = content.lines().find_map(|line| line.trim().strip_prefix("package sutler:provisioner@"))?;
    Some(name.trim_end_matches(';').to_owned())
}

/// Contents by path, without the released copies.
fn files(folder: &Path) -> Result<BTreeMap<PathBuf, String>> {
    let mut found = BTreeMap::new();
    let mut open = vec![folder.to_owned()];
    while let Some(next) = open.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("listing {}", next.display()))? {
            let path = entry?.path();
            let name = path.strip_prefix(folder)?.to_owned();
            if path.is_dir() {
                if name != Path::new("released") {
                    open.push(path);
                }
            } else {
                found.insert(name, fs::read_to_string(&path)?);
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_released_version_is_frozen_until_it_is_raised() {
        let folder = tempfile::tempdir().unwrap();
        let wit = folder.path();
        let released = wit.join("released/0.1.0");
        fs::create_dir_all(&released).unwrap();
        let write = |place: &Path, text: &str| fs::write(place.join("a.wit"), text).unwrap();
        write(wit, "package sutler:provisioner@0.1.0;\n");
        write(&released, "package sutler:provisioner@0.1.0;\n");
        assert!(check(wit).unwrap().is_empty());
        write(wit, "package sutler:provisioner@0.1.0;\n// more\n");
        assert_eq!(check(wit).unwrap().len(), 1);
        write(wit, "package sutler:provisioner@0.2.0;\n// more\n");
        assert!(check(wit).unwrap().is_empty());
        write(wit, "package sutler:provisioner@0.1.0;\n");
        fs::write(released.join("b.wit"), "").unwrap();
        assert_eq!(check(wit).unwrap().len(), 1);
        write(wit, "package other:thing@0.1.0;\n");
        assert_eq!(check(wit).unwrap().len(), 1);
    }
}
