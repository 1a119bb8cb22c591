//! That what a definition refers to is there: KSML resolves names within one definition, and stops at one that is
//! missing.

use serde_json::{Map, Value};
use sutler_sdk::Result;

use super::known::{Known, meant, members};
use super::{refused, short};

pub(super) const TOPICS: [&str; 3] = ["streams", "tables", "globalTables"];
const SECTIONS: [&str; 7] =
    ["streams", "tables", "globalTables", "stores", "functions", "pipelines", "producers"];
const HEADER: [&str; 4] = ["$schema", "name", "version", "description"];

/// # Errors
/// `invalid-definition`
pub(super) fn check(definition: &str, document: &Value) -> Result<()> {
    let Value::Object(top) = document else {
        let what = if document.is_null() { "is empty" } else { "is not a mapping" };
        return Err(refused(definition, &format!("{what}; write streams, functions and pipelines into it")));
    };
    for key in top.keys().map(String::as_str) {
        if !SECTIONS.contains(&key) && !HEADER.contains(&key) {
            let known = meant(key, SECTIONS.into_iter());
            return Err(refused(
                definition,
                &format!("has {:?} at its top, which KSML does not know; {known}", short(key)),
            ));
        }
    }
    // Another shape is for KSML to judge.
    if SECTIONS.iter().filter_map(|s| top.get(*s)).any(|s| !s.is_object() && !s.is_null()) {
        return Ok(());
    }
    let walk = Walk { definition, known: Known::of(top) };
    walk.topics(top)?;
    for (name, function) in members(top, "functions") {
        walk.function(&format!("functions.{}", short(name)), Some(function).filter(|f| f.is_object()))?;
    }
    for (name, pipeline) in members(top, "pipelines") {
        walk.pipeline(&format!("pipelines.{}", short(name)), pipeline)?;
    }
    for (name, producer) in members(top, "producers") {
        walk.producer(&format!("producers.{}", short(name)), producer)?;
    }
    Ok(())
}

struct Walk<'a> {
    definition: &'a str,
    known: Known<'a>,
}

/// What the fields of a step refer to.
#[derive(Default)]
struct Fields {
    functions: &'static [&'static str],
    stores: &'static [&'static str],
    sources: &'static [&'static str],
}

/// By the type of a step. One that is not known here has no field that is looked at.
fn fields(kind: &str, step: &Map<String, Value>) -> Fields {
    let of = |functions, stores| Fields { functions, stores, sources: &[] };
    match kind {
        "aggregate" => of(&["initializer", "aggregator", "merger", "adder", "subtractor"], &["store"]),
        "cogroup" => of(&["aggregator"], &[]),
        "count" | "groupByKey" | "toTable" => of(&[], &["store"]),
        "filter" | "filterNot" => of(&["if"], &["store"]),
        "groupBy" | "transformValue" | "mapValue" | "mapValues" => of(&["mapper"], &["store"]),
        "flatMap"
        | "flatMapValues"
        | "map"
        | "mapKey"
        | "selectKey"
        | "toStream"
        | "transformKey"
        | "transformKeyValue"
        | "transformKeyValueToKeyValueList"
        | "transformKeyValueToValueList"
        | "transformMetadata" => of(&["mapper"], &[]),
        "join" | "leftJoin" | "outerJoin" => joined(step),
        "merge" => Fields { sources: &["stream"], ..Fields::default() },
        "peek" => of(&["forEach"], &[]),
        "reduce" if step.contains_key("reducer") => of(&["reducer"], &["store"]),
        "reduce" => of(&["adder", "subtractor"], &["store"]),
        "repartition" => of(&["partitioner"], &[]),
        _ => Fields::default(),
    }
}

fn joined(step: &Map<String, Value>) -> Fields {
    if step.contains_key("stream") {
        Fields { functions: &["valueJoiner"], stores: &["thisStore", "otherStore"], sources: &["stream"] }
    } else if step.contains_key("table") {
        let functions = &["valueJoiner", "foreignKeyExtractor", "partitioner", "otherPartitioner"];
        Fields { functions, stores: &["store"], sources: &["table"] }
    } else {
        Fields { functions: &["valueJoiner", "mapper"], stores: &[], sources: &["globalTable"] }
    }
}

