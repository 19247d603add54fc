//! `cargo xt dist`: static binaries for x86-64 and aarch64, packed as tarballs and Debian packages, with checksums, licences of
//! all linked crates and a bill of materials.
//!
//! The artifacts depend on the commit only: paths are remapped, archives are sorted, and every time is the commit's. `--twice`
//! builds everything a second time in another folder and compares the hashes.

mod archive;
mod build;
mod crates;
mod debian;
mod licences;
mod materials;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::highwater;
use crate::repository::repository;

/// Largest binary, in bytes.
const BINARY_BYTES_MAX: u64 = 34_000_000;
/// Largest tarball, in bytes.
const TARBALL_BYTES_MAX: u64 = 10_000_000;

/// `cargo xt dist`
#[derive(Debug, Args)]
pub struct Arguments {
    /// Build for this processor only
    #[arg(long, value_enum)]
    arch: Option<Arch>,
    /// Folder of the artifacts [default: target/dist-artifacts]
    #[arg(long)]
    output: Option<PathBuf>,
    /// Build a second time in another folder and compare the hashes
    #[arg(long)]
    twice: bool,
    /// Accept uncommitted changes; the artifacts are of no commit then
    #[arg(long)]
    allow_dirty: bool,
}

/// A processor that releases support.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Arch {
    /// 64-bit Intel and AMD.
    #[value(name = "x86_64")]
    X86_64,
    /// 64-bit ARM.
    #[value(name = "aarch64")]
    Aarch64,
}

impl Arch {
    /// All of them.
    pub const ALL: [Arch; 2] = [Arch::X86_64, Arch::Aarch64];

    /// The processor of this machine, if releases support it.
    pub fn of_this_machine() -> Option<Arch> {
        Arch::ALL.into_iter().find(|arch| arch.name() == std::env::consts::ARCH)
    }

    /// Name of the processor in file names.
    pub fn name(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64",
            Arch::Aarch64 => "aarch64",
        }
    }

    /// The compiler's target.
    fn target(self) -> &'static str {
        match self {
            Arch::X86_64 => "x86_64-unknown-linux-musl",
            Arch::Aarch64 => "aarch64-unknown-linux-musl",
        }
    }

    /// Debian's name of the processor, which images have as well.
    pub fn debian(self) -> &'static str {
        match self {
            Arch::X86_64 => "amd64",
            Arch::Aarch64 => "arm64",
        }
    }
}

/// The released version: its number, its commit, and the time of the commit in seconds since 1970.
#[derive(Clone, Debug)]
pub struct Release {
    version: String,
    commit: String,
    epoch: u64,
}

impl Release {
    /// Number of the version.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The commit.
    pub fn commit(&self) -> &str {
        &self.commit
    }

    /// Time of the commit, in seconds since 1970.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The release of the checked out commit.
    pub fn of_checkout(allow_dirty: bool) -> Result<Release> {
        let git = |words: &[&str]| -> Result<String> {
            let mut git = Command::new("git");
            let output = git.args(words).current_dir(repository()).output()?;
            ensure!(output.status.success(), "git {}: no answer", words.join(" "));
            Ok(String::from_utf8(output.stdout)?.trim().to_owned())
        };
        let changes = git(&["status", "--porcelain"])?;
        ensure!(
            allow_dirty || changes.is_empty(),
            "uncommitted changes; commit them, or pass --allow-dirty:\n{changes}"
        );
        let epoch = git(&["log", "-1", "--format=%ct"])?.parse()?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Ok(Release { version, commit: git(&["rev-parse", "HEAD"])?, epoch })
    }
}

/// Builds and packs.
pub fn run(arguments: &Arguments) -> Result<()> {
    let release = Release::of_checkout(arguments.allow_dirty)?;
    println!("dist: {} of commit {}", release.version, release.commit);
    let targets = highwater::target_folder();
    let output = arguments.output.clone().unwrap_or_else(|| targets.join("dist-artifacts"));
    let arches = arguments.arch.map_or(Arch::ALL.to_vec(), |arch| vec![arch]);
    let too_large = pack_all(&release, &arches, &targets.join("dist-build"), &output)?;
    if arguments.twice {
        let second = targets.join("dist-artifacts-second");
        pack_all(&release, &arches, &targets.join("dist-build-second"), &second)?;
        let sums = |folder: &Path| fs::read_to_string(folder.join(archive::CHECKSUMS));
        ensure!(
            sums(&output)? == sums(&second)?,
            "two builds differ: compare {} with {}",
            output.display(),
            second.display()
        );
        println!("dist: a second build has the same hashes");
    }
    print!("{}", fs::read_to_string(output.join(archive::CHECKSUMS))?);
    println!("dist: {}", output.display());
    ensure!(too_large.is_empty(), "{}", too_large.join("; "));
    Ok(())
}

