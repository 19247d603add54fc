//! Who asks: by password, by token, by the cookie of a login, by a ticket, or nobody by name. What each may do is decided by
//! [`serving::rights`]; here it is found out who it is.
//!
//! Read [`Who::identify`], then [`book`] (the file of users, and how it is followed), [`passwords`] (two at once), [`remembered`]
//! (why a password is not hashed for every request) and [`signing`] (cookies and tickets).

mod book;
mod guesses;
mod login;
mod pages;
pub mod passwords;
mod remembered;
mod sign_out_file;
mod signing;
mod tickets;
pub mod tokens;

use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hyper::header::{self, HeaderMap};
use hyper::http::request::Parts;
use metrics::Counter;
use serving::claims::{Claims, Use};
use serving::error::{ApiError, Kind};
use serving::rights::{Rights, Role, Topics};

use crate::settings::Access;

pub use book::{BookError, check_file};
pub(crate) use login::Login;
pub(crate) use pages::{log_in, log_out, login_page, me, sent_to_login};
pub use signing::{KeyError, SigningKey};
pub(crate) use tickets::issue;

use book::{Book, Keeper};
use login::{LoginChanges, LoginMeans};
use remembered::{Logins, Outcome};
use signing::{Signer, now_s};

/// Name of the session cookie without TLS.
const COOKIE: &str = "highwater-session";
/// Name of the session cookie under TLS. Browsers accept a cookie with this prefix from this very host under TLS only
/// (RFC 6265bis, 4.1.3.2), so no other port or subdomain can replace it.
const SECURE_COOKIE: &str = "__Host-highwater-session";
/// What a token stands behind among the subprotocols of a WebSocket, which a page can name and no header.
pub(crate) const BEARER: &str = "bearer.";

/// How it is known who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum By {
    /// It is not.
    Nothing,
    /// A header that no browser sends by itself.
    Header,
    /// The cookie of this login, which a browser sends with every request.
    Cookie(u128),
    /// A ticket in the address.
    Ticket,
}

/// Who asks.
#[derive(Debug, Clone)]
pub(crate) struct Visitor {
    /// Empty: nobody by name.
    pub(crate) name: Arc<str>,
    pub(crate) rights: Arc<Rights>,
    pub(crate) by: By,
    /// The login, which may become void while a stream is open; `None` for clients without one.
    pub(crate) login: Option<Login>,
}

impl Visitor {
    /// Who sent a request that was let in.
    pub(crate) fn of(parts: &Parts) -> &Visitor {
        parts.extensions.get().expect("every request is looked at before it is answered")
    }
}

/// What logins came to.
#[derive(Debug, Default)]
pub(crate) struct LoginCounts {
    pub(crate) accepted: Counter,
    pub(crate) refused: Counter,
    pub(crate) turned_away: Counter,
}

/// Knows all users.
pub(crate) struct Who {
    keeper: Option<Keeper>,
    logins: Arc<Logins>,
    signer: Signer,
    changes: LoginChanges,
    cookie_name: &'static str,
    nobody: Visitor,
    pub(crate) counts: LoginCounts,
}

impl Who {
    /// `users_file`: without one there are no users. `key`: without one, what is signed is void after a restart.
    /// `is_secure`: clients come under TLS. `has_proxies`: there are trusted proxies, so that a client at a loopback address
    /// is one client.
    pub(crate) fn new(
        users_file: Option<PathBuf>,
        key: Option<SigningKey>,
        access: Access,
        is_secure: bool,
        has_proxies: bool,
    ) -> Who {
        let rights = match access {
            Access::Health => Rights::NONE,
            Access::Read => Rights::of(Role::Read),
            Access::Produce => Rights::of(Role::Produce),
            Access::Everything => Rights::of(Role::Admin),
        };
        let changes = LoginChanges::new();
        Who {
            keeper: users_file.map(|path| Keeper::new(path, changes.clone())),
            changes,
            cookie_name: if is_secure { SECURE_COOKIE } else { COOKIE },
            logins: Arc::new(Logins::new(has_proxies)),
            signer: Signer::new(&key.unwrap_or_else(SigningKey::random)),
            nobody: Visitor {
                name: Arc::from(""),
                rights: Arc::new(rights),
                by: By::Nothing,
                login: None,
            },
            counts: LoginCounts::default(),
        }
    }

