//! `[instances.NAME]`: one instance of the control plane, and what each part of the host takes from it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;
use sutler_access::{CallerConfig, InstanceAccess};
use sutler_api::{Share, own_path};
use sutler_catalog::{CapabilityGrants, InstanceScope, ScopeConfig};
use sutler_dispatch::{InstanceQuotas, QuotaTable};
use sutler_model::{Pattern, Quota};

use crate::config::Config;

mod mistakes;

pub(crate) use mistakes::{mistakes, namespaces, notices};

/// `[instances.NAME]`
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct InstanceConfig {
    /// Where its routes begin, after `api.base-path`; `/instances/NAME` when left out. All routes that callers use are
    /// there, and `application.instance` is NAME there without being said.
    pub(crate) base_path: Option<String>,
    /// Hashes of the tokens that may call these routes and nothing else, each `sha256:<64 hex>`. Callers of
    /// `[access]` with NAME in `instances` may call them as well.
    pub(crate) token_hash: Vec<String>,
    /// Whether these tokens may read the instance's audit: which changes were asked for there, by whom.
    pub(crate) audit: bool,
    /// The only tenants for which anybody may act there; `"*"` is every tenant, and none at all. Left out: every one
    /// that the caller may act for.
    pub(crate) tenants: Option<Vec<String>>,
    /// Patterns of the only namespaces in which any plugin may do anything for it, such as `emea-{tenant}`; all that
    /// are granted when left out.
    #[schemars(with = "Option<Vec<String>>")]
    pub(crate) namespaces: Option<Vec<Pattern>>,
    /// The most that any plugin may do for it.
    pub(crate) grants: CapabilityGrants,
    /// By plugin, what lies over `[plugins.PLUGIN.config]` in calls for it, tables key by key: a chart, a version, a
    /// namespace.
    #[schemars(with = "BTreeMap<String, BTreeMap<String, serde_json::Value>>")]
    pub(crate) config: BTreeMap<String, toml::Table>,
    /// The most of its requests that are worked on at once (503 with Retry-After beyond it). Left out: half of
    /// `api.max-concurrent-requests`.
    pub(crate) max_requests: Option<usize>,
    /// The most of its streams of logs that are open at once (503 with Retry-After beyond it). Left out: half
    /// of `api.max-log-streams`.
    pub(crate) max_log_streams: Option<usize>,
    /// The most that all of its applications may take together.
    pub(crate) quotas: QuotaConfig,
    /// By tenant, the most that the tenant's applications may take there; `"*"` is for each tenant alike that is not
    /// named.
    pub(crate) tenant_quotas: BTreeMap<String, QuotaConfig>,
}

/// The most that applications may take. What is left out is not limited; 0 is nothing.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields, default)]
pub(crate) struct QuotaConfig {
    /// Applications with anything that was applied and not deleted.
    pub(crate) applications: Option<u64>,
    /// CPU in thousandths of a core, by what the plugins' settings schemas say (`x-sutler-quota`).
    pub(crate) milli_cpus: Option<u64>,
    /// Memory in MiB, by the same.
    pub(crate) memory_mib: Option<u64>,
}

impl QuotaConfig {
    const fn quota(self) -> Quota {
        Quota { applications: self.applications, milli_cpus: self.milli_cpus, memory_mib: self.memory_mib }
    }
}

/// For the HTTP side: where each one's routes begin.
pub(crate) fn base_paths(of: &BTreeMap<String, InstanceConfig>) -> BTreeMap<String, String> {
    let path =
        |(n, i): (&String, &InstanceConfig)| (n.clone(), i.base_path.clone().unwrap_or_else(|| own_path(n)));
    of.iter().map(path).collect()
}

/// For the HTTP side: what each instance, and each caller, takes at most of the host's limits.
pub(crate) fn shares(config: &Config) -> (BTreeMap<String, Share>, BTreeMap<String, Share>) {
    let api = &config.api;
    let with_token = config.instances.values().filter(|i| !i.token_hash.is_empty()).count();
    let alone = with_token + config.access.callers.len() <= 1;
    // Streams of events are cheap and short: nobody asks for a share of them by name.
    let half = |limit: usize| limit.div_ceil(2);
    let of_instance = |(name, i): (&String, &InstanceConfig)| {
        let requests = i.max_requests.unwrap_or_else(|| half(api.max_concurrent_requests));
        let streams = i.max_log_streams.unwrap_or_else(|| half(api.max_log_streams));
        (name.clone(), Share { requests, streams, events: half(api.max_event_streams) })
    };
    let unless_alone = |limit: usize| if alone { limit } else { half(limit) };
    let of_caller = |c: &CallerConfig| {
        let requests = c.max_requests.unwrap_or_else(|| unless_alone(api.max_concurrent_requests));
        let streams = c.max_log_streams.unwrap_or_else(|| unless_alone(api.max_log_streams));
        (c.name.clone(), Share { requests, streams, events: unless_alone(api.max_event_streams) })
    };
    let instances = config.instances.iter().map(of_instance).collect();
    (instances, config.access.callers.iter().map(of_caller).collect())
}

impl Config {
    /// For the tokens.
    pub(crate) fn instance_access(&self) -> Vec<InstanceAccess> {
        let one = |(name, i): (&String, &InstanceConfig)| InstanceAccess {
            name: name.clone(),
            token_hash: i.token_hash.clone(),
            tenants: i.tenants.clone(),
            audit: i.audit,
        };
        self.instances.iter().map(one).collect()
    }

    /// For the plugins.
    pub(crate) fn instance_scopes(&self) -> BTreeMap<String, InstanceScope> {
        let one = |(name, i): (&String, &InstanceConfig)| {
            let scope = ScopeConfig { grants: i.grants.clone(), namespaces: i.namespaces.clone() };
            (name.clone(), InstanceScope { scope, config: i.config.clone() })
        };
        self.instances.iter().map(one).collect()
    }

    pub(crate) fn quotas(&self) -> QuotaTable {
        let one = |(name, i): (&String, &InstanceConfig)| {
            let mut tenants: BTreeMap<String, Quota> =
                i.tenant_quotas.iter().map(|(t, q)| (t.clone(), q.quota())).collect();
            let each_tenant = tenants.remove("*").unwrap_or_default();
            (name.clone(), InstanceQuotas { own: i.quotas.quota(), tenants, each_tenant })
        };
        self.instances.iter().map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Nobody is left out where nobody else is there.
    #[test]
    fn a_caller_that_is_alone_has_everything() {
        let caller = |name: &str| CallerConfig {
            name: name.into(),
            token_hash: vec![],
            tenants: vec![],
            instances: vec![],
            max_requests: None,
            max_log_streams: None,
            audit: false,
        };
        for (names, (requests, streams, events)) in
            [(&["a"][..], (256, 64, 256)), (&["a", "b"], (128, 32, 128))]
        {
            let mut config = Config::default();
            config.access.callers = names.iter().map(|n| caller(n)).collect();
            let (_, callers) = shares(&config);
            let expected = Share { requests, streams, events };
            assert!(callers.len() == names.len() && callers.values().all(|s| *s == expected), "{callers:?}");
        }
    }
}
