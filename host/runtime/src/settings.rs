//! What the operator gives one plugin, and what its tables are called.

use std::collections::HashMap;

use sutler_model::{Application, Secret};

/// What the operator gives one plugin.
#[derive(Debug, Clone, Default)]
pub struct PluginSettings {
    /// A JSON object as text.
    pub config: String,
    /// The same for the instances of the control plane that have one of their own.
    pub of_instances: HashMap<String, String>,
    pub secrets: HashMap<String, Secret>,
}

/// What a plugin, which does not know its own name, calls its table.
const SOME_TABLE: &str = "[plugins.NAME.config]";

impl PluginSettings {
    /// The config for a call.
    pub(crate) fn config_for(&self, application: &Application) -> &str {
        self.of_instance(application).map_or(&self.config, |(_, own)| own)
    }

    /// What a plugin said of its configuration, with the names of the tables that hold in the call.
    pub(crate) fn named(&self, reason: &str, plugin: &str, application: &Application) -> String {
        let table = format!("[plugins.{plugin}.config]");
        let reason = reason.replace(SOME_TABLE, &table);
        match self.of_instance(application) {
            Some((instance, _)) => {
                reason.replace(&table, &format!("[instances.{instance}] config.{plugin} (over {table})"))
            }
            None => reason,
        }
    }

    fn of_instance(&self, application: &Application) -> Option<(&str, &str)> {
        let instance = application.instance.as_ref()?;
        let (name, own) = self.of_instances.get_key_value(instance.as_str())?;
        Some((name, own))
    }
}

#[cfg(test)]
mod tests {
    use sutler_model::Identifier;

    use super::*;

    #[test]
    fn the_table_that_holds_is_named() {
        let of_instances = HashMap::from([("emea".to_owned(), "{}".to_owned())]);
        let settings = PluginSettings { of_instances, ..PluginSettings::default() };
        let id = |s: &str| Identifier::parse(s).unwrap();
        let named = |reason: &str, instance: Option<&str>| {
            let instance = instance.map(id);
            let application = Application { id: id("a"), environment: id("b"), tenant: None, instance };
            settings.named(reason, "ksml", &application)
        };
        let (some, own) = ("correct [plugins.NAME.config]", "correct [plugins.ksml.config]");
        let of_emea = "correct [instances.emea] config.ksml (over [plugins.ksml.config])";
        for (reason, instance, said) in [
            (some, None, own),
            (own, None, own),
            (some, Some("apac"), own),
            (some, Some("emea"), of_emea),
            (own, Some("emea"), of_emea),
        ] {
            assert_eq!(named(reason, instance), said, "{reason} {instance:?}");
        }
    }
}
