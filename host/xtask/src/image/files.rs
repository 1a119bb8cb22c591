//! The files of a layer, without times and names of this machine.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use tar::{EntryType, Header};

pub(super) struct Files(tar::Builder<Vec<u8>>);

impl Files {
    pub(super) fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    pub(super) fn folder(&mut self, path: &str, mode: u32, owner: u64) -> Result<()> {
        self.add(EntryType::Directory, &format!("{path}/"), mode, owner, &[])
    }

    pub(super) fn bytes(&mut self, path: &str, content: &[u8]) -> Result<()> {
        self.add(EntryType::Regular, path, 0o644, 0, content)
    }

    /// What `from` is or leads to, as a regular file of root's.
    pub(super) fn copy(&mut self, from: &Path, path: &str, mode: u32) -> Result<()> {
        let content = fs::read(from).with_context(|| format!("reading {}", from.display()))?;
        self.add(EntryType::Regular, path, mode, 0, &content)
    }

    fn add(&mut self, kind: EntryType, path: &str, mode: u32, owner: u64, content: &[u8]) -> Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(owner);
        header.set_gid(owner);
        header.set_mtime(0);
        header.set_size(content.len() as u64);
        self.0.append_data(&mut header, path, content).with_context(|| format!("packing {path}"))
    }

    pub(super) fn finish(self) -> Result<Vec<u8>> {
        self.0.into_inner().context("closing an archive")
    }
}
