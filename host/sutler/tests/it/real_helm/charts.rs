//! The small charts of the testkit.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sutler_testkit::registry::package;

#[derive(Debug, Clone)]
pub(crate) struct Chart {
    pub(crate) name: String,
    pub(crate) values: Value,
    pub(crate) files: BTreeMap<String, String>,
    /// Rendering fails with this text.
    pub(crate) fails: Option<String>,
}

const TEXTS: [&str; 3] = [
    include_str!("../../../../testkit/charts/objects.txt"),
    include_str!("../../../../testkit/charts/templates.txt"),
    include_str!("../../../../testkit/charts/hooks.txt"),
];

pub(crate) fn all() -> Vec<Chart> {
    TEXTS.iter().flat_map(|t| t.split("\n##### ").skip(1)).map(parse).collect()
}

pub(crate) fn named(name: &str) -> Chart {
    all().into_iter().find(|c| c.name == name).unwrap()
}

fn parse(text: &str) -> Chart {
    let (head, body) = text.split_once('\n').unwrap();
    let (name, values) = head.split_once(' ').unwrap();
    let mut files = BTreeMap::new();
    let meta = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
    files.insert("Chart.yaml".to_owned(), meta);
    let mut fails = None;
    for part in format!("\n{body}").split("\n=== ").skip(1) {
        let (path, content) = part.split_once('\n').unwrap();
        let (content, failure) = match content.split_once("\n! ") {
            Some((content, failure)) => (content, Some(failure.trim().to_owned())),
            None => (content, None),
        };
        fails = fails.or(failure);
        files.insert(path.trim().to_owned(), format!("{}\n", content.trim_end()));
    }
    Chart { name: name.into(), values: serde_json::from_str(values).unwrap(), files, fails }
}

impl Chart {
    /// Writes it into a folder of its own and packs it beside; the archive's path.
    pub(crate) fn write(&self, folder: &Path) -> PathBuf {
        let root = folder.join(&self.name);
        for (path, content) in &self.files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
        let archive = folder.join(format!("{}-1.0.0.tgz", self.name));
        std::fs::write(&archive, package(&root).unwrap()).unwrap();
        archive
    }

    /// The values of another revision.
    pub(crate) fn changed(&self, n: usize) -> Value {
        let mut out = self.values.clone();
        for (key, value) in out.as_object_mut().unwrap() {
            match (key.as_str(), &mut *value) {
                ("verb", v) => *v = json!(if n.is_multiple_of(2) { "get" } else { "list" }),
                ("x" | "key" | "tag" | "v" | "text" | "who", Value::String(s)) => s.push_str(&n.to_string()),
                ("n" | "i" | "size" | "min", Value::Number(i)) => {
                    *value = json!(i.as_i64().unwrap() + n as i64)
                }
                _ => {}
            }
        }
        out["revision"] = json!(n);
        out
    }

    pub(crate) fn tests(&self) -> bool {
        self.files.values().any(|f| f.contains("hook: test") || f.contains("\"test\""))
    }
}
