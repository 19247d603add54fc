//! Logging in and out in a browser. The page of the login is the only one that the gateway makes itself: it is shown to those who
//! may not see the console yet, in the console's own style.

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serving::claims::{Claims, SESSION_S, Use};
use serving::error::{ApiError, Kind};
use tracing::warn;

use super::signing::now_s;
use super::tokens::random;
use super::{By, Visitor, Who};
use crate::answer::{Answer, text};
use crate::front::Peer;
use crate::request::Parameters;
use crate::request::body::collect_small;
use crate::state::Shared;

const FORM: &str = "application/x-www-form-urlencoded";
const HTML: &str = "text/html; charset=utf-8";
/// Where a login leads that came from nowhere.
const HOME: &str = "/console";
const LOGIN: &str = "/console/login";
/// No script, no frame, and nothing from elsewhere.
const POLICY: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

impl Who {
    /// A piece of the hash of a visitor's entry; 0 for nobody.
    pub(super) async fn stamp(&self, visitor: &Visitor) -> u64 {
        let Some(keeper) = &self.keeper else { return 0 };
        keeper.book().await.user(&visitor.name).map_or(0, |known| known.stamp)
    }

    pub(super) fn sign(&self, claims: &Claims) -> String {
        self.signer.sign(claims)
    }
}

/// Whether a browser takes this segment of a path for a step, up or nowhere, and not for a name.
fn leads_out(segment: &str) -> bool {
    matches!(&*segment.to_ascii_lowercase().replace("%2e", "."), "." | "..")
}

/// Somewhere in the console, and nowhere else: what comes in a form may be anybody's.
fn inside(next: Option<&str>) -> &str {
    let is_plain = |next: &&str| {
        let is_console =
            *next == HOME || next.starts_with("/console/") || next.starts_with("/console?");
        let path = next.split(['?', '#']).next().unwrap_or_default();
        is_console
            && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
            && !path.split('/').any(leads_out)
    };
    next.filter(is_plain).unwrap_or(HOME)
}

/// Where a browser goes that asks for a page and has not logged in; `None` if the client does not show pages.
pub(crate) fn sent_to_login(shared: &Shared, parts: &Parts) -> Option<Answer> {
    let accepts = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let shows =
        parts.method == Method::GET && accepts.is_some_and(|types| types.contains("text/html"));
    let here = parts.uri.path_and_query().map_or(HOME, |here| here.as_str());
    (shows && shared.who.has_users()).then(|| {
        let next = utf8_percent_encode(inside(Some(here)), NON_ALPHANUMERIC);
        see_other(&format!("{LOGIN}?next={next}"))
    })
}

fn see_other(path: &str) -> Answer {
    let location = HeaderValue::try_from(path).unwrap_or(HeaderValue::from_static(HOME));
    let answer = Answer::of("text/plain", "").with_status(StatusCode::SEE_OTHER);
    answer.with(header::LOCATION, location).unstored()
}

/// Markup out of a text.
fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut out, character| {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            other => out.push(other),
        }
        out
    })
}

/// The page with the form.
pub(crate) fn login_page(shared: &Shared, next: Option<&str>) -> Answer {
    let why = match shared.who.has_users() {
        true => None,
        false => Some(
            "There are no users here: make one by “highwater user add”, and name the file in gateway.users.file.",
        ),
    };
    page(next, "", why).unstored()
}

fn page(next: Option<&str>, name: &str, why: Option<&str>) -> Answer {
    let why = why.map_or(String::new(), |why| {
        format!("<div class=\"notice bad\" role=\"alert\"><p>{}</p></div>", escaped(why))
    });
    let (next, name) = (escaped(inside(next)), escaped(name));
    let body = format!(
        "<!DOCTYPE html><html lang=\"en\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\">\
         <title>Log in – Highwater</title><link rel=\"icon\" type=\"image/svg+xml\" href=\"/console/assets/icon.svg\">\
         <link rel=\"stylesheet\" href=\"/console/assets/console.css\"></head><body><main id=\"main\"><h1>Log in</h1>{why}\
         <form method=\"post\" action=\"{LOGIN}\"><input type=\"hidden\" name=\"next\" value=\"{next}\">\
         <p><label for=\"name\">Name</label> <input id=\"name\" name=\"name\" value=\"{name}\" autocomplete=\"username\" required></p>\
         <p><label for=\"password\">Password</label> <input id=\"password\" name=\"password\" type=\"password\" \
         autocomplete=\"current-password\" required></p><p><button type=\"submit\">Log in</button></p></form></main></body></html>"
    );
    let security = [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "same-origin"),
    ];
    security.into_iter().fold(Answer::of(HTML, body), |answer, (name, value)| {
        answer.with(name, HeaderValue::from_static(value))
    })
}

