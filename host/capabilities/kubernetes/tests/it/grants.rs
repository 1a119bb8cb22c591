use sutler_kubernetes::{Ask, Labels, Scope, Verb};
use sutler_model::Owner;

use crate::server::{owner, parse};

fn ask<'a>(owner: &'a Owner, text: &'a str) -> Ask<'a> {
    // verb kind place name [cluster] [unowned]
    let mut words = text.split_whitespace();
    let verb = match words.next().unwrap() {
        "get" => Verb::Get,
        "list" => Verb::List,
        "apply" => Verb::Apply,
        "delete" => Verb::Delete,
        w => panic!("{w}"),
    };
    let (group, kind) = match words.next().unwrap() {
        k if k.contains('/') => k.split_once('/').unwrap(),
        k => ("", k),
    };
    let scope = match words.next().unwrap() {
        "-" => Scope::Cluster,
        "everywhere" => Scope::Everywhere,
        ns => Scope::Namespace(ns),
    };
    let name = Some(words.next().unwrap()).filter(|n| *n != "-");
    let cluster = words.next().unwrap_or("default");
    Ask {
        verb,
        group,
        kind,
        scope,
        name,
        cluster,
        default_cluster: cluster == "default",
        owner,
        unowned: words.next().is_some(),
        labels: Labels::Unknown,
    }
}

#[test]
fn what_rules_cover() {
    let acme = owner("orders", "acme");
    let rule = |s: &str| format!("kubernetes = [{{ {s} }}]");
    let get = |s: &str| rule(&format!("verbs = ['get', 'list', 'apply', 'delete'], {s}"));
    for (toml, call, covered) in [
        ("kubernetes = []".to_owned(), "get Pod acme p", false),
        (get("kinds = ['Pod'], namespaces = ['acme']"), "get Pod acme p", true),
        (get("kinds = ['Pod'], namespaces = ['acme']"), "get Pod other p", false),
        (get("kinds = ['Pod'], namespaces = ['acme']"), "get Pod - p", false),
        (get("kinds = ['Pod'], namespaces = ['acme']"), "get apps/Pod acme p", false),
        (get("kinds = ['apps/Deployment'], namespaces = ['*']"), "get apps/Deployment x d", true),
        (get("kinds = ['apps/Deployment'], namespaces = ['*']"), "get Deployment x d", false),
        (rule("verbs = ['get'], kinds = ['Pod'], namespaces = ['acme']"), "delete Pod acme p", false),
        // Wildcards never mean Secret.
        (get("kinds = ['*'], namespaces = ['acme']"), "get Secret acme s", false),
        (get("kinds = ['*/*'], namespaces = ['acme']"), "get Secret acme s", false),
        (get("kinds = ['Secret'], namespaces = ['acme']"), "get Secret acme s", true),
        (get("kinds = ['*'], namespaces = ['acme']"), "get ConfigMap acme c", true),
        (get("kinds = ['*'], namespaces = ['acme']"), "get bitnami.com/Secret acme s", true),
        (get("kinds = ['apps/*'], namespaces = ['acme']"), "get apps/StatefulSet acme s", true),
        (get("kinds = ['apps/*'], namespaces = ['acme']"), "get batch/Job acme s", false),
        // Without namespaces: cluster-scoped only; with: namespaced only.
        (get("kinds = ['Namespace']"), "get Namespace - acme", true),
        (get("kinds = ['Namespace'], namespaces = ['*']"), "get Namespace - acme", false),
        (get("kinds = ['Pod']"), "get Pod acme p", false),
        // Names, and lists.
        (get("kinds = ['Namespace'], names = ['ksml-{tenant}']"), "delete Namespace - ksml-acme", true),
        (get("kinds = ['Namespace'], names = ['ksml-{tenant}']"), "delete Namespace - ksml-other", false),
        (get("kinds = ['Pod'], namespaces = ['acme']"), "list Pod acme -", true),
        (get("kinds = ['Pod'], namespaces = ['acme'], names = ['a-*']"), "list Pod acme -", false),
        (get("kinds = ['Pod'], namespaces = ['acme']"), "list Pod everywhere -", false),
        (get("kinds = ['Pod'], namespaces = ['*']"), "list Pod everywhere -", true),
        (get("kinds = ['Pod'], namespaces = ['{tenant}']"), "get Pod acme p", true),
        // Clusters.
        (get("kinds = ['Pod'], namespaces = ['*']"), "get Pod a p edge", false),
        (get("kinds = ['Pod'], namespaces = ['*'], clusters = ['edge']"), "get Pod a p edge", true),
        (get("kinds = ['Pod'], namespaces = ['*'], clusters = ['edge']"), "get Pod a p", false),
        (get("kinds = ['Pod'], namespaces = ['*'], clusters = ['*']"), "get Pod a p edge", true),
        (get("kinds = ['Pod'], namespaces = ['*'], clusters = ['default']"), "get Pod a p", true),
        // Objects of others.
        (get("kinds = ['Pod'], namespaces = ['*']"), "apply Pod a p default unowned", false),
        (get("kinds = ['Pod'], namespaces = ['*'], unowned = true"), "apply Pod a p default unowned", true),
    ] {
        let got = parse(&toml).unwrap().check(&ask(&acme, call));
        assert_eq!(got.is_ok(), covered, "{toml} {call}: {got:?}");
    }
}

