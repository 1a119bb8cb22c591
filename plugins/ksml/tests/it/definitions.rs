//! What KSML would stop at is told before anything is written; what it reads is let through.

use std::collections::BTreeMap;

use ksml::definitions::check;
use ksml::settings::Definition;
use serde_json::json;
use sutler_sdk::{Error, Result};

fn of(yaml: &str) -> Result<Vec<String>> {
    check(&BTreeMap::from([("main".to_owned(), Definition::Text(yaml.into()))]), [].iter())
}

fn refused(yaml: &str) -> Error {
    let e = of(yaml).unwrap_err();
    assert_eq!(e.code, "invalid-definition");
    assert_eq!(e.at.as_deref(), Some("/definitions/main"));
    assert!(e.reason.starts_with("definition main "), "{}", e.reason);
    e
}

/// Every construct that refers to something.
const WHOLE: &str = r#"
$schema: https://example.com/ksml.json
name: sensors
version: 1.0.0
description: What a definition can be made of
streams:
  readings: {topic: readings, keyType: string, valueType: string, timestampExtractor: when}
  alerts: {topic: alerts, keyType: string, valueType: string, partitioner: spread}
tables:
  owners: {topic: owners, keyType: string, valueType: string, store: {name: owner_store, type: keyValue}}
globalTables:
  cities: {topic: cities, keyType: string, valueType: string}
stores:
  last: {type: keyValue, keyType: string, valueType: string}
  window: {type: window, windowSize: 5m, retention: 10m}
functions:
  when: {type: timestampExtractor, expression: "0"}
  spread: {type: streamPartitioner, expression: "0"}
  hot: {type: predicate, expression: "value > 30", stores: [last, owner_store, owners]}
  tell: {type: forEach, code: "log.info(key)"}
  join: {type: valueJoiner, expression: value1}
  make: {type: generator, expression: "('a', 'b')", resultType: "(string, string)", stores: [ignored]}
  where: {type: topicNameExtractor, expression: "'t'"}
  first: {type: initializer, expression: "0"}
  add: {type: aggregator, expression: "aggregatedValue + 1"}
pipelines:
  split:
    from: readings
    via:
      - {type: filter, if: hot}
      - {type: filter, if: {expression: "True"}}
      - {type: transformValue, mapper: {code: "return value", stores: [last]}}
      - {type: peek, forEach: tell}
      - {type: join, stream: alerts, valueJoiner: join, timeDifference: 1m, thisStore: window, otherStore: {name: w2, type: window}}
      - {type: leftJoin, table: owners, valueJoiner: join}
      - {type: join, globalTable: cities, mapper: {expression: value}, valueJoiner: join}
      - {type: merge, stream: alerts}
      - {type: groupByKey}
      - {type: windowByTime, windowType: tumbling, duration: 5m}
      - {type: aggregate, initializer: first, aggregator: add, store: w2}
      - {type: suppress, until: windowCloses}
      - {type: toStream}
      - {type: notKnownHere, mapper: nobody, store: nothing}
    branch:
      - if: hot
        to: alerts
      - via: [{type: mapValues, mapper: {expression: value}}]
        as: cool
      - branch: [{if: {expression: "True"}, forEach: tell}, {print: {mapper: {expression: value}}}]
  results: {from: cool, to: {topic: elsewhere, keyType: string, valueType: string, partitioner: spread}}
  by_pipeline: {from: unnamed, toTopicNameExtractor: where}
  unnamed: {from: {topic: inline, keyType: string, valueType: string}}
  extracted: {from: owners, toTopicNameExtractor: {topicNameExtractor: where, partitioner: spread}}
  odd: {from: readings, print: true}
producers:
  one: {generator: make, interval: 3s, to: readings, condition: hot, until: {expression: "False"}}
  two: {generator: {code: "return 1"}, to: {topic: x, keyType: string, valueType: string}}
"#;

#[test]
fn a_definition_with_everything_is_let_through() {
    assert_eq!(of(WHOLE).unwrap(), Vec::<String>::new());
    let json: serde_json::Value = serde_json::from_str(
        r#"{"streams": {"in": {"topic": "a"}}, "pipelines": {"p": {"from": "in", "print": true}}}"#,
    )
    .unwrap();
    let object = Definition::Object(json.as_object().unwrap().clone());
    check(&BTreeMap::from([("o".to_owned(), object)]), [].iter()).unwrap();
}

