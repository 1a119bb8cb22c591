//! Challenges of registries and the tokens they ask for (Docker's token specification; RFC 9110 §11).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use sutler_model::Secret;

/// What a 401 asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    Basic,
    Bearer { realm: String, service: Option<String>, scope: Option<String> },
}

/// Reads one `WWW-Authenticate` header. Unknown schemes are passed over.
pub(super) fn parse(header: &str) -> Option<Challenge> {
    let (scheme, rest) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let mut fields = parameters(rest);
    Some(Challenge::Bearer {
        realm: fields.remove("realm")?,
        service: fields.remove("service"),
        scope: fields.remove("scope"),
    })
}

/// `name="quoted, text", name=token`.
fn parameters(text: &str) -> HashMap<String, String> {
    let mut out = HashMap::new();
    let mut rest = text;
    while let Some((name, after)) = rest.split_once('=') {
        let name = name.trim_matches([' ', ',', '\t']).to_ascii_lowercase();
        let (value, tail) = match after.strip_prefix('"') {
            Some(quoted) => quoted_text(quoted),
            None => {
                let end = after.find(',').unwrap_or(after.len());
                let (v, t) = after.split_at(end);
                (v.trim().to_owned(), t)
            }
        };
        out.entry(name).or_insert(value);
        rest = tail;
    }
    out
}

fn quoted_text(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut chars = text.char_indices();
    while let Some((i, c)) = chars.next() {
        match c {
            '"' => return (value, text.get(i + 1..).unwrap_or_default()),
            '\\' => value.extend(chars.next().map(|(_, c)| c)),
            c => value.push(c),
        }
    }
    (value, "")
}

/// The body of a token endpoint.
#[derive(Deserialize)]
pub(super) struct TokenAnswer {
    token: Option<Secret>,
    access_token: Option<Secret>,
    expires_in: Option<u64>,
}

impl TokenAnswer {
    /// The token and how long it may be used: a little less than it lives.
    pub(super) fn take(self) -> Option<(Secret, Duration)> {
        let token = self.token.or(self.access_token).filter(|t| !t.expose().is_empty())?;
        // Docker's specification: 60 s where nothing is said.
        let lives = self.expires_in.unwrap_or(60).min(3600);
        Some((token, Duration::from_secs(lives - lives / 10)))
    }
}

/// How the next request to a repository is signed.
#[derive(Clone)]
pub(super) enum Ticket {
    Basic,
    Bearer(Secret),
}

/// What a request is for: registries may give a token for one and refuse it for the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Operation {
    Pull,
    List,
}

/// Tickets by repository and operation, until they expire.
#[derive(Default)]
pub(super) struct Tickets(Mutex<HashMap<(String, Operation), (Ticket, Instant)>>);

/// Bounds the memory of tickets; beyond it the map starts anew.
const MOST: usize = 1024;

impl Tickets {
    /// The operation's own, or else the other one's: most registries take it.
    pub(super) fn get(&self, repository: &str, operation: Operation) -> Option<Ticket> {
        let map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        [operation, Operation::Pull, Operation::List].into_iter().find_map(|o| {
            map.get(&(repository.to_owned(), o)).filter(|(_, until)| *until > now).map(|(t, _)| t.clone())
        })
    }
    pub(super) fn put(&self, repository: &str, operation: Operation, ticket: Ticket, lives: Duration) {
        let mut map = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if map.len() >= MOST {
            map.clear();
        }
        map.insert((repository.to_owned(), operation), (ticket, Instant::now() + lives));
    }
    pub(super) fn forget(&self, repository: &str, operation: Operation) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&(repository.to_owned(), operation));
    }
    /// The login changed: what came of the old one is worth nothing.
    pub(super) fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges() {
        let bearer = |realm: &str, service: Option<&str>, scope: Option<&str>| {
            Some(Challenge::Bearer {
                realm: realm.into(),
                service: service.map(Into::into),
                scope: scope.map(Into::into),
            })
        };
        for (header, expected) in [
            ("Basic realm=\"x\"", Some(Challenge::Basic)),
            ("basic", Some(Challenge::Basic)),
            (
                "Bearer realm=\"https://auth.example/token\",service=\"r\",scope=\"repository:a/b:pull\"",
                bearer("https://auth.example/token", Some("r"), Some("repository:a/b:pull")),
            ),
            ("bearer realm=https://a.example/t, service=r", bearer("https://a.example/t", Some("r"), None)),
            ("Bearer realm=\"a, \\\"b\\\"\"", bearer("a, \"b\"", None, None)),
            ("Bearer service=\"r\"", None),
            ("Digest realm=\"x\"", None),
            ("", None),
        ] {
            assert_eq!(parse(header), expected, "{header}");
        }
    }

    #[test]
    fn tickets() {
        let tickets = Tickets::default();
        let hour = Duration::from_secs(3600);
        let bearer = |text: &str| Ticket::Bearer(Secret::new(text));
        let shown = |operation| match tickets.get("a", operation) {
            Some(Ticket::Bearer(t)) => t.expose().to_owned(),
            _ => String::new(),
        };
        tickets.put("a", Operation::List, bearer("list"), hour);
        assert_eq!(
            (shown(Operation::Pull).as_str(), tickets.get("b", Operation::List).is_none()),
            ("list", true)
        );
        tickets.put("a", Operation::Pull, bearer("pull"), hour);
        assert_eq!((shown(Operation::Pull).as_str(), shown(Operation::List).as_str()), ("pull", "list"));
        tickets.forget("a", Operation::List);
        assert_eq!(shown(Operation::List), "pull");
        tickets.put("a", Operation::Pull, bearer("over"), Duration::ZERO);
        assert_eq!(shown(Operation::Pull), "", "it expired");
    }

    #[test]
    fn tokens() {
        let take = |s: &str| serde_json::from_str::<TokenAnswer>(s).unwrap().take();
        assert_eq!(take(r#"{"token":"a"}"#).unwrap().1, Duration::from_secs(54));
        assert_eq!(take(r#"{"access_token":"b","expires_in":300}"#).unwrap().0.expose(), "b");
        assert!(take(r#"{"token":""}"#).is_none());
        assert!(take("{}").is_none());
    }
}