#[test]
fn the_suggestion_allows_the_call() {
    let acme = owner("orders", "acme");
    for (call, what) in [
        ("get Secret acme pw", "get Secret pw in namespace acme"),
        ("list apps/Deployment everywhere -", "list apps/Deployment in all namespaces"),
        ("delete Namespace - ns edge", "delete Namespace ns of cluster edge"),
        (
            "delete Namespace - ns default unowned",
            "deleting Namespace ns, which another owner made or nobody,",
        ),
        (
            "apply ConfigMap a c edge unowned",
            "changing ConfigMap c in namespace a of cluster edge, which another owner made or nobody,",
        ),
    ] {
        let call = ask(&acme, call);
        let (told, add) = parse("kubernetes = []").unwrap().check(&call).unwrap_err();
        assert_eq!(told, what);
        assert_eq!(parse(&add).unwrap().check(&call), Ok(()), "{add}");
    }
}

#[test]
fn what_is_no_rule() {
    for (toml, why) in [
        ("kubernetes = [{ verbs = ['get'], kinds = ['v1/Pod'] }]", "without a version"),
        ("kubernetes = [{ verbs = ['get'], kinds = ['apps/v1/Deployment'] }]", "without a version"),
        ("kubernetes = [{ verbs = ['get'], kinds = ['pods'] }]", "is not a kind"),
        ("kubernetes = [{ verbs = ['update'], kinds = ['Pod'] }]", "unknown variant"),
        ("kubernetes = [{ verbs = ['get'], kinds = ['Pod'], namespace = ['a'] }]", "unknown field"),
        (
            "kubernetes = [{ verbs = ['get'], kinds = ['Pod'], namespaces = ['{tenant}-{application}'] }]",
            "two placeholders",
        ),
        ("kubernetes = [{ kinds = ['Pod'] }]", "missing field"),
    ] {
        let error = parse(toml).unwrap_err().to_string();
        assert!(error.contains(why), "{toml}: {error}");
    }
}

#[test]
fn labels_narrow_a_rule() {
    let acme = owner("orders", "acme");
    let grants = parse(
        "kubernetes = [{ verbs = ['get', 'list'], kinds = ['Pod'], namespaces = ['acme'], labels = { team = 'a', tier = 'web' } }]",
    )
    .unwrap();
    let of = |labels: serde_json::Value| serde_json::json!({"metadata": {"labels": labels}});
    let covered = |text: &str, labels: Labels<'_>| grants.check(&Ask { labels, ..ask(&acme, text) }).is_ok();
    let one = "get Pod acme p";
    assert!(covered(one, Labels::Unknown), "the object is read first");
    assert!(covered(one, Labels::Of(&of(serde_json::json!({"team": "a", "tier": "web", "x": "y"})))));
    for labels in [
        serde_json::json!({"team": "a"}),
        serde_json::json!({"team": "b", "tier": "web"}),
        serde_json::Value::Null,
    ] {
        assert!(!covered(one, Labels::Of(&of(labels))));
    }
    for (selector, fits) in [
        ("team=a,tier=web", true),
        ("app==x, tier == web ,team=a", true),
        ("team=a", false),
        ("team=a,tier!=web", false),
        ("tier=web,team in (a,team=a)", false),
        ("", false),
    ] {
        assert_eq!(covered("list Pod acme -", Labels::Selector(selector)), fits, "{selector}");
    }
}
