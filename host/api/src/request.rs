//! The bodies of plan, apply and inspect, and how they become words of the model.

use std::collections::HashSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use sutler_model::{Action, Application, Change, Identifier, Inquiry, Kind, Known, Pair, Request, RequestId};
use utoipa::ToSchema;

use crate::config::{ApiConfig, UnknownFields};
use crate::refusal::Refusal;
use crate::strict::{self, Object};

/// What `POST /plan` takes.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct PlanBody {
    /// The caller's name for this call; equal for a repeat. 1 to 128 visible ASCII characters.
    #[schema(min_length = 1, max_length = 128, example = "r-1")]
    request_id: String,
    #[serde(deserialize_with = "kind")]
    #[schema(value_type = KindName)]
    kind: Kind,
    #[serde(rename = "type")]
    #[schema(value_type = String, pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", example = "ksml")]
    type_name: Identifier,
    #[schema(value_type = ApplicationBody)]
    application: Object<ApplicationBody>,
    #[schema(value_type = Vec<ChangeBody>, min_items = 1)]
    changes: Vec<Object<ChangeBody>>,
}

/// What `POST /apply` takes.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ApplyBody {
    /// The caller's name for this call; equal for a repeat. 1 to 128 visible ASCII characters.
    #[schema(min_length = 1, max_length = 128, example = "r-1")]
    request_id: String,
    #[serde(deserialize_with = "kind")]
    #[schema(value_type = KindName)]
    kind: Kind,
    #[serde(rename = "type")]
    #[schema(value_type = String, pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", example = "ksml")]
    type_name: Identifier,
    #[schema(value_type = ApplicationBody)]
    application: Object<ApplicationBody>,
    #[schema(value_type = Vec<ChangeBody>, min_items = 1)]
    changes: Vec<Object<ChangeBody>>,
    /// The planHash of the plan that was agreed to; the work fails `plan-stale` where it no longer holds.
    #[schema(max_length = 128)]
    plan_hash: Option<String>,
}

/// What `POST /inspect` takes.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct InspectBody {
    /// The caller's name for this call. 1 to 128 visible ASCII characters.
    #[schema(min_length = 1, max_length = 128, example = "r-1")]
    request_id: String,
    #[serde(deserialize_with = "kind")]
    #[schema(value_type = KindName)]
    kind: Kind,
    #[serde(rename = "type")]
    #[schema(value_type = String, pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", example = "ksml")]
    type_name: Identifier,
    #[schema(value_type = ApplicationBody)]
    application: Object<ApplicationBody>,
    #[schema(value_type = Vec<KnownBody>, min_items = 1)]
    changes: Vec<Object<KnownBody>>,
}

/// The category of a pair.
#[derive(ToSchema)]
#[schema(rename_all = "kebab-case")]
#[allow(dead_code, reason = "it describes sutler_model::Kind, which knows no HTTP")]
pub(crate) enum KindName {
    Target,
    Tool,
    Deployment,
    ManagedResource,
    ConsumedResource,
}

/// For whom the call is made.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ApplicationBody {
    #[schema(value_type = String, pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", example = "orders")]
    id: Identifier,
    #[schema(value_type = String, pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", example = "prod")]
    environment: Identifier,
    #[schema(value_type = Option<String>, pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", example = "acme")]
    tenant: Option<Identifier>,
    #[schema(value_type = Option<String>, pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", example = "emea")]
    instance: Option<Identifier>,
}

/// What the caller wants of one resource.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChangeBody {
    #[schema(value_type = String, pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", example = "main")]
    resource: Identifier,
    action: ActionBody,
    /// What the resource shall be like, after the pair's settings schema (`GET /handles`). Not for a delete.
    #[serde(default, deserialize_with = "strict::optional")]
    settings: Option<Value>,
    /// What the caller believes was applied before: a hint, never authority.
    #[serde(default, deserialize_with = "strict::optional")]
    previous_settings: Option<Value>,
    /// What the caller believes came out before: a hint, never authority.
    #[serde(default, deserialize_with = "strict::optional")]
    previous_outputs: Option<Value>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(try_from = "String")]
