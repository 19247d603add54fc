//! Where the checkout lies.

use std::path::{Path, PathBuf};

/// The checkout this program was built from.
#[must_use]
pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the workspace").to_owned()
}
