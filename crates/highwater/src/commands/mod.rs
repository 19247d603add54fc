//! What the commands do, one file each; this one chooses. A command returns the exit code, or a
//! `Failure` that says what is wrong and what to do.

mod cluster;
mod cluster_access;
mod cluster_elect;
mod cluster_health;
mod cluster_id;
mod cluster_levels;
mod cluster_quorum;
mod cluster_regenerate;
mod cluster_unregister;
mod cluster_up;
mod config;
mod config_explain;
mod config_reset;
mod consume;
mod container;
mod fault_rules;
mod fault_warnings;
mod first_start;
mod front;
mod gateway;
mod group;
mod group_kinds;
mod healthcheck;
mod install_links;
mod lab;
mod log_adopt;
mod log_dump;
mod log_mend;
mod log_strays;
mod outcome;
mod perf;
mod produce;
mod proxy;
mod shell_help;
mod sources;
mod start;
mod stopped_folder;
mod test_broker;
mod topic;
mod user;
mod waiting;

use std::process::ExitCode;

use crate::arguments::{Cluster, Command, Config, Log, Program};
use crate::failure::Failure;

pub use perf::by_program_name;

/// Runs the command that was typed.
pub fn run(program: Program) -> Result<ExitCode, Failure> {
    let reporting = start::Reporting::typed(&program);
    match program.command {
        Command::Start(typed) => start::run(&typed, reporting),
        Command::Gateway(typed) => gateway::run(&typed, reporting),
        Command::Proxy(typed) => proxy::run(&typed, reporting),
        Command::TestBroker(typed) => test_broker::run(&typed, reporting),
        Command::Healthcheck(typed) => healthcheck::run(&typed),
        Command::Topic(command) => topic::run(&command),
        Command::Group(command) => group::run(&command),
        Command::User(command) => user::run(&command),
        Command::Produce(typed) => produce::run(&typed),
        Command::Consume(typed) => consume::run(&typed),
        Command::Config(command) => run_config(&command),
        Command::Cluster(command) => run_cluster(&command, reporting),
        Command::Log(command) => run_log(&command),
        Command::Lab(typed) => lab::run(&typed),
        Command::Perf(tool) => perf::run(tool),
        Command::InstallLinks(typed) => install_links::run(&typed),
        Command::Completions { shell } => shell_help::completions(shell),
        Command::ManPages { folder } => shell_help::man_pages(&folder),
        Command::Version => {
            println!("highwater {}", env!("HIGHWATER_VERSION"));
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_cluster(command: &Cluster, reporting: start::Reporting) -> Result<ExitCode, Failure> {
    match command {
        Cluster::Info { listing, connection } => cluster::info(listing.format, connection),
        Cluster::Health { listing, connection } => cluster_health::run(listing.format, connection),
        Cluster::Quorum { listing, connection } => cluster_quorum::run(listing.format, connection),
        Cluster::Regenerate(typed) => cluster_regenerate::run(typed),
        Cluster::Elect(typed) => cluster_elect::run(typed),
        Cluster::Unregister { broker, connection } => cluster_unregister::run(*broker, connection),
        Cluster::Versions { listing, connection } => {
            cluster_levels::versions(listing.format, connection)
        }
        Cluster::Finalize { dry_run, listing, connection } => {
            cluster_levels::finalize(*dry_run, listing.format, connection)
        }
        Cluster::Id => cluster_id::run(),
        Cluster::Up(typed) => cluster_up::run(typed, reporting),
    }
}

fn run_log(command: &Log) -> Result<ExitCode, Failure> {
    match command {
        Log::Dump { paths, records, listing } => log_dump::run(paths, *records, listing.format),
        Log::Strays(typed) => log_strays::run(typed),
        Log::Mend { dir, partition, yes } => log_mend::run(dir, partition, *yes),
        Log::Adopt(typed) => log_adopt::run(typed),
    }
}

fn run_config(command: &Config) -> Result<ExitCode, Failure> {
    match command {
        Config::Get { keys, resource, listing, connection } => {
            config::get(resource, keys, listing.format, connection)
        }
        Config::Set { sets, deletes, resource, connection } => {
            config::set(resource, sets, deletes, connection)
        }
        Config::Reset { key, offline: _, data_dir } => config_reset::run(key, data_dir),
        Config::Explain { sources, changed, markdown, listing } => {
            config_explain::run(sources, *changed, *markdown, listing.format)
        }
    }
}
