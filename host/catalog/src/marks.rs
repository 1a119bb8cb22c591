//! Walks a schema beside a value: which nodes of the schema speak of a place, and what they mark.

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Keywords whose members stand for the same place.
const SAME_PLACE: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const BRANCHES: [&str; 4] = ["if", "then", "else", "not"];

pub(crate) struct Marks<'a> {
    root: &'a Value,
}

impl<'a> Marks<'a> {
    pub(crate) const fn new(root: &'a Value) -> Self {
        Self { root }
    }

    /// A node with everything that stands for the same place: local references, combinations, conditions. Each node
    /// once, so that a schema that refers to itself costs no more than its size.
    pub(crate) fn spread(&self, node: &'a Value) -> Vec<&'a Value> {
        let (mut out, mut seen, mut next) = (Vec::new(), HashSet::new(), vec![node]);
        while let Some(node) = next.pop() {
            if !seen.insert(std::ptr::from_ref(node)) {
                continue;
            }
            out.push(node);
            for key in ["$ref", "$dynamicRef"] {
                let target = node.get(key).and_then(Value::as_str).and_then(|r| r.strip_prefix('#'));
                next.extend(target.and_then(|t| self.root.pointer(t)));
            }
            next.extend(SAME_PLACE.iter().filter_map(|k| node.get(k)?.as_array()).flatten());
            next.extend(BRANCHES.iter().filter_map(|k| node.get(k)));
            let dependent = node.get("dependentSchemas").and_then(Value::as_object);
            next.extend(dependent.into_iter().flat_map(Map::values));
        }
        out
    }

    pub(crate) fn on(&self, nodes: &[&'a Value], mark: &str) -> bool {
        let set = |n: &Value| n.get(mark).and_then(Value::as_bool) == Some(true);
        nodes.iter().any(|n| self.spread(n).into_iter().any(set))
    }

    /// The nodes that speak of a member: of an object by its name, of an array by its position. Patterns are taken
    /// to fit, so that a mark is rather seen once too often.
    pub(crate) fn children(&self, nodes: &[&'a Value], segment: &str) -> Vec<&'a Value> {
        let mut out = Vec::new();
        for n in nodes.iter().flat_map(|n| self.spread(n)) {
            match n.get("properties").and_then(|p| p.get(segment)) {
                Some(p) => out.push(p),
                None => out.extend(n.get("additionalProperties")),
            }
            out.extend(
                n.get("patternProperties").and_then(Value::as_object).into_iter().flat_map(Map::values),
            );
            out.extend(n.get("unevaluatedProperties"));
            if let Ok(at) = segment.parse::<usize>() {
                out.extend(n.get("prefixItems").and_then(|p| p.get(at)));
                out.extend(n.get("items"));
                out.extend(n.get("unevaluatedItems"));
            }
        }
        out.retain(|n| n.is_object());
        out
    }

    /// What of a value may be shown.
    pub(crate) fn shown(&self, nodes: &[&'a Value], value: &Value) -> Option<Value> {
        if self.on(nodes, "writeOnly") {
            return None;
        }
        if !self.below(nodes) {
            return Some(value.clone());
        }
        let shut = |n: &Value, k: &str| n.get(k).and_then(Value::as_bool) == Some(false);
        let closed = nodes
            .iter()
            .flat_map(|n| self.spread(n))
            .any(|n| shut(n, "additionalProperties") || shut(n, "unevaluatedProperties"));
        match value {
            Value::Null => Some(Value::Null),
            Value::Object(m)
                if self.has(nodes, &["properties", "additionalProperties", "patternProperties"]) =>
            {
                let member = |(k, v): (&String, &Value)| {
                    let nodes = self.children(nodes, k);
                    match nodes.is_empty() {
                        // A name that a closed schema does not know, beside secrets, may be one misplaced.
                        true if closed => None,
                        true => Some((k.clone(), v.clone())),
                        false => Some((k.clone(), self.shown(&nodes, v)?)),
                    }
                };
                Some(Value::Object(m.iter().filter_map(member).collect()))
            }
            Value::Array(a) if self.has(nodes, &["items", "prefixItems"]) => {
                let item = |(i, v): (usize, &Value)| self.shown(&self.children(nodes, &i.to_string()), v);
                Some(Value::Array(a.iter().enumerate().filter_map(item).collect()))
            }
            _ => None,
        }
    }

    fn has(&self, nodes: &[&'a Value], keywords: &[&str]) -> bool {
        nodes.iter().flat_map(|n| self.spread(n)).any(|n| keywords.iter().any(|k| n.get(k).is_some()))
    }

    /// Whether anything under these nodes is marked as a secret.
    fn below(&self, nodes: &[&'a Value]) -> bool {
        let (mut seen, mut next) = (HashSet::new(), nodes.to_vec());
        while let Some(node) = next.pop() {
            if !seen.insert(std::ptr::from_ref(node)) {
                continue;
            }
            for n in self.spread(node) {
                let maps = ["properties", "patternProperties"].iter().filter_map(|k| n.get(k)?.as_object());
                let lists = n.get("prefixItems").and_then(Value::as_array).into_iter().flatten();
                let singles = ["additionalProperties", "items", "unevaluatedProperties", "unevaluatedItems"];
                let under =
                    maps.flat_map(Map::values).chain(lists).chain(singles.iter().filter_map(|k| n.get(k)));
                for child in under.filter(|c| c.is_object()) {
                    if self.on(&[child], "writeOnly") {
                        return true;
                    }
                    next.push(child);
                }
            }
        }
        false
    }
}
