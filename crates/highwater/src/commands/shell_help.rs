//! `completions` and `man-pages`: what a shell and `man` know of the program, made of the very
//! definition of its arguments.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::arguments::Program;
use crate::failure::{Failure, on_output};

/// Writes the script that completes commands in this shell.
pub fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Program::command(), "highwater", &mut script);
    io::Write::write_all(&mut io::stdout(), &script).map_err(on_output)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes `highwater.1` and a page a command beside it.
pub fn man_pages(folder: &Path) -> Result<ExitCode, Failure> {
    let cannot = |error: io::Error| {
        Failure::new(format!("cannot write manual pages into {}", folder.display())).detail(error)
    };
    fs::create_dir_all(folder).map_err(cannot)?;
    clap_mangen::generate_to(Program::command(), folder).map_err(cannot)?;
    println!("{}", folder.join("highwater.1").display());
    Ok(ExitCode::SUCCESS)
}