#[schema(rename_all = "kebab-case")]
enum ActionBody {
    Create,
    Update,
    Replace,
    Delete,
}

// From a text and not as serde reads an enum, which has no words for what is no text.
impl TryFrom<String> for ActionBody {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "create" => Ok(Self::Create),
            "update" => Ok(Self::Update),
            "replace" => Ok(Self::Replace),
            "delete" => Ok(Self::Delete),
            _ => {
                let found: String = text.chars().take(80).collect();
                Err(format!("action {found:?} is not valid: use create, update, replace or delete"))
            }
        }
    }
}

fn kind<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Kind, D::Error> {
    String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
}

/// What the caller believes of one resource.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct KnownBody {
    #[schema(value_type = String, pattern = "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", example = "main")]
    resource: Identifier,
    #[serde(default)]
    #[schema(value_type = Option<ExpectedBody>)]
    expected: Option<Object<ExpectedBody>>,
}

#[derive(Default, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExpectedBody {
    #[serde(default, deserialize_with = "strict::optional")]
    settings: Option<Value>,
    #[serde(default, deserialize_with = "strict::optional")]
    outputs: Option<Value>,
}

const APPLICATION: (&[&str], &[&str]) = (&["application"], &["id", "environment", "tenant", "instance"]);
const CHANGE: (&[&str], &[&str]) =
    (&["changes", "*"], &["resource", "action", "settings", "previousSettings", "previousOutputs"]);

