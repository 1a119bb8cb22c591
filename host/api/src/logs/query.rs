//! The query of `GET /logs` (checklist B12): every parameter known, none twice, none against another.

use std::collections::HashMap;
use std::str::FromStr;
use std::time::Duration;

use axum::http::StatusCode;
use chrono::{DateTime, Datelike as _, FixedOffset, SecondsFormat, TimeDelta, Timelike as _};
use sutler_logs::{Since, StreamOptions};
use sutler_model::{Application, Identifier, Inquiry, Known, Pair, RequestId};

use crate::config::UnknownFields;
use crate::refusal::Refusal;
use crate::strict::suggestion;

const KNOWN: [&str; 16] = [
    "kind",
    "type",
    "tenant",
    "application",
    "environment",
    "instance",
    "resource",
    "follow",
    "previous",
    "container",
    "pod",
    "sinceSeconds",
    "sinceTime",
    "tailLines",
    "limitBytes",
    "timestamps",
];

/// What a resumed stream reads again: lines of containers that were behind the one whose line came last.
const OVERLAP: TimeDelta = TimeDelta::seconds(10);

/// The largest number that Kubernetes reads.
const MOST: u64 = i64::MAX.unsigned_abs();

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LogsQuery {
    pub(crate) pair: Pair,
    pub(crate) application: Application,
    pub(crate) resources: Vec<Identifier>,
    pub(crate) options: StreamOptions,
    pub(crate) timestamps: bool,
}

impl LogsQuery {
    /// `last_event_id`: where an interrupted event stream goes on; it stands above `since…` and `tailLines`.
    ///
    /// # Errors
    /// 400 with `?name` of the parameter.
    pub(crate) fn parse(
        query: &str,
        last_event_id: Option<&str>,
        unknown: UnknownFields,
    ) -> Result<Self, Refusal> {
        let mut fields = Fields::read(query, unknown)?;
        let pair = Pair::new(fields.must("kind")?, fields.must("type")?);
        let application = Application {
            id: fields.must("application")?,
            environment: fields.must("environment")?,
            tenant: fields.may("tenant")?,
            instance: fields.may("instance")?,
        };
        let since = fields.since()?;
        let mut options = StreamOptions {
            follow: fields.flag("follow")?,
            previous: fields.flag("previous")?,
            container: fields.name("container")?,
            pod: fields.name("pod")?,
            since,
            tail_lines: fields.number("tailLines", 0)?,
            limit_bytes: fields.number("limitBytes", 1)?,
        };
        if let Some(from) = last_event_id.and_then(resume) {
            options.since = Some(Since::Time(from));
            options.tail_lines = None;
        }
        let timestamps = fields.flag("timestamps")?;
        // An application's logs are asked for by people who know no resource: most have one, of this name.
        if fields.resources.is_empty() {
            fields.resources.extend(Identifier::parse("main").ok());
        }
        Ok(Self { pair, application, resources: fields.resources, options, timestamps })
    }

    /// Text is prefixed with pod and container unless the query leaves one of each.
    pub(crate) fn one_source(&self) -> bool {
        self.options.pod.is_some() && self.options.container.is_some()
    }

    pub(crate) fn inquiry(&self, id: RequestId) -> Inquiry {
        let known = |r: &Identifier| Known { resource: r.clone(), settings: None, outputs: None };
        Inquiry {
            id,
            pair: self.pair.clone(),
            application: self.application.clone(),
            resources: self.resources.iter().map(known).collect(),
        }
    }
}

/// The time in an id that `render` made: `pod/container/time/count`.
fn resume(id: &str) -> Option<String> {
    let time = id.split('/').nth(2)?;
    let time = DateTime::parse_from_rfc3339(time).ok()?.checked_sub_signed(OVERLAP)?;
    readable(&time).then(|| time.to_rfc3339_opts(SecondsFormat::Nanos, true))
}

/// Whether Kubernetes can read it, in UTC too: it knows neither leap seconds nor years without four digits.
fn readable(time: &DateTime<FixedOffset>) -> bool {
    let years = [time.year(), time.to_utc().year()];
    time.nanosecond() < 1_000_000_000 && years.iter().all(|y| (0..=9999).contains(y))
}

