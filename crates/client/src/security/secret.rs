//! A text that must not be seen: whatever prints it prints that it is hidden.

use std::fmt;
use std::sync::Arc;

/// A password. Neither `Debug` nor an error shows it; it has no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Hides this text.
    pub fn new(text: &str) -> Secret {
        Secret(text.into())
    }

    /// The text itself, for a proof of knowing it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}
