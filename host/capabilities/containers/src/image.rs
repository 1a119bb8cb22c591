//! Names of images, as Docker reads them, and patterns of them.

use std::fmt;
use std::str::FromStr;

use serde::Deserialize;
use sutler_model::{Digest, Owner, Pattern};

/// A name in its long form: `ksml:1` is `docker.io/library/ksml:1`, without a tag or digest `latest`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Image {
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) tag: Option<String>,
    pub(crate) digest: Option<Digest>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{found:?} is not the name of an image; write [HOST[:PORT]/]PATH[:TAG][@sha256:…] in lower case")]
pub struct InvalidImage {
    found: String,
}

/// What stands before the first slash is a registry where it has a dot or a port, or is localhost.
fn split_host(text: &str) -> (&str, &str) {
    match text.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => (host, path),
        _ => ("docker.io", text),
    }
}

/// Docker Hub under one name, and its own images in `library`.
fn normal(host: &str, path: &str) -> (String, String) {
    let host = host.to_ascii_lowercase();
    match host.as_str() {
        "docker.io" | "index.docker.io" | "registry-1.docker.io" => {
            let library = if path.contains('/') { "" } else { "library/" };
            ("docker.io".into(), format!("{library}{path}"))
        }
        _ => (host, path.to_owned()),
    }
}

fn split_tag(text: &str) -> (&str, Option<&str>) {
    match text.rsplit_once(':') {
        Some((path, tag)) if !tag.contains('/') => (path, Some(tag)),
        _ => (text, None),
    }
}

fn plain(text: &str, more: &[u8]) -> bool {
    !text.is_empty()
        && text.len() <= 255
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || more.contains(&b))
}

impl FromStr for Image {
    type Err = InvalidImage;
    fn from_str(s: &str) -> Result<Self, InvalidImage> {
        let bad = || InvalidImage { found: s.chars().take(200).collect() };
        let (name, digest) = match s.split_once('@') {
            Some((name, digest)) => (name, Some(digest.parse().map_err(|_| bad())?)),
            None => (s, None),
        };
        let (host, rest) = split_host(name);
        let (path, tag) = split_tag(rest);
        let (host, path) = normal(host, path);
        let edges = path.split('/').all(|p| {
            p.bytes().next().is_some_and(|b| b.is_ascii_alphanumeric())
                && p.bytes().last().is_some_and(|b| b.is_ascii_alphanumeric())
        });
        let tagged = tag.is_none_or(|t| {
            (1..=128).contains(&t.len())
                && !t.starts_with(['.', '-'])
                && t.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        });
        if !plain(&host, b".-:[]") || !plain(&path, b"._-/") || !edges || !tagged {
            return Err(bad());
        }
        let tag = match (tag, digest) {
            (None, None) => Some("latest".into()),
            (tag, _) => tag.map(str::to_owned),
        };
        Ok(Self { host, path, tag, digest })
    }
}

impl Image {
    pub fn host(&self) -> &str {
        &self.host
    }

    /// What a pull and an inspect name: a digest stands above a tag.
    pub(crate) fn pinned(&self) -> String {
        match (&self.digest, &self.tag) {
            (Some(d), _) => format!("{}/{}@{d}", self.host, self.path),
            (None, Some(t)) => format!("{}/{}:{t}", self.host, self.path),
            (None, None) => format!("{}/{}", self.host, self.path),
        }
    }
}

impl fmt::Display for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.host, self.path)?;
        if let Some(t) = &self.tag {
            write!(f, ":{t}")?;
        }
        match &self.digest {
            Some(d) => write!(f, "@{d}"),
            None => Ok(()),
        }
    }
}

/// `registry.example/ksml/*`, `axual/ksml:1.*`, `axual/ksml@sha256:…`. The registry is exact and read as Docker reads
/// it; path and tag may have `*` and placeholders, and `*` alone is all of Docker Hub. Without a tag every tag and digest is meant; with one, no digest.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ImagePattern {
    host: String,
    path: Pattern,
    tag: Option<Pattern>,
    digest: Option<Digest>,
}

/// Why a text is no pattern of images.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadImagePattern {
    #[error("image pattern {0:?}: the registry is named exactly; * and placeholders stand after its slash")]
    Host(String),
    #[error("image pattern {0:?}: {1}")]
    Part(String, String),
}

