//! What a page shows that it was made here, for what it asks now: no page of a stranger can have an action done, none is done
//! twice, and what is done is what was reviewed.

use std::collections::HashMap;
use std::sync::Mutex;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::hmac::{self, HMAC_SHA256, Key};
use ring::rand::{SecureRandom, SystemRandom};
use serving::operation::{Fields, Kind};

/// How long a review may be carried out.
const KEPT_MS: i64 = 3_600_000;
/// Fields that are not part of what was reviewed.
const BESIDE: [&str; 3] = ["step", "token", "typed"];

/// Makes tokens and takes each of them once.
pub(crate) struct Tokens {
    /// Of this process: a token does not outlive it.
    key: Key,
    /// Those that were taken, with their time, and the number of the action, once that is over.
    taken: Mutex<HashMap<String, (i64, Option<u64>)>>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

/// Why a token is not taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refused {
    /// It is missing, or not of this process, or not for these fields.
    Foreign,
    /// It is older than an hour.
    Old,
    /// It was taken before, for this action, if that is over.
    Taken(Option<u64>),
}

impl Tokens {
    pub(crate) fn new() -> Tokens {
        let mut secret = [0; 32];
        SystemRandom::new().fill(&mut secret).expect("the system has random numbers");
        Tokens { key: Key::new(HMAC_SHA256, &secret), taken: Mutex::default() }
    }

    /// A token for an action with these fields.
    pub(crate) fn issue(&self, kind: Kind, fields: &Fields, who: &str, now_ms: i64) -> String {
        let mut nonce = [0; 12];
        SystemRandom::new().fill(&mut nonce).expect("the system has random numbers");
        let head = format!("{now_ms}.{}", URL_SAFE_NO_PAD.encode(nonce));
        let tag = hmac::sign(&self.key, &signed(&head, kind, fields, who));
        format!("{head}.{}", URL_SAFE_NO_PAD.encode(tag.as_ref()))
    }

    /// Takes a token.
    ///
    /// # Errors
    /// The action may not be done with it.
    pub(crate) fn take(
        &self,
        kind: Kind,
        fields: &Fields,
        who: &str,
        now_ms: i64,
    ) -> Result<String, Refused> {
        let token = fields.get("token").ok_or(Refused::Foreign)?;
        let (head, tag) = token.rsplit_once('.').ok_or(Refused::Foreign)?;
        let tag = URL_SAFE_NO_PAD.decode(tag).map_err(|_| Refused::Foreign)?;
        let message = signed(head, kind, fields, who);
        hmac::verify(&self.key, &message, &tag).map_err(|_| Refused::Foreign)?;
        let made_ms = head.split('.').next().and_then(|ms| ms.parse::<i64>().ok());
        let made_ms = made_ms.ok_or(Refused::Foreign)?;
        if now_ms.saturating_sub(made_ms) > KEPT_MS {
            return Err(Refused::Old);
        }
        let mut taken = self.taken.lock().expect("no code under it panics");
        taken.retain(|_, (made_ms, _)| now_ms.saturating_sub(*made_ms) <= KEPT_MS);
        if let Some((_, action)) = taken.get(head) {
            return Err(Refused::Taken(*action));
        }
        taken.insert(head.to_owned(), (made_ms, None));
        Ok(head.to_owned())
    }

    /// Gives a token back for which nothing was done.
    pub(crate) fn give_back(&self, head: &str) {
        self.taken.lock().expect("no code under it panics").remove(head);
    }

    /// Notes which action a token was for.
    pub(crate) fn note(&self, head: &str, action: u64) {
        let mut taken = self.taken.lock().expect("no code under it panics");
        if let Some((_, known)) = taken.get_mut(head) {
            *known = Some(action);
        }
    }
}

/// What is signed. Every text stands behind its length, so that no two lists of fields are the same bytes.
fn signed(head: &str, kind: Kind, fields: &Fields, who: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut put = |text: &str| {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    };
    [head, kind.name(), who].into_iter().for_each(&mut put);
    for (name, text) in fields.iter().filter(|(name, _)| !BESIDE.contains(name)) {
        put(name);
        put(text);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&str, &str)]) -> Fields {
        Fields::new(pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())))
    }

    #[test]
    fn a_token_is_for_what_was_reviewed_and_for_once() {
        let tokens = Tokens::new();
        let (kind, who) = (Kind::DeleteTopic, "ann");
        let token = tokens.issue(kind, &fields(&[("topic", "t"), ("step", "review")]), who, 1000);
        let sent = |topic: &str| fields(&[("topic", topic), ("step", "run"), ("token", &token)]);
        assert_eq!(tokens.take(kind, &sent("u"), who, 1000), Err(Refused::Foreign));
        assert_eq!(tokens.take(kind, &sent("t"), "bob", 1000), Err(Refused::Foreign));
        assert_eq!(tokens.take(Kind::DeleteGroup, &sent("t"), who, 1000), Err(Refused::Foreign));
        assert_eq!(tokens.take(kind, &sent("t"), who, 1001 + KEPT_MS), Err(Refused::Old));
        assert_eq!(Tokens::new().take(kind, &sent("t"), who, 1000), Err(Refused::Foreign));
        let head = tokens.take(kind, &sent("t"), who, 1000).unwrap();
        assert_eq!(tokens.take(kind, &sent("t"), who, 1000), Err(Refused::Taken(None)));
        tokens.give_back(&head);
        let head = tokens.take(kind, &sent("t"), who, 1000).unwrap();
        tokens.note(&head, 7);
        assert_eq!(tokens.take(kind, &sent("t"), who, 1000), Err(Refused::Taken(Some(7))));
    }

    #[test]
    fn what_is_no_token_is_foreign() {
        let tokens = Tokens::new();
        for text in ["", ".", "1.2.3", "é.é", "1..", "99999999999999999999.a.b"] {
            let sent = fields(&[("token", text)]);
            assert_eq!(tokens.take(Kind::Produce, &sent, "", 0), Err(Refused::Foreign), "{text}");
        }
    }
}