impl Walk<'_> {
    /// A name is of one stream or table only, and what they name is there.
    fn topics(&self, top: &Map<String, Value>) -> Result<()> {
        for (i, section) in TOPICS.into_iter().enumerate() {
            for (name, topic) in members(top, section) {
                let earlier =
                    TOPICS.into_iter().take(i).find(|s| top.get(*s).is_some_and(|t| t.get(name).is_some()));
                if let Some(earlier) = earlier {
                    let why = format!(
                        "has {:?} in {earlier} and in {section}; give one of them another name",
                        short(name)
                    );
                    return Err(refused(self.definition, &why));
                }
                self.functions(
                    &format!("{section}.{}", short(name)),
                    topic,
                    &["timestampExtractor", "partitioner"],
                )?;
            }
        }
        Ok(())
    }

    fn pipeline(&self, at: &str, pipeline: &Value) -> Result<()> {
        if let Some(from) = pipeline.get("from") {
            self.source(&format!("{at}.from"), Some(from))?;
        }
        for (i, step) in items(pipeline, "via") {
            self.step(&format!("{at}.via[{i}]"), step)?;
        }
        self.functions(at, pipeline, &["forEach"])?;
        if let Some(print) = pipeline.get("print") {
            self.functions(&format!("{at}.print"), print, &["mapper"])?;
        }
        self.target(&format!("{at}.to"), pipeline.get("to"))?;
        let extractor = format!("{at}.toTopicNameExtractor");
        match pipeline.get("toTopicNameExtractor") {
            Some(inline @ Value::Object(_)) => {
                self.functions(&extractor, inline, &["topicNameExtractor", "partitioner"])?;
            }
            named => self.function(&extractor, named)?,
        }
        for (i, branch) in items(pipeline, "branch") {
            let at = format!("{at}.branch[{i}]");
            self.functions(&at, branch, &["if"])?;
            self.pipeline(&at, branch)?;
        }
        Ok(())
    }

    fn step(&self, at: &str, step: &Value) -> Result<()> {
        let Value::Object(of) = step else { return Ok(()) };
        let fields = fields(of.get("type").and_then(Value::as_str).unwrap_or_default(), of);
        self.functions(at, step, fields.functions)?;
        for key in fields.stores {
            self.named(&format!("{at}.{key}"), step.get(key), "state store", &self.known.stores)?;
        }
        for key in fields.sources {
            self.source(&format!("{at}.{key}"), step.get(key))?;
        }
        Ok(())
    }

    fn producer(&self, at: &str, producer: &Value) -> Result<()> {
        let Value::Object(of) = producer else { return Ok(()) };
        for (key, what) in [("generator", "a function that makes records"), ("to", "the topic to write to")] {
            if !of.contains_key(key) {
                return Err(refused(self.definition, &format!("has no {at}.{key}; name {what}")));
            }
        }
        self.functions(at, producer, &["generator", "condition", "until"])?;
        self.target(&format!("{at}.to"), of.get("to"))
    }

    /// A name of a source, or a topic that is described in place.
    fn source(&self, at: &str, value: Option<&Value>) -> Result<()> {
        self.named(at, value, "stream, table or pipeline", &self.known.sources)?;
        value.map_or(Ok(()), |v| self.functions(at, v, &["timestampExtractor", "partitioner"]))
    }

    fn target(&self, at: &str, value: Option<&Value>) -> Result<()> {
        self.named(at, value, "stream or table", &self.known.topics)?;
        value.map_or(Ok(()), |v| self.functions(at, v, &["partitioner"]))
    }

    fn functions(&self, at: &str, parent: &Value, keys: &[&str]) -> Result<()> {
        keys.iter().try_for_each(|key| self.function(&format!("{at}.{key}"), parent.get(key)))
    }

    /// A name of a function, or one that is written in place; the stores that it uses are there.
    fn function(&self, at: &str, value: Option<&Value>) -> Result<()> {
        self.named(at, value, "function", &self.known.functions)?;
        let Some(inline) = value.filter(|v| v.get("type").and_then(Value::as_str) != Some("generator"))
        else {
            return Ok(());
        };
        items(inline, "stores").try_for_each(|(i, store)| {
            self.named(&format!("{at}.stores[{i}]"), Some(store), "state store", &self.known.stores)
        })
    }

    /// Only texts are names; anything else is described in place, or for KSML to judge.
    fn named(
        &self,
        at: &str,
        value: Option<&Value>,
        what: &str,
        known: &std::collections::BTreeSet<&str>,
    ) -> Result<()> {
        let Some(name) = value.and_then(Value::as_str).filter(|name| !known.contains(name)) else {
            return Ok(());
        };
        let meant = meant(name, known.iter().copied());
        Err(refused(
            self.definition,
            &format!("names {:?} at {at}, which is no {what} of it; {meant}", short(name)),
        ))
    }
}

fn items<'a>(parent: &'a Value, key: &str) -> impl Iterator<Item = (usize, &'a Value)> {
    parent.get(key).and_then(Value::as_array).into_iter().flatten().enumerate()
}
