//! `log mend`: what would be lost by going on without what is damaged in a refused partition, and
//! doing so.

use std::path::Path;
use std::process::ExitCode;

use model::TopicPartition;
use storage::stopped::{Ailment, Stopped, StoppedError};

use super::stopped_folder::{self, failed, losses, say};
use crate::amounts::counted;
use crate::failure::Failure;

/// Shows the partition, and mends it if `yes`.
pub fn run(dir: &Path, partition: &TopicPartition, yes: bool) -> Result<ExitCode, Failure> {
    let stopped = stopped_folder::open(dir)?;
    let examined = stopped.examine(partition).map_err(|error| unknown(&stopped, error))?;
    let Some(ailment) = examined else {
        say(format_args!("{partition} is not refused: nothing is to be mended"))?;
        return Ok(ExitCode::SUCCESS);
    };
    describe(&ailment)?;
    if !yes {
        return Err(Failure::new(format!("nothing was changed: {partition} is still refused"))
            .detail("with --yes the partition is served without what is lost")
            .hint("if another replica or a backup has the records, restore the folder instead"));
    }
    let unique = stopped_folder::unique()?;
    let mended = stopped.mend(&ailment, stopped_folder::now(), unique);
    let mended = mended.map_err(|error| failed(format!("cannot mend {partition}"), error))?;
    let (start, end) = mended.range;
    say(format_args!(
        "{partition} is mended: offsets from {start} up to {end}, served from the next start on"
    ))?;
    say("in a cluster the next start copies it anew instead, if another broker has everything")?;
    if let Some(kept) = mended.kept {
        say(format_args!("its folder as it was is kept: {}", kept.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(ailment: &Ailment) -> Result<(), Failure> {
    let Ailment { name, reason, survey, log_start, end, .. } = ailment;
    say(format_args!("{name} is refused: {reason}"))?;
    match survey.range {
        Some((first, behind)) => say(format_args!(
            "whole: {} in {}, {} bytes, offsets from {first} up to {behind}",
            counted(survey.records, "record"),
            counted(survey.batches, "batch"),
            survey.bytes
        ))?,
        None => say("whole: no batch")?,
    }
    if survey.tail_bytes > 0 {
        say(format_args!("at the end: {} bytes, less than a whole batch", survey.tail_bytes))?;
    }
    if survey.lost.is_empty() {
        say("lost: nothing that the journal knows of")?;
    }
    for line in losses(&survey.lost) {
        say(format_args!("lost: {line}"))?;
    }
    say(format_args!("the log will start at {log_start} and go on at {end}"))
}

fn unknown(stopped: &Stopped, error: StoppedError) -> Failure {
    let failure = Failure::new("cannot look at the partition").detail(&error);
    if !matches!(error, StoppedError::Unknown { .. }) {
        return failure;
    }
    let state = stopped.state();
    let refused = state.partitions.iter().filter(|(_, known)| known.refused.is_some());
    let names: Vec<String> = refused
        .map(|(key, known)| storage::journal::State::name(*key, known).to_string())
        .collect();
    match names.is_empty() {
        true => failure.hint("no partition is refused in this folder"),
        false => failure.hint(format!("refused here: {}", names.join(", "))),
    }
}
