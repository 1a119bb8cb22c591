//! What may stand in a file, and how much.

use std::path::Path;

const LINES_MOST: usize = 400;

// Written in two halves, so that this file passes its own rule.
const UNFINISHED: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
const MACHINE_PATHS: &[&str] = &[concat!("/ro", "ot/"), concat!("/wo", "rk/")];

pub fn check(file: &Path, content: &str) -> Vec<String> {
    if file.extension().is_some_and(|e| e == "lock" || e == "sum") {
        return Vec::new(); // written by tools
    }
    let mut broken: Vec<String> = too_long(file, content).into_iter().collect();
    for (index, line) in content.lines().enumerate() {
        let words = UNFINISHED.iter().filter(|word| has_word(line, word)).map(|word| ("says", word));
        let paths =
            MACHINE_PATHS.iter().filter(|path| line.contains(**path)).map(|path| ("names the path", path));
        for (how, what) in words.chain(paths) {
            broken.push(format!("{}:{} {how} {what}", file.display(), index + 1));
        }
    }
    broken
}

fn too_long(file: &Path, content: &str) -> Option<String> {
    let ours = ["host", "plugins", "examples"].iter().any(|folder| file.starts_with(folder));
    let code = file.extension().is_some_and(|e| e == "rs" || e == "go" || e == "sh");
    let lines = content.lines().count();
    if !ours || !code || lines <= LINES_MOST || generated(content) {
        return None;
    }
    Some(format!("{} has {lines} lines: more than {LINES_MOST} are two ideas", file.display()))
}

fn generated(content: &str) -> bool {
    content.lines().take(5).any(|line| line.contains("@generated") || line.contains("Code generated"))
}

fn has_word(line: &str, word: &str) -> bool {
    let part_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|text| text.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|text| text.chars().next());
        !before.is_some_and(part_of_word) && !after.is_some_and(part_of_word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(file: &str, content: &str) -> usize {
        check(Path::new(file), content).len()
    }

    #[test]
    fn unfinished_words_count_only_whole() {
        let word = UNFINISHED[0];
        assert_eq!(broken("a.rs", &format!("// {word}: later")), 1);
        assert_eq!(broken("a.rs", &format!("let a{word} = {word}S;")), 0);
        assert_eq!(broken("Cargo.lock", word), 0);
    }

    #[test]
    fn paths_of_one_machine_are_found_anywhere() {
        for path in MACHINE_PATHS {
            assert_eq!(broken("docs/a.md", &format!("see {path}x")), 1);
        }
    }

    #[test]
    fn long_code_is_two_ideas_unless_generated() {
        let long = "x\n".repeat(LINES_MOST + 1);
        assert_eq!(broken("host/a/src/lib.rs", &long), 1);
        assert_eq!(broken("host/a/src/lib.rs", &"x\n".repeat(LINES_MOST)), 0);
        assert_eq!(broken("host/a/src/lib.rs", &format!("// @generated\n{long}")), 0);
        assert_eq!(broken("docs/a.rs", &long), 0);
        assert_eq!(broken("host/a/data.json", &long), 0);
    }
}
