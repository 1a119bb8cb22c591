//! `GET /audit` for callers and operators.

use axum::body::Body;
use axum::http::Request;
use expect_test::{Expect, expect};
use sutler_access::{Access, AccessConfig, InstanceAccess, hash_token};
use sutler_api::{ApiConfig, admin_router, router};
use sutler_dispatch::{AuditFilter, AuditPlace, Millis, Names};

use crate::fake::{api, fake, get, send, shown};

/// `all` and `acme` may read the audit, `blind` may not; of operators `ops` may and `dev` may not. `emea` and `apac`
/// have tokens of their own, and only `emea`'s may.
fn access() -> Access {
    let caller = |name: &str, tenants: &str, audit: bool| {
        let hash = hash_token(name);
        format!(
            "[[callers]]\nname = \"{name}\"\ntoken-hash = [\"{hash}\"]\ntenants = [{tenants}]\n\
             instances = [\"*\"]\naudit = {audit}\n"
        )
    };
    let operator = |name: &str, more: &str| {
        format!("[[operators]]\nname = \"{name}\"\ntoken-hash = [\"{}\"]\n{more}\n", hash_token(name))
    };
    let config = [
        caller("all", "\"*\"", true),
        caller("acme", "\"acme\", \"acme-too\"", true),
        caller("blind", "\"*\"", false),
        operator("ops", "audit = true"),
        operator("dev", ""),
    ];
    let config: AccessConfig = toml::from_str(&config.concat()).unwrap();
    let instances = [("emea", true), ("apac", false)].map(|(name, audit)| InstanceAccess {
        name: name.into(),
        token_hash: vec![hash_token(name)],
        tenants: None,
        audit,
    });
    Access::new(&config, &instances).unwrap()
}

fn config() -> ApiConfig {
    let of = ["emea", "apac"].map(|n| (n.to_owned(), format!("/of/{n}")));
    ApiConfig { instances: of.into(), ..ApiConfig::default() }
}

/// The answer, and what the host was asked for.
async fn ask(admin: bool, path: &str, token: &str) -> (String, Option<AuditFilter>) {
    let fake = fake();
    let api = api(&fake, access(), config());
    let router = if admin { admin_router(&api) } else { router(&api) };
    let request = Request::get(path).header("authorization", format!("Bearer {token}"));
    let answer = shown(send(&router, request.body(Body::empty()).unwrap()).await).await;
    (answer, fake.audits.lock().unwrap().pop())
}

async fn answer(admin: bool, path: &str, token: &str, expected: Expect) {
    expected.assert_eq(&ask(admin, path, token).await.0);
}