#[test]
fn each_name_that_is_missing_is_told_with_its_place() {
    for (from, to, place, meant) in [
        ("from: readings\n", "from: reading\n", "pipelines.split.from", "did you mean \"readings\"?"),
        ("{from: cool,", "{from: cold,", "pipelines.results.from", "did you mean \"cool\"?"),
        (
            "to: alerts\n",
            "to: elsewhere\n",
            "pipelines.split.branch[0].to",
            "known are alerts, cities, owners, readings",
        ),
        ("- if: hot\n", "- if: hat\n", "pipelines.split.branch[0].if", "did you mean \"hot\"?"),
        (
            "{type: filter, if: hot}",
            "{type: filter, if: nope}",
            "pipelines.split.via[0].if",
            "known are add, first",
        ),
        ("stores: [last]}}", "stores: [lost]}}", "via[2].mapper.stores[0]", "did you mean \"last\"?"),
        (
            "{type: peek, forEach: tell}",
            "{type: peek, forEach: tall}",
            "via[3].forEach",
            "did you mean \"tell\"?",
        ),
        (
            "stream: alerts, valueJoiner",
            "stream: alert, valueJoiner",
            "via[4].stream",
            "did you mean \"alerts\"?",
        ),
        ("thisStore: window", "thisStore: widow", "via[4].thisStore", "did you mean \"window\"?"),
        ("table: owners", "table: owner", "via[5].table", "did you mean \"owners\"?"),
        ("globalTable: cities", "globalTable: city", "via[6].globalTable", "known are"),
        ("{type: merge, stream: alerts}", "{type: merge, stream: alertz}", "via[7].stream", "alerts"),
        ("initializer: first", "initializer: firzt", "via[10].initializer", "did you mean \"first\"?"),
        ("store: w2", "store: w3", "via[10].store", "did you mean \"w2\"?"),
        ("forEach: tell}, {print", "forEach: tel}, {print", "branch[2].branch[0].forEach", "tell"),
        (
            "valueType: string, partitioner: spread}}\n",
            "valueType: string, partitioner: bread}}\n",
            "results.to.partitioner",
            "spread",
        ),
        (
            "unnamed, toTopicNameExtractor: where",
            "unnamed, toTopicNameExtractor: there",
            "by_pipeline.toTopicNameExtractor",
            "where",
        ),
        (
            "{topicNameExtractor: where",
            "{topicNameExtractor: wear",
            "toTopicNameExtractor.topicNameExtractor",
            "where",
        ),
        (
            "timestampExtractor: when",
            "timestampExtractor: then",
            "streams.readings.timestampExtractor",
            "when",
        ),
        ("[last, owner_store,", "[last, readings,", "functions.hot.stores[1]", "known are"),
        ("generator: make", "generator: mike", "producers.one.generator", "did you mean \"make\"?"),
        ("to: readings, condition", "to: cool, condition", "producers.one.to", "known are alerts"),
        ("condition: hot", "condition: cold", "producers.one.condition", "known are"),
    ] {
        assert_eq!(WHOLE.matches(from).count(), 1, "{from}");
        let reason = refused(&WHOLE.replace(from, to)).reason;
        assert!(reason.contains(place) && reason.contains(meant), "{reason}");
    }
}

#[test]
fn what_is_no_definition() {
    for (yaml, said) in [
        ("", "is empty"),
        ("# only words\n", "is empty"),
        ("- a\n- b\n", "is not a mapping"),
        ("just text", "is not a mapping"),
        ("streams: [", "is not one YAML document"),
        ("streams:\n  a: {topic: b}\n   c: d\n", "is not one YAML document"),
        ("streams: {}\n---\nstreams: {}\n", "is not one YAML document"),
        ("stream: {}\n", "did you mean \"streams\"?"),
        ("pipeline: {}\n", "did you mean \"pipelines\"?"),
        (
            "x-anything: {}\n",
            "known are streams, tables, globalTables, stores, functions, pipelines, producers",
        ),
        ("streams: {a: {topic: a}}\ntables: {a: {topic: b}}\n", "\"a\" in streams and in tables"),
        ("producers: {p: {to: {topic: a}}}\n", "no producers.p.generator"),
        ("producers: {p: {generator: {code: x}}}\n", "no producers.p.to"),
        ("pipelines: {p: {from: a}}\n", "did you mean \"p\"?"),
        ("producers: {p: {generator: f, to: {topic: a}}}\n", "there is none"),
    ] {
        let reason = refused(yaml).reason;
        assert!(reason.contains(said), "{yaml:?}: {reason}");
    }
    let deep = format!("description: {}{}\n", "[".repeat(200), "]".repeat(200));
    assert!(refused(&deep).reason.contains("depth"), "{}", refused(&deep).reason);
    let laughs = (1..30).fold("a0: &a0 x\n".to_owned(), |text, i| {
        let before = format!("*a{}, ", i - 1).repeat(10);
        format!("{text}a{i}: &a{i} [{before}]\n")
    });
    refused(&laughs);
}

