//! The performance laboratory: targets, rounds, what they cost, reports.
//!
//! From the outside: [`arguments`] says what can be typed, [`perform`] does it. A target is any Kafka; what is known of
//! experiments is in `experiment`, how load is made in `perf`, what documents look like in `report`. Inside, read
//! `run` (the plan's steps), then `round::stage` (one round).

mod admin;
pub mod arguments;
mod comparing;
mod disk;
mod doctor;
mod documents;
pub mod failover;
mod interrupt;
mod machine;
mod meter;
mod nearest;
mod planning;
mod progress;
mod round;
mod run;
mod say;
mod searching;
mod seat;
mod store;
pub mod target;
mod view;

use anyhow::Result;
use arguments::Lab;
use say::say;

/// How a command ended that did what it was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// Well.
    Well,
    /// A gate does not hold.
    GateFails,
    /// It cannot be said whether a gate holds.
    Inconclusive,
    /// Something about the machine would spoil figures.
    MachineWarns,
    /// A run ended with rounds that failed: the report lacks them.
    RoundsFailed,
    /// A run was interrupted; its measured rounds are kept.
    Interrupted,
}

impl Ended {
    /// The exit code: 0, 3, 4, 5 (failed rounds) or 130 (interrupted, as shells have it).
    pub fn exit_code(self) -> u8 {
        match self {
            Ended::Well => 0,
            Ended::GateFails | Ended::MachineWarns => 3,
            Ended::Inconclusive => 4,
            Ended::RoundsFailed => 5,
            Ended::Interrupted => 130,
        }
    }
}

/// Does what was typed behind `lab`. `commit` is what the program was built from, for the report; empty if unknown.
pub fn perform(lab: &Lab, commit: &str) -> Result<Ended> {
    match lab {
        Lab::List { report } => view::list(report.as_deref())?,
        Lab::Show { id } => view::show(id)?,
        Lab::Run(typed) => return run::run(typed, &interrupt::on_interrupt(), commit),
        Lab::Resume { folder } => return run::resume(folder, &interrupt::on_interrupt(), commit),
        Lab::Report(typed) => report(typed)?,
        Lab::Compare(typed) => return comparing::compare(typed),

        Lab::Saturate(typed) => searching::saturate(typed, &interrupt::on_interrupt())?,
        Lab::Usl(typed) => searching::usl(typed, &interrupt::on_interrupt())?,
        Lab::Advise(typed) => searching::advise(typed, &interrupt::on_interrupt())?,
        Lab::Doctor => return doctor(commit),
    }
    Ok(Ended::Well)
}

fn report(typed: &arguments::Report) -> Result<()> {
    let out = typed.out.as_deref();
    match (&typed.from_fixture, &typed.folder) {
        (Some(id), _) => {
            say!("{}", documents::write_fixture(id, out, &typed.format)?.display())
        }
        (None, Some(folder)) => {
            documents::write(folder, out, &typed.format)?;
            say!("{}", out.unwrap_or(folder).display());
        }
        (None, None) => unreachable!("one of them is required"),
    }
    Ok(())
}

fn doctor(commit: &str) -> Result<Ended> {
    let environment = machine::look(commit)?;
    for (key, value) in environment.iter() {
        say!("{key:<24} {value}");
    }
    say!("{:<24} {}\n", "hash", environment.hash());
    let verdicts = doctor::verdicts(&environment);
    verdicts.iter().for_each(|verdict| say!("{verdict}"));
    let is_well = verdicts.iter().all(|verdict| verdict.advice.is_none());
    Ok(if is_well { Ended::Well } else { Ended::MachineWarns })
}
