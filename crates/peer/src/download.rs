//! Commands that bring something over the network: one that fails is run again after a pause.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::process::{self, Outcome};

/// Before the second attempt and before the third: a server that does not answer, or a connection that
/// breaks, is often well again soon.
const PAUSES: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(15)];

/// Runs `command` (from [`process::command`]) until it succeeds, three times at most, each time for at most
/// `limit`. Returns how it ended at last.
///
/// # Errors
/// The command cannot be started.
pub fn run(command: &mut Command, limit: Duration) -> Result<Outcome> {
    attempts(command, limit, &PAUSES)
}

fn attempts(command: &mut Command, limit: Duration, pauses: &[Duration]) -> Result<Outcome> {
    let mut outcome = process::run(command, None, limit)?;
    for pause in pauses {
        if outcome.success() {
            break;
        }
        eprintln!("that failed and is tried again in {pause:?}: {}", outcome.story());
        thread::sleep(*pause);
        outcome = process::run(command, None, limit)?;
    }
    Ok(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// A script that succeeds at the attempt of this number, and how often it ran.
    fn ran(succeeds_at: usize) -> (bool, String) {
        let folder = tempfile::tempdir().unwrap();
        let script = format!("echo x >> runs; test $(wc -l < runs) -eq {succeeds_at}");
        let mut shell = process::command("sh");
        shell.args(["-c", &script]).current_dir(folder.path());
        let outcome = attempts(&mut shell, LIMIT, &[Duration::ZERO; 2]).unwrap();
        (outcome.success(), std::fs::read_to_string(folder.path().join("runs")).unwrap())
    }

    #[test]
    fn what_fails_is_tried_again_and_not_for_ever() {
        assert_eq!(ran(1), (true, "x\n".to_owned()));
        assert_eq!(ran(3), (true, "x\n".repeat(3)));
        assert_eq!(ran(4), (false, "x\n".repeat(3)));
    }
}
