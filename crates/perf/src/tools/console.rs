//! Where the tools write: lines of results to one stream, notices to the other. Not here: what the
//! lines say.

use std::fmt::Display;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

type Stream = Box<dyn Write + Send>;

/// Two streams of text. Threads may share it: a line is written as a whole.
pub struct Console {
    out: Mutex<Stream>,
    err: Mutex<Stream>,
}

impl Console {
    /// Standard output and standard error.
    pub fn standard() -> Console {
        Console::of(std::io::stdout(), std::io::stderr())
    }

    /// These streams: results, and notices.
    pub fn of(out: impl Write + Send + 'static, err: impl Write + Send + 'static) -> Console {
        Console { out: Mutex::new(Box::new(out)), err: Mutex::new(Box::new(err)) }
    }

    /// Writes a line of results.
    pub fn line(&self, text: impl Display) {
        write(&self.out, text);
    }

    /// Writes a line for people: a warning, an error.
    pub fn notice(&self, text: impl Display) {
        write(&self.err, text);
    }
}

/// Whoever read may have gone (`… | head`); the run goes on, as it does with Kafka's tools.
fn write(stream: &Mutex<Stream>, text: impl Display) {
    let mut stream: MutexGuard<'_, Stream> = stream.lock().unwrap_or_else(PoisonError::into_inner);
    let _ = writeln!(stream, "{text}").and_then(|()| stream.flush());
}
