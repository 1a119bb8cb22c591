//! Sealing of what a ledger stores: XChaCha20-Poly1305 (draft-irtf-cfrg-xchacha), the column and the job's id
//! authenticated with it, so that no sealed text can be moved to another place.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use chacha20poly1305::aead::{Aead as _, KeyInit as _, Payload};
use chacha20poly1305::{XChaCha20Poly1305, XNonce};

use crate::{JobId, LedgerError};

use super::file;

/// The layout of a sealed text: this byte, the length of the key's id, the id, the nonce, the ciphertext.
const VERSION: u8 = 1;
const NONCE: usize = 24;

/// The keys of a key file: the active one seals, all open.
#[derive(Clone)]
pub(super) struct Ring {
    pub(super) active: String,
    /// What hashes are derived from; files of before have the first key by name for it.
    pub(super) hashes: Option<[u8; 32]>,
    pub(super) keys: BTreeMap<String, [u8; 32]>,
}

impl Ring {
    fn root(&self) -> [u8; 32] {
        self.hashes.or_else(|| self.keys.values().next().copied()).unwrap_or_default()
    }
}

/// The keys that a ledger's texts are sealed with. Cheap to clone; clones share a reload.
#[derive(Clone)]
pub struct Keys {
    ring: Arc<RwLock<Ring>>,
    path: Arc<PathBuf>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ring = self.ring();
        f.debug_struct("Keys")
            .field("path", &self.path)
            .field("active", &ring.active)
            .field("keys", &ring.keys.keys().collect::<Vec<_>>())
            .finish()
    }
}

impl Keys {
    /// Reads a key file.
    ///
    /// # Errors
    /// `LedgerError::Open` where it is missing, readable by others than its owner, or not a key file.
    pub fn open(path: &Path) -> Result<Self, LedgerError> {
        let ring = file::read(path)?;
        Ok(Self { ring: Arc::new(RwLock::new(ring)), path: Arc::new(path.to_owned()) })
    }

    /// A key for hashes that all hosts of one ledger make alike. Keys that are added or removed do not change it.
    pub fn derived(&self, label: &str) -> [u8; 32] {
        use sha2::Digest as _;
        let first = self.ring().root();
        // The label is the project's own word and the key of fixed length, so their sequence is unambiguous.
        sha2::Sha256::new()
            .chain_update(first)
            .chain_update(b"/derived/")
            .chain_update(label)
            .finalize()
            .into()
    }

    /// Reads a key file, or makes one where there is neither a key file nor a ledger yet. Beside an existing ledger
    /// a new key would only hide that the right one is lost.
    ///
    /// # Errors
    /// As [`Keys::open`], or where the file cannot be written.
    pub fn open_or_make(path: &Path, ledger: &Path) -> Result<Self, LedgerError> {
        if !path.exists() && !ledger.exists() {
            file::make(path)?;
        }
        Self::open(path)
    }

    /// Adds a new key to a key file, which is made where there is none, makes it the active one and answers its id.
    /// What older keys have sealed can
    /// still be read; [`crate::Ledger::reseal`] seals it again.
    ///
    /// # Errors
    /// As [`Keys::open`], or where the file cannot be written.
    pub fn rotate(path: &Path) -> Result<String, LedgerError> {
        if !path.exists() {
            file::make(path)?;
            return file::read(path).map(|ring| ring.active);
        }
        let mut ring = file::read(path)?;
        ring.hashes = Some(ring.root());
        let id = file::fresh(&mut ring)?;
        file::replace(path, &ring)?;
        Ok(id)
    }

    /// A name for what [`Keys::derived`] hangs on: equal where two ledgers hash alike. It tells nothing of a key.
    pub fn hashes_name(&self) -> String {
        sutler_model::hex(self.derived("name").first_chunk::<8>().map_or(&[], |c| c.as_slice()))
    }

    /// Writes into the key file that hashes are made as under `other`, whose jobs come into this ledger: their
    /// repeats are recognised then. Only for a ledger that has no jobs of its own.
    ///
    /// # Errors
    /// As [`Keys::open`], or where the file cannot be written.
    pub fn hash_like(&self, other: &Self) -> Result<(), LedgerError> {
        let mut ring = file::read(&self.path)?;
        ring.hashes = Some(other.ring().root());
        file::replace(&self.path, &ring)?;
        self.reload()
    }

