//! Answers and their headers. A page may use what this console serves and nothing else: no other host, no script or style within
//! the page, no frame around it.

use bytes::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, LOCATION, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Response, StatusCode};
use maud::Markup;
use serde_json::{Value, json};

use crate::pages;
use crate::route::Route;

const POLICY: &str =
    "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// A file of the pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asset {
    Style,
    Script,
    Icon,
}

impl Asset {
    pub(crate) fn named(name: &str) -> Option<Asset> {
        match name {
            "console.css" => Some(Asset::Style),
            "console.js" => Some(Asset::Script),
            "icon.svg" => Some(Asset::Icon),
            _ => None,
        }
    }
}

fn answer(
    status: StatusCode,
    content_type: &'static str,
    cache: &'static str,
    body: Bytes,
) -> Response<Bytes> {
    answer_under(POLICY, status, content_type, cache, body)
}

fn answer_under(
    policy: &'static str,
    status: StatusCode,
    content_type: &'static str,
    cache: &'static str,
    body: Bytes,
) -> Response<Bytes> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_TYPE, content_type),
        (CACHE_CONTROL, cache),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Names of topics and groups stand in the address.
        (REFERRER_POLICY, "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A page.
pub(crate) fn page(status: StatusCode, markup: Markup) -> Response<Bytes> {
    answer(status, "text/html; charset=utf-8", "no-store", markup.into_string().into())
}

/// What came of a form stands on another page: fetched anew, it is not sent again.
pub(crate) fn see(other: &str) -> Response<Bytes> {
    let mut response = answer(StatusCode::SEE_OTHER, "text/plain", "no-store", Bytes::new());
    let location =
        HeaderValue::try_from(other).expect("a path of this console has plain characters");
    response.headers_mut().insert(LOCATION, location);
    response
}

/// JSON.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response<Bytes> {
    answer(status, "application/json", "no-store", value.to_string().into())
}

/// JSON that says what is wrong, in the form of the gateway's errors.
pub(crate) fn json_error(status: StatusCode, error_code: u32, message: &str) -> Response<Bytes> {
    let retriable = status.is_server_error();
    let value = json!({ "error_code": error_code, "message": message, "written": "no", "retriable": retriable });
    json(status, &value)
}

/// A file of the pages.
pub(crate) fn asset(asset: Asset) -> Response<Bytes> {
    let (content_type, bytes) = match asset {
        Asset::Style => ("text/css; charset=utf-8", include_str!("assets/console.css")),
        Asset::Script => ("text/javascript; charset=utf-8", include_str!("assets/console.js")),
        Asset::Icon => ("image/svg+xml", include_str!("assets/icon.svg")),
    };
    answer(StatusCode::OK, content_type, "max-age=300", Bytes::from_static(bytes.as_bytes()))
}

/// A document that was made elsewhere, under a policy of its own.
pub(crate) fn document(
    content_type: &'static str,
    policy: &'static str,
    body: Bytes,
) -> Response<Bytes> {
    answer_under(policy, StatusCode::OK, content_type, "no-store", body)
}

/// The path is not the console's.
pub(crate) fn nothing_here() -> Response<Bytes> {
    page(
        StatusCode::NOT_FOUND,
        pages::without_snapshot("Not found", "There is nothing under this address."),
    )
}

/// Nothing is known of the cluster.
pub(crate) fn no_snapshot(route: &Route, reason: &str) -> Response<Bytes> {
    let status = StatusCode::SERVICE_UNAVAILABLE;
    match route {
        Route::Api(_) => json_error(status, 50301, reason),
        _ => page(status, pages::without_snapshot("The cluster cannot be reached", reason)),
    }
}
