//! Who may pull.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// How callers show who they are.
#[derive(Debug, Clone, Default)]
pub enum Auth {
    #[default]
    None,
    Basic {
        user: String,
        password: String,
    },
    /// Tokens for one repository and operation, from `/token`, which wants Basic; with an empty user it gives them
    /// to anybody.
    Bearer {
        user: String,
        password: String,
        expires: Duration,
    },
}

/// The tokens given out: what for, and until when.
#[derive(Default)]
pub(crate) struct Tokens {
    live: BTreeMap<String, (String, Instant)>,
    pub(crate) issued: usize,
}

impl Tokens {
    pub(crate) fn issue(&mut self, scope: &str, expires: Duration) -> String {
        let token = uuid::Uuid::new_v4().to_string();
        self.live.insert(token.clone(), (scope.into(), Instant::now() + expires));
        self.issued += 1;
        token
    }

    fn allows(&self, token: &str, repository: &str, operation: &str) -> bool {
        let Some((scope, until)) = self.live.get(token) else { return false };
        // `repository:NAME:pull,push`; several scopes are separated by spaces.
        let fits = |s: &str| {
            s.strip_prefix("repository:").and_then(|s| s.rsplit_once(':')).is_some_and(
                |(name, operations)| name == repository && operations.split(',').any(|o| o == operation),
            )
        };
        Instant::now() < *until && (repository.is_empty() || scope.split(' ').any(fits))
    }
}

/// Whether an Authorization header is Basic with this user and password.
fn basic(header: &str, user: &str, password: &str) -> bool {
    let Some((scheme, encoded)) = header.split_once(' ') else { return false };
    scheme.eq_ignore_ascii_case("basic")
        && STANDARD.decode(encoded.trim()).is_ok_and(|d| d == format!("{user}:{password}").into_bytes())
}

impl Auth {
    /// Whether the header allows an operation on a repository (empty for none).
    pub(crate) fn allows(&self, tokens: &Tokens, header: &str, repository: &str, operation: &str) -> bool {
        match self {
            Self::None => true,
            Self::Basic { user, password } => basic(header, user, password),
            Self::Bearer { .. } => header.split_once(' ').is_some_and(|(s, t)| {
                s.eq_ignore_ascii_case("bearer") && tokens.allows(t.trim(), repository, operation)
            }),
        }
    }

    /// The WWW-Authenticate header for a refusal.
    pub(crate) fn challenge(&self, base: &str, repository: &str, operation: &str) -> Option<String> {
        let scope = if operation == "push" { "pull,push" } else { operation };
        match self {
            Self::None => None,
            Self::Basic { .. } => Some("Basic realm=\"sutler test registry\"".into()),
            Self::Bearer { .. } if repository.is_empty() => {
                Some(format!("Bearer realm=\"{base}/token\",service=\"sutler-test-registry\""))
            }
            Self::Bearer { .. } => Some(format!(
                "Bearer realm=\"{base}/token\",service=\"sutler-test-registry\",scope=\"repository:{repository}:{scope}\""
            )),
        }
    }

    /// A token for a scope, where `/token` gives the caller one.
    pub(crate) fn token(&self, tokens: &mut Tokens, header: &str, scope: &str) -> Option<(String, Duration)> {
        let Self::Bearer { user, password, expires } = self else { return None };
        (user.is_empty() || basic(header, user, password)).then(|| (tokens.issue(scope, *expires), *expires))
    }
}
