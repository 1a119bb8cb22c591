//! Blobs, redirects and statuses.

use std::time::Duration;

use sutler_testkit::registry::{Fault, FaultBody, Misbehaviour};

use super::Kind::{Registry, TimedOut, TooLarge, Unavailable};
use super::{Case, Place, all_refused};

const BINARY: &str = "application/octet-stream";

/// The good chart, and another answer for its content.
fn blob(place: &Place, fault: Fault) {
    place.good();
    place.answers("/blobs/", fault);
}

fn body(body: FaultBody) -> Fault {
    Fault::new(200, BINARY, "").body(body)
}

fn archive() -> Vec<u8> {
    crate::support::chart("app", "1.0.0")
}

#[tokio::test]
async fn blobs() {
    let cases: &[Case] = &[
        ("other bytes", Registry, "the content of", |p| {
            p.good();
            p.registry.misbehave(Misbehaviour::WrongDigest);
        }),
        ("a byte less", Registry, "bytes that its manifest tells", |p| {
            let mut bytes = archive();
            bytes.pop();
            blob(p, body(FaultBody::Bytes(bytes.into())));
        }),
        ("a byte less, without a length", Registry, "bytes that its manifest tells", |p| {
            let mut bytes = archive();
            bytes.pop();
            blob(p, body(FaultBody::Chunked(bytes.into())));
        }),
        ("a byte more, without a length", Registry, "bytes that its manifest tells", |p| {
            blob(p, body(FaultBody::Chunked([archive(), vec![0]].concat().into())));
        }),
        ("nothing", Registry, "bytes that its manifest tells", |p| {
            blob(p, body(FaultBody::Bytes(bytes::Bytes::new())));
        }),
        ("zeros without end", Registry, "bytes that its manifest tells", |p| {
            blob(p, body(FaultBody::Endless));
        }),
        ("a length of 2 GB", TooLarge, "is larger than 20971520 bytes", |p| {
            blob(p, body(FaultBody::Claim(2 << 30)));
        }),
        ("half of it", Unavailable, "cannot be reached", |p| {
            p.good();
            p.registry.misbehave(Misbehaviour::Truncate);
        }),
        ("drops", TimedOut, "", |p| {
            p.deadline = Duration::from_millis(1500);
            blob(p, body(FaultBody::Drip(archive().into(), Duration::from_millis(300))));
        }),
        ("silence", Unavailable, "did not answer within 5 s", |p| {
            let length = archive().len() as u64;
            blob(p, body(FaultBody::Claim(length)));
        }),
        ("gone", Registry, "answered 404 for the content", |p| {
            p.good();
            p.registry.misbehave(Misbehaviour::DropBlob);
        }),
        ("an error in its place", Unavailable, "answered 500 for the content", |p| {
            blob(p, Fault::new(500, "text/html", "<html>"));
        }),
        ("no content", Registry, "bytes that its manifest tells", |p| blob(p, Fault::new(204, BINARY, ""))),
        ("too many requests", Unavailable, "answered 429", |p| blob(p, Fault::new(429, BINARY, ""))),
    ];
    all_refused(cases).await;
}

#[tokio::test]
async fn redirects() {
    let cases: &[Case] = &[
        ("a loop", Registry, "redirects more than 5 times", |p| {
            let there = format!("{}/v2/charts/app/blobs/x", p.registry.url());
            blob(p, Fault::redirect(there));
        }),
        ("a loop over two hosts", Registry, "redirects more than 5 times", |p| {
            let (here, there) = (format!("{}/blobs/x", p.registry.url()), format!("{}/x", p.other.url()));
            blob(p, Fault::redirect(there));
            p.other.answer_with(move |_| Some(Fault::redirect(here.clone())));
        }),
        ("another host without the blob", Registry, "answered 404 for the content", |p| {
            let there = format!("{}/v2/other/blobs/x", p.other.url());
            blob(p, Fault::redirect(there));
        }),
        ("another host with other bytes", Registry, "bytes that its manifest tells", |p| {
            let there = format!("{}/x", p.other.url());
            blob(p, Fault::redirect(there));
            p.other.answer_with(|_| Some(Fault::new(200, BINARY, "other")));
        }),
        ("another host that offers a token", Registry, "it answered 401", |p| {
            let (there, realm) = (format!("{}/x", p.other.url()), format!("{}/token", p.other.url()));
            blob(p, Fault::redirect(there));
            p.other.answer_with(move |r| {
                let challenge = format!("Bearer realm=\"{realm}\",service=\"s\"");
                Some(match r.path.as_str() {
                    "/token" => Fault::new(200, BINARY, r#"{"token": "t"}"#),
                    _ => Fault::new(401, BINARY, "").header("www-authenticate", challenge),
                })
            });
        }),
        ("another host that asks for the password", Registry, "it answered 401", |p| {
            let there = format!("{}/x", p.other.url());
            blob(p, Fault::redirect(there));
            p.other.answer_with(|_| {
                Some(Fault::new(401, BINARY, "").header("www-authenticate", "Basic realm=\"give\""))
            });
        }),
        ("another repository's blob", Registry, "the content of", |p| {
            let other = crate::support::chart("app", "1.0.1");
            let digest = p.registry.push_blob("private/app", other);
            let there = format!("/v2/private/app/blobs/{digest}");
            p.good();
            p.registry.answer_with(move |r| {
                r.path.starts_with("/v2/charts/app/blobs/").then(|| Fault::redirect(there.clone()))
            });
        }),
        ("a file", Registry, "only https is followed", |p| blob(p, Fault::redirect("file:///etc/passwd"))),
        ("another protocol", Registry, "only https is followed", |p| {
            blob(p, Fault::redirect("ftp://127.0.0.1/x"));
        }),
        ("the cloud's metadata", Registry, "link-local addresses are not followed", |p| {
            blob(p, Fault::redirect("http://169.254.169.254/latest/meta-data"));
        }),
        (
            "the cloud's metadata in another spelling",
            Registry,
            "link-local addresses are not followed",
            |p| {
                blob(p, Fault::redirect("http://[::ffff:169.254.169.254]/latest/meta-data"));
            },
        ),
        ("every address", Registry, "link-local addresses are not followed", |p| {
            blob(p, Fault::redirect("http://0.0.0.0:1/x"));
        }),
        ("nowhere", Registry, "redirects without an address", |p| blob(p, Fault::new(302, BINARY, ""))),
        ("no address", Registry, "redirects without an address", |p| blob(p, Fault::redirect("http://["))),
        ("a login page", Registry, "it is no OCI registry", |p| {
            let there = format!("{}/login", p.other.url());
            p.answers("/manifests/", Fault::redirect(there));
            p.other.answer_with(|_| Some(Fault::new(200, "text/html", "<form>")));
        }),
    ];
    all_refused(cases).await;
}
