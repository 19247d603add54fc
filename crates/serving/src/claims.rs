//! What a signed text says: a cookie of somebody who has logged in, or a ticket for streams of certain topics. The body of the text
//! is read and written here; it is worth something only behind a signature, which the shell makes and checks first.
//!
//! ```text
//! KIND EXPIRES ID STAMP USER TOPICS      kind: session or ticket; expires: seconds since 1970; id, stamp: hexadecimal;
//!                                        user: empty for nobody; topics: percent-encoded, with commas; empty in a session
//! ```
//!
//! The *stamp* is a piece of the hash of all that the file of users says of the user: when the user is removed, or gets another
//! password, role or topics, what was signed before is void.

use crate::users;

/// How long a session lasts: half a day, in seconds.
pub const SESSION_S: u64 = 12 * 3600;
/// How long a ticket lasts: an hour, in seconds.
pub const TICKET_S: u64 = 3600;
/// Topics of a ticket.
pub const TOPICS_MAX: usize = 64;
/// Bytes of the longest body that is read.
const BYTES_MAX: usize = 4096;

/// What a signed text is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Use {
    /// Everything that its user may do.
    Session,
    /// To read these topics as streams.
    Ticket(Vec<String>),
}

/// What is signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claims {
    /// What it is good for.
    pub good_for: Use,
    /// From then on it is void: seconds since 1970.
    pub expires_s: u64,
    /// Tells it from all others.
    pub id: u128,
    /// A piece of the hash of the user's entry.
    pub stamp: u64,
    /// The user; empty: nobody, where everybody may read.
    pub user: String,
}

impl Claims {
    /// The body of the signed text.
    pub fn text(&self) -> String {
        let (kind, topics) = match &self.good_for {
            Use::Session => ("session", ""),
            Use::Ticket(topics) => ("ticket", &*topics.join(",")),
        };
        let Claims { expires_s, id, stamp, user, .. } = self;
        format!("{kind} {expires_s} {id:032x} {stamp:016x} {user} {topics}")
    }

    /// Reads the body of a text whose signature was checked; `None` if it is none.
    pub fn parse(text: &str) -> Option<Claims> {
        if text.len() > BYTES_MAX {
            return None;
        }
        let words: Vec<&str> = text.split(' ').collect();
        let [kind, expires_s, id, stamp, user, topics] = words[..] else { return None };
        let good_for = match kind {
            "session" if topics.is_empty() => Use::Session,
            "ticket" => Use::Ticket(ticket_topics(topics)?),
            _ => return None,
        };
        let claims = Claims {
            good_for,
            expires_s: expires_s.parse().ok()?,
            id: u128::from_str_radix(id, 16).ok()?,
            stamp: u64::from_str_radix(stamp, 16).ok()?,
            user: (user.is_empty() || users::is_name(user)).then(|| user.to_owned())?,
        };
        // One text for each claim: no sign, no blank, no second spelling.
        (claims.text() == text).then_some(claims)
    }

    /// Whether its text can be read again: it is not too long.
    pub fn is_readable(&self) -> bool {
        self.text().len() <= BYTES_MAX
    }

    /// Whether it is void at this time: seconds since 1970.
    pub fn is_void_at(&self, now_s: u64) -> bool {
        now_s >= self.expires_s
    }
}

fn ticket_topics(text: &str) -> Option<Vec<String>> {
    let topics: Vec<String> = text.split(',').map(str::to_owned).collect();
    is_list(&topics).then_some(topics)
}

/// Whether a ticket can be for these topics: 1 to 64 names that topics can have.
pub fn is_list(topics: &[String]) -> bool {
    (1..=TOPICS_MAX).contains(&topics.len()) && topics.iter().all(|topic| users::is_prefix(topic))
}
