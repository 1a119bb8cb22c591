//! `[api]` of sutler.toml.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use sutler_model::Identifier;

use crate::ApiError;
use crate::edge::ROUTES;
use crate::share::Share;

/// Limits and habits of the HTTP side. Everything has a default.
#[derive(Debug, Clone, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub struct ApiConfig {
    /// What every route begins with, such as `/provisioner`; `/healthz` and `/readyz` answer at the root as well.
    pub base_path: String,
    /// `refuse` answers 400 for a field of the envelope that is not known; `ignore` drops it.
    pub unknown_fields: UnknownFields,
    /// The largest body of a request, in bytes (413 beyond it).
    pub max_body_bytes: usize,
    /// How deep a body may be nested, 8 to 128 (400 beyond it).
    pub max_depth: usize,
    /// The largest header section of a request, in bytes, 8192 to 1048576 (431 beyond it).
    pub max_header_bytes: u32,
    /// How long a client may take to send its headers, in seconds; the connection is closed then.
    pub header_timeout_seconds: u64,
    /// How long a client may take to send its body, in seconds (408 then).
    pub body_timeout_seconds: u64,
    /// Requests worked on at once (503 with Retry-After beyond it); health, metrics and streams do not count.
    pub max_concurrent_requests: usize,
    /// Streams of logs open at once (503 with Retry-After beyond it).
    pub max_log_streams: usize,
    /// Streams of operations' events open at once (503 with Retry-After beyond it).
    pub max_event_streams: usize,
    /// How long a stopping host lets running requests finish, in seconds.
    pub shutdown_grace_seconds: u64,
    /// Where the routes of each configured instance begin, after `base_path`; from `[instances]`.
    #[serde(skip)]
    pub instances: BTreeMap<String, String>,
    /// What each configured instance takes at most; from `[instances]`.
    #[serde(skip)]
    pub instance_shares: BTreeMap<String, Share>,
    /// What each caller takes at most on routes of no instance; from `[[access.callers]]`.
    #[serde(skip)]
    pub caller_shares: BTreeMap<String, Share>,
}

/// What happens to a field of the envelope that is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum UnknownFields {
    /// 400 with the field's path.
    Refuse,
    /// As if it were not there.
    Ignore,
}

impl Default for ApiConfig {
    fn default() -> Self {
        Self {
            base_path: String::new(),
            unknown_fields: UnknownFields::Refuse,
            max_body_bytes: 4 * 1024 * 1024,
            max_depth: 128,
            max_header_bytes: 64 * 1024,
            header_timeout_seconds: 30,
            body_timeout_seconds: 30,
            max_concurrent_requests: 256,
            max_log_streams: 64,
            max_event_streams: 256,
            shutdown_grace_seconds: 25,
            instances: BTreeMap::new(),
            instance_shares: BTreeMap::new(),
            caller_shares: BTreeMap::new(),
        }
    }
}

impl ApiConfig {
    /// # Errors
    /// `ApiError::Config` naming the key and what it may be.
    pub fn check(&self) -> Result<(), ApiError> {
        let bad = |key, rule| Err(ApiError::Config { key, rule });
        if !self.base_path.is_empty() && !is_path(&self.base_path) {
            return bad("base-path", PATH_RULE);
        }
        self.check_instances()?;
        if !(8..=128).contains(&self.max_depth) {
            return bad("max-depth", "use 8 to 128");
        }
        if !(8192..=1_048_576).contains(&self.max_header_bytes) {
            return bad("max-header-bytes", "use 8192 to 1048576");
        }
        if self.max_body_bytes < 1024 {
            return bad("max-body-bytes", "use at least 1024");
        }
        if self.header_timeout_seconds == 0 || self.body_timeout_seconds == 0 {
            return bad("header-timeout-seconds and body-timeout-seconds", "use at least 1");
        }
        if self.max_concurrent_requests == 0 || self.max_log_streams == 0 {
            return bad("max-concurrent-requests and max-log-streams", "use at least 1");
        }
        if self.max_event_streams == 0 {
            return bad("max-event-streams", "use at least 1");
        }
        self.check_shares()
    }

