//! What the operator says: where workers are and how they are told from other pods.

use sutler_sdk::prelude::*;

use crate::Settings;

/// `[plugins.kafka-connect.config]`
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// Namespaces of workers, with placeholders. The grants have to cover them as well.
    pub namespaces: Vec<String>,
    /// Whose labels the pods have.
    pub preset: Option<Preset>,
    /// A label selector instead of a preset, with placeholders.
    pub selector: Option<String>,
    /// The name of the Connect cluster, with placeholders, where the settings give none; for presets.
    pub name: Option<String>,
    /// The only container that is read; all of a worker's where it is left out.
    pub container: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Preset {
    /// Strimzi: `strimzi.io/kind=KafkaConnect`, and `strimzi.io/cluster` with the cluster's name.
    Strimzi,
    /// Axual Connect: the labels that Helm's starter gives to a chart named `axual-connect`, with the release's name
    /// as the cluster's.
    Axual,
}

/// Where a call's workers are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places {
    pub namespaces: Vec<String>,
    pub selector: String,
}

impl Preset {
    const fn labels(self) -> (&'static str, &'static str) {
        match self {
            Self::Strimzi => ("strimzi.io/kind=KafkaConnect", "strimzi.io/cluster"),
            Self::Axual => ("app.kubernetes.io/name=axual-connect", "app.kubernetes.io/instance"),
        }
    }
}

fn invalid(why: &str) -> Error {
    Error::new("invalid-config", format!("[plugins.kafka-connect.config]: {why}"))
}

impl Config {
    /// # Errors
    /// `invalid-config`
    pub fn read() -> Result<Self> {
        sutler_sdk::config::settings()
    }

    /// # Errors
    /// `invalid-config`; `tenant-required` and its like, where a pattern needs what the call does not name.
    pub fn places(&self, of: &Subject<Settings>) -> Result<Places> {
        if self.namespaces.is_empty() {
            return Err(invalid("namespaces names none; name those that workers run in"));
        }
        let namespaces = self.namespaces.iter().map(|pattern| of.fill(pattern)).collect::<Result<_>>()?;
        Ok(Places { namespaces, selector: self.select(of)? })
    }

    fn select(&self, of: &Subject<Settings>) -> Result<String> {
        let name = match of.settings().and_then(|s| s.name.clone()) {
            Some(name) => Some(name),
            None => self.name.as_ref().map(|pattern| of.fill(pattern)).transpose()?,
        };
        match (self.preset, &self.selector, name) {
            (Some(preset), None, name) => {
                let (kind, cluster) = preset.labels();
                Ok(name.map_or_else(|| kind.to_owned(), |name| format!("{kind},{cluster}={name}")))
            }
            // Without any requirement it would be every pod of the namespace.
            (None, Some(selector), None) if !selector.trim().is_empty() => {
                let parts = selector.split(',').map(|part| of.fill(part)).collect::<Result<Vec<_>>>()?;
                Ok(parts.join(","))
            }
            (None, Some(selector), Some(_)) if !selector.trim().is_empty() => Err(Error::new(
                "unsupported-settings",
                "workers are selected by the operator's labels, not by a name; leave name out",
            )
            .at("/name")),
            _ => Err(invalid("write either preset (strimzi or axual) or selector")),
        }
    }
}
