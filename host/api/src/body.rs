//! The bytes of a request: media type, size, time, UTF-8 and depth, all decided before anything is parsed.

use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

use crate::config::ApiConfig;
use crate::refusal::Refusal;

/// # Errors
/// 408, 413, 415, or 400 for bytes that no JSON reader should see.
pub(crate) async fn read(parts: &Parts, body: Body, config: &ApiConfig) -> Result<Bytes, Refusal> {
    json_only(&parts.headers)?;
    let too_large = || {
        let message =
            format!("the body is larger than {} bytes ([api] max-body-bytes)", config.max_body_bytes);
        Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "body-too-large", message).closing()
    };
    let said = parts
        .headers
        .get(header::CONTENT_LENGTH)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.parse::<u64>().ok());
    if said.is_some_and(|n| n > config.max_body_bytes as u64) {
        drain(body, config).await;
        return Err(too_large());
    }
    let collected =
        tokio::time::timeout(config.body_timeout(), Limited::new(body, config.max_body_bytes).collect())
            .await;
    let bytes = match collected {
        Ok(Ok(collected)) => collected.to_bytes(),
        Ok(Err(e)) if e.downcast_ref::<LengthLimitError>().is_some() => return Err(too_large()),
        Ok(Err(_)) => return Err(Refusal::bad_body("the body ended before it was complete").closing()),
        Err(_) => {
            let message = format!("the body did not arrive within {} s", config.body_timeout_seconds);
            return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, "request-timeout", message).closing());
        }
    };
    check(&bytes, config.max_depth)?;
    Ok(bytes)
}

/// Reads on for a while what will not be used: a client that is still sending when the connection closes never sees
/// the answer. Bounded, so that nobody is made to read without end.
async fn drain(mut body: Body, config: &ApiConfig) {
    let most = config.max_body_bytes.saturating_mul(4);
    let reading = async {
        let mut read = 0_usize;
        while let Some(Ok(frame)) = body.frame().await {
            read = read.saturating_add(frame.data_ref().map_or(0, Bytes::len));
            if read > most {
                return;
            }
        }
    };
    // Running out of time only means that the answer is sent now.
    let _ = tokio::time::timeout(config.body_timeout().min(std::time::Duration::from_secs(5)), reading).await;
}

/// A browser can send other media types to any site without asking; JSON it cannot.
fn json_only(headers: &HeaderMap) -> Result<(), Refusal> {
    let refuse = |message: &str| {
        Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "unsupported-media-type", message)
            .with(header::ACCEPT, HeaderValue::from_static("application/json"))
    };
    if headers.get(header::CONTENT_ENCODING).is_some_and(|v| v != "identity") {
        return Err(refuse("send the body without Content-Encoding"));
    }
    let media = headers.get(header::CONTENT_TYPE).and_then(|v| v.to_str().ok()).unwrap_or_default();
    if is_json(media) {
        Ok(())
    } else {
        Err(refuse("send the body as Content-Type: application/json, in UTF-8"))
    }
}

pub(crate) fn is_json(media: &str) -> bool {
    let mut parts = media.split(';').map(str::trim);
    parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("application/json"))
        && parts.all(|p| match p.split_once('=') {
            Some((name, value)) if name.eq_ignore_ascii_case("charset") => {
                value.trim_matches('"').eq_ignore_ascii_case("utf-8")
            }
            _ => true,
        })
}

fn check(bytes: &[u8], max_depth: usize) -> Result<(), Refusal> {
    if bytes.is_empty() {
        return Err(Refusal::bad_body("the body is empty; send a JSON object"));
    }
    if let Err(e) = std::str::from_utf8(bytes) {
        return Err(Refusal::bad_body(format!("the body is not UTF-8 at byte {}", e.valid_up_to())));
    }
    match too_deep(bytes, max_depth) {
        Some(at) => {
            Err(Refusal::bad_body(format!("the body is nested deeper than {max_depth} at byte {at}")))
        }
        None => Ok(()),
    }
}

/// The byte at which arrays and objects are nested deeper than `max`. It reads bytes only, so that no recursion
/// depends on the client.
fn too_deep(bytes: &[u8], max: usize) -> Option<usize> {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for (i, b) in bytes.iter().enumerate() {
        match b {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            _ if in_text => {}
            b'[' | b'{' => {
                depth += 1;
                if depth > max {
                    return Some(i);
                }
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}
