//! Passwords: argon2id with 19 MiB and two passes, which costs a core some 40 ms and whoever guesses as much for each guess. Two are
//! checked at once, sixteen wait, and the next is told so: else whoever sends wrong ones would take all memory and all cores.

use std::sync::{Arc, OnceLock};

use argon2::password_hash::{PasswordHash, PasswordHasher, PasswordVerifier, SaltString};
use argon2::{Algorithm, Argon2, Params, Version};
use metrics::Counter;
use tokio::sync::Semaphore;

use super::tokens::random;

/// KiB of memory, passes, lanes: the least that OWASP's list of 2024 has for argon2id.
const COST: (u32, u32, u32) = (19 * 1024, 2, 1);
/// KiB and passes that a hash in a file may ask for.
const COST_MAX: (u32, u32) = (64 * 1024, 8);
/// Bytes of a password.
pub const BYTES_MAX: usize = 1024;
/// Passwords that are checked at once.
const AT_ONCE: usize = 2;
/// Passwords that wait.
const WAITING: usize = 16;

/// The hash of a password, for a file of users.
pub fn hash(password: &str) -> String {
    let (memory_kib, passes, lanes) = COST;
    let params = Params::new(memory_kib, passes, lanes, None).expect("these are allowed");
    let salt = SaltString::encode_b64(&random::<16>()).expect("16 bytes are a salt");
    let hashed = Argon2::new(Algorithm::Argon2id, Version::V0x13, params)
        .hash_password(password.as_bytes(), &salt);
    hashed.expect("a password has a hash").to_string()
}

/// Whether this is a hash that can be checked at a price that is bounded.
pub(super) fn is_usable(hash: &str) -> bool {
    let Ok(parsed) = PasswordHash::new(hash) else { return false };
    let is_cheap = Params::try_from(&parsed)
        .is_ok_and(|params| params.m_cost() <= COST_MAX.0 && params.t_cost() <= COST_MAX.1);
    parsed.algorithm.as_str() == "argon2id" && parsed.hash.is_some() && is_cheap
}

/// A hash of nothing that anybody knows: to check it takes as long as any other.
fn nobodys() -> &'static str {
    static HASH: OnceLock<String> = OnceLock::new();
    HASH.get_or_init(|| hash(&super::tokens::make()))
}

/// Whether this password has this hash, and the work that it took to know: KiB times passes.
fn is_right(password: &str, hash: Option<&str>) -> (bool, u64) {
    // A name that is not there must take as long as one that is; and the first login of all makes this, whoever that is.
    let nobodys = nobodys();
    let Ok(parsed) = PasswordHash::new(hash.unwrap_or(nobodys)) else { return (false, 0) };
    let Ok(params) = Params::try_from(&parsed) else { return (false, 0) };
    let fits = Argon2::default().verify_password(password.as_bytes(), &parsed).is_ok();
    (fits && hash.is_some(), u64::from(params.m_cost()) * u64::from(params.t_cost()))
}

/// As many passwords are being checked, or wait for it, as may be.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Busy;

/// Checks passwords, on threads that may be blocked.
pub(super) struct Checker {
    at_once: Arc<Semaphore>,
    places: Arc<Semaphore>,
    /// What all checks have taken, in KiB times passes.
    pub(super) work: Arc<Counter>,
}

impl Checker {
    pub(super) fn new() -> Checker {
        Checker {
            at_once: Arc::new(Semaphore::new(AT_ONCE)),
            places: Arc::new(Semaphore::new(AT_ONCE + WAITING)),
            work: Arc::default(),
        }
    }

    /// Whether this password has this hash; `None`, which nothing has, takes as long.
    pub(super) async fn check(&self, password: String, hash: Option<String>) -> Result<bool, Busy> {
        let place = Arc::clone(&self.places).try_acquire_owned().map_err(|_| Busy)?;
        let turn = Arc::clone(&self.at_once).acquire_owned().await.expect("it is never closed");
        let all = Arc::clone(&self.work);
        let checked = tokio::task::spawn_blocking(move || {
            let (is_right, work) = is_right(&password, hash.as_deref());
            all.add(work);
            drop((turn, place));
            is_right
        });
        Ok(checked.await.unwrap_or(false))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_has_its_hash_and_no_other_has() {
        let made = hash("correct horse");
        assert!(made.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{made}");
        let (memory_kib, passes, _) = COST;
        let work = u64::from(memory_kib * passes);
        assert!(is_usable(&made));
        assert_eq!(is_right("correct horse", Some(&made)), (true, work));
        assert_eq!(is_right("correct hors", Some(&made)), (false, work));
        assert_eq!(is_right("", Some(&made)), (false, work));
        assert_eq!(is_right("correct horse", None), (false, work));
        assert_ne!(made, hash("correct horse"), "each has a salt of its own");
    }

    #[test]
    fn hashes_that_cost_too_much_or_too_little_are_refused() {
        for hash in [
            "$argon2id$v=19$m=1048576,t=2,p=1$c2FsdHNhbHRzYWx0$qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqo",
            "$argon2id$v=19$m=19456,t=900,p=1$c2FsdHNhbHRzYWx0$qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqo",
            "$argon2d$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0$qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqo",
            "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0",
            "$2y$10$abcdefghijklmnopqrstuv",
            "$",
            "",
        ] {
            assert!(!is_usable(hash), "{hash}");
        }
    }

    #[tokio::test]
    async fn two_are_checked_at_once_sixteen_wait_and_the_next_is_told() {
        let checker = Arc::new(Checker::new());
        let all = Arc::clone(&checker.at_once).acquire_many_owned(AT_ONCE as u32).await.unwrap();
        let begin = || {
            let checker = Arc::clone(&checker);
            tokio::spawn(async move { checker.check("x".to_owned(), None).await })
        };
        let waiting: Vec<_> = (0..AT_ONCE + WAITING).map(|_| begin()).collect();
        while checker.places.available_permits() > 0 {
            tokio::task::yield_now().await;
        }
        assert_eq!(begin().await.unwrap(), Err(Busy));
        assert!(waiting.iter().all(|task| !task.is_finished()));
        drop(all);
        for task in waiting {
            assert_eq!(task.await.unwrap(), Ok(false));
        }
        assert_eq!(checker.places.available_permits(), AT_ONCE + WAITING);
    }
}
