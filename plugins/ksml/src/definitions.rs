//! Whether KSML would read the definitions, asked before anything is written. What KSML might accept is accepted:
//! only its own parser knows all of the language.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use sutler_sdk::prelude::*;

mod known;
mod references;

use crate::settings::Definition;

/// Values in one definition, after what stands for others in it: more than a megabyte of text has.
const VALUES: usize = 100_000;
/// Of a name, in characters, in an error.
const LONGEST: usize = 100;

/// The file of a definition; a name that is a file's name already stays.
pub fn file(name: &str) -> String {
    if name.ends_with(".yaml") || name.ends_with(".yml") { name.to_owned() } else { format!("{name}.yaml") }
}

/// KSML's namespace of a definition.
pub fn namespace(name: &str) -> &str {
    name.strip_suffix(".yaml").or_else(|| name.strip_suffix(".yml")).unwrap_or(name)
}

/// Every definition, and that no two files meet in one folder. What works for some versions of KSML only is a warning.
///
/// # Errors
/// `invalid-definition`, with the definition's place.
pub fn check<'a>(
    definitions: &BTreeMap<String, Definition>,
    schemas: impl Iterator<Item = &'a String>,
) -> Result<Vec<String>> {
    files(definitions, schemas)?;
    let mut warnings = Vec::new();
    for (name, definition) in definitions {
        let parsed = match definition {
            Definition::Text(text) => {
                let (value, repeated) = parse(name, text)?;
                warnings.extend(repeated);
                value
            }
            Definition::Object(object) => Value::Object(object.clone()),
        };
        references::check(name, &parsed)?;
    }
    Ok(warnings)
}

fn files<'a>(
    definitions: &BTreeMap<String, Definition>,
    schemas: impl Iterator<Item = &'a String>,
) -> Result<()> {
    let (mut names, mut namespaces) = (BTreeSet::new(), BTreeSet::new());
    for name in definitions.keys() {
        names.insert(file(name));
        if !namespaces.insert(namespace(name)) {
            let why = format!("is the second one of namespace {:?}; rename one of them", namespace(name));
            return Err(refused(name, &why));
        }
    }
    for schema in schemas {
        if names.contains(schema) {
            let why =
                format!("the schema file {schema} has the name of a definition's file; rename one of them");
            return Err(Error::new("invalid-definition", why).at(format!("/schemas/{}", escaped(schema))));
        }
    }
    Ok(())
}

/// One YAML document, and what to say where a key stands in it twice.
fn parse(name: &str, text: &str) -> Result<(Value, Option<String>)> {
    use serde_saphyr::options::DuplicateKeyPolicy::{Error as Once, LastWins};
    let read = |policy| {
        let mut options = serde_saphyr::options! { duplicate_keys: policy, with_snippet: false };
        if let Some(budget) = &mut options.budget {
            budget.max_nodes = VALUES;
        }
        serde_saphyr::from_str_with_options::<Value>(text, options)
    };
    let value =
        read(LastWins).map_err(|e| refused(name, &format!("is not one YAML document: {}", told(&e))))?;
    // KSML 2 refuses what KSML 1 read as the last of the two.
    let repeated = read(Once).err().map(|e| format!("definition {name}: {}; KSML 2 refuses that", told(&e)));
    Ok((value, repeated))
}

/// The parser's words for those who write YAML, not for those who call it; the place is at the beginning or the end.
fn told(e: &serde_saphyr::Error) -> String {
    const ENDS: usize = 200;
    let text = e.render_with_formatter(&serde_saphyr::UserMessageFormatter);
    let more = text.chars().count().saturating_sub(ENDS * 2);
    if more == 0 {
        return text;
    }
    let head: String = text.chars().take(ENDS).collect();
    let tail: String = text.chars().skip(ENDS + more).collect();
    format!("{head}…{tail}")
}

/// A name as an error shows it: of a long one the beginning.
fn short(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", name.get(..end).unwrap_or_default()).into(),
        None => name.into(),
    }
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

fn refused(name: &str, why: &str) -> Error {
    Error::new("invalid-definition", format!("definition {name} {why}"))
        .at(format!("/definitions/{}", escaped(name)))
}
