//! Who owns an object: the labels under `sutler.dev/`.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sutler_model::Owner;

use crate::{Error, manifest};

/// Labels that begin so are the host's to set.
pub const LABEL_PREFIX: &str = "sutler.dev/";
/// The type of Secrets that are Helm's records of releases.
pub const RELEASE_SECRET: &str = "helm.sh/release.v1";

type Labels = BTreeMap<String, String>;

/// Whether the object carries this owner's label.
pub(crate) fn is_of(object: &Value, owner: &Owner) -> bool {
    let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
    labels.and_then(|l| l.get(Owner::LABEL)).and_then(Value::as_str) == Some(owner.hash().as_str())
}

/// Refuses labels under our prefix that say something else than the host would. In a merge patch null removes, so
/// null is something else as well, and a patch must not do away with metadata or labels as a whole.
pub(crate) fn check_labels(object: &Value, ours: &Labels) -> Result<(), Error> {
    let metadata = match object.get("metadata") {
        None => return Ok(()),
        Some(m) => m.as_object().ok_or_else(|| Error::Invalid("metadata is not an object".into()))?,
    };
    let labels: &Map<String, Value> = match metadata.get("labels") {
        None => return Ok(()),
        Some(l) => l.as_object().ok_or_else(|| Error::Invalid("metadata.labels is not an object".into()))?,
    };
    for (key, value) in labels {
        if key.starts_with(LABEL_PREFIX) && value.as_str() != ours.get(key).map(String::as_str) {
            return Err(Error::Invalid(format!("the label {key} is the host's to set; leave it out")));
        }
    }
    Ok(())
}

/// Adds the owner's labels to a manifest.
pub(crate) fn add_labels(object: &mut Value, ours: Labels) -> Result<(), Error> {
    let labels = manifest::member(Some(manifest::metadata(object)?), "labels")?;
    labels.extend(ours.into_iter().map(|(k, v)| (k, Value::String(v))));
    Ok(())
}