#[tokio::test]
async fn entries_have_names_and_pages() {
    answer(false, "/audit?limit=2", "all", expect![[r#"
        200
        {"entries":[{"place":"1769860800003-3","at":"2026-01-31T12:00:00.003Z","actor":"axual","action":"create","resourceType":"deployment/ksml","resourceId":"main","instance":"emea","tenant":"acme","environment":"prod","application":"orders","operationId":"op_00000000000000000000000000000003","requestId":"r-1"},{"place":"1769860800002-2","at":"2026-01-31T12:00:00.002Z","actor":"axual","action":"create","resourceType":"deployment/ksml","resourceId":"main","instance":"emea","tenant":"acme","environment":"prod","application":"orders","operationId":"op_00000000000000000000000000000002","requestId":"r-1"}],"next":"1769860800002-2"}"#]]).await;
    answer(true, "/audit?before=1769860800002-2", "ops", expect![[r#"
        200
        {"entries":[{"place":"1769860800001-1","at":"2026-01-31T12:00:00.001Z","actor":"ops","action":"reload","resourceType":"host","resourceId":"host-1","instance":null,"tenant":null,"environment":null,"application":null,"operationId":null,"requestId":null}]}"#]]).await;
}

#[tokio::test]
async fn reading_the_audit_is_granted_separately() {
    answer(false, "/audit", "blind", expect![[r#"
        403
        {"error":{"code":"forbidden","message":"blind may not read the audit: that is granted by audit = true in its [[access.callers]]"}}"#]]).await;
    answer(false, "/of/apac/audit", "apac", expect![[r#"
        403
        {"error":{"code":"forbidden","message":"instances/apac may not read the audit: that is granted by audit = true in its [instances.NAME]"}}"#]]).await;
    answer(true, "/audit", "dev", expect![[r#"
        403
        {"error":{"code":"forbidden","message":"dev may not read the audit: that is granted by audit = true in its [[access.operators]]"}}"#]]).await;
    // A caller's right is none of an operator, and an instance's token stays in its instance.
    answer(true, "/audit", "all", expect![[r#"
        403
        {"error":{"code":"forbidden","message":"this is a caller's token; the admin API takes an operator's ([[access.operators]])"}}"#]]).await;
    answer(false, "/audit", "emea", expect![[r#"
        403
        {"error":{"code":"forbidden","message":"this is the token of instance \"emea\"; it takes the routes under that instance's base path alone"}}"#]]).await;
    answer(false, "/of/apac/audit", "emea", expect![[r#"
        403
        {"error":{"code":"forbidden","message":"this is the token of instance \"emea\"; it takes the routes under that instance's base path alone"}}"#]]).await;
}

#[tokio::test]
async fn each_sees_its_own() {
    let only = |names: &[&str]| Names::Only(names.iter().map(|n| (*n).to_owned()).collect());
    for (admin, path, token, instances, tenants, instance) in [
        (false, "/audit", "all", Names::All, Names::All, None),
        (false, "/audit?tenant=globex", "acme", Names::All, only(&["acme", "acme-too"]), None),
        (false, "/audit?instance=emea", "all", Names::All, Names::All, Some("emea")),
        (false, "/of/emea/audit", "all", Names::All, Names::All, Some("emea")),
        (false, "/of/emea/audit?instance=emea", "emea", only(&["emea"]), Names::All, Some("emea")),
        (true, "/audit", "ops", Names::All, Names::All, None),
    ] {
        let (said, asked) = ask(admin, path, token).await;
        let asked = asked.unwrap_or_else(|| panic!("{path}: {said}"));
        assert_eq!((asked.instances, asked.tenants), (instances, tenants), "{path}");
        assert_eq!(asked.instance.as_deref(), instance, "{path}");
        // What operators do to a host is no caller's.
        assert_eq!(asked.of_applications, !admin, "{path}");
    }
    answer(false, "/of/emea/audit?instance=apac", "emea", expect![[r#"
        403
        {"error":{"code":"forbidden","message":"the route is for instance \"emea\", not \"apac\"","path":"?instance"}}"#]]).await;
}

#[tokio::test]
async fn a_query_is_taken_as_it_is_meant_or_refused() {
    let path = "/audit?actor=a&action=delete&resourceType=deployment/ksml&resourceId=main&tenant=t&environment=e\
                &application=p&operationId=op_00000000000000000000000000000001&from=2026-01-31T12:00:00Z\
                &to=2026-01-31T14:00:00%2B01:00&before=1769860800000-9&limit=1000";
    let (said, asked) = ask(true, path, "ops").await;
    let asked = asked.unwrap_or_else(|| panic!("{said}"));
    let texts = [
        &asked.actor,
        &asked.action,
        &asked.resource_type,
        &asked.resource_id,
        &asked.tenant,
        &asked.environment,
        &asked.application,
    ];
    let texts: Vec<&str> = texts.into_iter().flatten().map(String::as_str).collect();
    assert_eq!(texts, ["a", "delete", "deployment/ksml", "main", "t", "e", "p"]);
    assert_eq!(asked.operation.unwrap().as_str(), "op_00000000000000000000000000000001");
    let times = (Some(Millis(1_769_860_800_000)), Some(Millis(1_769_864_400_000)));
    assert_eq!((asked.from, asked.to), times);
    assert_eq!((asked.before, asked.limit), (Some(AuditPlace { at: times.0.unwrap(), n: 9 }), 200));
    assert_eq!(ask(true, "/audit", "ops").await.1.unwrap().limit, 50);

    answer(true, "/audit?from=yesterday", "ops", expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"\"yesterday\" is no time (premature end of input); write one as 2026-01-31T12:00:00Z (RFC 3339)","path":"?from"}}"#]]).await;
    answer(true, "/audit?resource=main", "ops", expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"the query is not valid: resource: unknown field `resource`, expected one of `actor`, `action`, `resourceType`, `resourceId`, `instance`, `tenant`, `environment`, `application`, `operationId`, `from`, `to`, `before`, `limit`"}}"#]]).await;
    answer(true, "/audit?operationId=7", "ops", expect![[r#"
        400
        {"error":{"code":"invalid-request","message":"\"7\" is not the id of an operation or a job","path":"?operationId"}}"#]]).await;
}

/// Nothing in answer to a slip would read as nothing that was done.
#[tokio::test]
async fn what_no_entry_can_be_like_is_refused() {
    for (query, at, why) in [
        ("action=deleted", "?action", "there are create, update, replace, delete, retry, cancel, reload"),
        ("resourceType=ksml", "?resourceType", "or write operation or host"),
        ("tenant=AC%20ME", "?tenant", "AC ME"),
        ("application=", "?application", "1 to 63"),
        ("actor=a%00b", "?actor", "control character"),
        ("resourceId=%0a", "?resourceId", "control character"),
        ("before=2", "?before", "no place in the audit"),
        ("from=2026-01-31T14:00:00Z&to=2026-01-31T14:00:00Z", "?from", "not before to"),
    ] {
        let (said, asked) = ask(true, &format!("/audit?{query}"), "ops").await;
        let (status, body) = said.split_once('\n').unwrap();
        assert!(status.starts_with("400") && asked.is_none(), "{query}: {said}");
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["path"], at, "{said}");
        assert!(body["error"]["message"].as_str().unwrap().contains(why), "{said}");
    }
    for query in ["tenant=a%00", "application=A", "environment="] {
        let public = router(&api(&fake(), crate::fake::access(), config()));
        let said = shown(send(&public, get(&format!("/operations?{query}"))).await).await;
        let field = query.split('=').next().unwrap();
        assert!(said.starts_with("400") && said.contains(&format!("{field}: identifier")), "{query}: {said}");
    }
    for query in ["resourceType=operation&action=cancel", "resourceType=host&action=reload"] {
        assert!(ask(true, &format!("/audit?{query}"), "ops").await.1.is_some(), "{query}");
    }
}
