//! Points at which a crash test kills its own process. Without the feature `failpoints` there is nothing of it.

/// The points on the passage of a write through the SQLite writer.
pub const FAILPOINTS: &[&str] = &[
    "sqlite-before-begin",
    "sqlite-within-transaction",
    "sqlite-before-commit",
    "sqlite-after-commit",
    "sqlite-after-answer",
];

/// Those of a write on its way to PostgreSQL and back.
pub const POSTGRES_FAILPOINTS: &[&str] = &["postgres-before-write", "postgres-after-write"];

/// Kills the process by SIGKILL at the n-th passage of the point that `SUTLER_FAILPOINT="name:n"` names;
/// `"stop:name:n"` stops it there by SIGSTOP, and it goes on after a SIGCONT.
#[cfg(feature = "failpoints")]
pub fn failpoint(name: &'static str) {
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::LazyLock;
    use std::sync::atomic::{AtomicI64, Ordering};

    static CHOSEN: LazyLock<Option<(String, Signal, AtomicI64)>> = LazyLock::new(|| {
        let text = std::env::var("SUTLER_FAILPOINT").ok()?;
        let (signal, text) = match text.strip_prefix("stop:") {
            Some(rest) => (Signal::STOP, rest),
            None => (Signal::KILL, text.as_str()),
        };
        let (name, n) = text.rsplit_once(':')?;
        Some((name.to_owned(), signal, AtomicI64::new(n.parse().ok()?)))
    });
    // Those who use the ledger have points and a list of their own.
    let ours = name.starts_with("sqlite-") || name.starts_with("postgres-");
    let known = |names: &[&str]| names.contains(&name);
    debug_assert!(!ours || known(FAILPOINTS) || known(POSTGRES_FAILPOINTS), "{name} is not in a list");
    if let Some((chosen, signal, left)) = CHOSEN.as_ref()
        && chosen == name
        && left.fetch_sub(1, Ordering::SeqCst) == 1
    {
        let _ = kill_process(getpid(), *signal);
        // The signal may be delivered a little later; nothing may happen until then.
        match *signal {
            Signal::STOP => std::thread::sleep(std::time::Duration::from_millis(100)),
            _ => loop {
                std::thread::park();
            },
        }
    }
}

#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub const fn failpoint(_name: &'static str) {}
