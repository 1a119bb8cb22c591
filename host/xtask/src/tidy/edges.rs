//! Which host crate may use which: dependencies point down.

use anyhow::{Context, Result};
use serde_json::Value;

use crate::process::output;
use crate::project::Project;

/// Each crate with what it may use. An edge outside this table is a design change, made here first.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "sutler",
        &[
            "sutler-api",
            "sutler-access",
            "sutler-dispatch",
            "sutler-jobs",
            "sutler-ledger",
            "sutler-catalog",
            "sutler-runtime",
            "sutler-kubernetes",
            "sutler-helm",
            "sutler-logs",
            "sutler-containers",
            "sutler-model",
        ],
    ),
    ("sutler-api", &["sutler-access", "sutler-dispatch", "sutler-logs", "sutler-model"]),
    ("sutler-access", &["sutler-model"]),
    (
        "sutler-dispatch",
        &[
            "sutler-jobs",
            "sutler-ledger",
            "sutler-catalog",
            "sutler-runtime",
            "sutler-kubernetes",
            "sutler-helm",
            "sutler-logs",
            "sutler-model",
        ],
    ),
    (
        "sutler-catalog",
        &[
            "sutler-runtime",
            "sutler-kubernetes",
            "sutler-helm",
            "sutler-logs",
            "sutler-containers",
            "sutler-model",
        ],
    ),
    (
        "sutler-runtime",
        &["sutler-kubernetes", "sutler-helm", "sutler-logs", "sutler-containers", "sutler-model"],
    ),
    ("sutler-helm", &["sutler-kubernetes", "sutler-model"]),
    ("sutler-logs", &["sutler-kubernetes", "sutler-containers", "sutler-model"]),
    ("sutler-containers", &["sutler-model"]),
    ("sutler-kubernetes", &["sutler-model"]),
    ("sutler-jobs", &["sutler-ledger", "sutler-model"]),
    ("sutler-ledger", &["sutler-model"]),
    ("sutler-model", &[]),
];

/// May use anything; nothing that ships uses them.
const BESIDE: &[&str] = &["sutler-testkit", "sutler-bench", "xtask"];

pub struct Edge {
    pub from: String,
    pub to: String,
    pub dev: bool,
}

/// Edges between the workspace's own crates.
pub fn read(project: &Project) -> Result<Vec<Edge>> {
    parse(&output(project.cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?)
}

fn parse(metadata: &str) -> Result<Vec<Edge>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata is not JSON")?;
    let list =
        |value: &Value, key: &str| value.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let name = |value: &Value| value.get("name").and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut edges = Vec::new();
    for package in list(&metadata, "packages") {
        for dependency in list(&package, "dependencies") {
            if dependency.get("path").is_some_and(Value::is_string) {
                let dev = dependency.get("kind").and_then(Value::as_str) == Some("dev");
                edges.push(Edge { from: name(&package), to: name(&dependency), dev });
            }
        }
    }
    Ok(edges)
}

pub fn check(edges: &[Edge]) -> Vec<String> {
    edges.iter().filter(|edge| !allowed(edge)).map(told).collect()
}

fn allowed(edge: &Edge) -> bool {
    if BESIDE.contains(&edge.from.as_str()) || (edge.dev && edge.to == "sutler-testkit") {
        return true;
    }
    // A crate's tests may turn on its own features.
    if edge.dev && edge.from == edge.to {
        return true;
    }
    let row = ALLOWED.iter().find(|(from, _)| *from == edge.from);
    row.is_some_and(|(_, to)| to.contains(&edge.to.as_str()))
}

fn told(edge: &Edge) -> String {
    let Edge { from, to, .. } = edge;
    match BESIDE.contains(&to.as_str()) {
        true => format!("{from} uses {to}: only tests, sutler-bench and xtask may"),
        false => {
            format!("{from} uses {to}: dependencies point down; see ALLOWED in host/xtask/src/tidy/edges.rs")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_point_down_and_testkit_stays_in_tests() {
        for (from, to, dev, fine) in [
            ("sutler", "sutler-runtime", false, true),
            ("sutler-api", "sutler-logs", false, true),
            ("sutler-api", "sutler-runtime", false, false),
            ("sutler-model", "sutler-kubernetes", false, false),
            ("sutler-model", "sutler-kubernetes", true, false),
            ("sutler-catalog", "sutler-dispatch", false, false),
            ("sutler-helm", "sutler-testkit", true, true),
            ("sutler-helm", "sutler-testkit", false, false),
            ("sutler", "sutler-bench", false, false),
            ("sutler-ledger", "sutler-ledger", true, true),
            ("sutler-bench", "sutler-dispatch", false, true),
            ("sutler-unheard-of", "sutler-model", false, false),
        ] {
            let edge = Edge { from: from.into(), to: to.into(), dev };
            assert_eq!(check(&[edge]).is_empty(), fine, "{from} -> {to}, dev {dev}");
        }
    }

    #[test]
    fn only_path_dependencies_are_edges() {
        let metadata = r#"{"packages": [{"name": "a", "dependencies": [
            {"name": "serde", "kind": null, "path": null},
            {"name": "b", "kind": "dev", "path": "/b"}]}]}"#;
        let edges = parse(metadata).unwrap();
        assert_eq!(edges.len(), 1);
        assert!(edges[0].from == "a" && edges[0].to == "b" && edges[0].dev);
    }
}
