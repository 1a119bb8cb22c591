//! Version ranges as Helm reads them: `^1.2`, `~1`, `>=1 <2`, `1.x`, `1.2 - 1.4`, `||`. A bare `1.2` is `1.2.x`,
//! a bare `1.2.3` is exactly that; pre-releases fit only a range that names one.

use semver::{BuildMetadata, Prerelease, Version};

/// Alternatives of conjunctions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Range(Vec<Vec<Bound>>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bound {
    op: Op,
    version: Version,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Eq,
    Ne,
    /// Another major version.
    NeMajor,
    /// Another major or minor version.
    NeMinor,
    Gt,
    Ge,
    Lt,
    Le,
    /// Before it and its pre-releases.
    Below,
    /// It and all after it, with its pre-releases.
    Beyond,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a version nor a range; write 1.2.3, ^1.2, ~1.2, 1.x or >=1.0 <2.0")]
pub struct BadRange(pub String);

/// A version of which parts may be missing or `x`.
struct Partial {
    major: Option<u64>,
    minor: Option<u64>,
    patch: Option<u64>,
    pre: Prerelease,
}

fn version(major: u64, minor: u64, patch: u64, pre: Prerelease) -> Version {
    Version { major, minor, patch, pre, build: BuildMetadata::EMPTY }
}

impl Partial {
    fn parse(s: &str) -> Option<Self> {
        let s = s.strip_prefix('v').unwrap_or(s);
        let (s, build) = s.split_once('+').map_or((s, None), |(a, b)| (a, Some(b)));
        build.map_or(Some(BuildMetadata::EMPTY), |b| BuildMetadata::new(b).ok())?;
        let (core, pre) = s.split_once('-').map_or((s, None), |(a, b)| (a, Some(b)));
        let mut parts = core.split('.');
        let mut number = |first: bool| -> Option<Option<u64>> {
            match parts.next() {
                None => (!first).then_some(None),
                Some("x" | "X" | "*") => Some(None),
                Some(n) if !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()) => n.parse().ok().map(Some),
                Some(_) => None,
            }
        };
        let (major, minor, patch) = (number(true)?, number(false)?, number(false)?);
        // Nothing after a wildcard: `1.x.3` means nothing.
        if parts.next().is_some()
            || (major.is_none() && minor.is_some())
            || (minor.is_none() && patch.is_some())
        {
            return None;
        }
        let pre = pre.map_or(Some(Prerelease::EMPTY), |p| Prerelease::new(p).ok())?;
        Some(Self { major, minor, patch, pre })
    }

    fn floor(&self) -> Version {
        version(self.major.unwrap_or(0), self.minor.unwrap_or(0), self.patch.unwrap_or(0), self.pre.clone())
    }

    /// The first version after all that the given parts stand for; `None` for every version.
    fn after(&self) -> Option<Version> {
        let none = Prerelease::EMPTY;
        match (self.major, self.minor, self.patch) {
            (None, _, _) => None,
            (Some(a), None, _) => Some(version(a.saturating_add(1), 0, 0, none)),
            (Some(a), Some(b), None) => Some(version(a, b.saturating_add(1), 0, none)),
            (Some(a), Some(b), Some(c)) => Some(version(a, b, c.saturating_add(1), none)),
        }
    }

    fn between(&self, end: Option<Version>) -> Vec<Bound> {
        let mut out = vec![Bound { op: Op::Ge, version: self.floor() }];
        out.extend(end.map(|version| Bound { op: Op::Below, version }));
        out
    }

    fn caret(&self) -> Vec<Bound> {
        let none = Prerelease::EMPTY;
        let end = match (self.major, self.minor, self.patch) {
            (Some(0), Some(0), Some(c)) => Some(version(0, 0, c.saturating_add(1), none)),
            (Some(0), Some(b), _) if b > 0 || self.patch.is_none() => {
                Some(version(0, b.saturating_add(1), 0, none))
            }
            (Some(a), _, _) => Some(version(a.saturating_add(1), 0, 0, none)),
            (None, ..) => None,
        };
        self.between(end)
    }

    fn tilde(&self) -> Vec<Bound> {
        let end = match (self.major, self.minor) {
            (Some(a), Some(b)) => Some(version(a, b.saturating_add(1), 0, Prerelease::EMPTY)),
            (Some(a), None) => Some(version(a.saturating_add(1), 0, 0, Prerelease::EMPTY)),
            (None, _) => None,
        };
        self.between(end)
    }

    fn bounds(&self, op: &str) -> Option<Vec<Bound>> {
        let whole = self.patch.is_some();
        let one = |op, version| Some(vec![Bound { op, version }]);
        match op {
            "^" => Some(self.caret()),
            "~" | "~>" => Some(self.tilde()),
            "" | "=" | "==" if whole => one(Op::Eq, self.floor()),
            "" | "=" | "==" => Some(self.between(self.after())),
            "!=" if whole => one(Op::Ne, self.floor()),
            "!=" if self.minor.is_some() => one(Op::NeMinor, self.floor()),
            "!=" if self.major.is_some() => one(Op::NeMajor, self.floor()),
            ">" if whole => one(Op::Gt, self.floor()),
            // `>1` is beyond every 1.y.z.
            ">" => self.after().and_then(|v| one(Op::Beyond, v)),
            ">=" | "=>" => one(Op::Ge, self.floor()),
            "<" => one(Op::Lt, self.floor()),
            "<=" | "=<" if whole => one(Op::Le, self.floor()),
            "<=" | "=<" => self.after().map_or(Some(Vec::new()), |v| one(Op::Below, v)),
            _ => None,
        }
    }
}

