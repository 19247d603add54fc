//! The file of users: who there is, with which role, and by what each is known. A pure reader and writer of its text; passwords
//! and tokens stand in it as hashes only.
//!
//! ```text
//! highwater users 1
//! user alice admin * $argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0$aGFzaA
//! user meter read metrics.,logs. -
//! token meter 1732500000 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
//! end 1a2b3c4d
//! ```
//!
//! A line for each user: name, role, prefixes of its topics (`*`: all topics), and the hash of its password (`-`: none). A line for
//! each token: whose it is, when it was made (seconds since 1970), and its SHA-256. The last line is the CRC-32C of all bytes
//! before it: a file that was cut, or has one bit flipped, is refused as a whole, and never read as a file with fewer users, or
//! with stronger ones. It guards against accidents; who may write the file may write any user.
//!
//! Not here: the file itself, hashing, and what a user may do ([`crate::rights`]).

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::rights::{Rights, Role, Topics};

const FIRST_LINE: &str = "highwater users 1";
/// Bytes that a file may have: some ten thousand users.
pub const FILE_BYTES_MAX: usize = 4 << 20;
/// Bytes of a user's name.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of a hash of a password.
const HASH_BYTES_MAX: usize = 256;
/// Bytes of a prefix: as many as a topic's name may have.
const PREFIX_BYTES_MAX: usize = 249;

/// SHA-256 of a token.
pub type TokenHash = [u8; 32];

/// A user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// What it may do.
    pub rights: Rights,
    /// The hash of its password, in the form of PHC strings; `None`: it has no password.
    pub password: Option<String>,
}

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The user that it stands for. Invariant: one of the file's.
    pub user: String,
    /// When it was made: seconds since 1970.
    pub made_s: u64,
}

/// All users.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Users {
    /// By name.
    pub users: BTreeMap<String, User>,
    /// By hash.
    pub tokens: BTreeMap<TokenHash, Token>,
}

/// Why a text is not a file of users.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// It is larger than any.
    #[error("larger than {FILE_BYTES_MAX} bytes")]
    Large,
    /// It begins otherwise.
    #[error("the first line is not {FIRST_LINE:?}")]
    Start,
    /// Its last line is missing, or says another checksum.
    #[error("cut, damaged, or changed by hand: the last line does not fit what stands before it")]
    Sum,
    /// This line cannot be read.
    #[error("line {line}: {what}")]
    Line {
        /// From 1.
        line: usize,
        /// What is wrong.
        what: &'static str,
    },
}

/// Whether this can be a user's name: 1 to 64 letters, digits, dots, underscores, hyphens and `@`.
pub fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-@".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits)
}

/// Whether topics' names may begin so: 1 to 249 letters, digits, dots, underscores and hyphens.
pub fn is_prefix(prefix: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=PREFIX_BYTES_MAX).contains(&prefix.len()) && prefix.bytes().all(fits)
}

/// The prefixes in a list with commas; `*` alone is all topics.
pub fn topics(text: &str) -> Option<Topics> {
    if text == "*" {
        return Some(Topics::All);
    }
    let prefixes: Vec<String> = text.split(',').map(str::to_owned).collect();
    prefixes.iter().all(|prefix| is_prefix(prefix)).then_some(Topics::Under(prefixes))
}

/// The same as text. Names that are not prefixes have no place in a file.
pub fn topics_text(topics: &Topics) -> String {
    match topics {
        Topics::All => "*".to_owned(),
        Topics::Under(prefixes) | Topics::Named(prefixes) => prefixes.join(","),
    }
}

fn is_hash(hash: &str) -> bool {
    hash.starts_with('$')
        && hash.len() <= HASH_BYTES_MAX
        && hash.bytes().all(|b| b.is_ascii_graphic())
}

pub(crate) fn sum(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

fn from_hex(text: &str) -> Option<TokenHash> {
    let lower = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if text.len() != 64 || !text.bytes().all(lower) {
        return None;
    }
    let mut hash = [0; 32];
    for (at, byte) in hash.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(hash)
}

/// In hexadecimal, lower case.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

impl Users {
    /// Reads a file.
    ///
    /// # Errors
    /// It is not one, or not whole.
    pub fn parse(text: &str) -> Result<Users, Damage> {
        if text.len() > FILE_BYTES_MAX {
            return Err(Damage::Large);
        }
        if text.split('\n').next() != Some(FIRST_LINE) {
            return Err(Damage::Start);
        }
        let whole = text.strip_suffix('\n').ok_or(Damage::Sum)?;
        let (before, last) = whole.rsplit_once('\n').ok_or(Damage::Sum)?;
        let before = &text[..before.len() + 1];
        if last != format!("end {:08x}", sum(before.as_bytes())) {
            return Err(Damage::Sum);
        }
        let mut users = Users::default();
        for (at, line) in before.lines().enumerate().skip(1) {
            users.take(line).map_err(|what| Damage::Line { line: at + 1, what })?;
        }
        Ok(users)
    }

    fn take(&mut self, line: &str) -> Result<(), &'static str> {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["user", name, role, topics, password] => self.take_user(name, role, topics, password),
            ["token", user, made_s, hash] => self.take_token(user, made_s, hash),
            _ => Err("expected user NAME ROLE TOPICS HASH, or token USER TIME HASH"),
        }
    }

    fn take_user(
        &mut self,
        name: &str,
        role: &str,
        list: &str,
        password: &str,
    ) -> Result<(), &'static str> {
        if !is_name(name) {
            return Err(
                "a user's name has 1 to 64 letters, digits, dots, underscores, hyphens and @",
            );
        }
        let role =
            Role::from_name(role).ok_or("the role is none of read, produce, write, admin")?;
        let topics =
            topics(list).ok_or("expected * or prefixes of topics with commas between them")?;
        let password = (password != "-").then(|| password.to_owned());
        if !password.as_deref().is_none_or(is_hash) {
            return Err("expected the hash of a password, or -");
        }
        let user = User { rights: Rights { role: Some(role), topics }, password };
        match self.users.insert(name.to_owned(), user) {
            None => Ok(()),
            Some(_) => Err("the user is there twice"),
        }
    }

    fn take_token(&mut self, user: &str, made_s: &str, hash: &str) -> Result<(), &'static str> {
        if !self.users.contains_key(user) {
            return Err("a token of a user that does not stand above it");
        }
        let is_number = made_s.bytes().all(|byte| byte.is_ascii_digit());
        let made_s = made_s.parse().ok().filter(|_| is_number);
        let made_s = made_s.ok_or("expected the seconds at which the token was made")?;
        let hash = from_hex(hash).ok_or("expected the SHA-256 of a token")?;
        match self.tokens.insert(hash, Token { user: user.to_owned(), made_s }) {
            None => Ok(()),
            Some(_) => Err("the token is there twice"),
        }
    }

    /// As a file.
    pub fn text(&self) -> String {
        let mut text = format!("{FIRST_LINE}\n");
        for (name, user) in &self.users {
            let role = user.rights.role.map_or("", Role::name);
            let topics = topics_text(&user.rights.topics);
            let password = user.password.as_deref().unwrap_or("-");
            text += &format!("user {name} {role} {topics} {password}\n");
        }
        for (hash, token) in &self.tokens {
            text += &format!("token {} {} {}\n", token.user, token.made_s, hex(hash));
        }
        let sum = sum(text.as_bytes());
        text + &format!("end {sum:08x}\n")
    }

    /// Removes a user with its tokens. Whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.tokens.retain(|_, token| token.user != name);
        self.users.remove(name).is_some()
    }
}
