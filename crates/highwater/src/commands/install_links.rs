//! `install-links`: links to this program under the names of Kafka's performance tools, with and
//! without `.sh`.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::ExitCode;

use perf::tools::Tool;

use crate::arguments::InstallLinks;
use crate::failure::Failure;

/// Makes the links and says which.
pub fn run(typed: &InstallLinks) -> Result<ExitCode, Failure> {
    let failed = |what: &Path| {
        let primary = format!("cannot make {}", what.display());
        move |error: io::Error| {
            let failure = Failure::new(primary).detail(&error);
            match error.kind() {
                io::ErrorKind::AlreadyExists => failure.hint("--force replaces what stands there"),
                _ => failure,
            }
        }
    };
    let program = std::env::current_exe()
        .map_err(|e| Failure::new("cannot tell where this program is").detail(e))?;
    fs::create_dir_all(&typed.folder).map_err(failed(&typed.folder))?;
    for tool in Tool::ALL {
        for ending in ["", ".sh"] {
            let link = typed.folder.join(format!("{}{ending}", tool.name()));
            make(&program, &link, typed.force).map_err(failed(&link))?;
            println!("{}", link.display());
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A link that is right already stays.
fn make(program: &Path, link: &Path, force: bool) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|target| target == program) {
        return Ok(());
    }
    if force && fs::symlink_metadata(link).is_ok_and(|found| !found.is_dir()) {
        fs::remove_file(link)?;
    }
    symlink(program, link)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_replaces_something_else_only_if_told_to() {
        let folder = tempfile::tempdir().unwrap();
        let (program, link) = (folder.path().join("program"), folder.path().join("link"));
        fs::write(&link, "something else").unwrap();
        let error = make(&program, &link, false).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
        make(&program, &link, true).unwrap();
        assert_eq!(fs::read_link(&link).unwrap(), program);
        make(&program, &link, false).unwrap();
    }
}
