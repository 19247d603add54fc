//! `lab`: the performance laboratory. What it does is in the crate `lab`.

use std::process::ExitCode;

use lab::arguments::Lab;

use crate::failure::Failure;
use crate::system;

/// Does what was typed behind `lab`.
pub fn run(typed: &Lab) -> Result<ExitCode, Failure> {
    // A thousand connections through a proxy in this process are three thousand files.
    system::raise_open_files_limit();
    match lab::perform(typed, env!("HIGHWATER_COMMIT")) {
        Ok(ended) => Ok(ExitCode::from(ended.exit_code())),
        Err(error) => {
            let mut chain = error.chain();
            let first = chain.next().map(ToString::to_string).unwrap_or_default();
            let why: Vec<String> = chain.map(ToString::to_string).collect();
            let failure = Failure::new(first);
            Err(if why.is_empty() { failure } else { failure.detail(why.join("\n")) })
        }
    }
}
