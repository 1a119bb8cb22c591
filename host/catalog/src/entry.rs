//! One plugin as the catalog serves it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use bytes::Bytes;

use sutler_model::{Application, Descriptor, Effective, Layer, Pair, PairDescriptor, PluginName, Step, Use};
use sutler_runtime::{GrantSet, Plugin};

use crate::config::{CapabilityGrants, InstanceScope, ScopeConfig};
use crate::schema::{Schema, SchemaError};
use crate::takes::Takes;

/// A loaded plugin with what it says of itself and what it may do.
#[derive(Debug)]
pub struct Entry {
    pub plugin: Plugin,
    pub descriptor: Descriptor,
    pub pairs: HashMap<Pair, PairEntry>,
    /// The component itself: jobs keep it while they refer to it.
    pub wasm: Bytes,
    grants: GrantTable,
}

/// One pair with its compiled schemas.
#[derive(Debug)]
pub struct PairEntry {
    /// The pair's text, for labels.
    pub label: Arc<str>,
    /// What the plugin is told beside the request: a JSON object with the marks that its settings schema holds.
    pub context: String,
    pub summary: String,
    pub settings: Schema,
    pub outputs: Schema,
    pub steps: Vec<Step>,
    takes: Takes,
}

impl PairEntry {
    /// What an application with these settings takes of a cluster, by the marks of the settings' schema.
    pub fn used(&self, settings: &serde_json::Value) -> Use {
        self.takes.used(settings)
    }
}

impl Entry {
    /// # Errors
    /// Words on what in the descriptor is not allowed.
    pub(crate) fn new(
        plugin: Plugin,
        wasm: Bytes,
        descriptor: Descriptor,
        grants: GrantTable,
    ) -> Result<Self, String> {
        let mut pairs = HashMap::new();
        if descriptor.pairs.is_empty() {
            return Err("it describes no pair; a plugin handles at least one".into());
        }
        if descriptor.version.is_empty() || descriptor.version.len() > 64 {
            return Err("its version has to have 1 to 64 characters".into());
        }
        for d in &descriptor.pairs {
            if pairs.insert(d.pair.clone(), pair_entry(d)?).is_some() {
                return Err(format!("it describes {} twice", d.pair));
            }
        }
        Ok(Self { wasm, plugin, descriptor, pairs, grants })
    }

    /// What holds for a call of this plugin for this application.
    pub fn grants(&self, application: &Application) -> &Arc<GrantSet> {
        self.grants.of(application)
    }
}

fn pair_entry(d: &PairDescriptor) -> Result<PairEntry, String> {
    let schema = |what: &str, text: &serde_json::Value| {
        Schema::compile(text.clone())
            .map_err(|e: SchemaError| format!("the {what} schema of {} cannot be used: {e}", d.pair))
    };
    let mut names = HashSet::new();
    for s in &d.steps {
        if s.name.is_empty() || !names.insert(&s.name) {
            return Err(format!("{} has a step without a name of its own: {:?}", d.pair, s.name));
        }
        if s.timeout_seconds == 0 || s.timeout_seconds > 86_400 {
            return Err(format!(
                "step {} of {} has a time-out of {} s; use 1 to 86400",
                s.name, d.pair, s.timeout_seconds
            ));
        }
    }
    let settings = schema("settings", &d.settings_schema)?;
    let takes = Takes::of(&d.settings_schema)
        .map_err(|e| format!("the settings schema of {} cannot be used: {e}", d.pair))?;
    Ok(PairEntry {
        label: d.pair.to_string().into(),
        context: serde_json::json!({ "marks": settings.marks() }).to_string(),
        summary: d.summary.clone(),
        settings,
        outputs: schema("outputs", &d.outputs_schema)?,
        steps: d.steps.clone(),
        takes,
    })
}

/// The grants of one plugin for every (instance, tenant), made when it is loaded so that a call only looks up.
#[derive(Debug)]
pub(crate) struct GrantTable {
    plain: Arc<GrantSet>,
    scoped: HashMap<(Option<String>, Option<String>), Arc<GrantSet>>,
}

impl GrantTable {
    pub(crate) fn new(
        plugin: &PluginName,
        own: &CapabilityGrants,
        instances: &BTreeMap<String, InstanceScope>,
        tenants: &BTreeMap<String, ScopeConfig>,
    ) -> Self {
        let mut scoped = HashMap::new();
        let instances = instances.iter().map(|(n, i)| Some((n, &i.scope)));
        for i in instances.chain(std::iter::once(None)) {
            for t in tenants.iter().map(Some).chain(std::iter::once(None)) {
                let key = (i.map(|(n, _)| n.clone()), t.map(|(n, _)| n.clone()));
                scoped.insert(key, Arc::new(grant_set(plugin, own, i, t)));
            }
        }
        Self { plain: Arc::new(grant_set(plugin, own, None, None)), scoped }
    }

    /// The plugin's own grants alone.
    pub(crate) const fn plain(&self) -> &Arc<GrantSet> {
        &self.plain
    }

    fn of(&self, a: &Application) -> &Arc<GrantSet> {
        if self.scoped.len() <= 1 {
            return &self.plain;
        }
        let name = |i: &Option<sutler_model::Identifier>| i.as_ref().map(ToString::to_string);
        let (instance, tenant) = (name(&a.instance), name(&a.tenant));
        // A name that is not configured adds no layer.
        [(instance.clone(), tenant.clone()), (instance, None), (None, tenant)]
            .iter()
            .find_map(|k| self.scoped.get(k))
            .unwrap_or(&self.plain)
    }
}

type Scope<'a> = Option<(&'a String, &'a ScopeConfig)>;
/// A scope with how its layer is called.
type Scoped<'a> = (Scope<'a>, fn(String) -> Layer);

fn grant_set(
    plugin: &PluginName,
    own: &CapabilityGrants,
    instance: Scope<'_>,
    tenant: Scope<'_>,
) -> GrantSet {
    fn layers<G: Clone + Default>(
        plugin: &PluginName,
        own: &CapabilityGrants,
        scopes: [Scoped<'_>; 2],
        of: fn(&CapabilityGrants) -> &Option<G>,
    ) -> Effective<G> {
        let mut out =
            vec![(Layer::Plugin(plugin.to_string()), Arc::new(of(own).clone().unwrap_or_default()))];
        for (scope, layer) in scopes {
            if let Some((name, config)) = scope
                && let Some(g) = of(&config.grants)
            {
                out.push((layer(name.clone()), Arc::new(g.clone())));
            }
        }
        let names = |(scope, layer): Scoped<'_>| {
            let (name, config) = scope?;
            Some((layer(name.clone()), config.namespaces.as_deref()?.into()))
        };
        Effective::new(out).within(scopes.into_iter().filter_map(names).collect())
    }
    let scopes: [Scoped<'_>; 2] = [(instance, Layer::Instance), (tenant, Layer::Tenant)];
    GrantSet {
        kubernetes: layers(plugin, own, scopes, |g| &g.kubernetes),
        helm: layers(plugin, own, scopes, |g| &g.helm),
        logs: layers(plugin, own, scopes, |g| &g.logs),
        containers: layers(plugin, own, scopes, |g| &g.containers),
    }
}