impl TryFrom<String> for ImagePattern {
    type Error = BadImagePattern;
    fn try_from(s: String) -> Result<Self, BadImagePattern> {
        let part = |e: String| BadImagePattern::Part(s.clone(), e);
        let (name, digest) = match s.split_once('@') {
            Some((name, d)) => {
                (name, Some(d.parse().map_err(|e: sutler_model::InvalidName| part(e.to_string()))?))
            }
            None => (s.as_str(), None),
        };
        let (host, rest) = split_host(name);
        if host.contains(['*', '{']) {
            return Err(BadImagePattern::Host(s.clone()));
        }
        let (path, tag) = split_tag(rest);
        // All of a registry, Docker Hub's own images or not.
        let (host, path) =
            if path == "*" { (normal(host, "a/b").0, path.to_owned()) } else { normal(host, path) };
        let pattern = |p: &str| p.parse::<Pattern>().map_err(|e| part(e.to_string()));
        Ok(Self { host, path: pattern(&path)?, tag: tag.map(pattern).transpose()?, digest })
    }
}

impl ImagePattern {
    pub(crate) fn covers(&self, image: &Image, owner: &Owner) -> bool {
        self.host == image.host
            && self.path.matches(&image.path, owner)
            && match (&self.digest, &self.tag, &image.digest) {
                (Some(wanted), _, found) => found.as_ref() == Some(wanted),
                // Docker takes no notice of a tag beside a digest.
                (None, Some(_), Some(_)) => false,
                (None, Some(tag), None) => image.tag.as_deref().is_some_and(|t| tag.matches(t, owner)),
                (None, None, _) => true,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_docker_reads_them() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (name, long) in [
            ("ksml", "docker.io/library/ksml:latest".to_owned()),
            ("axual/ksml:1.0", "docker.io/axual/ksml:1.0".into()),
            ("index.docker.io/axual/ksml:1", "docker.io/axual/ksml:1".into()),
            ("localhost/ksml:1", "localhost/ksml:1".into()),
            ("Registry.example:5000/a/b", "registry.example:5000/a/b:latest".into()),
            (&format!("axual/ksml@{digest}"), format!("docker.io/axual/ksml@{digest}")),
        ] {
            assert_eq!(name.parse::<Image>().map(|i| i.to_string()), Ok(long), "{name}");
        }
        for bad in ["", "A/b", "a//b", "a:", "a@sha256:0", "a b", "-a", "a/../b", "user:pw@host/a"] {
            assert!(bad.parse::<Image>().is_err(), "{bad}");
        }
    }

    #[test]
    fn patterns_name_the_registry_exactly() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let pinned = format!("axual/ksml:1@{digest}");
        for (pattern, image, fits) in [
            ("axual/ksml", "docker.io/axual/ksml:9", true),
            ("axual/ksml", pinned.as_str(), true),
            ("axual/ksml:1", "axual/ksml:1", true),
            ("axual/ksml:1", "axual/ksml:2", false),
            ("axual/ksml:1", pinned.as_str(), false),
            ("axual/ksml:1.*", "axual/ksml:1.2", true),
            ("axual/*", "axual/a/b", true),
            ("axual/*", "registry.example/axual/ksml", false),
            ("registry.example/*", "registry.example:5000/a", false),
            ("registry.example/*", "evil.example/registry.example/a", false),
            ("*", "ubuntu", true),
            ("*", "axual/ksml", true),
            ("*", "registry.example/ksml", false),
            ("docker.io/*", "axual/ksml", true),
            ("ksml-*", "ksml-a", true),
            ("ksml-*", "ksml-a/b", false),
        ] {
            let p = ImagePattern::try_from(pattern.to_owned()).unwrap();
            assert_eq!(p.covers(&image.parse().unwrap(), &Owner::nobody()), fits, "{pattern} {image}");
        }
        let exact = ImagePattern::try_from(format!("axual/ksml@{digest}")).unwrap();
        assert!(exact.covers(&pinned.parse().unwrap(), &Owner::nobody()));
        assert!(!exact.covers(&"axual/ksml:1".parse().unwrap(), &Owner::nobody()));
        for bad in ["*.example/a", "{tenant}.example/a", "a:{nope}"] {
            assert!(ImagePattern::try_from(bad.to_owned()).is_err(), "{bad}");
        }
    }
}
