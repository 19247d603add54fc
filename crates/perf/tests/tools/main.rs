//! Kafka's performance tools by name, run to their end: against a sink, and against a cluster where
//! one is named: `CLIENT_TEST_BOOTSTRAP=host:port cargo test -p perf`. Tests that need a cluster are
//! passed over without one.
//!
//! `KAFKA_TOOL="cargo xt kafka tool"` beside it runs Kafka's own tools against that cluster, too.
//!
//! `recorded/` holds what the tools of Apache Kafka 4.3.1 wrote. Both their lines and ours are read by
//! the same readers.

mod cluster;
mod lines;
mod sink;

use perf::tools::{self, Console, Tool};
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

/// What a run wrote.
pub struct Written {
    /// Results.
    pub lines: Vec<String>,
    /// Notices.
    pub notices: String,
}

#[derive(Clone, Default)]
struct Text(Arc<Mutex<Vec<u8>>>);

impl Text {
    fn read(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs a tool; whether it succeeded, and what it wrote.
pub fn run(tool: Tool, line: &str) -> (bool, Written) {
    let (out, err) = (Text::default(), Text::default());
    let console = Arc::new(Console::of(out.clone(), err.clone()));
    let arguments: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let code = tools::main(tool, &arguments, &console);
    let succeeded = format!("{code:?}") == format!("{:?}", ExitCode::SUCCESS);
    let lines = out.read().lines().map(str::to_owned).collect();
    (succeeded, Written { lines, notices: err.read() })
}

/// Runs a tool that must succeed.
pub fn succeed(tool: Tool, line: &str) -> Written {
    let (succeeded, written) = run(tool, line);
    assert!(succeeded, "{line}: {}\n{}", written.lines.join("\n"), written.notices);
    written
}