fn is_form(headers: &HeaderMap) -> bool {
    let said = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    said.is_some_and(|said| {
        said.split(';').next().is_some_and(|said| said.trim().eq_ignore_ascii_case(FORM))
    })
}

/// Takes the form of the login.
pub(crate) async fn log_in(
    shared: &Shared,
    parts: &Parts,
    body: &mut Incoming,
) -> Result<Answer, ApiError> {
    if !is_form(&parts.headers) {
        return Err(ApiError::new(Kind::MediaType, format!("expected {FORM}")));
    }
    let Some(keeper) = &shared.who.keeper else {
        return Ok(login_page(shared, None).with_status(StatusCode::FORBIDDEN));
    };
    let body = collect_small(body, shared).await?;
    let form = String::from_utf8_lossy(&body.bytes).into_owned();
    drop(body);
    let fields = Parameters::of(Some(&form));
    let field = |name| fields.get(name).unwrap_or_default();
    let book = keeper.book().await;
    let (name, password) = (field("name"), field("password"));
    match shared.who.of_password(&book, name, password, Peer::of(parts)).await {
        Ok(visitor) => {
            let claims = Claims {
                good_for: Use::Session,
                expires_s: now_s() + SESSION_S,
                id: u128::from_be_bytes(random()),
                stamp: book.user(&visitor.name).map_or(0, |known| known.stamp),
                user: visitor.name.to_string(),
            };
            let cookie = set_cookie(shared, &shared.who.sign(&claims), SESSION_S);
            Ok(see_other(inside(fields.get("next"))).with(header::SET_COOKIE, cookie))
        }
        Err(error) => {
            let status = StatusCode::from_u16(error.kind.status()).expect("the table has statuses");
            let page = page(fields.get("next"), field("name"), Some(&error.message));
            Ok(page.with_status(status).unstored())
        }
    }
}

/// Not for scripts, and not with requests that other sites' pages make.
fn set_cookie(shared: &Shared, value: &str, age_s: u64) -> HeaderValue {
    let secure = if shared.settings.is_secure { "; Secure" } else { "" };
    let name = shared.who.cookie_name;
    let cookie =
        format!("{name}={value}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}");
    HeaderValue::try_from(cookie).expect("plain characters")
}

/// Ends a login.
///
/// # Errors
/// The sign-out may not outlive this process.
pub(crate) async fn log_out(shared: &Shared, parts: &Parts) -> Result<Answer, ApiError> {
    let now_s = now_s();
    if let Some(claims) =
        shared.who.cookie(&parts.headers).and_then(|text| shared.who.signer.signed(text, now_s))
    {
        let ended = shared.who.signer.end(&claims, now_s).await;
        shared.who.changes.announce();
        if let Err(error) = ended {
            warn!(
                "a sign-out does not reach other gateways, and not this one behind a restart: {error}"
            );
            let words = "you are signed out of this gateway until it restarts, and not of others: its file of sign-outs \
                         cannot be written, and its log has the reason; sign out again";
            return Err(ApiError::new(Kind::Unavailable, words));
        }
    }
    Ok(see_other(LOGIN).with(header::SET_COOKIE, set_cookie(shared, "", 0)))
}

/// Who asks, and what it may do.
pub(crate) fn me(visitor: &Visitor) -> Answer {
    let name = match &*visitor.name {
        "" => "null".to_owned(),
        name => text(name),
    };
    let role = visitor.rights.role.map_or("null".to_owned(), |role| text(role.name()));
    let topics = text(&serving::users::topics_text(&visitor.rights.topics));
    let by = match visitor.by {
        By::Nothing => "nothing",
        By::Header => "header",
        By::Cookie(_) => "cookie",
        By::Ticket => "ticket",
    };
    Answer::json(format!("{{\"user\":{name},\"role\":{role},\"topics\":{topics},\"by\":\"{by}\"}}"))
        .unstored()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_into_the_console_and_nowhere_else() {
        for next in
            ["/console", "/console/topics?page=2", "/console?x=1", "/console/topic?name=a/../b"]
        {
            assert_eq!(inside(Some(next)), next);
        }
        for next in [
            "",
            "//evil.example.com",
            "https://evil.example.com/console",
            "/console\\..\\evil",
            "/console/../topics/t/events?group=g",
            "/console/topics/%2E./%2e%2E/topics/t/events?group=g",
            "/console/.%2e",
            "/console/./../x",
            "/consoles",
            "/console/\r\nset-cookie: x=y",
            "/topics/t",
            "javascript:alert(1)",
        ] {
            assert_eq!(inside(Some(next)), HOME, "{next:?}");
        }
        assert_eq!(inside(None), HOME);
    }

    #[test]
    fn names_do_not_become_markup() {
        assert_eq!(escaped("<b a='\"'>&"), "&lt;b a=&#39;&quot;&#39;&gt;&amp;");
    }
}
