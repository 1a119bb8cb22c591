//! Questions to the host whose answers a test wants to see.

use serde_json::json;

use crate::order::{Deed, Order};
use crate::sutler::host::{clock, config, log, random};
use crate::sutler::kubernetes::{read, types, write};

/// What came back, in words, for the deeds that ask the host something.
pub(crate) fn told(deed: Deed, order: &Order) -> Option<String> {
    Some(match deed {
        Deed::Clock => clock::now().to_string(),
        Deed::Random => {
            let length = u32::try_from(order.number(16)).unwrap_or(16);
            random::bytes(length).iter().map(|b| format!("{b:02x}")).collect()
        }
        Deed::OtherTenantNamespace => read(order, "somebody-elses"),
        Deed::WriteInPlan => write(order),
        Deed::LeakSecret => {
            let secret = config::secret(&order.name("password")).unwrap_or_else(|| "no such secret".into());
            log::write(
                log::Level::Info,
                &format!("the secret is {secret}"),
                &json!({"secret": secret}).to_string(),
            );
            secret
        }
        _ => return None,
    })
}

/// Reads a ConfigMap named by `value` in `namespace`.
pub(crate) fn read(order: &Order, otherwise: &str) -> String {
    let reference = types::Reference {
        cluster: None,
        api_version: "v1".into(),
        kind: "ConfigMap".into(),
        namespace: Some(order.namespace()),
        name: order.name(otherwise),
    };
    match read::get(&reference) {
        Ok(object) => format!("got: {object}"),
        Err(error) => words(error),
    }
}

fn write(order: &Order) -> String {
    let object = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": order.name("written-by-hostile"), "namespace": order.namespace()},
        "data": {"written": "yes"},
    });
    match write::apply(None, &object.to_string(), false) {
        Ok(object) => format!("wrote: {object}"),
        Err(error) => words(error),
    }
}

fn words(error: types::Error) -> String {
    match error {
        types::Error::NotGranted(m) => format!("not-granted: {m}"),
        types::Error::ReadOnlyCall => "read-only-call".into(),
        types::Error::NotFound => "not-found".into(),
        types::Error::AlreadyExists => "already-exists".into(),
        types::Error::Conflict(c) => format!("conflict: {} fields", c.len()),
        types::Error::Forbidden(m) => format!("forbidden: {m}"),
        types::Error::Invalid(m) => format!("invalid: {m}"),
        types::Error::Unavailable(m) => format!("unavailable: {m}"),
        types::Error::Other(d) => format!("{}: {}", d.code, d.message),
    }
}
