//! Schemas and the marks in them.

use std::collections::BTreeMap;

use sutler_sdk::prelude::*;
use sutler_sdk::schema;

#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Settings {
    #[schemars(extend("x-requires-replace" = true))]
    region: String,
    login: Option<Login>,
    #[serde(default)]
    more: BTreeMap<String, Login>,
    #[serde(default)]
    list: Vec<Login>,
}
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case", deny_unknown_fields)]
enum Login {
    Password {
        #[schemars(extend("writeOnly" = true))]
        password: String,
    },
    None,
}

#[test]
fn the_schema_is_of_the_right_draft_and_closed() {
    let s = schema::of::<Settings>();
    assert_eq!(s["$schema"], "https://json-schema.org/draft/2020-12/schema");
    assert_eq!(s["additionalProperties"], false);
    assert_eq!(s["properties"]["region"]["x-requires-replace"], true);
    assert!(!s.to_string().contains("\"$ref\":\"http"), "a remote reference");
}

#[test]
fn marks_are_found_through_references_maps_and_lists() {
    let s = schema::of::<Settings>();
    let login = json!({"type": "password", "password": "x"});
    let value = json!({"region": "r", "login": login, "more": {"a/b": login, "n": {"type": "none"}}, "list": [login]});
    assert_eq!(
        schema::marked(&s, &value, "writeOnly"),
        ["/list/0/password", "/login/password", "/more/a~1b/password"]
    );
    assert_eq!(schema::marked(&s, &value, "x-requires-replace"), ["/region"]);
}
