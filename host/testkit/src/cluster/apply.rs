//! Server-side apply without schemas.

use serde_json::Value;

use super::fields::{Path, Step, display, get, leaves, merge, remove};
use super::managed::{Operation, Owned, Owners};

/// What an apply makes of an object.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) object: Value,
    pub(crate) owners: Owners,
}

/// Applies `wanted` as `manager` to the live object (`Value::Null` for none). `owned` says when and in which version.
///
/// # Errors
/// The conflicts, each (`"manager" using apps/v1`, field), when others own fields that would change and `force` is off.
pub(crate) fn apply(
    live: &Value,
    owners: &Owners,
    wanted: &Value,
    manager: &str,
    force: bool,
    owned: Owned,
) -> Result<Applied, Vec<(String, String)>> {
    let me = (manager.to_owned(), Operation::Apply);
    let mine = leaves(wanted);
    let mut owners = owners.clone();
    let before = owners.remove(&me);

    let mut conflicts = Vec::new();
    for ((other, operation), theirs) in &mut owners {
        let contested: Vec<Path> =
            theirs.fields.iter().filter(|theirs| contests(live, wanted, theirs)).cloned().collect();
        if force {
            theirs.fields.retain(|p| !contested.contains(p));
            continue;
        }
        let how = if *operation == Operation::Apply {
            String::new()
        } else {
            format!(" using {}", theirs.api_version)
        };
        conflicts.extend(contested.iter().map(|p| (format!("{other:?}{how}"), display(p))));
    }
    if !conflicts.is_empty() {
        return Err(conflicts);
    }

    let mut object = live.clone();
    merge(&mut object, wanted);
    let dropped =
        before.as_ref().map(|b| b.fields.difference(&mine).cloned().collect::<Vec<_>>()).unwrap_or_default();
    // In order, so that an item goes with the fields in it.
    for path in &dropped {
        if !names_item(path) && !still_owned(&owners, &mine, path) {
            remove(&mut object, path);
        }
    }
    owners.retain(|_, o| !o.fields.is_empty());
    let unchanged = before.filter(|b| b.fields == mine && b.api_version == owned.api_version);
    if !mine.is_empty() {
        // An apply that changes nothing leaves the time alone, and so the whole object.
        let time = unchanged.filter(|_| object == *live).map_or(owned.time, |b| b.time);
        owners.insert(me, Owned { fields: mine, api_version: owned.api_version, time });
    }
    Ok(Applied { object, owners })
}

/// Whether a field of another manager would get another value.
fn contests(live: &Value, wanted: &Value, theirs: &[Step]) -> bool {
    let Some(current) = get(live, theirs) else { return false };
    if matches!(theirs.last(), Some(Step::Item(_))) {
        return false;
    }
    match get(wanted, theirs) {
        Some(new) => new != current && !(new.is_object() && current.is_object()),
        // A scalar or an atomic list put in place of what holds their field.
        None => (1..theirs.len())
            .rev()
            .filter_map(|n| theirs.get(..n))
            .find_map(|above| get(wanted, above))
            .is_some_and(|above| !above.is_object() && !above.is_array()),
    }
}

/// Whether the field is a part of its item's key: it stays as long as the item does.
fn names_item(path: &[Step]) -> bool {
    let [.., Step::Item(key), Step::Field(field)] = path else { return false };
    serde_json::from_str::<Value>(key).is_ok_and(|k| k.get(field).is_some())
}

fn still_owned(owners: &Owners, mine: &super::fields::Paths, path: &[Step]) -> bool {
    let within = |p: &Path| p.starts_with(path);
    mine.iter().any(within) || owners.values().any(|o| o.fields.iter().any(within))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn owned() -> Owned {
        Owned {
            fields: Default::default(),
            api_version: "apps/v1".into(),
            time: "2026-01-01T00:00:00Z".into(),
        }
    }

    fn step(
        live: &Applied,
        wanted: Value,
        manager: &str,
        force: bool,
    ) -> Result<Applied, Vec<(String, String)>> {
        apply(&live.object, &live.owners, &wanted, manager, force, owned())
    }

    fn start() -> Applied {
        Applied { object: Value::Null, owners: Owners::new() }
    }

    #[test]
    fn a_dropped_field_goes_and_others_stay() {
        let one = step(&start(), json!({"data": {"a": "1", "b": "2"}}), "x", false).unwrap();
        let two = step(&one, json!({"data": {"c": "3"}}), "y", false).unwrap();
        let three = step(&two, json!({"data": {"a": "1"}}), "x", false).unwrap();
        assert_eq!(three.object, json!({"data": {"a": "1", "c": "3"}}));
    }

    #[test]
    fn a_shared_field_stays_until_its_last_owner_drops_it() {
        let one = step(&start(), json!({"data": {"a": "1"}}), "x", false).unwrap();
        let two = step(&one, json!({"data": {"a": "1"}}), "y", false).unwrap();
        let three = step(&two, json!({}), "x", false).unwrap();
        assert_eq!(three.object, json!({"data": {"a": "1"}}));
        assert_eq!(step(&three, json!({}), "y", false).unwrap().object, json!({}));
    }

    #[test]
    fn another_value_conflicts_unless_forced() {
        let one = step(&start(), json!({"spec": {"replicas": 1}}), "x", false).unwrap();
        let wanted = json!({"spec": {"replicas": 2}});
        let conflicts = step(&one, wanted.clone(), "y", false).unwrap_err();
        assert_eq!(conflicts, [("\"x\"".to_owned(), ".spec.replicas".to_owned())]);
        let forced = step(&one, wanted, "y", true).unwrap();
        assert_eq!(forced.object, json!({"spec": {"replicas": 2}}));
        // The field is no longer x's to drop.
        assert_eq!(step(&forced, json!({}), "x", false).unwrap().object, json!({"spec": {"replicas": 2}}));
    }

    #[test]
    fn containers_merge_by_name_and_other_lists_are_atomic() {
        let pod = |name: &str, image: &str, args: &[&str]| json!({"spec": {"containers": [{"name": name, "image": image, "args": args}]}});
        let one = step(&start(), pod("a", "a:1", &["x"]), "x", false).unwrap();
        let two = step(&one, pod("b", "b:1", &["y"]), "y", false).unwrap();
        assert_eq!(two.object["spec"]["containers"].as_array().unwrap().len(), 2);
        let conflicts = step(&two, pod("a", "a:1", &["z"]), "y", false).unwrap_err();
        assert_eq!(conflicts[0].1, ".spec.containers[name=\"a\"].args");
        let gone = step(&two, json!({"spec": {"paused": true}}), "y", false).unwrap();
        assert_eq!(gone.object["spec"]["containers"], json!([{"name": "a", "image": "a:1", "args": ["x"]}]));
    }

    #[test]
    fn the_same_again_changes_nothing() {
        let wanted = json!({"metadata": {"labels": {"a": "b"}}, "data": {"a": "1"}});
        let one = step(&start(), wanted.clone(), "x", false).unwrap();
        let later = Owned { time: "2027-01-01T00:00:00Z".into(), ..owned() };
        let two = apply(&one.object, &one.owners, &wanted, "x", false, later).unwrap();
        assert_eq!((two.object, two.owners), (one.object, one.owners));
    }
}