const fn core(v: &Version) -> (u64, u64, u64) {
    (v.major, v.minor, v.patch)
}

fn conjunction(text: &str) -> Option<Vec<Bound>> {
    if let Some((low, high)) = text.split_once(" - ") {
        let mut out = Partial::parse(low.trim())?.bounds(">=")?;
        out.extend(Partial::parse(high.trim())?.bounds("<=")?);
        return Some(out);
    }
    let mut out = Vec::new();
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let start = rest.find(|c: char| !"^~=!<>".contains(c))?;
        let (op, after) = rest.split_at(start);
        let after = after.trim_start();
        let end = after.find([' ', ',']).unwrap_or(after.len());
        let (word, tail) = after.split_at(end);
        out.extend(Partial::parse(word)?.bounds(op)?);
        rest = tail.trim_start_matches([' ', ',']);
    }
    Some(out)
}

impl std::str::FromStr for Range {
    type Err = BadRange;
    fn from_str(s: &str) -> Result<Self, BadRange> {
        let bad = || BadRange(s.chars().take(80).collect());
        if s.len() > 200 {
            return Err(bad());
        }
        s.split("||").map(|part| conjunction(part).ok_or_else(bad)).collect::<Result<_, _>>().map(Self)
    }
}

impl Range {
    /// Every stable version.
    pub fn any() -> Self {
        Self(vec![Vec::new()])
    }

    pub fn matches(&self, version: &Version) -> bool {
        self.0.iter().any(|all| {
            let pre_named = all.iter().any(|b| !b.version.pre.is_empty());
            (version.pre.is_empty() || pre_named)
                && all.iter().all(|b| {
                    let order = version.cmp_precedence(&b.version);
                    match b.op {
                        Op::Eq => order.is_eq(),
                        Op::Ne => order.is_ne(),
                        Op::NeMajor => version.major != b.version.major,
                        Op::NeMinor => (version.major, version.minor) != (b.version.major, b.version.minor),
                        Op::Gt => order.is_gt(),
                        Op::Ge => order.is_ge(),
                        Op::Below => core(version) < core(&b.version),
                        Op::Beyond => core(version) >= core(&b.version),
                        Op::Lt => order.is_lt(),
                        Op::Le => order.is_le(),
                    }
                })
        })
    }

