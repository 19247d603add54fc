//! Event streaming in one binary: the program's arguments and wiring. What the broker does is in
//! the crate `broker`, how it is talked to in `client`; here is only what a person types and sees.

mod address;
mod amounts;
mod arguments;
mod blocked_signals;
mod command_config;
mod commands;
mod failure;
mod lines;
mod logging;
mod moment;
mod output;
mod parent;
mod pattern;
mod position;
mod reports;
mod service_manager;
mod system;

use std::process::ExitCode;

use clap::Parser;

use arguments::Program;

fn main() -> ExitCode {
    #[cfg(debug_assertions)]
    if std::env::var_os(model::later_release::ENVIRONMENT).is_some() {
        model::later_release::play();
    }
    if let Some(code) = commands::by_program_name() {
        return code;
    }
    let outcome = commands::run(Program::parse());
    logging::finish();
    match outcome {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
