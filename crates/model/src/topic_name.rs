//! Which names a topic may have. Directory names are built from topic names, so nothing that has
//! not passed here may reach a file system.

/// The longest topic name, in bytes: the directory's name adds a dash and a partition number.
pub const TOPIC_NAME_BYTES_MAX: usize = 249;

/// Why a topic name is refused; the text says what would be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTopicName {
    /// Nothing there.
    #[error("the empty string is not allowed")]
    Empty,
    /// `.` or `..`.
    #[error("'.' or '..' is not allowed")]
    Dots,
    /// Longer than [`TOPIC_NAME_BYTES_MAX`].
    #[error("the length is longer than the max allowed length 249")]
    TooLong,
    /// A character outside `[a-zA-Z0-9._-]`.
    #[error("it contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'")]
    Character,
}

/// Accepts `[a-zA-Z0-9._-]{1,249}` but for `.` and `..`.
pub fn validate(name: &str) -> Result<(), InvalidTopicName> {
    match name {
        "" => Err(InvalidTopicName::Empty),
        "." | ".." => Err(InvalidTopicName::Dots),
        _ if name.len() > TOPIC_NAME_BYTES_MAX => Err(InvalidTopicName::TooLong),
        _ if !name.bytes().all(is_allowed) => Err(InvalidTopicName::Character),
        _ => Ok(()),
    }
}

fn is_allowed(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-')
}

/// Whether two names give the same metric name, where `.` and `_` become one.
pub fn collides(a: &str, b: &str) -> bool {
    a.len() == b.len()
        && a.bytes().zip(b.bytes()).all(|(x, y)| {
            let fold = |c| if c == b'.' { b'_' } else { c };
            fold(x) == fold(y)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused() {
        for name in ["", ".", "..", "../x", "a/b", "%2e%2e/", "a\0b", "ünïcode", "a b", "\u{202e}a"]
        {
            assert!(validate(name).is_err(), "{name:?}");
        }
        assert_eq!(validate(&"x".repeat(250)), Err(InvalidTopicName::TooLong));
    }

    #[test]
    fn usual_names_pass() {
        for name in ["a", "a.b", "A_b-9", "__consumer_offsets", "..."] {
            assert_eq!(validate(name), Ok(()), "{name:?}");
        }
        assert_eq!(validate(&"x".repeat(249)), Ok(()));
    }

    #[test]
    fn dots_and_underscores_collide() {
        assert!(collides("a.b", "a_b"));
        assert!(!collides("a.b", "a-b"));
    }
}
