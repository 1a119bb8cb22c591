//! Addresses of charts.

use std::fmt;
use std::str::FromStr;

/// `oci://host[:port]/path/name`, without tag and digest.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ChartUrl {
    host: String,
    repository: String,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadChartUrl {
    #[error(
        "{0:?} is a classic chart repository; only OCI registries are supported: push the chart with `helm push CHART.tgz oci://REGISTRY/PATH` and name it oci://REGISTRY/PATH/NAME"
    )]
    Classic(String),
    #[error("{0:?} is not the address of a chart; write oci://REGISTRY/PATH/NAME")]
    NotOci(String),
    #[error("{0:?} has a user name or password; put them under [registries.\"HOST\"] in sutler.toml")]
    Credentials(String),
    #[error("{0:?} has a tag or digest; put it in `version` or `digest`")]
    Tagged(String),
    #[error(
        "{0:?} is not a repository of an OCI registry: use lower-case letters, digits, '.', '_', '-' and '/'"
    )]
    Repository(String),
}

fn shorten(s: &str) -> String {
    s.chars().take(200).collect()
}

/// The grammar of repository names (OCI distribution 1.1, "Pulling manifests").
fn is_repository(path: &str) -> bool {
    let alnum = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    path.len() <= 255
        && path.split('/').all(|part| {
            let b = part.as_bytes();
            b.first().is_some_and(|b| alnum(*b))
                && b.last().is_some_and(|b| alnum(*b))
                && b.iter().all(|b| alnum(*b) || matches!(b, b'.' | b'_' | b'-'))
                && !part.contains("..")
        })
}

fn is_host(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[') {
        Some(v6) => match v6.split_once(']') {
            Some((name, port)) if name.parse::<std::net::Ipv6Addr>().is_ok() => {
                (None, port.strip_prefix(':').or(if port.is_empty() { None } else { Some("x") }))
            }
            _ => return false,
        },
        None => match host.split_once(':') {
            Some((n, p)) => (Some(n), Some(p)),
            None => (Some(host), None),
        },
    };
    let name_ok = name.is_none_or(|n| {
        !n.is_empty()
            && n.len() <= 253
            && n.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-'))
    });
    name_ok && port.is_none_or(|p| p.parse::<u16>().is_ok_and(|p| p > 0))
}

impl FromStr for ChartUrl {
    type Err = BadChartUrl;
    fn from_str(s: &str) -> Result<Self, BadChartUrl> {
        let lower = s.to_ascii_lowercase();
        if lower.starts_with("http://") || lower.starts_with("https://") || lower.ends_with("index.yaml") {
            return Err(if s.contains('@') {
                BadChartUrl::Credentials("the address".into())
            } else {
                BadChartUrl::Classic(shorten(s))
            });
        }
        let rest = s.strip_prefix("oci://").ok_or_else(|| BadChartUrl::NotOci(shorten(s)))?;
        let (host, path) = rest.split_once('/').ok_or_else(|| BadChartUrl::NotOci(shorten(s)))?;
        if host.contains('@') {
            // The text holds a password: it is not repeated.
            return Err(BadChartUrl::Credentials("the address".into()));
        }
        if !is_host(host) {
            return Err(BadChartUrl::NotOci(shorten(s)));
        }
        if path.contains([':', '@']) {
            return Err(BadChartUrl::Tagged(shorten(s)));
        }
        if !is_repository(path) {
            return Err(BadChartUrl::Repository(shorten(s)));
        }
        Ok(Self { host: host.to_ascii_lowercase(), repository: path.to_owned() })
    }
}

impl ChartUrl {
    /// Host and, where given, port.
    pub fn host(&self) -> &str {
        &self.host
    }
    /// The path, without a leading slash.
    pub fn repository(&self) -> &str {
        &self.repository
    }
}

impl fmt::Display for ChartUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "oci://{}/{}", self.host, self.repository)
    }
}

/// The tag of a version: a tag cannot hold `+` (Helm 4).
pub(super) fn tag_of(version: &str) -> String {
    version.replace('+', "_")
}

/// The version that a tag stands for.
pub(super) fn version_of(tag: &str) -> String {
    tag.replace('_', "+")
}

/// The grammar of tags (OCI distribution 1.1).
pub(super) fn is_tag(tag: &str) -> bool {
    (1..=128).contains(&tag.len())
        && !tag.starts_with(['.', '-'])
        && tag.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (text, host, repository) in [
            ("oci://registry.example/ksml", "registry.example", "ksml"),
            ("oci://Registry.Example:5000/a/b-c/d_e.f", "registry.example:5000", "a/b-c/d_e.f"),
            ("oci://127.0.0.1:5000/x", "127.0.0.1:5000", "x"),
            ("oci://[::1]:5000/x", "[::1]:5000", "x"),
        ] {
            let url: ChartUrl = text.parse().unwrap();
            assert_eq!((url.host(), url.repository()), (host, repository), "{text}");
        }
        for (text, part) in [
            ("https://charts.example/stable", "only OCI registries are supported"),
            ("http://charts.example/index.yaml", "only OCI registries are supported"),
            ("https://user:hunter2@charts.example", "registries"),
            ("ksml", "is not the address of a chart"),
            ("oci://registry.example", "is not the address of a chart"),
            ("oci://user:hunter2@registry.example/x", "[registries.\"HOST\"]"),
            ("oci://registry.example/x:1.0", "put it in `version`"),
            ("oci://registry.example/x@sha256:00", "put it in `version`"),
            ("oci://registry.example/../x", "is not a repository"),
            ("oci://registry.example/X", "is not a repository"),
            ("oci://registry.example//x", "is not a repository"),
            ("oci://registry.example:0/x", "is not the address of a chart"),
            ("oci://reg istry/x", "is not the address of a chart"),
        ] {
            let e = text.parse::<ChartUrl>().unwrap_err().to_string();
            assert!(e.contains(part), "{text}: {e}");
            assert!(!e.contains("hunter2"), "{e}");
        }
    }

    #[test]
    fn tags() {
        assert_eq!(tag_of("1.2.3+build.4"), "1.2.3_build.4");
        assert_eq!(version_of("1.2.3_build.4"), "1.2.3+build.4");
        assert!(is_tag("1.2.3_b") && is_tag("latest") && !is_tag("") && !is_tag("a/b") && !is_tag("../x"));
    }
}