    /// The tag of the highest version that fits. Helm knows strict versions only, so other spellings (`v1.2`) count
    /// where no strict one fits; tags that are no versions are passed over.
    pub fn highest<'a>(&self, tags: impl IntoIterator<Item = &'a str> + Clone) -> Option<&'a str> {
        self.highest_of(tags.clone(), |text| Version::parse(text).ok())
            .or_else(|| self.highest_of(tags, lenient))
    }

    fn highest_of<'a>(
        &self,
        tags: impl IntoIterator<Item = &'a str>,
        read: impl Fn(&str) -> Option<Version>,
    ) -> Option<&'a str> {
        tags.into_iter()
            .filter_map(|tag| Some((read(&super::reference::version_of(tag))?, tag)))
            .filter(|(v, _)| self.matches(v))
            .max_by(|(a, x), (b, y)| a.cmp(b).then(x.cmp(y)))
            .map(|(_, tag)| tag)
    }
}

/// A version as Helm reads that of a chart: `v1.2` is 1.2.0.
fn lenient(text: &str) -> Option<Version> {
    let text = text.strip_prefix('v').unwrap_or(text);
    let (rest, build) = text.split_once('+').map_or((text, ""), |(a, b)| (a, b));
    let (core, pre) = rest.split_once('-').map_or((rest, ""), |(a, b)| (a, b));
    let mut parts = core.split('.').map(|n| n.bytes().all(|b| b.is_ascii_digit()).then(|| n.parse().ok())?);
    let mut next = || parts.next().unwrap_or(Some(0));
    let (major, minor, patch) = (next()?, next()?, next()?);
    if parts.next().is_some()
        || (text.contains('+') && build.is_empty())
        || (rest.contains('-') && pre.is_empty())
    {
        return None;
    }
    let (pre, build) = (Prerelease::new(pre).ok()?, BuildMetadata::new(build).ok()?);
    Some(Version { major, minor, patch, pre, build })
}

/// Whether a chart may have this version.
pub(super) fn is_version(text: &str) -> bool {
    lenient(text).is_some()
}

