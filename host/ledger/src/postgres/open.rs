//! How the shared ledger is opened.

use std::path::PathBuf;

/// So many connections where nothing else is said. A host's writes are short; more only queue up in the server.
const CONNECTIONS: usize = 10;

/// How a ledger on PostgreSQL is opened. The default migrates and believes the system's certificate authorities.
#[derive(Debug, Clone, Default)]
pub struct PostgresOptions {
    /// Certificate authorities to believe instead of the system's, as PEM.
    pub ca_file: Option<PathBuf>,
    /// Leaves the schema as it is, and refuses one that is older than this binary.
    pub unmigrated: bool,
    /// Who else may use the ledger meanwhile.
    pub hold: Hold,
    /// At most so many connections, besides one that listens and one that holds; `None` for ten.
    pub connections: Option<usize>,
}

/// Hosts share a ledger; whoever changes it as a whole has it alone.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Hold {
    /// Whoever wants.
    #[default]
    Nothing,
    /// Everybody but who wants it alone.
    Serving,
    /// Nobody.
    Alone,
}

impl PostgresOptions {
    pub(super) fn most(&self) -> usize {
        self.connections.unwrap_or(CONNECTIONS).max(1)
    }
}
