//! Challenges and token endpoints.

use sutler_testkit::registry::{Fault, FaultBody};

use super::Kind::{Registry, TooLarge, Unavailable};
use super::{Case, Place, all_refused};

const JSON: &str = "application/json";

fn challenge(value: impl Into<String>) -> Fault {
    Fault::new(401, JSON, r#"{"errors": []}"#).header("www-authenticate", value)
}

/// A registry that wants a token, and its token endpoint's answer.
fn token(place: &Place, answer: Fault) {
    let wanted = challenge(format!("Bearer realm=\"{}/token\",service=\"s\"", place.registry.url()));
    place
        .registry
        .answer_with(move |r| Some(if r.path == "/token" { answer.clone() } else { wanted.clone() }));
}

fn json(text: &str) -> Fault {
    Fault::new(200, JSON, text.to_owned())
}

#[tokio::test]
async fn challenges() {
    const REFUSED: &str = "refused the credentials of user robot (401)";
    const UNSAFE: &str = "unsafe connection; it was not sent";
    let cases: &[Case] = &[
        ("no challenge", Registry, REFUSED, |p| p.answers("/v2/", Fault::new(401, JSON, ""))),
        ("the same again and again", Registry, REFUSED, |p| {
            p.answers("/v2/", challenge("Basic realm=\"x\""))
        }),
        ("a scheme that nobody knows", Registry, REFUSED, |p| {
            p.answers("/v2/", challenge("Negotiate"));
        }),
        ("no realm", Registry, REFUSED, |p| p.answers("/v2/", challenge("Bearer service=\"s\""))),
        ("a realm that is no address", Registry, "names no address for tokens", |p| {
            p.answers("/v2/", challenge("Bearer realm=\"give me\""));
        }),
        ("a realm in a file", Registry, UNSAFE, |p| {
            p.answers("/v2/", challenge("Bearer realm=\"file:///x\""));
        }),
        ("the cloud's metadata", Registry, UNSAFE, |p| {
            p.answers("/v2/", challenge("Bearer realm=\"http://169.254.169.254/token\""));
        }),
        ("forbidden", Registry, "(403)", |p| p.answers("/v2/", Fault::new(403, JSON, "hunter2"))),
    ];
    all_refused(cases).await;
}

#[tokio::test]
async fn token_endpoints() {
    const NO_TOKEN: &str = "its token endpoint answered no token";
    let cases: &[Case] = &[
        ("tokens that are never taken", Registry, "refused the credentials", |p| {
            token(p, json(r#"{"token": "t", "expires_in": 300}"#));
        }),
        ("no JSON", Registry, NO_TOKEN, |p| token(p, Fault::new(200, "text/html", "<html>"))),
        ("nothing", Registry, NO_TOKEN, |p| token(p, json(""))),
        ("a list", Registry, NO_TOKEN, |p| token(p, json("[]"))),
        ("no token", Registry, NO_TOKEN, |p| token(p, json(r#"{"token": ""}"#))),
        ("a number", Registry, NO_TOKEN, |p| token(p, json(r#"{"token": 7}"#))),
        ("a life below zero", Registry, NO_TOKEN, |p| token(p, json(r#"{"token": "t", "expires_in": -1}"#))),
        ("a token with a new line", Registry, "refused the credentials", |p| {
            token(p, json(r#"{"token": "t\r\nX: y"}"#));
        }),
        ("refusal", Registry, "refused the credentials", |p| token(p, Fault::new(401, JSON, "hunter2"))),
        ("an error", Unavailable, "answered 500 for a token", |p| token(p, Fault::new(500, JSON, ""))),
        ("another host", Registry, "answered 307 for a token", |p| {
            let there = format!("{}/token", p.other.url());
            token(p, Fault::redirect(there));
        }),
        ("2 GB", TooLarge, "a token of oci://", |p| {
            token(p, json("").body(FaultBody::Claim(2 << 30)));
        }),
        ("no end", TooLarge, "a token of oci://", |p| token(p, json("").body(FaultBody::Endless))),
        ("silence", Unavailable, "did not answer within 5 s", |p| {
            token(p, json("").body(FaultBody::Claim(9)))
        }),
    ];
    all_refused(cases).await;
}
