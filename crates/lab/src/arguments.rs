//! What can be typed behind `highwater lab`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use experiment::workload::Era;

use crate::failover::clients::Named;
use crate::target::Target;

/// The performance laboratory: published experiments, run against any Kafka, with numbers that can be trusted
#[derive(Debug, Subcommand)]
pub enum Lab {
    /// List the experiments, what each costs, and which wait and why
    List {
        /// Those of one report: ibm, ali, cs6, mif or x
        #[arg(long)]
        report: Option<String>,
    },
    /// Show an experiment: what it varies, what was published, what is claimed
    Show {
        /// Its id, as `lab list` shows it
        id: String,
    },
    /// Run experiments and write a report
    Run(Run),
    /// Go on with a run that ended early
    Resume {
        /// The folder of the run
        folder: PathBuf,
    },
    /// Write the documents of a run again, or those of a published report
    Report(Report),
    /// Compare two runs; exit code 0: all gates pass, 3: one fails, 4: it cannot be said
    Compare(Compare),
    /// Find the highest rate that keeps a promise
    Saturate(Saturate),
    /// Fit the universal scalability law to throughput over a number of producers
    Usl(Usl),
    /// Find good producer settings for a goal
    Advise(Advise),
    /// Look at this machine: what a run would write into its report, and what would spoil its figures; exit code 3 if something would
    Doctor,
}

/// How much time there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Profile {
    /// Rounds of a second or two, three of most cells: about a minute an experiment
    Quick,
    /// Five rounds of ten seconds a cell
    Standard,
    /// The published parameters
    Full,
}

impl Profile {
    /// As definitions call it.
    pub fn name(self) -> &'static str {
        match self {
            Profile::Quick => "quick",
            Profile::Standard => "standard",
            Profile::Full => "full",
        }
    }
}

/// `lab run`
#[derive(Debug, Args)]
pub struct Run {
    /// Ids, patterns such as 'ibm-*', or all
    #[arg(required = true)]
    pub experiments: Vec<String>,
    /// How much time there is
    #[arg(long, default_value = "quick")]
    pub profile: Profile,
    /// What to measure: embedded, apache-kafka, HOST:PORT or program=PATH
    #[arg(long, default_value = "embedded")]
    pub target: Target,
    /// What to measure beside it, in turn
    #[arg(long)]
    pub vs: Option<Target>,
    /// Rounds of each cell, instead of the profile's
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pub rounds: Option<u32>,
    /// Client defaults of this time: 0.11, 2.0, 2.2, 3 or 4, instead of the experiment's
    #[arg(long, value_parser = era)]
    pub era: Option<Era>,
    /// Between clients and brokers: ali-2018, aws-d2-2017, icp-2019 or cs682-vm
    #[arg(long)]
    pub emulate: Option<String>,
    /// The program that produces with a client library in x-failover, such as librdkafka=./produce; may be repeated.
    /// What it must do is in docs/lab.md; `cargo xt failover` names those of the repository
    #[arg(long = "client", value_name = "NAME=PROGRAM")]
    pub clients: Vec<Named>,
    /// What shuffles the cells and fills the records
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Where the report goes
    #[arg(long, default_value = "lab-run")]
    pub out: PathBuf,
    /// Leave the rounds' topics on the target
    #[arg(long)]
    pub keep_topics: bool,
    /// Do not look whether the records that were acknowledged arrived
    #[arg(long)]
    pub no_verify: bool,
    /// Hold the machine's free memory and give it back as rounds need it: for virtual machines that hand free pages to
    /// their host, where the first use of a page costs more than what is written to it
    #[arg(long)]
    pub hold_memory: bool,
    /// Show what would be run, and run nothing
    #[arg(long)]
    pub dry_run: bool,
    /// No progress bar
    #[arg(long)]
    pub no_progress: bool,
}

/// `lab report`
#[derive(Debug, Args)]
pub struct Report {
    /// The folder of a run
    #[arg(required_unless_present = "from_fixture")]
    pub folder: Option<PathBuf>,
    /// Redraw a published report instead: ibm, ali, cs6 or mif
    #[arg(long, conflicts_with = "folder")]
    pub from_fixture: Option<String>,
    /// Where the documents go; beside the run, or into a folder of the fixture's name, if not given
    #[arg(long)]
    pub out: Option<PathBuf>,
    /// Which documents: html, md, csv, json, omb, hgrm, prom; all, if not given
    #[arg(long, value_delimiter = ',')]
    pub format: Vec<String>,
}

/// `lab compare`
#[derive(Debug, Args)]
pub struct Compare {
    /// The folder of the run that is the base
    pub base: PathBuf,
    /// The folder of the run to compare with it
    pub new: PathBuf,
    /// What must hold, such as 'throughput.ratio>=0.97, p99.ratio<=1.10'
    #[arg(long, value_name = "CONDITIONS")]
    pub gate: Option<String>,
    /// Compare only rounds of this target
    #[arg(long)]
    pub target: Option<String>,
    /// Append a row for each cell to the files in this folder, readable by Apache Otava
    #[arg(long, value_name = "DIR")]
    pub history: Option<PathBuf>,
}

/// What is sent by `saturate`, `usl` and `advise`.
#[derive(Debug, Args)]
pub struct Load {
    /// What to measure: embedded, apache-kafka, HOST:PORT or program=PATH
    #[arg(long, default_value = "embedded")]
    pub target: Target,
    /// Bytes of a record
    #[arg(long, default_value_t = 1024)]
    pub record_size: u32,
    /// Partitions of the topic
    #[arg(long, default_value_t = 1)]
    pub partitions: u32,
    /// acks: 0, 1 or all
    #[arg(long, default_value = "all")]
    pub acks: String,
    /// What shuffles and fills
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Where to write what was measured, as JSON
    #[arg(long)]
    pub out: Option<PathBuf>,
}

/// `lab saturate`
#[derive(Debug, Args)]
pub struct Saturate {
    /// The promise, such as 'p99<=10ms'
    #[arg(long, default_value = "p99<=10ms")]
    pub slo: String,
    /// Records per second to begin with
    #[arg(long, default_value_t = 1000.0)]
    pub from: f64,
    /// What is sent, and where
    #[command(flatten)]
    pub load: Load,
}

/// `lab usl`
#[derive(Debug, Args)]
pub struct Usl {
    /// Numbers of producers, at least five
    #[arg(long, value_delimiter = ',', default_value = "1,2,3,4,6,8")]
    pub producers: Vec<u32>,
    /// Rounds of each
    #[arg(long, default_value_t = 3)]
    pub rounds: u32,
    /// Seconds of a round
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// What is sent, and where
    #[command(flatten)]
    pub load: Load,
}

/// `lab advise`
#[derive(Debug, Args)]
pub struct Advise {
    /// What counts
    #[arg(long)]
    pub goal: Goal,
    /// Seconds of a probe
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// What is sent, and where
    #[command(flatten)]
    pub load: Load,
}

/// What an advice is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Goal {
    /// Most records a second
    Throughput,
    /// Least 99th percentile at half of the highest rate
    Latency,
    /// Most records a second with acks=all and idempotence
    Durability,
}

fn era(text: &str) -> Result<Era, String> {
    match text {
        "0.11" => Ok(Era::V0_11),
        "2.0" => Ok(Era::V2_0),
        "2.2" => Ok(Era::V2_2),
        "3" => Ok(Era::V3),
        "4" => Ok(Era::V4),
        _ => Err("eras are 0.11, 2.0, 2.2, 3 and 4".to_owned()),
    }
}
