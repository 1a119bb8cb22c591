//! How far something long has come, for a person at a terminal.

use std::io::{IsTerminal as _, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often the line is written again.
const EVERY: Duration = Duration::from_millis(200);

/// One line on stderr that is written over and over; nothing where stderr is no terminal.
pub(crate) struct Meter {
    what: &'static str,
    terminal: bool,
    shown: Mutex<Option<Instant>>,
}

impl Meter {
    pub(crate) fn new(what: &'static str) -> Self {
        Self { what, terminal: std::io::stderr().is_terminal(), shown: Mutex::new(None) }
    }

    /// So many are done.
    pub(crate) fn at(&self, n: u64) {
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        if self.terminal && shown.is_none_or(|s| s.elapsed() >= EVERY) {
            *shown = Some(Instant::now());
            let _ = write!(std::io::stderr(), "\r{}: {n}", self.what);
        }
    }
}

impl Drop for Meter {
    /// The line goes away, so that what is said next stands alone.
    fn drop(&mut self) {
        if self.shown.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
