//! The list of a chart's tags, page after page (OCI distribution 1.1 §listing tags).

use reqwest::header::{HeaderMap, LINK};
use reqwest::{Method, StatusCode};
use serde::Deserialize;

use super::auth::Operation;
use super::client::{Bounds, Clock, Remote, Request};
use super::error::RegistryError;
use super::reference::{ChartUrl, is_tag};

/// Pages, and tags of all pages, that are read before a list is refused.
const PAGES: usize = 100;
const TAGS: usize = 20_000;
/// Bytes of one page.
const PAGE_LIMIT: u64 = 4 << 20;

#[derive(Deserialize)]
struct TagList {
    tags: Option<Vec<String>>,
}

pub(super) async fn list(
    remote: &Remote,
    url: &ChartUrl,
    clock: Clock,
) -> Result<Vec<String>, RegistryError> {
    let shown = url.to_string();
    let request = Request {
        repository: url.repository(),
        operation: Operation::List,
        accept: "application/json",
        what: "the tags",
        clock,
    };
    let bounds = Bounds { what: "the list of tags", of: &shown, most: PAGE_LIMIT, size: None, digest: None };
    let mut next = Some(remote.url(&format!("{}/tags/list?n=1000", url.repository()))?);
    let mut out = Vec::new();
    for _ in 0..PAGES {
        let Some(page) = next else { return Ok(out) };
        let response = remote.send(Method::GET, page.clone(), &request).await?;
        let response = remote.no_page(response, request.what)?;
        match response.status() {
            StatusCode::OK => {}
            StatusCode::NOT_FOUND => return Err(RegistryError::NoChart(shown)),
            s => return Err(remote.status(s, request.what)),
        }
        next = match next_page(response.headers()) {
            Some(link) => Some(remote.within(&page, &link)?),
            None => None,
        };
        let body = remote.body(response, &bounds, clock).await?;
        let list: TagList =
            serde_json::from_slice(&body).map_err(|_| remote.answer("its list of tags is not JSON"))?;
        out.extend(list.tags.unwrap_or_default().into_iter().filter(|t| is_tag(t)));
        if out.len() > TAGS {
            break;
        }
    }
    if next.is_none() && out.len() <= TAGS {
        return Ok(out);
    }
    Err(remote.answer(format!(
        "its list of tags for {url} has more than {TAGS} entries or {PAGES} pages; name a version or a digest"
    )))
}

/// `Link: </v2/a/tags/list?last=x>; rel="next"`; relative to the page's own address (RFC 8288).
fn next_page(headers: &HeaderMap) -> Option<String> {
    headers.get_all(LINK).iter().filter_map(|l| l.to_str().ok()).find_map(|header| {
        let mut rest = header;
        while let Some((_, after)) = rest.split_once('<') {
            let (target, parameters) = after.split_once('>')?;
            let end = parameters.find('<').unwrap_or(parameters.len());
            let (own, tail) = parameters.split_at(end);
            if own.replace([' ', '"'], "").to_ascii_lowercase().contains(";rel=next") {
                return Some(target.to_owned());
            }
            rest = tail;
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links() {
        for (header, expected) in [
            ("</v2/a/tags/list?last=x&n=2>; rel=\"next\"", Some("/v2/a/tags/list?last=x&n=2")),
            ("<?last=a,b>;rel=next", Some("?last=a,b")),
            ("<x>; rel=\"prev\", <y>; title=\"t\"; rel=\"Next\"", Some("y")),
            ("<x>; rel=\"prev\"", None),
            ("<x", None),
            ("", None),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(LINK, header.parse().unwrap());
            assert_eq!(next_page(&headers).as_deref(), expected, "{header}");
        }
    }
}
