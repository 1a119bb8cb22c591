//! What a stream of logs is made of.

use std::sync::Arc;
use std::time::Duration;

/// Where logs are, as a plugin locates them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Pods(LogSource),
    /// A container of the local Docker daemon, by name.
    Container(String),
}

/// Pods of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogSource {
    /// `None` for the default cluster.
    pub cluster: Option<String>,
    pub namespace: String,
    pub label_selector: String,
    /// `None` for every container.
    pub container: Option<String>,
}

/// The options of `GET /logs` (checklist B12).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamOptions {
    pub follow: bool,
    pub previous: bool,
    pub container: Option<String>,
    pub pod: Option<String>,
    pub since: Option<Since>,
    pub tail_lines: Option<u64>,
    /// Of texts and their newlines, per container; the last line may be cut.
    pub limit_bytes: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Since {
    /// This long ago.
    Ago(Duration),
    /// RFC 3339.
    Time(String),
}

impl Since {
    /// Nanoseconds since 1970; `None` for what is no time, or no time of RFC 3339.
    pub(crate) fn nanos(&self) -> Option<i64> {
        match self {
            Self::Time(time) => chrono::DateTime::parse_from_rfc3339(time).ok()?.timestamp_nanos_opt(),
            Self::Ago(_) => None,
        }
    }
}

/// `sinceSeconds` as a kubelet can reckon with it: it counts in nanoseconds of 64 bits, and what overflows them lies
/// in the future, so that nothing would be served. A hundred years are all there is.
pub(crate) fn since_seconds(ago: u64) -> u64 {
    ago.clamp(1, 100 * 366 * 24 * 60 * 60)
}

/// One item of a stream. Its texts are shared by all who follow the same container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogLine {
    Line {
        pod: Arc<str>,
        container: Arc<str>,
        /// RFC 3339 with nanoseconds, as the kubelet wrote it.
        timestamp: Arc<str>,
        text: Arc<str>,
    },
    /// What could not be delivered, with its bounds (RFC 3339) where known.
    Gap { pod: Arc<str>, container: Arc<str>, from: Option<String>, to: Option<String>, reason: String },
}

impl LogLine {
    /// The line's text, or why there is a gap.
    pub(crate) fn text(&self) -> &str {
        match self {
            Self::Line { text, .. } => text,
            Self::Gap { reason, .. } => reason,
        }
    }
}

/// Why something is missing: what gaps are counted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The log was rotated before it could be read on.
    Rotated,
    /// The container was started anew.
    Restarted,
    /// The pod is gone.
    Gone,
    /// The cluster does not serve the log.
    Unreadable,
    /// More containers match than one stream reads.
    TooMany,
}

impl Cause {
    pub(crate) fn count(self) {
        metrics::counter!("sutler_log_gaps_total", "reason" => self.label()).increment(1);
    }

    const fn label(self) -> &'static str {
        match self {
            Self::Rotated => "rotated",
            Self::Restarted => "restarted",
            Self::Gone => "gone",
            Self::Unreadable => "unreadable",
            Self::TooMany => "too-many",
        }
    }
}
