//! The three forms of a line: text for people, JSON lines for programs, events for pages.

use std::collections::HashMap;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Serialize;
use sutler_logs::LogLine;

use crate::refusal::Refusal;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Text,
    JsonLines,
    Events,
}

const FORMS: [(Form, &str, &str); 3] = [
    (Form::Text, "text", "plain"),
    (Form::JsonLines, "application", "x-ndjson"),
    (Form::Events, "text", "event-stream"),
];

impl Form {
    /// By `Accept` (RFC 9110 section 12.5.1); text where nothing is asked.
    ///
    /// # Errors
    /// 406 where none of the three is accepted.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        let mut values = headers.get_all(header::ACCEPT).iter().filter_map(|v| v.to_str().ok()).peekable();
        if values.peek().is_none() {
            return Ok(Self::Text);
        }
        let ranges: Vec<(&str, f32)> = values.flat_map(|v| v.split(',')).filter_map(range).collect();
        let mut best: Option<(Self, f32)> = None;
        for (form, kind, sub) in FORMS {
            let weight = weight(&ranges, kind, sub);
            if weight > best.map_or(0.0, |b| b.1) {
                best = Some((form, weight));
            }
        }
        best.map(|b| b.0).ok_or_else(|| {
            let message =
                "logs come as text/plain, application/x-ndjson or text/event-stream; name one in Accept";
            Refusal::new(StatusCode::NOT_ACCEPTABLE, "not-acceptable", message)
        })
    }

    pub(crate) const fn media_type(self) -> HeaderValue {
        match self {
            Self::Text => HeaderValue::from_static("text/plain; charset=utf-8"),
            Self::JsonLines => HeaderValue::from_static("application/x-ndjson"),
            Self::Events => HeaderValue::from_static("text/event-stream"),
        }
    }
}

fn range(text: &str) -> Option<(&str, f32)> {
    let mut parts = text.split(';').map(str::trim);
    let media = parts.next().filter(|m| !m.is_empty())?;
    let q = parts.find_map(|p| p.strip_prefix("q=").or_else(|| p.strip_prefix("Q=")));
    Some((media, q.map_or(1.0, |q| q.parse().unwrap_or(0.0))))
}

/// The weight of the most specific range that covers the type; 0 where none does.
fn weight(ranges: &[(&str, f32)], kind: &str, sub: &str) -> f32 {
    let specific = |media: &str| match media.split_once('/') {
        Some((k, s)) if k.eq_ignore_ascii_case(kind) && s.eq_ignore_ascii_case(sub) => 3,
        Some((k, "*")) if k.eq_ignore_ascii_case(kind) => 2,
        Some(("*", "*")) => 1,
        _ => 0,
    };
    let covering = ranges.iter().map(|(media, q)| (specific(media), *q)).filter(|(s, _)| *s > 0);
    covering.max_by_key(|(s, _)| *s).map_or(0.0, |(_, q)| q)
}

#[derive(Serialize)]
struct Line<'a> {
    pod: &'a str,
    container: &'a str,
    timestamp: &'a str,
    line: &'a str,
}

#[derive(Serialize)]
struct GapLine<'a> {
    gap: Gap<'a>,
}

#[derive(Serialize)]
struct Gap<'a> {
    pod: &'a str,
    container: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    reason: &'a str,
}

/// Writes lines in one form.
#[derive(Debug)]
pub(crate) struct Renderer {
    form: Form,
    prefix: bool,
    timestamps: bool,
    /// Per container: the last time stamp, and how many lines carried it.
    counts: HashMap<(String, String), (String, u32)>,
}

impl Renderer {
    pub(crate) fn new(form: Form, prefix: bool, timestamps: bool) -> Self {
        Self { form, prefix, timestamps, counts: HashMap::new() }
    }

    pub(crate) fn write(&mut self, item: &LogLine, out: &mut Vec<u8>) {
        match (self.form, item) {
            (Form::Text, LogLine::Line { pod, container, timestamp, text }) => {
                if self.prefix {
                    push(out, &["[", pod, "/", container, "] "]);
                }
                if self.timestamps {
                    push(out, &[timestamp, " "]);
                }
                push(out, &[text, "\n"]);
            }
            (Form::Text, LogLine::Gap { pod, container, from, to, reason }) => {
                let bound = |b: &Option<String>| b.clone().unwrap_or_else(|| "?".into());
                push(
                    out,
                    &[
                        "--- gap: ",
                        pod,
                        "/",
                        container,
                        " from ",
                        &bound(from),
                        " to ",
                        &bound(to),
                        ": ",
                        reason,
                        " ---\n",
                    ],
                );
            }
            (form, LogLine::Line { pod, container, timestamp, text }) => {
                if form == Form::Events {
                    let count = self.count(pod, container, timestamp).to_string();
                    push(out, &["id: ", pod, "/", container, "/", timestamp, "/", &count, "\ndata: "]);
                }
                self.json(&Line { pod, container, timestamp, line: text }, out);
            }
            (form, LogLine::Gap { pod, container, from, to, reason }) => {
                if form == Form::Events {
                    push(out, &["event: gap\ndata: "]);
                }
                self.json(
                    &GapLine {
                        gap: Gap { pod, container, from: from.as_deref(), to: to.as_deref(), reason },
                    },
                    out,
                );
            }
        }
    }

    /// The host ends the stream, and nothing may look complete that is not.
    pub(crate) fn end(&self, reason: &str) -> Vec<u8> {
        match self.form {
            Form::Text => format!("--- end: {reason} ---\n"),
            Form::JsonLines => format!("{{\"end\":{{\"reason\":\"{reason}\"}}}}\n"),
            Form::Events => format!("event: end\ndata: {{\"reason\":\"{reason}\"}}\n\n"),
        }
        .into_bytes()
    }

    fn json(&self, value: &impl Serialize, out: &mut Vec<u8>) {
        // Texts cannot fail to become JSON, and JSON has no bare line end that could end an event.
        let _ = serde_json::to_writer(&mut *out, value);
        out.extend_from_slice(if self.form == Form::Events { b"\n\n" } else { b"\n" });
    }

    /// Which of the lines with this time stamp it is, from 1: with it an id means the same line after a reconnect.
    fn count(&mut self, pod: &str, container: &str, timestamp: &str) -> u32 {
        let (last, count) = self.counts.entry((pod.to_owned(), container.to_owned())).or_default();
        if last == timestamp {
            *count += 1;
        } else {
            timestamp.clone_into(last);
            *count = 1;
        }
        *count
    }
}

fn push(out: &mut Vec<u8>, parts: &[&str]) {
    parts.iter().for_each(|p| out.extend_from_slice(p.as_bytes()));
}
