//! Sessions that were signed out before their end, and the file that gateways with one key share.
//!
//! Few sessions of one user are kept one by one. All sessions last equally long, so sessions older than a dropped one are
//! void with it: a session that was signed out stays so, and a user voids no sessions but its own.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::users::{is_name, sum};

/// Sessions of one user that are kept one by one.
const SESSIONS_MAX: usize = 64;
/// Bytes of a file that is read.
pub const FILE_BYTES_MAX: usize = 64 << 20;
const FIRST_LINE: &str = "highwater sign-outs 1";

/// The text is cut, damaged or of another file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "file of sign-outs is cut, damaged or edited by hand; remove it and the key file beside it, so that sessions that were \
     signed out stay void"
)]
pub struct DamagedSignOuts;

/// Sessions of a user that were signed out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct UserSignOuts {
    /// Id and end, in seconds since 1970. Invariant: at most [`SESSIONS_MAX`], with ends after `before_s`.
    sessions: BTreeMap<u128, u64>,
    /// Sessions that end until then are void.
    before_s: u64,
}

impl UserSignOuts {
    fn bound(&mut self) {
        self.sessions.retain(|_, expires_s| *expires_s > self.before_s);
        while self.sessions.len() > SESSIONS_MAX {
            let oldest = self.sessions.values().min().copied().unwrap_or_default();
            self.before_s = self.before_s.max(oldest);
            self.sessions.retain(|_, expires_s| *expires_s > self.before_s);
        }
    }

    /// Drops sessions that have expired. Returns whether a session may be left that has not.
    fn drop_expired(&mut self, now_s: u64) -> bool {
        self.sessions.retain(|_, expires_s| *expires_s > now_s);
        self.before_s > now_s || !self.sessions.is_empty()
    }
}

/// Sessions that were signed out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SignOuts {
    users: BTreeMap<String, UserSignOuts>,
}

impl SignOuts {
    /// Signs a session out. Sessions that have expired are dropped.
    pub fn sign_out(&mut self, user: &str, id: u128, expires_s: u64, now_s: u64) {
        self.users.retain(|_, of_user| of_user.drop_expired(now_s));
        let of_user = self.users.entry(user.to_owned()).or_default();
        of_user.sessions.insert(id, expires_s);
        of_user.bound();
    }

    /// Whether a session was signed out.
    pub fn has(&self, user: &str, id: u128, expires_s: u64) -> bool {
        self.users.get(user).is_some_and(|of_user| {
            expires_s <= of_user.before_s || of_user.sessions.contains_key(&id)
        })
    }

    /// Adds sessions that were signed out elsewhere.
    pub fn merge(&mut self, others: &SignOuts) {
        for (user, others) in &others.users {
            let of_user = self.users.entry(user.clone()).or_default();
            of_user.sessions.extend(&others.sessions);
            of_user.before_s = of_user.before_s.max(others.before_s);
            of_user.bound();
        }
    }

    /// Users with sessions that were signed out.
    pub fn user_count(&self) -> usize {
        self.users.len()
    }

    /// The content of a file.
    pub fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for (user, of_user) in &self.users {
            let _ = write!(text, "{user} {}", of_user.before_s);
            for (id, expires_s) in &of_user.sessions {
                let _ = write!(text, " {id:032x}:{expires_s}");
            }
            text.push('\n');
        }
        let sum = sum(text.as_bytes());
        let _ = writeln!(text, "end {sum:08x}");
        text
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The text is cut, damaged or of another file.
    pub fn parse(text: &str) -> Result<SignOuts, DamagedSignOuts> {
        SignOuts::read(text).ok_or(DamagedSignOuts)
    }

    fn read(text: &str) -> Option<SignOuts> {
        let (before, last) = text.strip_suffix('\n')?.rsplit_once('\n')?;
        let before = &text[..before.len() + 1];
        if last != format!("end {:08x}", sum(before.as_bytes())) {
            return None;
        }
        let mut lines = before.lines();
        lines.next().filter(|line| *line == FIRST_LINE)?;
        let mut all = SignOuts::default();
        for line in lines {
            let mut words = line.split(' ');
            let user = words.next().filter(|name| is_name(name))?;
            let before_s = words.next()?.parse().ok()?;
            let session = |word: &str| {
                let (id, expires_s) = word.split_once(':')?;
                Some((u128::from_str_radix(id, 16).ok()?, expires_s.parse().ok()?))
            };
            let sessions = words.map(session).collect::<Option<BTreeMap<u128, u64>>>()?;
            let mut of_user = UserSignOuts { sessions, before_s };
            of_user.bound();
            all.users.insert(user.to_owned(), of_user);
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_was_signed_out_stays_so_however_many_are() {
        let mut all = SignOuts::default();
        all.sign_out("bob", 1, 500, 0);
        // All of them within a second, and one after the other.
        for (count, expires_s) in [(5_000, |_| 600), (5_000, |id: u128| 1_000 + id as u64)]
            as [(u128, fn(u128) -> u64); 2]
        {
            for id in 0..count {
                all.sign_out("alice", id, expires_s(id), 0);
                assert!(all.has("alice", id, expires_s(id)));
            }
            assert!((0..count).all(|id| all.has("alice", id, expires_s(id))));
            assert!(!all.has("alice", 999_999, 11_000) && !all.has("bob", 2, 500));
            assert!(all.users["alice"].sessions.len() <= SESSIONS_MAX);
        }
        all.sign_out("bob", 3, 30_000, 20_000);
        assert_eq!(all.user_count(), 1, "ended sessions are dropped");
    }

    #[test]
    fn files_are_read_as_they_were_written_and_merged() {
        let (mut one, mut other) = (SignOuts::default(), SignOuts::default());
        one.sign_out("alice", u128::MAX, 600, 0);
        (0..100).for_each(|id| other.sign_out("alice", id, 700 + id as u64, 0));
        other.sign_out("bob@example.org", 7, 600, 0);
        for all in [&SignOuts::default(), &one, &other] {
            assert_eq!(SignOuts::parse(&all.text()).as_ref(), Ok(all));
        }
        one.merge(&other);
        assert!(one.has("alice", u128::MAX, 600) && one.has("bob@example.org", 7, 600));
        assert!((0..100).all(|id| one.has("alice", id, 700 + id as u64)));
        let merged = one.clone();
        one.merge(&other);
        assert_eq!(one, merged);
        let text = one.text();
        for at in 0..text.len() {
            assert!(SignOuts::parse(&text[..at]).is_err(), "cut at {at}");
        }
        assert!(SignOuts::parse(&text.replace("bob", "eve")).is_err());
    }
}
