//! Relative links of Markdown files must lead somewhere.

use std::path::Path;

pub fn check(root: &Path, file: &Path, content: &str) -> Vec<String> {
    let folder = file.parent().unwrap_or(Path::new(""));
    let dead = targets(content).into_iter().filter(|(_, target)| {
        let place = match target.strip_prefix('/') {
            Some(from_root) => root.join(from_root),
            None => root.join(folder).join(target),
        };
        !place.exists()
    });
    dead.map(|(line, target)| format!("{}:{line} links to {target}, which is not there", file.display()))
        .collect()
}

/// Lines and targets of inline links to files, outside code.
fn targets(content: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (index, line) in content.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        }
        if in_block {
            continue;
        }
        let prose: String = line.split('`').step_by(2).collect();
        for (at, mark) in prose.match_indices("](") {
            let rest = prose.get(at + mark.len()..).unwrap_or_default();
            let target = rest.split([')', ' ']).next().unwrap_or_default();
            let target = target.split('#').next().unwrap_or_default();
            let elsewhere = target.contains("://") || target.starts_with("mailto:");
            if !target.is_empty() && !elsewhere {
                found.push((index + 1, target.to_owned()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_link_is_named_with_its_line() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("docs")).unwrap();
        std::fs::write(root.path().join("docs/here.md"), "").unwrap();
        let broken = |content: &str| check(root.path(), Path::new("docs/a.md"), content);
        for fine in [
            "[x](here.md) and [y](./here.md#part)",
            "[x](/docs/here.md)",
            "[x](https://example.org/gone) [y](#part)",
            "`[x](gone.md)`",
            "```\n[x](gone.md)\n```",
        ] {
            assert_eq!(broken(fine), Vec::<String>::new(), "{fine}");
        }
        assert_eq!(broken("one\n[x](gone.md)"), ["docs/a.md:2 links to gone.md, which is not there"]);
    }
}
