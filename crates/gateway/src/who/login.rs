//! The login behind an open stream. A stream ends once its login is void: its user was removed or changed, its token was
//! removed, or its session was signed out.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use serving::users::TokenHash;
use tokio::sync::watch;
use tokio::time::sleep;

use super::Who;
use super::book::{Book, Known};

/// How often the file of users is read again while the gateway serves.
const REREAD_EVERY: Duration = Duration::from_secs(1);

/// A login that was valid when a request came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Login {
    user: Arc<str>,
    /// A piece of the hash of the user's entry.
    stamp: u64,
    means: LoginMeans,
}

/// The credential of a login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum LoginMeans {
    /// A password, or a ticket: valid as long as the entry of its user is the same.
    Entry,
    Token(TokenHash),
    /// A cookie.
    Session {
        id: u128,
        expires_s: u64,
    },
}

impl Login {
    pub(super) fn new(known: &Known, means: LoginMeans) -> Login {
        Login { user: Arc::clone(&known.name), stamp: known.stamp, means }
    }

    fn is_in(&self, book: &Book) -> bool {
        let is_same = book.user(&self.user).is_some_and(|known| known.stamp == self.stamp);
        is_same
            && match &self.means {
                LoginMeans::Token(hash) => book.has_token(hash),
                LoginMeans::Entry | LoginMeans::Session { .. } => true,
            }
    }
}

/// Wakes the streams that depend on logins.
#[derive(Debug, Clone)]
pub(super) struct LoginChanges(Arc<watch::Sender<()>>);

impl LoginChanges {
    pub(super) fn new() -> LoginChanges {
        LoginChanges(Arc::new(watch::channel(()).0))
    }

    /// The file of users has other content, or a session was signed out.
    pub(super) fn announce(&self) {
        self.0.send_replace(());
    }
}

impl Who {
    /// Waits until a login is void. Never returns for clients without a login.
    pub(crate) async fn until_void(&self, login: Option<&Login>) {
        let (Some(login), Some(keeper)) = (login, &self.keeper) else { return pending().await };
        let mut changes = self.changes.0.subscribe();
        loop {
            let is_ended = match login.means {
                LoginMeans::Session { id, expires_s } => {
                    self.signer.is_ended(&login.user, id, expires_s)
                }
                LoginMeans::Entry | LoginMeans::Token(_) => false,
            };
            if is_ended || !login.is_in(&keeper.book_now()) {
                return;
            }
            // The sender lives as long as `self`.
            let _ = changes.changed().await;
        }
    }

    /// Reads the file of users again and again, so that changes reach open streams without a request.
    pub(crate) async fn follow_users(&self) {
        let Some(keeper) = &self.keeper else { return };
        loop {
            sleep(REREAD_EVERY).await;
            keeper.book().await;
        }
    }
}
