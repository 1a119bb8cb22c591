//! Label and field selectors.

use serde_json::Value;

use super::resource::meta;

/// One requirement on labels.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Requirement {
    Is(String, Vec<String>),
    IsNot(String, Vec<String>),
    Exists(String),
    Absent(String),
}

/// What a list or a watch is narrowed to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    /// (path, equal, value)
    fields: Vec<(String, bool, String)>,
}

impl Selector {
    /// # Errors
    /// In words, when one of the selectors is malformed.
    pub(crate) fn parse(labels: &str, fields: &str) -> Result<Self, String> {
        Ok(Self {
            labels: split(labels).into_iter().map(|r| requirement(&r)).collect::<Result<_, _>>()?,
            fields: split(fields).into_iter().map(|f| field(&f)).collect::<Result<_, _>>()?,
        })
    }

    pub(crate) fn matches(&self, object: &Value) -> bool {
        let label = |key: &str| object["metadata"]["labels"][key].as_str();
        self.labels.iter().all(|r| match r {
            Requirement::Is(key, values) => label(key).is_some_and(|v| values.iter().any(|w| w == v)),
            Requirement::IsNot(key, values) => label(key).is_none_or(|v| values.iter().all(|w| w != v)),
            Requirement::Exists(key) => label(key).is_some(),
            Requirement::Absent(key) => label(key).is_none(),
        }) && self.fields.iter().all(|(path, equal, value)| (at(object, path) == value) == *equal)
    }
}

fn at<'a>(object: &'a Value, path: &str) -> &'a str {
    match path {
        "metadata.name" => meta(object, "name"),
        "metadata.namespace" => meta(object, "namespace"),
        _ => path.split('.').try_fold(object, |v, f| v.get(f)).and_then(Value::as_str).unwrap_or_default(),
    }
}

/// At commas outside of brackets.
fn split(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0_usize;
    for c in text.chars() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if c == ',' && depth == 0 {
            parts.push(String::new());
        } else if let Some(last) = parts.last_mut() {
            last.push(c);
        }
    }
    parts.into_iter().map(|p| p.trim().to_owned()).filter(|p| !p.is_empty()).collect()
}

fn requirement(text: &str) -> Result<Requirement, String> {
    let bad = || format!("unable to parse requirement: {text:?}");
    let key = |k: &str| {
        let k = k.trim();
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if !k.is_empty() && k.chars().all(fits) { Ok(k.to_owned()) } else { Err(bad()) }
    };
    let set = |s: &str| {
        let inner = s.trim().strip_prefix('(').and_then(|s| s.strip_suffix(')')).ok_or_else(bad)?;
        Ok::<_, String>(inner.split(',').map(|v| v.trim().to_owned()).collect::<Vec<_>>())
    };
    if let Some((k, values)) = text.split_once(" notin ") {
        return Ok(Requirement::IsNot(key(k)?, set(values)?));
    }
    if let Some((k, values)) = text.split_once(" in ") {
        return Ok(Requirement::Is(key(k)?, set(values)?));
    }
    if let Some((k, v)) = text.split_once("!=") {
        return Ok(Requirement::IsNot(key(k)?, vec![v.trim().into()]));
    }
    if let Some((k, v)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Ok(Requirement::Is(key(k)?, vec![v.trim().into()]));
    }
    match text.strip_prefix('!') {
        Some(k) => Ok(Requirement::Absent(key(k)?)),
        None => Ok(Requirement::Exists(key(text)?)),
    }
}

fn field(text: &str) -> Result<(String, bool, String), String> {
    let parts = text
        .split_once("!=")
        .map(|(k, v)| (k, false, v))
        .or_else(|| text.split_once("==").or_else(|| text.split_once('=')).map(|(k, v)| (k, true, v)));
    let (path, equal, value) =
        parts.ok_or_else(|| format!("invalid selector: {text:?}; can't understand it"))?;
    Ok((path.trim().into(), equal, value.trim().into()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn selectors() {
        let object = json!({
            "metadata": {"name": "x", "labels": {"app": "web", "example.com/tier": "a"}}, "status": {"phase": "Running"},
        });
        for (labels, fields, fits) in [
            ("", "", true),
            ("app=web", "", true),
            ("app==web,example.com/tier in (a, b)", "", true),
            ("app!=web", "", false),
            ("other!=web", "", true),
            ("app notin (web,api)", "", false),
            ("app,!other", "", true),
            ("other", "", false),
            ("", "metadata.name=x", true),
            ("", "metadata.name!=x", false),
            ("app=web", "status.phase=Pending", false),
        ] {
            assert_eq!(Selector::parse(labels, fields).unwrap().matches(&object), fits, "{labels} {fields}");
        }
        assert!(Selector::parse("=,", "").is_err());
        assert!(Selector::parse("a in b", "").is_err());
        assert!(Selector::parse("", "name").is_err());
    }
}
