//! What a stream of logs is made of.

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

/// `sinceSeconds` as a kubelet can reckon with it: it counts in nanoseconds of 64 bits, and what overflows them lies
/// in the future, so that nothing would be served. A hundred years are all there is.
pub(crate) fn since_seconds(ago: u64) -> u64 {
    ago.clamp(1, 100 * 366 * 24 * 60 * 60)
}

/// One item of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogLine {
    Line {
        pod: String,
        container: String,
        /// RFC 3339 with nanoseconds, as the kubelet wrote it.
        timestamp: String,
        text: String,
    },
    /// What could not be delivered, with its bounds (RFC 3339) where known.
    Gap { pod: String, container: String, from: Option<String>, to: Option<String>, reason: String },
}
