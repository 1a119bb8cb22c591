//! What the plugin says of itself, in the variants that a test patches into the file.

use core::hint::black_box;

use serde_json::json;

use crate::exports::sutler::provisioner::provisioner::{Descriptor, PairDescriptor, Step};
use crate::order::{Order, WORDS};
use crate::probe;
use crate::sutler::provisioner::types::{Kind, Pair};

/// The words before the mode. `sutler_testkit::hostile` looks for them in the file.
const PREFIX: usize = "SUTLER-HOSTILE-MODE:".len();

#[used]
static MODE: [u8; 64] = *b"SUTLER-HOSTILE-MODE:none                                        ";

fn mode() -> String {
    // Volatile: the file is patched after compilation, so the compiler must not know the value.
    // SAFETY: a reference to a live static is valid to read.
    let bytes = unsafe { core::ptr::read_volatile(&raw const MODE) };
    String::from_utf8_lossy(&bytes[PREFIX..]).trim_end().into()
}

pub(crate) fn descriptor() -> Descriptor {
    let mode = mode();
    let mut pairs = vec![pair(Kind::Tool, "hostile")];
    match mode.as_str() {
        "describe-trap" => core::arch::wasm32::unreachable(),
        "describe-loop" => loop {
            black_box(());
        },
        "describe-read" => pairs[0].summary = probe::read(&Order::read(None), "in-describe"),
        "two-pairs-equal" => pairs.push(pair(Kind::Tool, "hostile")),
        "two-pairs" => pairs.push(pair(Kind::Tool, "hostile-too")),
        "no-pairs" => pairs.clear(),
        "bad-schema" => pairs[0].settings_schema = r#"{"type":"no such type"}"#.into(),
        "not-json-schema" => pairs[0].settings_schema = "{not json".into(),
        "bad-outputs-schema" => pairs[0].outputs_schema = r#"{"properties":7}"#.into(),
        "huge-schema" => {
            let text = "x".repeat(65 << 10);
            pairs[0].settings_schema = json!({"type": "object", "description": text}).to_string();
        }
        "huge-descriptor" => pairs[0].summary = "x".repeat(32 << 20),
        "remote-ref" => {
            pairs[0].settings_schema = json!({"$ref": "https://example.com/schema.json"}).to_string();
        }
        "file-ref" => pairs[0].settings_schema = json!({"$ref": "file:///etc/passwd"}).to_string(),
        "claims-namespace" => pairs = vec![pair(Kind::Target, "kubernetes-namespace")],
        "claims-artifact" => pairs = vec![pair(Kind::Tool, "artifact")],
        "bad-name" => pairs[0].pair.type_ = "Bad Name!/..".into(),
        "empty-name" => pairs[0].pair.type_ = String::new(),
        "equal-steps" => pairs[0].steps.push(step("again")),
        "bad-step" => pairs[0].steps.push(Step { timeout_seconds: 0, ..step("") }),
        "endless-step" => pairs[0].steps[0].timeout_seconds = u32::MAX,
        other => {
            if let Some(name) = other.strip_prefix("pair:") {
                pairs = vec![pair(Kind::Tool, name)];
            }
        }
    }
    Descriptor {
        name: "hostile".into(),
        version: "0.1.0".into(),
        summary: "Misbehaves on request.".into(),
        pairs,
    }
}

fn step(name: &str) -> Step {
    Step { name: name.into(), title: "Do it again".into(), timeout_seconds: 30 }
}

fn pair(kind: Kind, name: &str) -> PairDescriptor {
    let exports = ["plan", "apply", "cancel", "inspect", "locate"];
    PairDescriptor {
        pair: Pair { kind, type_: name.into() },
        summary: "Nothing good.".into(),
        settings_schema: json!({
            "type": "object",
            "properties": {
                "do": {"enum": WORDS},
                "in": {"type": "array", "items": {"enum": exports}},
                "namespace": {"type": "string"},
                "value": {},
                "secret": {"type": "string", "writeOnly": true},
                "fixed": {"type": "string", "x-requires-replace": true},
            },
            "required": ["do"],
            "additionalProperties": false,
        })
        .to_string(),
        outputs_schema: json!({
            "type": "object",
            "properties": {"answer": {"type": "string"}},
            "additionalProperties": false,
        })
        .to_string(),
        steps: vec![step("again")],
        extras: "{}".into(),
    }
}
