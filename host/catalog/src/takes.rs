//! `x-sutler-quota` in a settings schema: what an application takes of a cluster, worked out of its settings.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use sutler_model::{Use, pointer_part};

use crate::marks::Marks;

pub(crate) const MARK: &str = "x-sutler-quota";
/// Places of a schema that are looked at; a schema that refers to itself has no end of them.
const PLACES: usize = 4096;

/// What one marked setting says.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
enum Says {
    Word(Word),
    /// By the setting's value: what one replica takes.
    Each(BTreeMap<String, Each>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Word {
    /// The number is thousandths of a core for one replica.
    MilliCpus,
    /// The number is MiB for one replica.
    MemoryMib,
    /// The number is how many replicas there are.
    Times,
    /// `false`: nothing runs, so nothing is taken.
    While,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Each {
    #[serde(default)]
    milli_cpus: u64,
    #[serde(default)]
    memory_mib: u64,
}

#[derive(Debug, PartialEq, Eq)]
struct Marked {
    pointer: String,
    /// What the schema says where the setting is left out.
    default: Option<Value>,
    says: Says,
}

/// The marked settings of a schema.
#[derive(Debug, Default)]
pub(crate) struct Takes(Vec<Marked>);

impl Takes {
    /// # Errors
    /// Words with the place of a mark that means nothing.
    pub(crate) fn of(schema: &Value) -> Result<Self, String> {
        let marks = Marks::new(schema);
        let (mut out, mut looked) = (Vec::<Marked>::new(), 0);
        let mut next = vec![(String::new(), schema)];
        while let Some((pointer, node)) = next.pop() {
            looked += 1;
            let nodes = marks.spread(node);
            for mark in nodes.iter().filter_map(|n| n.get(MARK)) {
                let says = Says::deserialize(mark).map_err(|_| bad(&pointer))?;
                let default = nodes.iter().find_map(|n| n.get("default")).cloned();
                let marked = Marked { pointer: pointer.clone(), default, says };
                match out.iter().find(|m| m.pointer == pointer) {
                    None => out.push(marked),
                    Some(other) if *other == marked => {}
                    Some(_) => return Err(format!("{pointer} has two different {MARK}; keep one")),
                }
            }
            let properties = nodes.iter().filter_map(|n| n.get("properties")?.as_object()).flatten();
            let under = properties.map(|(k, v)| (format!("{pointer}/{}", pointer_part(k)), v));
            next.extend(under.take(PLACES.saturating_sub(looked + next.len())));
        }
        Ok(Self(out))
    }

    /// What these settings take, of all replicas together.
    pub(crate) fn used(&self, settings: &Value) -> Use {
        let (mut each, mut times) = (Use::default(), 1_u64);
        for m in &self.0 {
            let value = settings.pointer(&m.pointer).or(m.default.as_ref());
            let number = value.and_then(Value::as_u64);
            match &m.says {
                Says::Word(Word::While) if value == Some(&Value::Bool(false)) => return Use::default(),
                Says::Word(Word::While) => {}
                Says::Word(Word::Times) => times = times.saturating_mul(number.unwrap_or(1)),
                Says::Word(Word::MilliCpus) => {
                    each = each + Use { milli_cpus: number.unwrap_or(0), memory_mib: 0 };
                }
                Says::Word(Word::MemoryMib) => {
                    each = each + Use { milli_cpus: 0, memory_mib: number.unwrap_or(0) };
                }
                Says::Each(by) => {
                    let of = value.and_then(Value::as_str).and_then(|v| by.get(v));
                    each = each
                        + of.map_or(Use::default(), |e| Use {
                            milli_cpus: e.milli_cpus,
                            memory_mib: e.memory_mib,
                        });
                }
            }
        }
        Use {
            milli_cpus: each.milli_cpus.saturating_mul(times),
            memory_mib: each.memory_mib.saturating_mul(times),
        }
    }
}

fn bad(pointer: &str) -> String {
    format!(
        "{pointer} has an {MARK} that means nothing; write milli-cpus, memory-mib, times, while, or an object of \
         value to {{milliCpus, memoryMib}}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn takes() -> Takes {
        let schema = json!({"type": "object", "properties": {
            "size": {"$ref": "#/$defs/size", "default": "S", MARK: {
                "S": {"milliCpus": 1000, "memoryMib": 4096}, "M": {"milliCpus": 2000, "memoryMib": 8192}}},
            "replicas": {"type": "integer", "default": 1, MARK: "times"},
            "running": {"type": "boolean", "default": true, MARK: "while"},
            "side": {"type": "object", "properties": {
                "cpu": {"type": "integer", MARK: "milli-cpus"}, "memory": {MARK: "memory-mib"}}}
        }, "$defs": {"size": {"enum": ["S", "M"]}}});
        Takes::of(&schema).unwrap()
    }

    #[test]
    fn settings_take_what_their_marks_say() {
        for (settings, milli_cpus, memory_mib) in [
            (json!({}), 1000, 4096),
            (json!({"size": "M", "replicas": 3}), 6000, 24576),
            (json!({"size": "M", "replicas": 3, "running": false}), 0, 0),
            (json!({"side": {"cpu": 250, "memory": 64}, "replicas": 2}), 2500, 8320),
            (json!({"size": "unheard-of"}), 0, 0),
            (json!({"replicas": u64::MAX}), u64::MAX, u64::MAX),
        ] {
            assert_eq!(takes().used(&settings), Use { milli_cpus, memory_mib }, "{settings}");
        }
        let unmarked = json!({"type": "object", "properties": {"size": {}}});
        assert_eq!(Takes::of(&unmarked).unwrap().used(&json!({"size": "M"})), Use::default());
    }

    #[test]
    fn a_mark_that_means_nothing_is_told_with_its_place() {
        for mark in [json!("cpus"), json!({"S": {"cores": 1}}), json!(true), json!({"S": {"milliCpus": -1}})]
        {
            let e =
                Takes::of(&json!({"properties": {"a": {"properties": {"b": {MARK: mark}}}}})).unwrap_err();
            assert!(e.starts_with("/a/b has an"), "{e}");
        }
        let two = json!({"properties": {"a": {MARK: "times", "allOf": [{MARK: "while"}]}}});
        assert!(Takes::of(&two).unwrap_err().contains("two different"));
    }

    #[test]
    fn a_schema_without_an_end_is_looked_at_for_a_while() {
        let names = |n: usize| (0..n).map(|i| (format!("p{i}"), json!({"$ref": "#"})));
        let schema = json!({"properties": names(20).collect::<serde_json::Map<_, _>>()});
        assert_eq!(Takes::of(&schema).unwrap().0, []);
    }
}
