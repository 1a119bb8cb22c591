//! Names derived from the owner of a call, so that two owners never share one.

use sha2::{Digest, Sha256};

use crate::wit::sutler::provisioner::types::{Application, Kind, Pair as WirePair};
use crate::{Error, Result};

/// What a plugin handles: `Pair::new(Kind::Deployment, "ksml")`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pair {
    pub kind: Kind,
    pub type_name: &'static str,
}

impl Pair {
    pub const fn new(kind: Kind, type_name: &'static str) -> Self {
        Self { kind, type_name }
    }
    pub(crate) fn is(&self, wire: &WirePair) -> bool {
        self.kind == wire.kind && self.type_name == wire.type_
    }
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.kind {
            Kind::Target => "target",
            Kind::Tool => "tool",
            Kind::Deployment => "deployment",
            Kind::ManagedResource => "managed-resource",
            Kind::ConsumedResource => "consumed-resource",
        };
        write!(f, "{kind}/{}", self.type_name)
    }
}

/// The hash that the host's grants mean by `{hash}`, in 16 hex digits: of every part with its length, so that
/// `a-b` with `c` and `a` with `b-c` differ.
pub(crate) fn owner_hash(application: &Application, pair: Pair) -> String {
    let mut text = String::with_capacity(128);
    let parts = [
        application.instance.as_ref(),
        application.tenant.as_ref(),
        Some(&application.environment),
        Some(&application.id),
    ];
    for part in parts {
        match part {
            Some(p) => {
                text.push_str(&p.len().to_string());
                text.push(':');
                text.push_str(p);
            }
            None => text.push('-'),
        }
        text.push('/');
    }
    text.push_str(&pair.to_string());
    hex16(&text)
}

fn hex16(text: &str) -> String {
    let digit = |n: u8| char::from(if n < 10 { b'0' + n } else { b'a' + n - 10 });
    Sha256::digest(text.as_bytes()).iter().take(8).flat_map(|b| [digit(b >> 4), digit(b & 15)]).collect()
}

/// `<application>-<environment>-<hash>`, never longer than `max`: what does not fit is cut from the readable part.
/// The hash covers instance, tenant, environment, application, pair and resource.
pub(crate) fn name(application: &Application, pair: Pair, resource: &str, max: usize) -> String {
    let mut text = owner_hash(application, pair);
    text.push('/');
    text.push_str(&resource.len().to_string());
    text.push(':');
    text.push_str(resource);
    let hash = hex16(&text);
    let hash = hash.get(..8).unwrap_or(&hash);
    let readable = format!("{}-{}", application.id, application.environment);
    let room = max.saturating_sub(hash.len() + 1);
    let kept: String = readable.chars().take(room).collect();
    let kept = kept.trim_end_matches('-');
    // A Kubernetes name begins with a letter where it names a service.
    let kept = if kept.starts_with(|c: char| c.is_ascii_digit()) {
        format!(
            "a{}",
            kept.get(..kept.len().min(room.saturating_sub(1))).unwrap_or_default().trim_end_matches('-')
        )
    } else {
        kept.to_owned()
    };
    if kept.is_empty() { format!("a{}", hash.get(..7).unwrap_or(hash)) } else { format!("{kept}-{hash}") }
}

/// Fills `{tenant}`, `{instance}`, `{environment}`, `{application}` and `{hash}` as the host's grants do.
pub(crate) fn fill(pattern: &str, application: &Application, pair: Pair) -> Result<String> {
    let bad = |why: String| Error::new("invalid-config", format!("the pattern {pattern:?} {why}"));
    let missing = |what: &str| {
        Error::new(
            format!("{what}-required"),
            format!(
                "the name {pattern:?} needs the {what}, and the call names none; call with application.{what}"
            ),
        )
    };
    let (mut out, mut rest, mut parts) = (String::new(), pattern, 0);
    while let Some((before, from)) = rest.split_once('{') {
        let (what, after) =
            from.split_once('}').ok_or_else(|| bad("has a brace that is not closed".into()))?;
        out.push_str(before);
        parts += usize::from(what != "hash");
        match what {
            "tenant" => out.push_str(application.tenant.as_deref().ok_or_else(|| missing(what))?),
            "instance" => out.push_str(application.instance.as_deref().ok_or_else(|| missing(what))?),
            "environment" => out.push_str(&application.environment),
            "application" => out.push_str(&application.id),
            "hash" => out.push_str(owner_hash(application, pair).get(..8).unwrap_or_default()),
            _ => return Err(bad(format!("has the unknown placeholder {{{what}}}"))),
        }
        rest = after;
    }
    out.push_str(rest);
    if parts > 1 && !pattern.contains("{hash}") {
        return Err(bad(
            "has two placeholders without {hash}, so two owners could share a name; add {hash}".into()
        ));
    }
    Ok(out)
}
