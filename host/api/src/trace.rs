//! W3C Trace Context (Recommendation of 2021): a trace that comes in goes on, and one that does not begins here.

use std::fmt;

use axum::http::HeaderMap;
use uuid::Uuid;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Trace {
    pub(crate) trace_id: u128,
    /// This host's span.
    pub(crate) span_id: u64,
    /// The caller's span.
    pub(crate) parent_id: Option<u64>,
    sampled: bool,
}

impl Trace {
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let fresh = Uuid::new_v4().as_u64_pair();
        // Version 4 fixes some bits of each half, so neither is ever zero.
        let span_id = fresh.1;
        let mut values = headers.get_all("traceparent").iter();
        let incoming = values.next().filter(|_| values.next().is_none()).and_then(|v| parse(v.as_bytes()));
        match incoming {
            Some((trace_id, parent, sampled)) => Self { trace_id, span_id, parent_id: Some(parent), sampled },
            None => Self { trace_id: Uuid::new_v4().as_u128(), span_id, parent_id: None, sampled: false },
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "00-{:032x}-{:016x}-{:02x}", self.trace_id, self.span_id, u8::from(self.sampled))
    }
}

/// (trace, parent, sampled); `None` for anything that section 3.2 does not allow.
fn parse(value: &[u8]) -> Option<(u128, u64, bool)> {
    let part = |from: usize, len: usize| {
        let text = std::str::from_utf8(value.get(from..from + len)?).ok()?;
        text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)).then_some(text)
    };
    if [2, 35, 52].iter().any(|i| value.get(*i) != Some(&b'-')) {
        return None;
    }
    match part(0, 2)? {
        "ff" => return None,
        "00" if value.len() != 55 => return None,
        _ if value.len() > 55 && value.get(55) != Some(&b'-') => return None,
        _ => {}
    }
    let trace_id = u128::from_str_radix(part(3, 32)?, 16).ok().filter(|t| *t != 0)?;
    let parent = u64::from_str_radix(part(36, 16)?, 16).ok().filter(|p| *p != 0)?;
    let flags = u8::from_str_radix(part(53, 2)?, 16).ok()?;
    Some((trace_id, parent, flags & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parents() {
        let t = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (value, fits) in [
            (format!("00-{t}-00f067aa0ba902b7-01"), true),
            (format!("00-{t}-00f067aa0ba902b7-00"), true),
            (format!("cc-{t}-00f067aa0ba902b7-01"), true),
            (format!("cc-{t}-00f067aa0ba902b7-01-what-the-future-brings"), true),
            (format!("cc-{t}-00f067aa0ba902b7-01x"), false),
            (format!("00-{t}-00f067aa0ba902b7-01-more"), false),
            (format!("ff-{t}-00f067aa0ba902b7-01"), false),
            (format!("00-{}-00f067aa0ba902b7-01", t.to_uppercase()), false),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), false),
            (format!("00-{t}-0000000000000000-01"), false),
            (format!("00-{t}-00f067aa0ba902b7"), false),
            (format!("00_{t}-00f067aa0ba902b7-01"), false),
            (format!("00-{t}-+0f067aa0ba902b7-01"), false),
            (String::new(), false),
        ] {
            assert_eq!(parse(value.as_bytes()).is_some(), fits, "{value}");
        }
        let mut headers = HeaderMap::new();
        headers.insert("traceparent", format!("00-{t}-00f067aa0ba902b7-01").parse().unwrap());
        let trace = Trace::of(&headers);
        let text = trace.to_string();
        assert!(text.starts_with(&format!("00-{t}-")) && text.ends_with("-01"), "{text}");
        assert_eq!(trace.parent_id, Some(0x00f0_67aa_0ba9_02b7));
        headers.append("traceparent", format!("00-{t}-00f067aa0ba902b7-01").parse().unwrap());
        assert_eq!(Trace::of(&headers).parent_id, None, "two headers are none");
    }
}