    fn check_shares(&self) -> Result<(), ApiError> {
        let instances = self.instance_shares.iter().map(|(n, s)| (format!("[instances.{n}]"), s));
        let callers = self.caller_shares.iter().map(|(n, s)| (format!("[[access.callers]] {n}:"), s));
        for (table, share) in instances.chain(callers) {
            if share.requests == 0 {
                return Err(ApiError::NoShare { table, key: "max-requests" });
            }
            if share.streams == 0 {
                return Err(ApiError::NoShare { table, key: "max-log-streams" });
            }
        }
        Ok(())
    }

    /// No base path meets a route, another base path, or what lies under it.
    fn check_instances(&self) -> Result<(), ApiError> {
        for (instance, path) in &self.instances {
            let bad = |why: String| {
                let (instance, path) = (instance.clone(), path.chars().take(80).collect());
                Err(ApiError::BasePath { instance, path, why })
            };
            if let Err(e) = Identifier::parse(instance) {
                return bad(e.to_string());
            }
            if !is_path(path) {
                return bad(PATH_RULE.into());
            }
            let first = |p: &str| p.split('/').nth(1).map(str::to_owned);
            let own = *path == own_path(instance);
            if let Some(route) = ROUTES.into_iter().find(|r| first(r) == first(path)) {
                return bad(format!("it meets the route {route}; choose another"));
            }
            if !own && first(path).as_deref() == Some("instances") {
                return bad("under /instances each instance has its own name alone; choose another".into());
            }
            let meets = |other: &str| path == other || path.starts_with(&format!("{other}/"));
            if let Some((other, _)) = self.instances.iter().find(|(n, p)| *n != instance && meets(p)) {
                return bad(format!("it is, or lies under, that of [instances.{other}]; give each its own"));
            }
        }
        Ok(())
    }

    pub(crate) const fn body_timeout(&self) -> Duration {
        Duration::from_secs(self.body_timeout_seconds)
    }
}

const PATH_RULE: &str = "write it as /one or /one/two, of letters, digits, '-', '_', '.' and '~', neither . nor .. between two '/', and \
     without '/' at the end";

fn is_path(path: &str) -> bool {
    let segment =
        |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.~".contains(&b));
    // Clients resolve these before they send (RFC 3986 section 5.2.4): no request would ever arrive.
    let segment = |s: &str| segment(s) && s != "." && s != "..";
    path.strip_prefix('/').is_some_and(|p| p.split('/').all(segment))
}

/// Where the routes of an instance begin unless the operator says otherwise.
pub fn own_path(instance: &str) -> String {
    format!("/instances/{instance}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_paths_meet_nothing() {
        let check = |paths: &[(&str, &str)]| {
            let instances = paths.iter().map(|(n, p)| ((*n).to_owned(), (*p).to_owned())).collect();
            ApiConfig { instances, ..ApiConfig::default() }.check().map_err(|e| e.to_string())
        };
        for paths in [
            &[("emea", "/instances/emea"), ("apac", "/apac"), ("us", "/a/us")][..],
            &[("a", "/a"), ("ab", "/ab")],
        ] {
            assert_eq!(check(paths), Ok(()));
        }
        for (paths, said) in [
            (
                &[("a", "/x"), ("b", "/x")][..],
                "[instances.a] base-path \"/x\": it is, or lies under, that of [instances.b]",
            ),
            (&[("a", "/x"), ("b", "/x/y")], "[instances.b] base-path \"/x/y\""),
            (&[("a", "/plan")], "it meets the route /plan"),
            (&[("a", "/operations/a")], "it meets the route /operations"),
            (&[("a", "/metrics/a")], "it meets the route /metrics"),
            (&[("a", "/instances/b")], "its own name alone"),
            (&[("a", "/instances")], "its own name alone"),
            (&[("a", "")], "write it as /one"),
            (&[("a", "a/")], "write it as /one"),
            (&[("a", "/{b}")], "write it as /one"),
            (&[("a", "/..")], "neither . nor .."),
            (&[("a", "/a/./b")], "neither . nor .."),
        ] {
            let e = check(paths).unwrap_err();
            assert!(e.contains(said), "{e}");
        }
    }
}