    /// Whether there can be users.
    pub(crate) fn has_users(&self) -> bool {
        self.keeper.is_some()
    }

    /// Times that the file of users had changed and could not be used.
    pub(crate) fn failed_reloads(&self) -> u64 {
        self.keeper.as_ref().map_or(0, Keeper::failed_reloads)
    }

    /// What everybody may do.
    pub(crate) fn nobody(&self) -> &Visitor {
        &self.nobody
    }

    /// Who sends a request with these headers, and perhaps a ticket, from this address.
    ///
    /// # Errors
    /// It says who it is, and that is not true, or cannot be found out now.
    pub(crate) async fn identify(
        &self,
        headers: &HeaderMap,
        ticket: Option<&str>,
        from: Option<IpAddr>,
    ) -> Result<Visitor, ApiError> {
        if let Some(ticket) = ticket {
            return self.of_ticket(ticket).await;
        }
        let Some(keeper) = &self.keeper else { return Ok(self.nobody.clone()) };
        let book = keeper.book().await;
        if let Some(said) = credentials(headers)? {
            return self.of_header(&book, said, from).await;
        }
        if let Some(token) = subprotocol(headers) {
            return self.of_token(&book, token);
        }
        if self.cookie(headers).is_some() && self.signer.follow().await {
            self.changes.announce();
        }
        Ok(self.of_cookie(&book, headers).unwrap_or_else(|| self.nobody.clone()))
    }

    async fn of_header(
        &self,
        book: &Arc<Book>,
        said: &str,
        from: Option<IpAddr>,
    ) -> Result<Visitor, ApiError> {
        let (scheme, rest) = said.split_once(' ').unwrap_or((said, ""));
        if scheme.eq_ignore_ascii_case("bearer") {
            return self.of_token(book, rest.trim());
        }
        if !scheme.eq_ignore_ascii_case("basic") {
            return Err(refused("Authorization: expected Basic or Bearer"));
        }
        let decoded =
            STANDARD.decode(rest.trim()).ok().and_then(|text| String::from_utf8(text).ok());
        let Some((name, password)) = decoded.as_deref().and_then(|text| text.split_once(':'))
        else {
            return Err(refused("Authorization: expected a name and a password in base64"));
        };
        self.of_password(book, name, password, from).await
    }

    /// Whoever has this name, if this is its password.
    pub(crate) async fn of_password(
        &self,
        book: &Arc<Book>,
        name: &str,
        password: &str,
        from: Option<IpAddr>,
    ) -> Result<Visitor, ApiError> {
        match self.logins.check(book, name, password, from).await {
            known @ (Outcome::Known | Outcome::Verified) => {
                self.counts.accepted.add(u64::from(known == Outcome::Verified));
                let known = book.user(name).ok_or_else(wrong)?;
                Ok(Visitor {
                    name: known.name.clone(),
                    rights: known.rights.clone(),
                    by: By::Header,
                    login: Some(Login::new(known, LoginMeans::Entry)),
                })
            }
            Outcome::Wrong => {
                self.counts.refused.add(1);
                Err(wrong())
            }
            Outcome::TooMany => {
                self.counts.turned_away.add(1);
                let words = "too many wrong passwords came from this address: wait some seconds before the next one, or \
                             use a token";
                Err(ApiError::new(Kind::Full, words))
            }
            Outcome::Busy => {
                self.counts.turned_away.add(1);
                let words = "other passwords are being checked, as many as may be at once: try again in a moment, or \
                             use a token, which needs no such check";
                Err(ApiError::new(Kind::Full, words))
            }
        }
    }

