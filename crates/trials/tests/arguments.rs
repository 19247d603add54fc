//! The program as it is called. That it is tested also has it built with the workspace's tests, where
//! continuous integration takes it from.

use std::process::{Command, Output};

fn trials(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_trials")).args(arguments).output().unwrap()
}

#[test]
fn each_trial_says_what_it_takes() {
    for trial in ["powerloss", "rejoin", "adoption", "damage"] {
        let output = trials(&[trial, "--help"]);
        let help = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success() && help.contains("--binary"), "{trial}: {help}");
    }
}

#[test]
fn what_is_no_trial_is_refused() {
    let output = trials(&["earthquake"]);
    let words = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && words.contains("earthquake"), "{words}");
}
