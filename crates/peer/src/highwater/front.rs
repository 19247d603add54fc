//! What the program puts in front of brokers, as a process of its own: a gateway, or a proxy of Kafka's protocol. On a
//! free port each; killed when dropped.

use std::fs::{self, File};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::process::{self, Guarded};
use crate::scratch::{Scratch, Whose};

/// How long one may take until it listens.
const START_LIMIT: Duration = Duration::from_secs(30);
/// How long an orderly stop may take before it is killed.
const STOP_LIMIT: Duration = Duration::from_secs(15);
/// How the line begins in which a gateway says where it listens.
const GATEWAY: &str = "gateway: http://";
/// And a proxy.
const PROXY: &str = "proxy: ";

/// A process in front of brokers.
#[derive(Debug)]
pub struct Front {
    process: Guarded,
    address: String,
    /// Where its output goes.
    folder: Scratch,
}

impl Front {
    /// Starts `binary` as a gateway in front of the brokers at `bootstrap`, with `settings` as `--set` each, and waits
    /// until it listens. The brokers need not.
    ///
    /// # Errors
    /// It cannot be started, or does not listen.
    pub fn gateway(binary: &Path, bootstrap: &str, settings: &[(&str, &str)]) -> Result<Front> {
        Front::gateway_at(binary, bootstrap, "127.0.0.1:0", settings)
    }

    /// The same with a gateway that listens at `listener`, as one that was killed did.
    ///
    /// # Errors
    /// As [`Front::gateway`].
    pub fn gateway_at(
        binary: &Path,
        bootstrap: &str,
        listener: &str,
        settings: &[(&str, &str)],
    ) -> Result<Front> {
        let mut arguments = vec!["gateway", "-b", bootstrap, "--listener", listener];
        let pairs: Vec<String> =
            settings.iter().map(|(key, value)| format!("{key}={value}")).collect();
        arguments.extend(pairs.iter().flat_map(|pair| ["--set", pair.as_str()]));
        Front::start(binary, &arguments, GATEWAY)
    }

    /// Starts `binary` as a proxy in front of the brokers at `bootstrap`, all of its ports free ones, and waits until it
    /// listens.
    ///
    /// # Errors
    /// It cannot be started, or does not listen.
    pub fn proxy(binary: &Path, bootstrap: &str) -> Result<Front> {
        Front::start(binary, &["proxy", "-b", bootstrap, "--listen", "127.0.0.1:0"], PROXY)
    }

    fn start(binary: &Path, arguments: &[&str], says: &str) -> Result<Front> {
        let folder = Scratch::make(Whose::Ours)?;
        let output = File::create(folder.path().join("output.log"))?;
        let mut command = process::command(binary);
        command.args(arguments);
        command.stdin(Stdio::null()).stderr(output.try_clone()?).stdout(output);
        let process = Guarded::spawn(&mut command)
            .with_context(|| format!("cannot start {} {}", binary.display(), arguments[0]))?;
        let mut front = Front { process, address: String::new(), folder };
        front.wait_until_listening(says)?;
        Ok(front)
    }

    fn wait_until_listening(&mut self, says: &str) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            // Before the look at the output: what was written before the end is read then.
            let running = self.process.is_running();
            if let Some(address) = told(&self.output(), says) {
                self.address = address;
                return Ok(());
            }
            ensure!(running, "it ended at its start:\n{}", self.last_words());
            ensure!(Instant::now() < deadline, "it does not listen:\n{}", self.last_words());
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// `host:port`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Whether the process is still there.
    pub fn is_running(&mut self) -> bool {
        self.process.is_running()
    }

    /// Stops it in an orderly way.
    ///
    /// # Errors
    /// It cannot be waited for.
    pub fn stop(mut self) -> Result<()> {
        self.process.stop(STOP_LIMIT)
    }

    /// The end of what it wrote.
    #[must_use]
    pub fn last_words(&self) -> String {
        let text = self.output();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(15)..].join("\n")
    }

    fn output(&self) -> String {
        fs::read_to_string(self.folder.path().join("output.log")).unwrap_or_default()
    }
}

/// What stands behind `says` in a whole line of the output.
fn told(output: &str, says: &str) -> Option<String> {
    let mut whole = output.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    whole.find_map(|line| Some(line.strip_prefix(says)?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_line_says_where_it_listens() {
        let output = "a word before\ngateway: http://127.0.0.1:401";
        assert_eq!(told(output, GATEWAY), None, "the port may go on");
        let output = format!("{output}23\nconsole: http://127.0.0.1:40123/console\n");
        assert_eq!(told(&output, GATEWAY).as_deref(), Some("127.0.0.1:40123"));
        assert_eq!(told(&output, PROXY), None);
    }

    #[test]
    fn a_program_that_ends_at_once_is_told_with_its_words() {
        let error = Front::proxy(Path::new("/bin/false"), "x:1").unwrap_err();
        assert!(format!("{error:#}").contains("ended at its start"), "{error:#}");
        let error = Front::proxy(Path::new("/nowhere/highwater"), "x:1").unwrap_err();
        assert!(format!("{error:#}").contains("/nowhere/highwater"), "{error:#}");
    }
}
