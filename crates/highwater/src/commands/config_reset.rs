//! `config reset`: takes a dynamic value back in the data folder of a stopped broker, when the value keeps every client
//! out.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use broker::stopped::{ResetError, reset_config};
use configuration::table;

use crate::commands::cluster_access::block_on;
use crate::commands::stopped_folder;
use crate::failure::{Failure, on_output};

/// `config reset`
pub fn run(key: &str, dir: &Path) -> Result<ExitCode, Failure> {
    let cannot = || Failure::new(format!("cannot reset {key} in {}", dir.display()));
    if table::find(key).is_none() {
        return Err(cannot()
            .detail(format!("{key} is not a key of a broker"))
            .hint("highwater config explain lists the keys"));
    }
    let (_stopped, node, cluster_id) = stopped_folder::open_metadata(dir, cannot)?;
    let disk = stopped_folder::disk();
    let names = block_on(async {
        let reset = reset_config(&disk, dir, &cluster_id, node, key).await;
        reset.map_err(|error| {
            let failure = cannot();
            let failure = match &error {
                ResetError::OtherVoters => failure.hint(format!(
                    "start this broker with --ignore-dynamic {key}, then take the value back over its \
                     port: highwater config set --brokers --delete {key}"
                )),
                ResetError::NotSet(_) => failure.hint("nothing was changed"),
                _ => failure,
            };
            failure.detail(error)
        })
    })?;
    for name in names {
        let of = if name.is_empty() { "all brokers".to_owned() } else { format!("broker {name}") };
        say(format_args!("{key}: the dynamic value for {of} is gone"))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn say(line: std::fmt::Arguments<'_>) -> Result<(), Failure> {
    writeln!(std::io::stdout(), "{line}").map_err(on_output)
}