#[test]
fn what_ksml_alone_can_judge_is_let_through() {
    for yaml in [
        "streams:\npipelines:\nproducers:\n",
        "streams: [a, b]\npipelines: {p: {from: nowhere}}\n",
        "pipelines: {p: {from: 7, via: {type: filter}, to: [a], forEach: true}}\n",
        "pipelines: {p: just text}\nfunctions: {f: text}\nproducers: {p: text}\n",
        "functions: {f: {type: predicate, stores: none}}\n",
        "streams: {a: {topic: b}}\npipelines: {p: {from: a, via: [{type: count}, text, {type: [x]}]}}\n",
    ] {
        assert_eq!(of(yaml).unwrap(), Vec::<String>::new(), "{yaml}");
    }
    let twice = of("streams: {a: {topic: b}, a: {topic: c}}\n").unwrap();
    assert!(twice.len() == 1 && twice[0].contains("KSML 2 refuses that"), "{twice:?}");
}

#[test]
fn no_two_files_meet() {
    let text = || Definition::Text("streams: {}\n".into());
    let of = |names: &[&str], schemas: &[&str]| {
        let definitions = names.iter().map(|n| ((*n).to_owned(), text())).collect();
        let schemas: Vec<String> = schemas.iter().map(|s| (*s).to_owned()).collect();
        check(&definitions, schemas.iter())
    };
    of(&["a", "b.yaml", "c.yml"], &["a.avsc"]).unwrap();
    for (names, schemas, at) in [
        (&["a", "a.yaml"][..], &[][..], "/definitions/a.yaml"),
        (&["a.yaml", "a.yml"], &[], "/definitions/a.yml"),
        (&["a"], &["a.yaml"], "/schemas/a.yaml"),
    ] {
        let e = of(names, schemas).unwrap_err();
        assert_eq!((e.code.as_str(), e.at.as_deref()), ("invalid-definition", Some(at)), "{}", e.reason);
    }
}

#[test]
fn long_names_are_cut_and_not_compared() {
    let (one, other) = ("a".repeat(20_000), "b".repeat(20_000));
    let pipeline = |name: &str, from: &str| json!({ name: {"from": from} });
    for definition in [
        json!({"streams": {&one: {}}, "pipelines": pipeline("p", &other)}),
        json!({"streams": {"in": {}}, "pipelines": pipeline(&one, &other)}),
        json!({"streams": {&one: {}}, "tables": {&one: {}}}),
        json!({"functions": {&one: {"stores": [&other]}}}),
        json!({"producers": {&one: {"to": "x"}}}),
        json!({ &one: 1 }),
    ] {
        let object = Definition::Object(definition.as_object().unwrap().clone());
        let e = check(&BTreeMap::from([("main".to_owned(), object)]), [].iter()).unwrap_err();
        assert!(e.reason.len() < 800 && e.reason.contains('…'), "{} bytes: {}", e.reason.len(), e.reason);
    }
    for yaml in [format!("a: *{one}\n"), format!("a: !<{one}> [\n"), format!("%{one}\n")] {
        let reason = refused(&yaml).reason;
        assert!(reason.len() < 800, "{} bytes: {reason}", reason.len());
    }
    let twice = of(&format!("streams:\n  ? {one}\n  : {{topic: b}}\n  ? {one}\n  : {{topic: c}}\n")).unwrap();
    assert!(twice.len() == 1 && twice[0].len() < 800 && twice[0].contains("line 4"), "{twice:?}");
    // Of what an error shows whole, the near one is still told.
    let (long, near) = ("a".repeat(99), format!("{}b", "a".repeat(98)));
    let yaml = format!("streams: {{{long}: {{topic: x}}}}\npipelines: {{p: {{from: {near}}}}}\n");
    assert!(refused(&yaml).reason.contains(&format!("did you mean {long:?}?")));
}

#[test]
fn errors_of_yaml_are_for_those_who_write_it() {
    let twice = of("streams: {a: {topic: b}, a: {topic: c}}\n").unwrap();
    let several = refused("streams: {}\n---\nstreams: {}\n").reason;
    let large = refused(&format!("description: [{}]\n", "1, ".repeat(200_000))).reason;
    for said in [&twice[0], &several, &large] {
        for hint in ["Options", "from_str", "DuplicateKeyPolicy", "budget"] {
            assert!(!said.contains(hint), "{said}");
        }
    }
    assert!(twice[0].contains("line 1") && twice[0].contains("duplicate mapping key"), "{twice:?}");
}