struct Fields {
    values: HashMap<&'static str, String>,
    resources: Vec<Identifier>,
}

impl Fields {
    fn read(query: &str, unknown: UnknownFields) -> Result<Self, Refusal> {
        let mut fields = Self { values: HashMap::new(), resources: Vec::new() };
        for (key, value) in url::form_urlencoded::parse(query.as_bytes()) {
            let Some(name) = KNOWN.into_iter().find(|k| *k == key) else {
                if unknown == UnknownFields::Ignore {
                    continue;
                }
                let key: String = key.chars().take(80).collect();
                return Err(bad(
                    &key,
                    format!("{key} is not a parameter here; {}", suggestion(&key, &KNOWN)),
                ));
            };
            if name == "resource" {
                let resource: Identifier = value.parse().map_err(|e| bad(name, format!("{e}")))?;
                if !fields.resources.contains(&resource) {
                    fields.resources.push(resource);
                }
            } else if fields.values.insert(name, value.into_owned()).is_some() {
                return Err(bad(name, format!("{name} is there twice; keep one")));
            }
        }
        Ok(fields)
    }

    fn may<T: FromStr<Err = sutler_model::InvalidName>>(
        &mut self,
        name: &'static str,
    ) -> Result<Option<T>, Refusal> {
        self.values.remove(name).map(|v| v.parse().map_err(|e: T::Err| bad(name, e.to_string()))).transpose()
    }

    fn must<T: FromStr<Err = sutler_model::InvalidName>>(
        &mut self,
        name: &'static str,
    ) -> Result<T, Refusal> {
        self.may(name)?.ok_or_else(|| bad(name, format!("{name} is missing")))
    }

    /// `follow`, `follow=true` and `follow=1` are all true.
    fn flag(&mut self, name: &'static str) -> Result<bool, Refusal> {
        match self.values.remove(name).as_deref() {
            None | Some("false" | "0") => Ok(false),
            Some("" | "true" | "1") => Ok(true),
            Some(_) => Err(bad(name, format!("{name} is true or false"))),
        }
    }

    fn number(&mut self, name: &'static str, least: u64) -> Result<Option<u64>, Refusal> {
        let rule = || bad(name, format!("{name} is a whole number from {least} to {MOST}"));
        let fits = |n: &u64| (least..=MOST).contains(n);
        self.values.remove(name).map(|v| v.parse().ok().filter(fits).ok_or_else(rule)).transpose()
    }

    /// A pod's or a container's name: RFC 1123, at most 253 characters.
    fn name(&mut self, name: &'static str) -> Result<Option<String>, Refusal> {
        let fits = |v: &String| {
            (1..=253).contains(&v.len())
                && v.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b))
        };
        let rule = || bad(name, format!("{name} is the name of a {name}: 1 to 253 of a-z, 0-9, '-' and '.'"));
        self.values.remove(name).map(|v| Some(v).filter(fits).ok_or_else(rule)).transpose()
    }

    fn since(&mut self) -> Result<Option<Since>, Refusal> {
        let ago = self.number("sinceSeconds", 1)?.map(|s| Since::Ago(Duration::from_secs(s)));
        let Some(text) = self.values.remove("sinceTime") else { return Ok(ago) };
        if ago.is_some() {
            return Err(bad("sinceTime", "sinceSeconds and sinceTime are both there; keep one".into()));
        }
        let Some(time) = DateTime::parse_from_rfc3339(&text).ok().filter(readable) else {
            return Err(bad(
                "sinceTime",
                "sinceTime is a time of RFC 3339 and no leap second, such as 2026-01-31T12:00:00Z (write + as %2B)"
                    .into(),
            ));
        };
        // Written anew: Kubernetes takes neither a small t or z nor a space for the T.
        Ok(Some(Since::Time(time.to_rfc3339_opts(SecondsFormat::AutoSi, true))))
    }
}

fn bad(name: &str, message: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "invalid-request", message).at(format!("?{name}"))
}