    fn of_token(&self, book: &Book, token: &str) -> Result<Visitor, ApiError> {
        let Some(known) = book.by_token(token) else {
            self.counts.refused.add(1);
            return Err(refused(
                "the token is not known: it was removed, or never made (highwater user token)",
            ));
        };
        Ok(Visitor {
            name: known.name.clone(),
            rights: known.rights.clone(),
            by: By::Header,
            login: Some(Login::new(known, LoginMeans::Token(tokens::hash(token)))),
        })
    }

    /// The first of its name: a browser sends the most special one first, and we set one of one path.
    fn cookie<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let all = headers.get_all(header::COOKIE).iter();
        let mut pairs =
            all.filter_map(|value| value.to_str().ok()).flat_map(|list| list.split(';'));
        pairs.find_map(|pair| pair.trim().strip_prefix(self.cookie_name)?.strip_prefix('='))
    }

    /// A cookie that is void counts as none: a browser sends it with every request.
    fn of_cookie(&self, book: &Book, headers: &HeaderMap) -> Option<Visitor> {
        let claims = self.signer.read(self.cookie(headers)?, now_s())?;
        let known = book.user(&claims.user)?;
        let is_its = claims.good_for == Use::Session && known.stamp == claims.stamp;
        is_its.then(|| Visitor {
            name: known.name.clone(),
            rights: known.rights.clone(),
            by: By::Cookie(claims.id),
            login: Some(Login::new(
                known,
                LoginMeans::Session { id: claims.id, expires_s: claims.expires_s },
            )),
        })
    }

    async fn of_ticket(&self, ticket: &str) -> Result<Visitor, ApiError> {
        let void = || {
            refused(
                "the ticket is void: it was not made here, is older than an hour, or its user has changed",
            )
        };
        let claims = self.signer.read(ticket, now_s()).ok_or_else(void)?;
        let Claims { good_for: Use::Ticket(topics), user, stamp, .. } = claims else {
            return Err(void());
        };
        let (name, rights, login) = if user.is_empty() {
            (self.nobody.name.clone(), self.nobody.rights.clone(), None)
        } else {
            let keeper = self.keeper.as_ref().ok_or_else(void)?;
            let book = keeper.book().await;
            let known = book.user(&user).filter(|known| known.stamp == stamp).ok_or_else(void)?;
            let login = Login::new(known, LoginMeans::Entry);
            (known.name.clone(), known.rights.clone(), Some(login))
        };
        // A user has all rights to these topics that it had: its entry is the same.
        let role = rights.role.map(|role| role.min(Role::Read));
        let topics = topics.into_iter().filter(|topic| rights.topics.have(topic)).collect();
        let rights = Arc::new(Rights { role, topics: Topics::Named(topics) });
        Ok(Visitor { name, rights, by: By::Ticket, login })
    }
}

/// The login of an open stream is void.
pub(crate) const VOID_LOGIN: &str = "the login of this stream is void: its user was removed or changed, or signed out; log in again";

/// Nobody has logged in, or not as somebody who is there.
pub(crate) fn refused(words: &'static str) -> ApiError {
    ApiError::new(Kind::Unidentified, words)
}

fn wrong() -> ApiError {
    refused("there is no user of this name with this password")
}

/// The one header of this kind.
fn credentials(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let mut all = headers.get_all(header::AUTHORIZATION).iter();
    let (first, second) = (all.next(), all.next());
    if second.is_some() {
        return Err(ApiError::new(Kind::Malformed, "there is more than one header Authorization"));
    }
    let unreadable = |_| refused("Authorization: expected visible characters");
    first.map(|value| value.to_str().map_err(unreadable)).transpose()
}

fn subprotocol(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::UPGRADE)?;
    subprotocols(headers).find_map(|name| name.strip_prefix(BEARER))
}

/// The subprotocols of a WebSocket that a client offers, in its order.
pub(crate) fn subprotocols(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let all = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let lists = all.filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).map(str::trim)
}
