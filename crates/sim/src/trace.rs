//! A digest of everything that happens, so that two runs can be compared.

use std::fmt::{self, Write};

use model::Timestamp;

/// Everything noted so far, as one number (FNV-1a).
#[derive(Debug)]
pub(crate) struct Trace {
    digest: u64,
    /// Whether to print what is noted.
    verbose: bool,
}

impl Trace {
    pub(crate) fn new(verbose: bool) -> Trace {
        Trace { digest: 0xcbf2_9ce4_8422_2325, verbose }
    }

    pub(crate) fn note(&mut self, at: Timestamp, what: fmt::Arguments<'_>) {
        if self.verbose {
            println!("{at:>8} {what}");
        }
        writeln!(self, "{at} {what}").expect("a digest takes all text");
    }

    pub(crate) fn digest(&self) -> u64 {
        self.digest
    }
}

impl Write for Trace {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for byte in text.bytes() {
            self.digest = (self.digest ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3);
        }
        Ok(())
    }
}
