//! `[ledger]`: where jobs are kept, and opening it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use schemars::JsonSchema;
use serde::Deserialize;
use sutler_ledger::{Clock, Keys, Ledger, Memory, Millis, Sqlite, SqliteOptions};

/// `[ledger]`
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct LedgerConfig {
    /// The ledger's file (SQLite), on a local disk; one host serves it. Left out: `$XDG_STATE_HOME/sutler/ledger.db`,
    /// else `$HOME/.local/state/sutler/ledger.db`, else `/var/lib/sutler/ledger.db`.
    pub(crate) path: Option<PathBuf>,
    /// The keys that requests, states and answers are sealed with. Left out: `ledger.key` beside the ledger's file,
    /// made at the first start with mode 0600. Without it nothing sealed can be read again: keep a copy.
    pub(crate) key_file: Option<PathBuf>,
}

/// A ledger, and the key of the hashes that every host of it makes alike.
pub(crate) struct Opened {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) hash_key: [u8; 32],
}

impl LedgerConfig {
    pub(crate) fn file(&self) -> PathBuf {
        let base = || {
            std::env::var_os("XDG_STATE_HOME")
                .map(PathBuf::from)
                .or_else(|| std::env::var_os("HOME").map(|h| Path::new(&h).join(".local/state")))
                .unwrap_or_else(|| "/var/lib".into())
        };
        self.path.clone().unwrap_or_else(|| base().join("sutler/ledger.db"))
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.key_file.clone().unwrap_or_else(|| self.file().with_extension("key"))
    }

    /// Opens the ledger; a serving host is the only one.
    pub(crate) fn open(&self, options: SqliteOptions) -> anyhow::Result<Opened> {
        let (file, key) = (self.file(), self.key_file());
        if options.serving {
            for folder in [file.parent(), key.parent()].into_iter().flatten() {
                std::fs::create_dir_all(folder)
                    .with_context(|| format!("[ledger] the folder {} cannot be made", folder.display()))?;
            }
        } else {
            anyhow::ensure!(
                file.is_file(),
                "[ledger] there is no ledger at {}; `sutler serve` makes one, or set [ledger] path",
                file.display()
            );
        }
        let keys = Keys::open_or_make(&key, &file).context("[ledger]")?;
        let hash_key = keys.derived("hashes");
        let ledger = Sqlite::open(&file, keys, options).context("[ledger]")?;
        Ok(Opened { ledger: Arc::new(ledger), hash_key })
    }
}

impl Opened {
    /// For a single call: nothing outlives the process.
    pub(crate) fn forgetful(hash_key: [u8; 32]) -> Self {
        Self { ledger: Arc::new(Memory::new(Clock::steady(Millis(0)))), hash_key }
    }
}
