//! Which plugin serves which pair: decided here as a function of values.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use sutler_model::Pair;

use crate::entry::Entry;

/// What one file of the folder came to.
#[derive(Debug, Clone)]
pub struct FileState {
    /// What serves under this name, if anything does.
    pub entry: Option<Arc<Entry>>,
    /// Why the file is not (or its newest content not) what serves.
    pub reason: Option<String>,
}

/// Everything that serves at one moment. Looked up by one atomic load.
#[derive(Debug, Default)]
pub struct Snapshot {
    pub files: BTreeMap<String, FileState>,
    by_pair: HashMap<Pair, Arc<Entry>>,
}

impl Snapshot {
    pub fn get(&self, pair: &Pair) -> Option<&Arc<Entry>> {
        self.by_pair.get(pair)
    }
    /// Every served pair with its plugin, in the order of pairs.
    pub fn pairs(&self) -> Vec<(&Pair, &Arc<Entry>)> {
        let mut out: Vec<_> = self.by_pair.iter().collect();
        out.sort_by_key(|(p, _)| (*p).clone());
        out
    }

    /// The snapshot with each pair given to one plugin. `fixed` is `[pairs]`; what `self` serves keeps its pairs.
    /// A refused newcomer leaves its own predecessor in place.
    pub(crate) fn of(
        mut files: BTreeMap<String, FileState>,
        before: &Self,
        fixed: &BTreeMap<Pair, String>,
    ) -> Self {
        let owners = before.by_pair.iter().map(|(p, e)| (p.clone(), e.plugin.name.to_string())).collect();
        loop {
            let claims = files
                .iter()
                .filter_map(|(n, f)| f.entry.as_ref().map(|e| (n.clone(), pairs_of(e))))
                .collect();
            let refusals = refusals(&claims, &owners, fixed);
            if refusals.is_empty() {
                break;
            }
            for (name, why) in refusals {
                let older = before.files.get(&name).and_then(|f| f.entry.clone());
                if let Some(file) = files.get_mut(&name) {
                    let same = |o: &Arc<Entry>| file.entry.as_ref().is_some_and(|e| Arc::ptr_eq(e, o));
                    file.entry = older.filter(|o| !same(o));
                    file.reason.get_or_insert(why);
                }
            }
        }
        let served = files.values().filter_map(|f| f.entry.clone());
        let by_pair = served.flat_map(|e| pairs_of(&e).into_iter().map(move |p| (p, e.clone()))).collect();
        Self { files, by_pair }
    }
}

fn pairs_of(e: &Entry) -> Vec<Pair> {
    let mut v: Vec<Pair> = e.pairs.keys().cloned().collect();
    v.sort();
    v
}

/// Which claimants are refused, and why. A plugin is refused as a whole.
///
/// A pair fixed by `[pairs]` goes to the plugin named there. A pair that a plugin serves already stays with it.
/// Of several claimants of a pair that nobody owns none serves, since any choice would depend on file names.
fn refusals(
    claims: &BTreeMap<String, Vec<Pair>>,
    owners: &HashMap<Pair, String>,
    fixed: &BTreeMap<Pair, String>,
) -> BTreeMap<String, String> {
    let mut claimants: BTreeMap<&Pair, Vec<&String>> = BTreeMap::new();
    for (name, pairs) in claims {
        for p in pairs {
            claimants.entry(p).or_default().push(name);
        }
    }
    let mut out = BTreeMap::new();
    for (pair, names) in claimants {
        if let Some(owner) = fixed.get(pair) {
            for n in names.iter().filter(|n| **n != owner) {
                out.entry((*n).clone())
                    .or_insert_with(|| format!("it claims {pair}, which [pairs] gives to plugin {owner}"));
            }
        } else if let Some(owner) = owners.get(pair).filter(|o| names.contains(o)) {
            for n in names.iter().filter(|n| **n != owner) {
                out.entry((*n).clone()).or_insert_with(|| {
                    format!("it claims {pair}, which plugin {owner} serves; remove one of them, or give the pair to one in [pairs]")
                });
            }
        } else if names.len() > 1 {
            let all = names.iter().map(|n| n.as_str()).collect::<Vec<_>>().join(" and ");
            for n in names {
                out.entry(n.clone()).or_insert_with(|| {
                    format!("plugins {all} all claim {pair} and none of them owned it before, so none serves; give it to one in [pairs]")
                });
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(claims: &[(&str, &str)], owners: &[(&str, &str)], fixed: &[(&str, &str)]) -> Vec<String> {
        let mut all: BTreeMap<String, Vec<Pair>> = BTreeMap::new();
        for (n, p) in claims {
            all.entry((*n).into()).or_default().push(p.parse().unwrap());
        }
        let own = |x: &[(&str, &str)]| {
            x.iter().map(|(p, n)| (p.parse::<Pair>().unwrap(), (*n).to_owned())).collect::<Vec<_>>()
        };
        refusals(&all, &own(owners).into_iter().collect(), &own(fixed).into_iter().collect())
            .into_keys()
            .collect()
    }

    #[test]
    fn who_is_refused() {
        let none: Vec<String> = vec![];
        assert_eq!(check(&[("a", "tool/x"), ("b", "tool/y")], &[], &[]), none);
        assert_eq!(check(&[("a", "tool/x"), ("b", "tool/x")], &[], &[]), ["a", "b"]);
        assert_eq!(check(&[("a", "tool/x"), ("b", "tool/x")], &[("tool/x", "b")], &[]), ["a"]);
        assert_eq!(check(&[("a", "tool/x"), ("b", "tool/x")], &[("tool/x", "b")], &[("tool/x", "a")]), ["b"]);
        // An owner that is gone no longer counts.
        assert_eq!(check(&[("a", "tool/x")], &[("tool/x", "gone")], &[]), none);
        // A plugin is refused as a whole, whatever else it claims.
        assert_eq!(
            check(&[("a", "tool/x"), ("a", "tool/z"), ("b", "tool/x")], &[("tool/x", "b")], &[]),
            ["a"]
        );
    }
}
