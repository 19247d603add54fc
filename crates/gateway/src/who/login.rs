//! The login behind an open stream. A stream ends once its login is void: its user was removed or changed, its token was
//! removed, or its session was signed out.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use serving::users::TokenHash;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::Who;
use super::book::{Book, Known};
use super::signing::now_s;

/// How often the file of users is read again while the gateway serves.
const REREAD_EVERY: Duration = Duration::from_secs(1);

/// How often the clock is compared with the end of a session, which another clock may have set.
const RECHECK_EVERY: Duration = Duration::from_secs(60);

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
            let now_s = now_s();
            let is_ended = match login.means {
                LoginMeans::Session { id, expires_s } => {
                    expires_s <= now_s || self.signer.is_ended(&login.user, id, expires_s)
                }
                LoginMeans::Entry | LoginMeans::Token(_) => false,
            };
            if is_ended || !login.is_in(&keeper.book_now()) {
                return;
            }
            // The sender lives as long as `self`.
            let changed = async { drop(changes.changed().await) };
            match login.means {
                LoginMeans::Session { expires_s, .. } => {
                    let left = Duration::from_secs(expires_s - now_s).min(RECHECK_EVERY);
                    let _ = timeout(left, changed).await;
                }
                LoginMeans::Entry | LoginMeans::Token(_) => changed.await,
            }
        }
    }

    /// Reads the files of users and of sign-outs again and again, so that changes reach open streams without a request.
    pub(crate) async fn follow_users(&self) {
        let Some(keeper) = &self.keeper else { return };
        loop {
            sleep(REREAD_EVERY).await;
            keeper.book().await;
            if self.signer.follow().await {
                self.changes.announce();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serving::rights::{Rights, Role};
    use serving::users::{User, Users};

    use super::*;
    use crate::settings::Access;

    fn users_file(dir: &Path) -> std::path::PathBuf {
        let mut users = Users::default();
        let user = User { rights: Rights::of(Role::Read), password: None };
        users.users.insert("ann".to_owned(), user);
        let path = dir.join("users");
        std::fs::write(&path, users.text()).unwrap();
        path
    }

    #[tokio::test]
    async fn a_stream_ends_with_the_cookie_that_opened_it() {
        let dir = tempfile::tempdir().unwrap();
        let who = Who::new(Some(users_file(dir.path())), None, Access::Read, false, false);
        let book = who.keeper.as_ref().unwrap().book().await;
        let known = book.user("ann").unwrap();
        let session = |expires_s| Login::new(known, LoginMeans::Session { id: 1, expires_s });
        let (ending, lasting) = (session(now_s() + 2), session(now_s() + 86_400));
        tokio::select! {
            () = who.until_void(Some(&ending)) => {}
            () = who.until_void(Some(&lasting)) => panic!("it has a day left"),
            () = sleep(Duration::from_secs(60)) => panic!("the cookie is void, and the stream is not"),
        }
    }
}
