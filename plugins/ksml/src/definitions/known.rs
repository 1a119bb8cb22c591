//! The names that a definition gives to things, and what was probably meant by one that it does not.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::{LONGEST, short};

/// Everything that can be referred to by name, within one definition.
#[derive(Debug, Default)]
pub(super) struct Known<'a> {
    /// Streams, tables and global tables.
    pub(super) topics: BTreeSet<&'a str>,
    /// What a pipeline may come from: topics, and results of other pipelines.
    pub(super) sources: BTreeSet<&'a str>,
    pub(super) functions: BTreeSet<&'a str>,
    pub(super) stores: BTreeSet<&'a str>,
}

/// The members of a section, none where it is left out.
pub(super) fn members<'a>(
    top: &'a Map<String, Value>,
    section: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    top.get(section).and_then(Value::as_object).into_iter().flatten()
}

impl<'a> Known<'a> {
    pub(super) fn of(top: &'a Map<String, Value>) -> Self {
        let names = |section: &str| members(top, section).map(|(name, _)| name.as_str());
        let mut known = Self::default();
        for section in super::references::TOPICS {
            known.topics.extend(names(section));
        }
        known.functions.extend(names("functions"));
        known.stores.extend(names("stores"));
        // A table's store goes by the table's name as well.
        known.stores.extend(names("tables").chain(names("globalTables")));
        known.sources.extend(&known.topics);
        known.sources.extend(names("pipelines"));
        for section in ["pipelines", "tables", "globalTables"] {
            top.get(section).into_iter().for_each(|s| known.inside(s));
        }
        known
    }

    /// Names that stand inside pipelines: their results, and state stores that are described where they are used.
    fn inside(&mut self, value: &'a Value) {
        match value {
            Value::Object(fields) => {
                for key in ["as", "name"] {
                    self.sources.extend(fields.get(key).and_then(Value::as_str));
                }
                for key in ["store", "thisStore", "otherStore"] {
                    self.stores.extend(fields.get(key).and_then(|s| s.get("name")).and_then(Value::as_str));
                }
                fields.values().for_each(|v| self.inside(v));
            }
            Value::Array(items) => items.iter().for_each(|v| self.inside(v)),
            _ => {}
        }
    }
}

/// So many names are compared: each takes time with the product of the lengths.
const COMPARED: usize = 200;

/// ` did you mean "in"?` or else what is known. Names longer than an error shows are not compared.
pub(super) fn meant<'a>(found: &str, known: impl Iterator<Item = &'a str> + Clone) -> String {
    let compared = |name: &str| name.len() <= LONGEST;
    let near = known
        .clone()
        .filter(|k| compared(found) && compared(k) && k.len().abs_diff(found.len()) <= k.len().div_ceil(3))
        .take(COMPARED)
        .map(|k| (strsim::damerau_levenshtein(found, k), k))
        .filter(|(distance, k)| *distance <= k.len().div_ceil(3))
        .min();
    if let Some((_, near)) = near {
        return format!("did you mean {near:?}?");
    }
    let mut all: Vec<&str> = known.collect();
    if all.is_empty() {
        return "there is none".into();
    }
    let more = all.len().saturating_sub(20);
    all.truncate(20);
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    let shown: Vec<_> = all.into_iter().map(short).collect();
    format!("known are {}{rest}", shown.join(", "))
}