/// Folder of the static binary of a processor, below cargo's target folder.
pub fn build_folder(targets: &Path, arch: Arch) -> PathBuf {
    build::binary_folder(&targets.join("dist-build"), arch)
}

/// Builds the static binary of this machine's processor with its symbols, below cargo's target folder.
///
/// # Errors
/// Releases do not support the processor, or the build fails.
pub fn unstripped_binary(targets: &Path) -> Result<PathBuf> {
    let arch = Arch::of_this_machine().context("releases do not support this processor")?;
    let release = Release::of_checkout(true)?;
    build::unstripped_binary(arch, &release, &targets.join("dist-build"))
}

/// Licences of the crates that are linked into the binary of a processor.
pub fn notices(arch: Arch) -> Result<String> {
    licences::notices(&crates::linked_crates(arch)?)
}

/// Builds all binaries below `target`, and packs them into `output`. Returns a sentence for each file above its limit.
fn pack_all(
    release: &Release,
    arches: &[Arch],
    target: &Path,
    output: &Path,
) -> Result<Vec<String>> {
    clear_artifacts(output)?;
    let mut too_large = Vec::new();
    let help = build::shell_help(target)?;
    for arch in arches {
        let binary = build::static_binary(*arch, release, target)?;
        let linked = crates::linked_crates(*arch)?;
        let scratch = tempfile::tempdir()?;
        let notices = scratch.path().join("THIRD-PARTY-LICENSES.txt");
        fs::write(&notices, licences::notices(&linked)?)?;
        let parts = Parts { binary: &binary, notices: &notices, help: &help };
        let tarball = archive::tarball(*arch, release, &parts, output)?;
        debian::package(*arch, release, &parts, output)?;
        let name = format!("{}-{}-{}.cdx.json", "highwater", release.version, arch.name());
        fs::write(output.join(name), materials::bill(release, &linked)?)?;
        too_large.extend(report_sizes(*arch, &binary, &tarball)?);
    }
    archive::write_checksums(output)?;
    Ok(too_large)
}

/// Name of the file that marks a folder as written by this program.
const FOLDER_MARK: &str = ".highwater-artifacts";

/// Makes a folder that is empty but for its mark. Removes an earlier folder only if it has the mark.
pub fn clear_artifacts(output: &Path) -> Result<()> {
    let is_used = output.exists() && fs::read_dir(output)?.next().is_some();
    if is_used {
        ensure!(
            output.join(FOLDER_MARK).is_file(),
            "{} has files, and this program did not write them: choose an empty folder by --output",
            output.display()
        );
        fs::remove_dir_all(output)?;
    }
    fs::create_dir_all(output)?;
    Ok(fs::write(output.join(FOLDER_MARK), "")?)
}

/// Files of every package.
struct Parts<'a> {
    binary: &'a Path,
    notices: &'a Path,
    help: &'a build::ShellHelp,
}

/// Prints the sizes. Returns a sentence for each file above its limit.
fn report_sizes(arch: Arch, binary: &Path, tarball: &Path) -> Result<Vec<String>> {
    let mut too_large = Vec::new();
    let bytes = |path: &Path| -> Result<u64> {
        Ok(fs::metadata(path).with_context(|| path.display().to_string())?.len())
    };
    for (path, most) in [(binary, BINARY_BYTES_MAX), (tarball, TARBALL_BYTES_MAX)] {
        let size = bytes(path)?;
        let name = path.file_name().unwrap_or_default().display();
        println!("dist: {}: {name}: {size} bytes, at most {most}", arch.name());
        if size > most {
            too_large
                .push(format!("{} has {size} bytes, at most {most} are allowed", path.display()));
        }
    }
    Ok(too_large)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_other_files_is_not_removed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("notes.txt");
        fs::write(&file, "keep").unwrap();
        let cause = clear_artifacts(folder.path()).unwrap_err().to_string();
        assert!(cause.contains("choose an empty folder") && file.exists(), "{cause}");
        // Downloads of others have checksums, too.
        fs::write(folder.path().join(archive::CHECKSUMS), "").unwrap();
        assert!(clear_artifacts(folder.path()).is_err() && file.exists());
        let own = folder.path().join("own");
        clear_artifacts(&own).unwrap();
        fs::write(own.join("highwater"), "").unwrap();
        clear_artifacts(&own).unwrap();
        assert!(!own.join("highwater").exists() && own.join(FOLDER_MARK).exists());
    }
}
