//! The opening handshake (RFC 6455, 4.2): whether a request asks for a WebSocket, and what it is answered with.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Version};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use serving::error::{ApiError, Kind};

use crate::answer::{Answer, failed};
use crate::who::{BEARER, subprotocols};

/// What is hashed behind a client's key: it shows that the answer comes from who knows WebSockets, and no more.
const BEHIND_KEY: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The version of the protocol.
const VERSION: &str = "13";
/// Bytes of a client's key, before it is base64.
const KEY_BYTES: usize = 16;

/// The one subprotocol that there is: what is spoken without any. A page names it beside its token, so that the answer need
/// not say the token again.
const SUBPROTOCOL: &str = "highwater";

/// What a request for a WebSocket is answered with.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Accepted {
    /// What shows that the client's key was read.
    pub(super) key: String,
    /// One of the subprotocols that the client offers, if it is known: a browser that has offered some closes a connection that
    /// was accepted with none.
    pub(super) subprotocol: Option<String>,
}

/// What the request is answered with, if it asks for a WebSocket.
///
/// # Errors
/// It does not, or not in a way that is known: with the answer.
pub(super) fn accept(parts: &Parts) -> Result<Accepted, Box<Answer>> {
    let headers = &parts.headers;
    let is_upgrade = parts.method == Method::GET
        && parts.version == Version::HTTP_11
        && has(headers, header::UPGRADE, "websocket")
        && has(headers, header::CONNECTION, "upgrade");
    let version = headers.get(header::SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes);
    if !is_upgrade || version != Some(VERSION.as_bytes()) {
        return Err(Box::new(upgrade_required()));
    }
    let key = headers.get(header::SEC_WEBSOCKET_KEY).and_then(|key| key.to_str().ok());
    let is_key = |key: &&str| BASE64_STANDARD.decode(key).is_ok_and(|key| key.len() == KEY_BYTES);
    let Some(key) = key.filter(is_key) else {
        let words = "Sec-WebSocket-Key: expected base64 of 16 bytes";
        return Err(Box::new(failed(&ApiError::new(Kind::Malformed, words))));
    };
    Ok(Accepted { key: answer_to(key), subprotocol: chosen(headers) })
}

/// Ours, if it is offered; else what a token stands behind, which was looked at when the request came in.
fn chosen(headers: &HeaderMap) -> Option<String> {
    let offered: Vec<&str> = subprotocols(headers).collect();
    let ours = offered.iter().find(|name| **name == SUBPROTOCOL);
    let chosen = ours.or_else(|| offered.iter().find(|name| name.starts_with(BEARER)))?;
    // A name is a token (RFC 9110, 5.6.2): anything else was not offered.
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    chosen.bytes().all(is_token).then(|| (*chosen).to_owned())
}

/// What shows that a client's key was read.
pub(super) fn answer_to(key: &str) -> String {
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, format!("{key}{BEHIND_KEY}").as_bytes());
    BASE64_STANDARD.encode(hash)
}

/// Whether a header, which is a list, has this word.
fn has(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name);
    let mut words =
        values.iter().filter_map(|value| value.to_str().ok()).flat_map(|v| v.split(','));
    words.any(|known| known.trim().eq_ignore_ascii_case(word))
}

fn upgrade_required() -> Answer {
    let words = "there is a WebSocket under this path: expected GET with Upgrade: websocket and Sec-WebSocket-Version: 13";
    failed(&ApiError::new(Kind::Malformed, words))
        .with_status(StatusCode::UPGRADE_REQUIRED)
        .with(header::UPGRADE, HeaderValue::from_static("websocket"))
        .with(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION))
}

/// The head of the answer.
pub(super) fn head(accepted: &Accepted) -> String {
    let Accepted { key, subprotocol } = accepted;
    let subprotocol = subprotocol
        .as_ref()
        .map_or(String::new(), |name| format!("sec-websocket-protocol: {name}\r\n"));
    format!(
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-accept: {key}\r\n{subprotocol}\r\n"
    )
}

#[cfg(test)]
mod tests {
    use hyper::Request;

    use super::*;

    fn asked(headers: &[(&str, &str)]) -> Result<Accepted, u16> {
        let mut request = Request::builder().method("GET").uri("/ws/topics/t");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        accept(&parts).map_err(|answer| answer.status())
    }

    #[test]
    fn the_answer_is_that_of_the_standard() {
        // RFC 6455, 1.3.
        let headers = [
            ("upgrade", "WebSocket"),
            ("connection", "keep-alive, Upgrade"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let accepted = asked(&headers).unwrap();
        assert_eq!(accepted.key, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(accepted.subprotocol, None);
        for left_out in 0..3 {
            let mut fewer = headers.to_vec();
            fewer.remove(left_out);
            assert_eq!(asked(&fewer), Err(426), "{left_out}");
        }
        for (at, value) in [(2, "8"), (0, "h2c"), (1, "close")] {
            let mut other = headers;
            other[at].1 = value;
            assert_eq!(asked(&other), Err(426), "{value}");
        }
        for key in ["", "dGhlIHNhbXBsZSBub25jZQ", "AAAA"] {
            let mut other = headers;
            other[3].1 = key;
            assert_eq!(asked(&other), Err(400), "{key}");
        }
    }

    #[test]
    fn one_subprotocol_of_those_that_are_offered_is_chosen_and_never_another() {
        for (offered, chosen) in [
            (&["bearer.hwt_a-b"][..], Some("bearer.hwt_a-b")),
            (&["bearer.hwt_a, highwater"], Some("highwater")),
            (&["bearer.hwt_a", " highwater "], Some("highwater")),
            (&["mqtt, bearer.hwt_a"], Some("bearer.hwt_a")),
            (&["mqtt"], None),
            (&["Highwater"], None),
            (&["bearer.a b"], None),
            (&[""], None),
        ] {
            let mut request = Request::builder().header("upgrade", "websocket");
            for value in offered {
                request = request.header("sec-websocket-protocol", *value);
            }
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(super::chosen(&parts.headers).as_deref(), chosen, "{offered:?}");
        }
    }
}