/// A body that knows its own fields, for `unknown-fields = "ignore"`.
pub(crate) trait Envelope: DeserializeOwned {
    /// (place, the fields known there); `*` is each item of a list.
    const FIELDS: &'static [(&'static [&'static str], &'static [&'static str])];

    /// # Errors
    /// 400 with the place.
    fn parse(bytes: &[u8], config: &ApiConfig) -> Result<Self, Refusal> {
        match config.unknown_fields {
            UnknownFields::Refuse => strict::parse(bytes).map(|Object(body)| body),
            UnknownFields::Ignore => {
                let strict::Strict(mut value) = strict::parse(bytes)?;
                for (place, known) in Self::FIELDS {
                    keep(&mut value, place, known);
                }
                strict::from_value(value).map(|Object(body)| body)
            }
        }
    }
}

impl Envelope for PlanBody {
    const FIELDS: &'static [(&'static [&'static str], &'static [&'static str])] =
        &[(&[], &["requestId", "kind", "type", "application", "changes"]), APPLICATION, CHANGE];
}
impl Envelope for ApplyBody {
    const FIELDS: &'static [(&'static [&'static str], &'static [&'static str])] =
        &[(&[], &["requestId", "kind", "type", "application", "changes", "planHash"]), APPLICATION, CHANGE];
}
impl Envelope for InspectBody {
    const FIELDS: &'static [(&'static [&'static str], &'static [&'static str])] = &[
        (&[], &["requestId", "kind", "type", "application", "changes"]),
        APPLICATION,
        (&["changes", "*"], &["resource", "expected"]),
        (&["changes", "*", "expected"], &["settings", "outputs"]),
    ];
}

fn keep(value: &mut Value, place: &[&str], known: &[&str]) {
    match (place.split_first(), value) {
        (None, Value::Object(fields)) => fields.retain(|k, _| known.contains(&k.as_str())),
        (Some((&"*", rest)), Value::Array(items)) => items.iter_mut().for_each(|i| keep(i, rest, known)),
        (Some((key, rest)), Value::Object(fields)) => {
            if let Some(v) = fields.get_mut(*key) {
                keep(v, rest, known);
            }
        }
        _ => {}
    }
}

impl PlanBody {
    pub(crate) fn into_request(self) -> Result<Request, Refusal> {
        request(&self.request_id, Pair::new(self.kind, self.type_name), self.application, self.changes)
    }
}

impl ApplyBody {
    pub(crate) fn into_request(self) -> Result<(Request, Option<String>), Refusal> {
        if let Some(hash) = &self.plan_hash
            && !((1..=128).contains(&hash.len()) && hash.bytes().all(|b| b.is_ascii_graphic()))
        {
            return Err(Refusal::invalid(
                "/planHash",
                "planHash is not one that POST /plan answered; leave it out or copy it from there",
            ));
        }
        let request =
            request(&self.request_id, Pair::new(self.kind, self.type_name), self.application, self.changes)?;
        Ok((request, self.plan_hash))
    }
}

impl InspectBody {
    pub(crate) fn into_inquiry(self) -> Result<Inquiry, Refusal> {
        let id = request_id(&self.request_id)?;
        once_each(self.changes.iter().map(|Object(c)| &c.resource))?;
        let known = |Object(k): Object<KnownBody>| {
            let expected = k.expected.map(|Object(e)| e).unwrap_or_default();
            Known { resource: k.resource, settings: expected.settings, outputs: expected.outputs }
        };
        Ok(Inquiry {
            id,
            pair: Pair::new(self.kind, self.type_name),
            application: self.application.0.into(),
            resources: self.changes.into_iter().map(known).collect(),
        })
    }
}

impl From<ApplicationBody> for Application {
    fn from(a: ApplicationBody) -> Self {
        Self { id: a.id, environment: a.environment, tenant: a.tenant, instance: a.instance }
    }
}

fn request(
    id: &str,
    pair: Pair,
    application: Object<ApplicationBody>,
    changes: Vec<Object<ChangeBody>>,
) -> Result<Request, Refusal> {
    let id = request_id(id)?;
    once_each(changes.iter().map(|Object(c)| &c.resource))?;
    let changes =
        changes.into_iter().enumerate().map(|(i, Object(c))| change(i, c)).collect::<Result<_, _>>()?;
    Ok(Request { id, pair, application: application.0.into(), changes })
}

fn request_id(text: &str) -> Result<RequestId, Refusal> {
    RequestId::parse(text).map_err(|e| Refusal::invalid("/requestId", e.to_string()))
}

fn change(index: usize, c: ChangeBody) -> Result<Change, Refusal> {
    let (action, word) = match c.action {
        ActionBody::Create => (Action::Create, "create"),
        ActionBody::Update => (Action::Update, "update"),
        ActionBody::Replace => (Action::Replace, "replace"),
        ActionBody::Delete => (Action::Delete, "delete"),
    };
    let delete = c.action == ActionBody::Delete;
    if !delete && c.settings.is_none() {
        return Err(Refusal::invalid(
            format!("/changes/{index}/settings"),
            format!("settings is missing; {word} needs it, if only as {{}}"),
        ));
    }
    Ok(Change {
        resource: c.resource,
        action,
        settings: c.settings.filter(|_| !delete),
        previous_settings: c.previous_settings,
        previous_outputs: c.previous_outputs,
    })
}

/// Resources of one call.
const MAX_CHANGES: usize = 1_000;

fn once_each<'a>(resources: impl ExactSizeIterator<Item = &'a Identifier>) -> Result<(), Refusal> {
    if resources.len() == 0 {
        return Err(Refusal::invalid("/changes", "changes is empty; name at least one resource"));
    }
    if resources.len() > MAX_CHANGES {
        return Err(Refusal::invalid(
            "/changes",
            format!("changes has {} entries; at most {MAX_CHANGES} are taken in one call", resources.len()),
        ));
    }
    let mut seen = HashSet::with_capacity(resources.len());
    for (i, resource) in resources.enumerate() {
        if !seen.insert(resource) {
            return Err(Refusal::invalid(
                format!("/changes/{i}/resource"),
                format!("resource \"{resource}\" is named twice; a call has one change for each resource"),
            ));
        }
    }
    Ok(())
}
