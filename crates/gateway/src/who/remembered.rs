//! Credentials that were verified lately. To hash a password for every request would allow fifty a second: so what was verified
//! is known for a minute, by a keyed hash under which nobody can look for it. Requests with the same credentials that come
//! together wait for one check.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use ring::hmac;
use tokio::sync::watch;

use super::book::Book;
use super::guesses::Guesses;
use super::passwords::{BYTES_MAX, Checker};
use super::tokens::random;

/// How long credentials are known.
const KNOWN_FOR: Duration = Duration::from_secs(60);
/// Credentials that are known at a time.
const KNOWN_MAX: usize = 10_000;

/// What credentials are worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// They were verified within the last minute.
    Known,
    /// They are right.
    Verified,
    /// They are not.
    Wrong,
    /// That cannot be found out now.
    Busy,
    /// It is not looked at: too many from the same address were wrong.
    TooMany,
}

type Mac = [u8; 32];

enum Entry {
    /// Verified then, for the user as it stood in the file.
    Known { at: Instant, stamp: u64 },
    /// Being checked.
    Checking(watch::Receiver<Option<Outcome>>),
}

/// Checks credentials, each once.
pub(super) struct Logins {
    key: hmac::Key,
    checker: Checker,
    guesses: Guesses,
    entries: Mutex<HashMap<Mac, Entry>>,
}

impl Logins {
    /// `counts_loopback`: whether guesses from loopback addresses have a limit as well.
    pub(super) fn new(counts_loopback: bool) -> Logins {
        Logins {
            key: hmac::Key::new(hmac::HMAC_SHA256, &random::<32>()),
            checker: Checker::new(),
            guesses: Guesses::new(counts_loopback),
            entries: Mutex::default(),
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<Mac, Entry>> {
        self.entries.lock().expect("no code under it panics")
    }

    /// The stamp is part of it: a user whose entry has changed is another one.
    fn mac(&self, name: &str, password: &str, stamp: u64) -> Mac {
        let mut context = hmac::Context::with_key(&self.key);
        // A name has no colon.
        for part in [&stamp.to_be_bytes()[..], name.as_bytes(), b":", password.as_bytes()] {
            context.update(part);
        }
        context.sign().as_ref().try_into().expect("HMAC-SHA256 has 32 bytes")
    }

    /// What these credentials are worth, which come from this address.
    pub(super) async fn check(
        self: &Arc<Self>,
        book: &Arc<Book>,
        name: &str,
        password: &str,
        from: Option<IpAddr>,
    ) -> Outcome {
        if password.len() > BYTES_MAX || name.contains(':') {
            return Outcome::Wrong;
        }
        let known = book.user(name);
        let (stamp, hash) = known.map_or((0, None), |known| (known.stamp, known.password.clone()));
        let mac = self.mac(name, password, stamp);
        let mut told = {
            let mut entries = self.entries();
            match entries.get(&mac) {
                Some(Entry::Known { at, stamp: then })
                    if at.elapsed() < KNOWN_FOR && *then == stamp =>
                {
                    return Outcome::Known;
                }
                Some(Entry::Checking(told)) => told.clone(),
                _ => {
                    if from.is_some_and(|from| !self.guesses.take(from, Instant::now())) {
                        return Outcome::TooMany;
                    }
                    let (tell, told) = watch::channel(None);
                    entries.insert(mac, Entry::Checking(told.clone()));
                    let (logins, password) = (Arc::clone(self), password.to_owned());
                    // In a task of its own: the client that began it may leave while others wait.
                    tokio::spawn(async move {
                        let outcome = logins.find_out(mac, stamp, password, hash).await;
                        if let Some(from) = from.filter(|_| outcome != Outcome::Wrong) {
                            logins.guesses.give_back(from, Instant::now());
                        }
                        tell.send_replace(Some(outcome));
                    });
                    told
                }
            }
        };
        let outcome = told.wait_for(Option::is_some).await;
        outcome.ok().and_then(|outcome| *outcome).unwrap_or(Outcome::Busy)
    }

    async fn find_out(
        &self,
        mac: Mac,
        stamp: u64,
        password: String,
        hash: Option<String>,
    ) -> Outcome {
        let checked = self.checker.check(password, hash).await;
        let mut entries = self.entries();
        match checked {
            Ok(true) => {
                if entries.len() > KNOWN_MAX {
                    entries.retain(|_, entry| match entry {
                        Entry::Known { at, .. } => at.elapsed() < KNOWN_FOR / 2,
                        Entry::Checking(_) => true,
                    });
                }
                match entries.len() > KNOWN_MAX {
                    // Users so many are checked each time, and wait.
                    true => drop(entries.remove(&mac)),
                    false => drop(entries.insert(mac, Entry::Known { at: Instant::now(), stamp })),
                }
                Outcome::Verified
            }
            Ok(false) => {
                entries.remove(&mac);
                Outcome::Wrong
            }
            Err(_) => {
                entries.remove(&mac);
                Outcome::Busy
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serving::rights::{Rights, Role};
    use serving::users::{User, Users};

    use super::super::passwords::hash;
    use super::*;

    #[tokio::test]
    async fn a_name_that_nobody_has_takes_the_work_of_a_wrong_password() {
        let mut users = Users::default();
        for (name, password) in [("known", Some(hash("right"))), ("has-tokens", None)] {
            let user = User { rights: Rights::of(Role::Read), password };
            users.users.insert(name.to_owned(), user);
        }
        let book = Arc::new(Book::of(&users).unwrap());
        let logins = Arc::new(Logins::new(false));
        let check = async |name: &str, password: &str| {
            let before = logins.checker.work.get();
            let outcome = logins.check(&book, name, password, None).await;
            (outcome, logins.checker.work.get() - before)
        };
        // Whoever logs in first of all, and whoever is told the same again.
        let (outcome, work) = check("unknown", "wrong").await;
        assert!(outcome == Outcome::Wrong && work > 0, "{outcome:?}, {work}");
        for (name, password) in [
            ("unknown", "wrong"),
            ("known", "wrong"),
            ("known", "wrong"),
            ("known", ""),
            ("has-tokens", ""),
            ("has-tokens", "right"),
            ("", "right"),
            ("Known", "right"),
        ] {
            let checked = check(name, password).await;
            assert_eq!(checked, (Outcome::Wrong, work), "{name:?} {password:?}");
        }
        assert_eq!(check("known", "right").await, (Outcome::Verified, work));
        assert_eq!(check("known", "right").await, (Outcome::Known, 0));
        // What is not looked at is looked at for nobody.
        let long = "x".repeat(BYTES_MAX + 1);
        for name in ["known", "unknown", "a:b"] {
            assert_eq!(check(name, &long).await, (Outcome::Wrong, 0), "{name}");
        }
    }
}
