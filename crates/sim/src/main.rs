//! `cargo run -p sim -- --seed N --runs M`: runs seeds N to N + M - 1 and says how to repeat
//! the first one that breaks an invariant or does not repeat itself.

use std::process::ExitCode;

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
    /// Simulate several brokers
    #[arg(long)]
    cluster: bool,
    /// Print every event
    #[arg(long)]
    verbose: bool,
    /// Run every seed a second time and compare
    #[arg(long)]
    twice: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    for seed in arguments.seed..arguments.seed.saturating_add(arguments.runs) {
        let run = if arguments.cluster { sim::run_cluster } else { sim::run };
        let outcome = run(seed, arguments.verbose);
        println!("seed {seed}: {outcome}");
        if let Some(violation) = outcome.violation {
            let cluster = if arguments.cluster { " --cluster" } else { "" };
            eprintln!(
                "{violation}\nrepeat with: cargo run -p sim -- --seed {seed}{cluster} --verbose"
            );
            return ExitCode::FAILURE;
        }
        if arguments.twice && run(seed, false).trace != outcome.trace {
            eprintln!("seed {seed} did not repeat itself");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
