//! URL paths of the API server.

use std::fmt::Write as _;

use crate::Error;

/// Where a kind is served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resource {
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
}

/// Percent-encodes everything but the unreserved characters of RFC 3986.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for b in text.bytes() {
        if b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(b));
        } else {
            let _ = write!(out, "%{b:02X}");
        }
    }
    out
}

/// `?a=b&c=d`, or nothing.
pub(crate) fn query(pairs: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (k, v) in pairs {
        out.push(if out.is_empty() { '?' } else { '&' });
        let _ = write!(out, "{}={}", escape(k), escape(v));
    }
    out
}

/// A namespace: a DNS label.
pub(crate) fn check_namespace(ns: &str) -> Result<(), Error> {
    let ok = (1..=63).contains(&ns.len())
        && ns.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && !ns.starts_with('-')
        && !ns.ends_with('-');
    if ok {
        Ok(())
    } else {
        Err(Error::Invalid(format!("{ns:?} is not a namespace: use 1 to 63 of a-z, 0-9 and '-'")))
    }
}

/// A name that is safe as a path segment, in a grant and in a message. Narrower than Kubernetes for RBAC names,
/// which may hold any character but `/` and `%`.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let ok = (1..=253).contains(&name.len())
        && !matches!(name, "." | "..")
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b':' | b'@'));
    if ok { Ok(()) } else { Err(Error::Invalid(format!("{name:?} is not an object's name"))) }
}

/// `v1` or `group/v1`: the root of a group-version.
pub(crate) fn root(api_version: &str) -> Result<String, Error> {
    let part = |s: &str| {
        !s.is_empty()
            && s.len() <= 253
            && !s.starts_with('.')
            && s.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.'))
    };
    match api_version.split_once('/') {
        None if part(api_version) => Ok(format!("/api/{api_version}")),
        Some((group, version)) if part(group) && part(version) => Ok(format!("/apis/{group}/{version}")),
        _ => Err(Error::Invalid(format!("{api_version:?} is not an apiVersion; write v1 or apps/v1"))),
    }
}

/// The path of a collection (`name` is `None`) or of an object.
///
/// A namespace for a cluster-scoped kind is refused: a grant for that namespace must never reach such an object.
pub(crate) fn object(
    api_version: &str,
    kind: &str,
    resource: &Resource,
    namespace: Option<&str>,
    name: Option<&str>,
) -> Result<String, Error> {
    let mut out = root(api_version)?;
    match (resource.namespaced, namespace) {
        (true, Some(ns)) => {
            check_namespace(ns)?;
            let _ = write!(out, "/namespaces/{ns}");
        }
        (true, None) if name.is_some() => {
            return Err(Error::Invalid(format!("a {kind} lives in a namespace; name it")));
        }
        (false, Some(_)) => {
            return Err(Error::Invalid(format!("a {kind} is cluster-scoped; name no namespace")));
        }
        _ => {}
    }
    let _ = write!(out, "/{}", escape(&resource.plural));
    if let Some(name) = name {
        check_name(name)?;
        let _ = write!(out, "/{}", escape(name));
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_objects() {
        let pods = Resource { plural: "pods".into(), namespaced: true };
        let nodes = Resource { plural: "nodes".into(), namespaced: false };
        for (api, r, ns, name, want) in [
            ("v1", &pods, Some("a"), Some("p"), Ok("/api/v1/namespaces/a/pods/p")),
            ("apps/v1", &pods, Some("a"), None, Ok("/apis/apps/v1/namespaces/a/pods")),
            ("v1", &pods, None, None, Ok("/api/v1/pods")),
            (
                "rbac.authorization.k8s.io/v1",
                &nodes,
                None,
                Some("system:x"),
                Ok("/apis/rbac.authorization.k8s.io/v1/nodes/system%3Ax"),
            ),
            ("v1", &pods, None, Some("p"), Err("lives in a namespace")),
            ("v1", &nodes, Some("a"), Some("n"), Err("cluster-scoped")),
            ("v1", &pods, Some("../b"), Some("p"), Err("not a namespace")),
            ("v1", &pods, Some("a"), Some(".."), Err("not an object's name")),
            ("v1", &pods, Some("a"), Some("p/log"), Err("not an object's name")),
            ("v1", &pods, Some("a"), Some(""), Err("not an object's name")),
            ("../v1", &pods, Some("a"), Some("p"), Err("not an apiVersion")),
            ("a/b/c", &pods, Some("a"), Some("p"), Err("not an apiVersion")),
            ("v1?x", &pods, Some("a"), Some("p"), Err("not an apiVersion")),
        ] {
            match (object(api, "Thing", r, ns, name), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want),
                (Err(got), Err(want)) => assert!(got.to_string().contains(want), "{got}"),
                (got, want) => panic!("{api} {ns:?} {name:?}: {got:?}, wanted {want:?}"),
            }
        }
        assert_eq!(
            query(&[("labelSelector", "a=b,c in (d)"), ("limit", "5")]),
            "?labelSelector=a%3Db%2Cc%20in%20%28d%29&limit=5"
        );
    }
}
