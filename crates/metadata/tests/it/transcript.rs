//! Transcripts: `testdata/*.txt`, one file per behaviour. A paragraph is a command, `----`, and
//! what came of it; `UPDATE=1` writes the outcomes anew. A new scenario costs no Rust.

use crate::commands::World;
use std::fs;
use std::path::{Path, PathBuf};

fn run(text: &str) -> String {
    let mut world = World::default();
    let mut out = String::new();
    for paragraph in text.split("\n\n").map(|paragraph| paragraph.trim_matches('\n')) {
        if paragraph.is_empty() {
            continue;
        }
        let commands = paragraph.split_once("----").map_or(paragraph, |(commands, _)| commands);
        let commands = commands.trim_end();
        out.push_str(commands);
        let lines = commands.lines().filter(|line| !line.starts_with('#'));
        let lines: Vec<&str> = lines.collect();
        if !lines.is_empty() {
            out.push_str("\n----\n");
            lines.iter().for_each(|line| out.push_str(&world.run(line)));
        }
        out.push_str(if lines.is_empty() { "\n\n" } else { "\n" });
    }
    out.truncate(out.trim_end().len());
    out + "\n"
}

fn transcripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        entries.filter(|path| path.extension().is_some_and(|e| e == "txt")).collect();
    files.sort();
    files
}

#[cfg(debug_assertions)]
fn finds_each(file: &str, mutants: &[metadata::mutants::Mutant]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
    let recorded = fs::read_to_string(folder.join(file)).unwrap();
    for mutant in mutants.iter().copied() {
        metadata::mutants::plant(Some(mutant));
        let outcome = run(&recorded);
        metadata::mutants::plant(None);
        assert_ne!(outcome, recorded, "{mutant:?}");
    }
}

#[cfg(debug_assertions)]
#[test]
fn transcripts_find_each_rule_left_out() {
    finds_each("relief_of_a_sick_broker.txt", &metadata::mutants::Mutant::OF_RELIEF);
    finds_each("missing_log_directory.txt", &metadata::mutants::Mutant::OF_MISSING);
    finds_each("leader_epochs_found_in_logs.txt", &metadata::mutants::Mutant::OF_FOUND_EPOCHS);
    let leads = [metadata::mutants::Mutant::MissingLeads];
    finds_each("missing_log_directory_after_clean_stops.txt", &leads);
}

#[test]
fn every_transcript_comes_out_as_recorded() {
    let files = transcripts();
    assert!(files.len() >= 8, "the transcripts are gone");
    for file in files {
        let recorded = fs::read_to_string(&file).unwrap();
        let outcome = run(&recorded);
        if std::env::var_os("UPDATE").is_some() {
            fs::write(&file, outcome).unwrap();
        } else {
            let name = file.file_name().unwrap().to_string_lossy();
            assert!(
                outcome == recorded,
                "{name} came out differently (UPDATE=1 records):\n{outcome}"
            );
        }
    }
}
