//! Files put into a container before its start, as one tar.

use std::collections::BTreeSet;

use tar::{EntryType, Header};

use crate::{Error, Spec};

/// Whose the files are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) uid: u64,
    pub(crate) gid: u64,
}

impl User {
    pub(crate) const ROOT: Self = Self { uid: 0, gid: 0 };

    /// `1024:0`, `1024`, nothing for root; `None` for names.
    pub(crate) fn numeric(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::ROOT);
        }
        let (uid, gid) = text.split_once(':').unwrap_or((text, "0"));
        Some(Self { uid: uid.parse().ok()?, gid: gid.parse().ok()? })
    }

    /// A name, as the container's /etc/passwd has it; a group by name is the user's own there.
    pub(crate) fn named(text: &str, passwd: &str) -> Option<Self> {
        let (name, group) = text.split_once(':').unwrap_or((text, ""));
        passwd.lines().find_map(|line| {
            let mut fields = line.split(':');
            let (found, _, uid, gid) = (fields.next()?, fields.next()?, fields.next()?, fields.next()?);
            (found == name || uid == name).then_some(())?;
            Some(Self { uid: uid.parse().ok()?, gid: group.parse().ok().or_else(|| gid.parse().ok())? })
        })
    }
}

/// The folders above a path, the outermost first, without the root.
pub(crate) fn above(path: &str) -> impl Iterator<Item = &str> {
    path.char_indices().skip(1).filter(|(_, c)| *c == '/').filter_map(|(i, _)| path.get(..i))
}

/// `missing`: the folders that are not there yet, by path. A mounted volume's own folder becomes the user's.
pub(crate) fn archive(spec: &Spec, user: User, missing: &BTreeSet<String>) -> Result<Vec<u8>, Error> {
    let mut out = tar::Builder::new(Vec::new());
    let failed = |e: std::io::Error| Error::invalid(format!("the files cannot be packed: {e}"));
    let mut add = |kind, path: &str, mode, owner: User, contents: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(owner.uid);
        header.set_gid(owner.gid);
        header.set_mtime(0);
        header.set_size(contents.len() as u64);
        out.append_data(&mut header, path.trim_start_matches('/'), contents).map_err(failed)
    };
    for folder in missing {
        add(EntryType::Directory, &format!("{folder}/"), 0o755, User::ROOT, &[])?;
    }
    for mount in &spec.mounts {
        add(EntryType::Directory, &format!("{}/", mount.path), 0o750, user, &[])?;
    }
    for file in &spec.files {
        let (mode, owner) = if file.secret { (0o400, user) } else { (0o444, User::ROOT) };
        add(EntryType::Regular, &file.path, mode, owner, &file.contents)?;
    }
    out.into_inner().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users() {
        let of = |uid, gid| Some(User { uid, gid });
        for (text, want) in
            [("", of(0, 0)), ("1024:0", of(1024, 0)), ("7", of(7, 0)), ("ksml", None), ("1:g", None)]
        {
            assert_eq!(User::numeric(text), want, "{text}");
        }
        let passwd = "root:x:0:0:root:/:/bin/sh\nksml:x:1024:5::/home/ksml:/bin/sh\n";
        for (text, want) in
            [("ksml", of(1024, 5)), ("ksml:7", of(1024, 7)), ("ksml:staff", of(1024, 5)), ("no", None)]
        {
            assert_eq!(User::named(text, passwd), want, "{text}");
        }
    }

    #[test]
    fn folders_above() {
        assert_eq!(above("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert_eq!(above("/a").count(), 0);
    }
}
