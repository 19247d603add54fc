//! For tests: a console whose lines can be read.

use super::console::Console;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

/// Text that was written so far; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    /// All of it.
    pub fn read(&self) -> String {
        let bytes = self.0.lock().expect("no thread panics while writing").clone();
        String::from_utf8(bytes).expect("the tools write text")
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no thread panics while writing").write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Both streams of a console.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    out: Text,
    err: Text,
}

impl Recorded {
    /// A console that writes here.
    pub fn console(&self) -> Console {
        Console::of(self.out.clone(), self.err.clone())
    }

    /// The lines of results.
    pub fn lines(&self) -> String {
        self.out.read()
    }

    /// The notices.
    pub fn notices(&self) -> String {
        self.err.read()
    }
}