/// Whether the text is one whole version, so that its tag needs no list.
pub(super) fn is_exact(text: &str) -> bool {
    Version::parse(text.strip_prefix('v').unwrap_or(text)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAGS: [&str; 18] = [
        "0.0.3",
        "0.0.4",
        "0.1.0",
        "0.1.5",
        "0.2.0",
        "1.0.0",
        "1.1.9",
        "1.2.0",
        "1.2.3",
        "1.2.10",
        "1.2.3-alpha",
        "1.3.0-rc.1",
        "1.3.0",
        "1.10.0-beta",
        "2.0.0-beta.2",
        "2.0.0_build.7",
        "latest",
        "v3",
    ];

    /// What Helm's own library (Masterminds/semver 3.5) chooses, but for `v3`.
    const CHOICES: &[(&str, Option<&str>)] = &[
        ("*", Some("2.0.0_build.7")),
        ("^1.2", Some("1.3.0")),
        ("^1.2.0", Some("1.3.0")),
        ("~1.2", Some("1.2.10")),
        ("~1", Some("1.3.0")),
        ("1.x", Some("1.3.0")),
        ("1.2.x", Some("1.2.10")),
        ("1.2", Some("1.2.10")),
        ("1", Some("1.3.0")),
        (">=1 <2", Some("1.3.0")),
        (">= 1.0, < 1.2", Some("1.1.9")),
        (">1.2.3 <1.3", Some("1.2.10")),
        ("1.0 - 1.2", Some("1.2.10")),
        ("1.0.0 - 1.2.0", Some("1.2.0")),
        ("<1", Some("0.2.0")),
        ("<=1.2", Some("1.2.10")),
        (">1", Some("2.0.0_build.7")),
        (">2", Some("v3")),
        ("3.x", Some("v3")),
        (">=1 !=1.3.0 <2", Some("1.2.10")),
        ("^0.1", Some("0.1.5")),
        ("^0.1.0", Some("0.1.5")),
        ("1.2.3", Some("1.2.3")),
        ("=1.2.3", Some("1.2.3")),
        ("2.0.0", Some("2.0.0_build.7")),
        ("~2.0.0-beta", Some("2.0.0_build.7")),
        (">=1.3.0-0 <1.3.0", Some("1.3.0-rc.1")),
        (">=2.0.0-0 <2.0.0", Some("2.0.0-beta.2")),
        ("^4", None),
        ("~1.0.1", None),
        ("0.2 || 1.0", Some("1.0.0")),
        ("^9 || ^0.2", Some("0.2.0")),
        ("^0", Some("0.2.0")),
        ("^0.0", Some("0.0.4")),
        ("^0.0.3", Some("0.0.3")),
        ("~0", Some("0.2.0")),
        (">1.2", Some("2.0.0_build.7")),
        ("<1.2", Some("1.1.9")),
        ("!=1.2", Some("2.0.0_build.7")),
        ("!=1.2 <1.3", Some("1.1.9")),
        ("~>1.2", Some("1.2.10")),
        ("=>1.2", Some("2.0.0_build.7")),
        ("=<1.2", Some("1.2.10")),
        ("~1.2.3-alpha", Some("1.2.10")),
        ("^1.2.3-alpha", Some("1.10.0-beta")),
        (">1.2.3-alpha <1.2.4", Some("1.2.3")),
        ("x", Some("2.0.0_build.7")),
        ("X", Some("2.0.0_build.7")),
        ("1.*", Some("1.3.0")),
        (">=0.0.0-0", Some("2.0.0_build.7")),
        ("^1.2.3 || ~0.1", Some("1.3.0")),
        ("v1.2", Some("1.2.10")),
        ("^v1.2", Some("1.3.0")),
        (">= 1.2", Some("2.0.0_build.7")),
        ("> 1.2 < 1.3", None),
        (">=1.2,<1.3", Some("1.2.10")),
        ("<=1", Some("1.3.0")),
        ("<=1.x", Some("1.3.0")),
        (">=1.x", Some("2.0.0_build.7")),
        (">1.x", Some("2.0.0_build.7")),
        ("<1.x", Some("0.2.0")),
        ("1.2.3+b", Some("1.2.3")),
        ("~1.x", Some("1.3.0")),
        ("^1.x", Some("1.3.0")),
        ("1.3.0-rc.1", Some("1.3.0-rc.1")),
        ("=1.3.0-rc.1", Some("1.3.0-rc.1")),
        (">1.3.0-rc.0", Some("2.0.0_build.7")),
        ("^1.2-beta", Some("1.10.0-beta")),
        (">=1.2-0", Some("2.0.0_build.7")),
    ];

    #[test]
    fn the_highest_that_fits() {
        for (range, tag) in CHOICES {
            assert_eq!(range.parse::<Range>().unwrap().highest(TAGS), *tag, "{range}");
        }
        assert_eq!(Range::any().highest(["1.0.0-rc.1", "0.9.0"]), Some("0.9.0"), "stable only");
    }

    #[test]
    fn texts_that_are_no_range() {
        for text in [
            "",
            "latest",
            "^",
            ">=",
            "1.2.3.4",
            "1.x.3",
            "x.1",
            "!1",
            "1.2-r_c",
            "^^1",
            "|| 1",
            "1 || ",
            &"1 ".repeat(200),
        ] {
            assert!(text.parse::<Range>().is_err(), "{text}");
        }
    }

    #[test]
    fn versions_of_charts() {
        for good in ["1.2.3", "v1.2.3", "1", "1.2", "1.2.3-rc.1+b.2", "1.2-rc", "v2+b"] {
            assert!(is_version(good), "{good}");
        }
        for bad in
            ["", "v", "abc", "1.2.3.4", "1..2", "1.2.x", "-1", "1.2.3-", "1.2.3+", "1 2", "../1", "1.2.3-a_b"]
        {
            assert!(!is_version(bad), "{bad}");
        }
    }

    #[test]
    fn exact_versions() {
        assert!(is_exact("1.2.3") && is_exact("v1.2.3-rc.1+b") && !is_exact("1.2") && !is_exact("^1.2.3"));
    }
}
