//! `cluster id`: makes up the id of a new cluster, as `kafka-storage random-uuid` does.

use std::fs::File;
use std::io::{self, Read};
use std::process::ExitCode;

use model::Uuid;

use crate::failure::Failure;

/// Prints one.
pub fn run() -> Result<ExitCode, Failure> {
    let id = random_id().map_err(|error| Failure::new("cannot make up an id").detail(error))?;
    println!("{id}");
    Ok(ExitCode::SUCCESS)
}

/// 22 letters and digits, `_` and `-`. None begins with `-`, which a command line would take for a flag.
///
/// # Errors
/// The system has no random bytes.
pub fn random_id() -> io::Result<String> {
    let mut random = File::open("/dev/urandom")?;
    loop {
        let mut bytes = [0; 16];
        random.read_exact(&mut bytes)?;
        let id = Uuid::from_random(bytes).to_string();
        if !id.starts_with('-') {
            return Ok(id);
        }
    }
}
