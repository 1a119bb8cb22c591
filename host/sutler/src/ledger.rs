//! `[ledger]`: where jobs are kept, and opening it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use schemars::JsonSchema;
use serde::Deserialize;
use sutler_ledger::{
    Clock, Hold, Keys, Late, Ledger, LedgerError, Memory, Millis, Postgres, PostgresOptions, Sqlite,
    SqliteOptions,
};
use sutler_model::Secret;

/// The pause between attempts to reach a server that was away at the start.
const AGAIN: Duration = Duration::from_secs(2);

/// `[ledger]`
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct LedgerConfig {
    /// A PostgreSQL server instead of the file, for several hosts: `postgres://USER:PASSWORD@HOST/DATABASE?sslmode=require`.
    /// Better given by environment (`SUTLER__LEDGER__URL`) than by file.
    #[schemars(with = "Option<String>")]
    pub(crate) url: Option<Secret>,
    /// Certificate authorities of that server instead of the system's, PEM.
    pub(crate) ca_file: Option<PathBuf>,
    /// Connections to that server, besides two that a host keeps open; 10 when left out.
    pub(crate) connections: Option<usize>,
    /// The ledger's file (SQLite), on a local disk; one host serves it, by whichever name. Not together with `url`. Left out: `$XDG_STATE_HOME/sutler/ledger.db`,
    /// else `$HOME/.local/state/sutler/ledger.db`, else `/var/lib/sutler/ledger.db`.
    pub(crate) path: Option<PathBuf>,
    /// The keys that requests, states and answers are sealed with. Left out: `ledger.key` beside the ledger's file (where
    /// that is a link, beside what it leads to), made at the first start with mode 0600. With `url` it has to be given, and is the same on every host; make one
    /// with `sutler ledger rotate-key`. Without it nothing sealed can be read again: keep a copy.
    pub(crate) key_file: Option<PathBuf>,
}

/// What a ledger is opened for. Only `Serve` and `Migrate` change the schema of one that is older.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// By a host: on SQLite the only one, on PostgreSQL it starts without its server too and tries again.
    Serve,
    Migrate,
    /// Nobody else uses it meanwhile.
    Import,
    /// Beside a serving host.
    Change,
    /// The same; a damaged file too, and the whole of it is not looked through first.
    Look,
}

impl Purpose {
    const fn migrates(self) -> bool {
        matches!(self, Self::Serve | Self::Migrate)
    }

    fn sqlite(self) -> SqliteOptions {
        SqliteOptions {
            serving: self.migrates() || self == Self::Import,
            unmigrated: !self.migrates(),
            damaged: self == Self::Look,
            ..SqliteOptions::default()
        }
    }

    const fn hold(self) -> Hold {
        match self {
            Self::Serve => Hold::Serving,
            Self::Import => Hold::Alone,
            Self::Migrate | Self::Change | Self::Look => Hold::Nothing,
        }
    }
}

/// A ledger, and the key of the hashes that every host of it makes alike.
pub(crate) struct Opened {
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) hash_key: [u8; 32],
}

impl LedgerConfig {
    /// The file itself, without links: its lock and its key file are beside it.
    pub(crate) fn file(&self) -> PathBuf {
        Sqlite::resolved(&self.named())
    }

    fn named(&self) -> PathBuf {
        let base = || {
            std::env::var_os("XDG_STATE_HOME")
                .map(PathBuf::from)
                .or_else(|| std::env::var_os("HOME").map(|h| Path::new(&h).join(".local/state")))
                .unwrap_or_else(|| "/var/lib".into())
        };
        self.path.clone().unwrap_or_else(|| base().join("sutler/ledger.db"))
    }

    pub(crate) fn key_file(&self) -> PathBuf {
        self.key_file.clone().unwrap_or_else(|| {
            let (beside, named) = (self.file().with_extension("key"), self.named().with_extension("key"));
            // A ledger that was linked may have its keys beside the link.
            if !beside.exists() && named.exists() { named } else { beside }
        })
    }

    /// # Errors
    /// Words on what of it cannot be used.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let Some(url) = &self.url else { return Ok(()) };
        if let Some(path) = &self.path {
            anyhow::bail!(
                "[ledger] url and path ({}) are both set; a ledger is on a server or in a file: take one of them out, also \
                 of the environment (SUTLER__LEDGER__URL, SUTLER__LEDGER__PATH)",
                path.display()
            );
        }
        Ok(Postgres::check(url.expose(), self.ca_file.as_deref())?)
    }

    /// What messages call it: the file, or the server without its password.
    pub(crate) fn place(&self) -> String {
        match &self.url {
            None => self.file().display().to_string(),
            Some(url) => match url.expose().split_once("://") {
                Some((scheme, rest)) => {
                    let server = rest.rsplit_once('@').map_or(rest, |(_, server)| server);
                    format!("{scheme}://{}", server.split('?').next().unwrap_or_default())
                }
                None => "[ledger] url".into(),
            },
        }
    }

    pub(crate) async fn open(&self, purpose: Purpose) -> anyhow::Result<Opened> {
        self.check()?;
        match &self.url {
            Some(url) => self.server(url, purpose).await.context("[ledger]"),
            None => self.sqlite(purpose.sqlite()),
        }
    }

    async fn server(&self, url: &Secret, purpose: Purpose) -> anyhow::Result<Opened> {
        let Some(file) = &self.key_file else {
            anyhow::bail!(
                "key-file is not set; every host of {} needs the same one: set it, make the file once with `sutler \
                 ledger rotate-key`, and copy it to the other hosts",
                self.place()
            );
        };
        let keys = Keys::open(file)?;
        let hash_key = keys.derived("hashes");
        let (url, place) = (url.clone(), self.place());
        let options = PostgresOptions {
            ca_file: self.ca_file.clone(),
            unmigrated: !purpose.migrates(),
            hold: purpose.hold(),
            connections: self.connections,
        };
        let open = async move || Postgres::open(url.expose(), keys.clone(), options.clone()).await;
        match open().await {
            Ok(ledger) => Ok(Opened { ledger: Arc::new(ledger), hash_key }),
            Err(LedgerError::Unavailable(why)) if purpose == Purpose::Serve => {
                tracing::warn!(event = "ledger-away", ledger = %place, "{why}; plans and inspections are served meanwhile");
                let late = Arc::new(Late::default());
                let ledger = late.clone();
                tokio::spawn(async move {
                    loop {
                        tokio::time::sleep(AGAIN).await;
                        match open().await {
                            Ok(opened) => {
                                tracing::info!(event = "ledger-there", ledger = %place);
                                return late.opened(Arc::new(opened));
                            }
                            Err(e) => tracing::warn!(event = "ledger-away", ledger = %place, "{e}"),
                        }
                    }
                });
                Ok(Opened { ledger, hash_key })
            }
            Err(e) => Err(e.into()),
        }
    }

    fn sqlite(&self, options: SqliteOptions) -> anyhow::Result<Opened> {
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
