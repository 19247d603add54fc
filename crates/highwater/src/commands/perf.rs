//! `perf`: Kafka's performance tools, as commands and under their own names. What they do is in the
//! crate `perf`.

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use perf::tools::{self, Console, Task, Tool, ToolError};

use crate::arguments::Perf;
use crate::failure::Failure;

/// Runs a tool as a command.
pub fn run(tool: Perf) -> Result<ExitCode, Failure> {
    let task = match tool {
        Perf::Produce(arguments) => Task::Produce(arguments),
        Perf::Consume(arguments) => Task::Consume(arguments),
        Perf::E2e(arguments) => Task::EndToEnd(arguments),
    };
    match tools::run(&task, &Arc::new(Console::standard())) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(ToolError::Usage(text)) => {
            Err(Failure::new("this cannot be run").detail(text).hint("--help shows all flags"))
        }
        Err(error) => Err(Failure::new("the run was not finished").detail(error)),
    }
}

/// If the program was called by the name of one of Kafka's tools, runs that one.
pub fn by_program_name() -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let program = arguments.next()?;
    let tool = Tool::of_name(Path::new(&program).file_name()?.to_str()?)?;
    let arguments: Vec<OsString> = arguments.collect();
    Some(tools::main(tool, &arguments, &Arc::new(Console::standard())))
}