    /// The ids of the keys that only open what was sealed before.
    pub fn older(&self) -> Vec<String> {
        let ring = self.ring();
        ring.keys.keys().filter(|id| **id != ring.active).cloned().collect()
    }

    fn ring(&self) -> std::sync::RwLockReadGuard<'_, Ring> {
        self.ring.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the key file again, as after a rotation.
    ///
    /// # Errors
    /// As [`Keys::open`]; the keys stay as they are then.
    pub fn reload(&self) -> Result<(), LedgerError> {
        let ring = file::read(&self.path)?;
        *self.ring.write().unwrap_or_else(PoisonError::into_inner) = ring;
        Ok(())
    }

    pub(crate) fn seal(&self, column: &str, job: &JobId, text: &str) -> Result<Vec<u8>, LedgerError> {
        let cannot = || LedgerError::Unavailable("the operating system gives no random numbers".into());
        let (id, key) = {
            let ring = self.ring();
            let key = ring.keys.get(&ring.active).copied();
            (ring.active.clone(), key.ok_or_else(|| missing(&ring.active, &self.path))?)
        };
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|_| cannot())?;
        let aad = place(column, job);
        let payload = Payload { msg: text.as_bytes(), aad: &aad };
        let sealed = XChaCha20Poly1305::new(&key.into()).encrypt(&XNonce::from(nonce), payload);
        let sealed =
            sealed.map_err(|_| LedgerError::Unavailable(format!("{column} of {job} is too large")))?;
        let length = u8::try_from(id.len()).unwrap_or(u8::MAX);
        let mut out = Vec::with_capacity(2 + id.len() + NONCE + sealed.len());
        out.extend([VERSION, length]);
        out.extend(id.as_bytes());
        out.extend(nonce);
        out.extend(sealed);
        Ok(out)
    }

    /// A sealed text of a job's column.
    ///
    /// # Errors
    /// `LedgerError::Unreadable` where it was changed or moved, `LedgerError::MissingKey` where it was sealed with a key
    /// that is not there.
    pub fn open_text(&self, column: &str, job: &JobId, blob: &[u8]) -> Result<Arc<str>, LedgerError> {
        let damaged = |why: &str| {
            LedgerError::Unreadable(format!(
                "{column} of {job} cannot be read: {why}; restore a backup of the ledger and its key file"
            ))
        };
        let (id, rest) = split(blob).ok_or_else(|| damaged("it is not a sealed text of this version"))?;
        let (nonce, sealed) = rest.split_first_chunk::<NONCE>().ok_or_else(|| damaged("it is cut"))?;
        let key = self.key(id)?;
        let aad = place(column, job);
        let payload = Payload { msg: sealed, aad: &aad };
        let text = XChaCha20Poly1305::new(&key.into())
            .decrypt(&XNonce::from(*nonce), payload)
            .map_err(|_| damaged(&format!("it was changed, or sealed with another key named {id:?}")))?;
        String::from_utf8(text).map(Into::into).map_err(|_| damaged("it is no text"))
    }

    /// Whether the active key has sealed it.
    pub(crate) fn is_active(&self, blob: &[u8]) -> bool {
        split(blob).is_some_and(|(id, _)| id == self.ring().active)
    }

    /// A key by its id; one that is new to us may have come into the file by a rotation.
    fn key(&self, id: &str) -> Result<[u8; 32], LedgerError> {
        let known = |keys: &Self| keys.ring().keys.get(id).copied();
        if let Some(key) = known(self) {
            return Ok(key);
        }
        if let Err(e) = self.reload() {
            tracing::warn!(event = "ledger-keys-not-reloaded", error = %e);
        }
        known(self).ok_or_else(|| missing(id, &self.path))
    }
}

fn missing(id: &str, path: &Path) -> LedgerError {
    LedgerError::MissingKey { key: id.to_owned(), file: path.to_owned() }
}

fn place(column: &str, job: &JobId) -> Vec<u8> {
    format!("{column}\0{job}").into_bytes()
}

/// The key's id and what follows.
fn split(blob: &[u8]) -> Option<(&str, &[u8])> {
    let (version, rest) = blob.split_first()?;
    let (length, rest) = rest.split_first()?;
    let (id, rest) = rest.split_at_checked(usize::from(*length))?;
    (*version == VERSION).then_some(())?;
    Some((std::str::from_utf8(id).ok()?, rest))
}
