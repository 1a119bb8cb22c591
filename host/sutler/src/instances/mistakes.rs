//! What is wrong with instances, and with the namespaces that plugins are told, that no other part of the host looks at.

use std::collections::BTreeSet;

use sutler_catalog::PluginConfig;
use sutler_model::{Identifier, Pattern};

use super::InstanceConfig;
use crate::config::Config;

/// Each mistake with its place.
pub(crate) fn mistakes(config: &Config) -> Vec<String> {
    let mut wrong = callers(config);
    for (name, i) in &config.instances {
        let at = format!("[instances.{name}]");
        for plugin in i.config.keys() {
            if !config.catalog.dir.join(format!("{plugin}.wasm")).is_file() {
                let dir = config.catalog.dir.display();
                wrong.push(format!("{at} config.{plugin}: there is no {plugin}.wasm in {dir}"));
            }
        }
        wrong.extend(tenant_quotas(&at, i));
        if i.namespaces.as_ref().is_some_and(Vec::is_empty) {
            wrong.push(format!("{at} namespaces = [] leaves no namespace; name some, or leave it out"));
        }
        wrong.extend(not_covered(config, &at, i));
    }
    wrong
}

/// Instances that callers name and nobody configured: their calls would all be refused.
fn callers(config: &Config) -> Vec<String> {
    if config.instances.is_empty() {
        return Vec::new();
    }
    let mut wrong = Vec::new();
    for caller in &config.access.callers {
        let known = |name: &&String| *name == "*" || config.instances.contains_key(*name);
        for name in caller.instances.iter().filter(|n| !known(n)) {
            let near = config.instances.keys().map(|k| (strsim::damerau_levenshtein(name, k), k)).min();
            let near = match near.filter(|(distance, k)| *distance <= k.len().div_ceil(3)) {
                Some((_, k)) => format!("; did you mean {k:?}?"),
                None => format!("; add [instances.{name}], or remove the name"),
            };
            let caller = &caller.name;
            wrong.push(format!(
                "access.callers {caller:?}: instances has {name:?}, which no table configures{near}"
            ));
        }
    }
    wrong
}

fn tenant_quotas(at: &str, i: &InstanceConfig) -> Vec<String> {
    let mut wrong = Vec::new();
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
    wrong
}

/// Plugins that are told of namespaces which the instance's own leave out. A plugin that the instance's table does not
/// name may be meant for others, unless it is the only one.
fn not_covered(config: &Config, at: &str, i: &InstanceConfig) -> Vec<String> {
    let Some(own) = i.namespaces.as_ref().filter(|n| !n.is_empty()) else { return Vec::new() };
    let mut wrong = Vec::new();
    for (name, plugin) in config.plugins.iter().filter(|(_, p)| in_namespaces(p)) {
        let over = i.config.get(name);
        if over.is_none() && config.plugins.len() > 1 {
            continue;
        }
        let table = |key: &str| match over.filter(|o| o.contains_key(key)) {
            Some(_) => format!("config.{name}.{key}"),
            None => format!("[plugins.{name}.config] {key}"),
        };
        for key in KEYS {
            let value = over.and_then(|o| o.get(key)).or_else(|| plugin.config.get(key));
            let patterns = value.into_iter().flat_map(texts).filter_map(|t| t.parse::<Pattern>().ok());
            for pattern in patterns.filter(|p| !own.iter().any(|n| n.may_cover(p))) {
                let text = pattern.to_string();
                wrong.push(format!(
                    "{at} namespaces does not cover {text:?}, which {} tells the plugin: it could do nothing there; add \
                     it to namespaces, or set config.{name}.{key}",
                    table(key)
                ));
            }
        }
    }
    wrong
}

/// Keys of a plugin's config that are patterns of namespaces by convention, where the plugin is granted any.
const KEYS: [&str; 2] = ["namespace", "namespaces"];

fn in_namespaces(plugin: &PluginConfig) -> bool {
    let grants = &plugin.grants;
    grants.helm.is_some() || grants.kubernetes.is_some() || grants.logs.is_some()
}

fn texts(value: &toml::Value) -> Vec<&str> {
    let many = value.as_array().map(|a| a.iter().filter_map(toml::Value::as_str).collect());
    many.unwrap_or_else(|| value.as_str().into_iter().collect())
}

/// Patterns of namespaces in plugins' configs that are none: the plugins would fail in each call.
pub(crate) fn namespaces(config: &Config) -> Vec<String> {
    let mut wrong = Vec::new();
    for (name, plugin) in config.plugins.iter().filter(|(_, p)| in_namespaces(p)) {
        let mut tables = vec![(format!("[plugins.{name}.config]"), &plugin.config)];
        for (instance, i) in &config.instances {
            tables.extend(i.config.get(name).map(|t| (format!("[instances.{instance}] config.{name}"), t)));
        }
        for (at, table) in tables {
            for key in KEYS {
                let patterns = table.get(key).into_iter().flat_map(texts).map(str::parse::<Pattern>);
                wrong.extend(patterns.filter_map(|p| Some(format!("{at} {key}: {}", p.err()?))));
            }
        }
    }
    wrong
}

/// What is allowed, and may not be meant.
pub(crate) fn notices(config: &Config) -> Vec<String> {
    let mut out = Vec::new();
    for (n, (one, i)) in config.instances.iter().enumerate() {
        for (other, j) in config.instances.iter().skip(n + 1) {
            let theirs = j.namespaces.iter().flatten();
            let shared: Vec<String> = theirs
                .filter(|p| !p.per_instance() && i.namespaces.iter().flatten().any(|q| q == *p))
                .map(|p| format!("{:?}", p.to_string()))
                .collect();
            if !shared.is_empty() {
                out.push(format!(
                    "[instances.{one}] and [instances.{other}] both have the namespaces {}: tenants of equal names share \
                     them; where these are different customers, give each instance its own",
                    shared.join(", ")
                ));
            }
        }
    }
    out
}
