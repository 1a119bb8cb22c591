//! `[instances.NAME]`: one instance of the control plane, and what each part of the host takes from it.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Deserialize;
use sutler_access::InstanceAccess;
use sutler_api::own_path;
use sutler_catalog::{CapabilityGrants, InstanceScope, ScopeConfig};
use sutler_dispatch::{InstanceQuotas, QuotaTable};
use sutler_model::{Identifier, Pattern, Quota};

use crate::config::Config;

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

impl Config {
    /// For the tokens.
    pub(crate) fn instance_access(&self) -> Vec<InstanceAccess> {
        let one = |(name, i): (&String, &InstanceConfig)| InstanceAccess {
            name: name.clone(),
            token_hash: i.token_hash.clone(),
            tenants: i.tenants.clone(),
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

/// What is wrong with the instances that no other part of the host looks at.
pub(crate) fn mistakes(config: &Config) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, i) in &config.instances {
        let at = format!("[instances.{name}]");
        for plugin in i.config.keys() {
            if !config.catalog.dir.join(format!("{plugin}.wasm")).is_file() {
                let dir = config.catalog.dir.display();
                wrong.push(format!("{at} config.{plugin}: there is no {plugin}.wasm in {dir}"));
            }
        }
        let listed: BTreeSet<&str> = i.tenants.iter().flatten().map(String::as_str).collect();
        for tenant in i.tenant_quotas.keys().filter(|t| *t != "*") {
            if let Err(e) = Identifier::parse(tenant) {
                wrong.push(format!(
                    "{at} tenant-quotas.{tenant:?}: {e}, or \"*\" for each tenant that is not named"
                ));
            } else if i.tenants.is_some() && !listed.contains("*") && !listed.contains(tenant.as_str()) {
                wrong.push(format!(
                    "{at} tenant-quotas.{tenant}: tenants does not name it; add it there, or remove this"
                ));
            }
        }
        if i.namespaces.as_ref().is_some_and(Vec::is_empty) {
            wrong.push(format!("{at} namespaces = [] leaves no namespace; name some, or leave it out"));
        }
    }
    wrong
}
