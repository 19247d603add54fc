//! Documents of a run as they are. They bring styles and a script of their own: each is shut into a world of its own, which
//! loads nothing from this console nor from any other host, and reads no answer of theirs. Its own window it can send elsewhere.

use bytes::Bytes;
use hyper::Response;

use super::Lab;
use crate::answer;
use crate::query::Query;

/// A document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Document {
    /// The report: `?name=`.
    Report,
    /// One of its charts: `?name=&chart=`.
    Chart,
}

/// Content security policy of reports: an opaque origin, no loading from any host, no framing.
const OF_REPORTS: &str = "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; \
                          img-src data:; font-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const OF_CHARTS: &str =
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'";

/// Answers with it.
pub(crate) async fn answer(lab: &Lab, document: Document, query: &Query) -> Response<Bytes> {
    let name = query.get("name").unwrap_or_default();
    let (found, content_type, policy) = match document {
        Document::Report => (lab.report(name).await, "text/html; charset=utf-8", OF_REPORTS),
        Document::Chart => {
            let chart = query.get("chart").unwrap_or_default();
            (lab.chart(name, chart).await, "image/svg+xml", OF_CHARTS)
        }
    };
    match found {
        Some(bytes) => answer::document(content_type, policy, bytes.into()),
        None => answer::nothing_here(),
    }
}
