//! `cargo run -p sim -- --seed N --runs M`: runs seeds N to N + M - 1 and says how to repeat
//! the first one that breaks an invariant or does not repeat itself.

use std::ops::Range;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use clap::Parser;

/// Simulates a broker on a disk that crashes, or several
#[derive(Parser)]
struct Arguments {
    /// The first seed
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// How many seeds to run
    #[arg(long, default_value_t = 1)]
    runs: u64,
    /// How many seeds to run at once, each on a thread; they do not change one another
    #[arg(long, default_value_t = 1)]
    jobs: u64,
    /// Say only what went wrong, and at the end how many seeds there were
    #[arg(long)]
    quiet: bool,
    /// Simulate several brokers
    #[arg(long)]
    cluster: bool,
    /// Simulate several brokers and one fault that lasts
    #[arg(long)]
    sick: bool,
    /// Print every event
    #[arg(long)]
    verbose: bool,
    /// Run every seed a second time and compare
    #[arg(long)]
    twice: bool,
    /// Leave out the rule of this name, or all in turn, and say which of the seeds finds it first
    #[cfg(debug_assertions)]
    #[arg(long, value_name = "NAME")]
    faults: Option<String>,
}

/// Says for each rule which seed is the first that finds it left out.
#[cfg(debug_assertions)]
fn look_for_faults(wanted: &str, seeds: Range<u64>) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let is_wanted = |mutant: &sim::Mutant| wanted == "all" || mutant.name() == wanted;
    for mutant in sim::Mutant::all().filter(is_wanted) {
        let find = |seed| Some((seed, sim::find_planted(mutant, seed)?));
        match seeds.clone().find_map(find) {
            Some((seed, how)) => println!("    (\"{}\", {seed}), // {how:.120}", mutant.name()),
            None => {
                println!("    // {}: none of {} seeds", mutant.name(), seeds.end - seeds.start);
                code = ExitCode::FAILURE;
            }
        }
    }
    code
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let seeds = arguments.seed..arguments.seed.saturating_add(arguments.runs);
    #[cfg(debug_assertions)]
    if let Some(wanted) = &arguments.faults {
        return look_for_faults(wanted, seeds);
    }
    let (begun, count) = (Instant::now(), seeds.end - seeds.start);
    if !run_all(&arguments, seeds) {
        return ExitCode::FAILURE;
    }
    let seconds = begun.elapsed().as_secs_f64();
    println!("{count} seeds in {seconds:.0} s: {:.0} an hour", count as f64 / seconds * 3600.0);
    ExitCode::SUCCESS
}

/// Whether all seeds keep every promise. The first that does not ends the run.
fn run_all(arguments: &Arguments, seeds: Range<u64>) -> bool {
    let (next, failed) = (AtomicU64::new(seeds.start), AtomicBool::new(false));
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            if !run_one(arguments, seed) {
                failed.store(true, Ordering::Relaxed);
            }
        }
    };
    thread::scope(|scope| (0..arguments.jobs.max(1)).for_each(|_| drop(scope.spawn(work))));
    !failed.into_inner()
}

fn run_one(arguments: &Arguments, seed: u64) -> bool {
    let (run, kind) = match (arguments.sick, arguments.cluster) {
        (true, _) => (sim::run_sick as fn(u64, bool) -> sim::Outcome, " --sick"),
        (false, true) => (sim::run_cluster as _, " --cluster"),
        (false, false) => (sim::run as _, ""),
    };
    let outcome = run(seed, arguments.verbose);
    if !arguments.quiet {
        println!("seed {seed}: {outcome}");
    }
    if let Some(violation) = outcome.violation {
        eprintln!("{violation}\nrepeat with: cargo run -p sim -- --seed {seed}{kind} --verbose");
        return false;
    }
    if arguments.twice && run(seed, false).trace != outcome.trace {
        eprintln!("seed {seed} did not repeat itself");
        return false;
    }
    true
}
