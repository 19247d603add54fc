//! `cargo xt image`: container images from the static binaries of `cargo xt dist`, as OCI layouts with one index for both
//! processors. No daemon and no container program is needed.
//!
//! `highwater` has the program and nothing else. `highwater:test` is the same with a small shell, the scripts, paths and names
//! that test suites expect in images of Kafka. The files are in `packaging/image`; layers depend on them, the binary and
//! the time of the commit only.

mod contents;
mod layer;
mod layout;
mod shell;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::dist::{Arch, Release, build_folder, clear_artifacts, notices};
use crate::highwater;
use layer::Layer;
use layout::{Kind, PlatformImage};

/// Largest compressed layer, in bytes.
const LAYER_BYTES_MAX: u64 = 14_000_000;

/// `cargo xt image`
#[derive(Debug, Args)]
pub struct Arguments {
    /// Write images for this processor only
    #[arg(long, value_enum)]
    arch: Option<Arch>,
    /// Folder of the images [default: target/images]
    #[arg(long)]
    output: Option<PathBuf>,
    /// Folder with a static binary PROCESSOR/highwater for each processor [default: the binaries of cargo xt dist]
    #[arg(long)]
    binaries: Option<PathBuf>,
    /// Accept uncommitted changes; the images are of no commit then
    #[arg(long)]
    allow_dirty: bool,
}

/// Files of an image's layers.
struct Materials {
    /// The static program.
    binary: PathBuf,
    /// Licences of the linked crates.
    notices: String,
    /// The static shell of `highwater:test`.
    shell: shell::Shell,
}

/// Writes both images.
pub fn run(arguments: &Arguments) -> Result<()> {
    let release = Release::of_checkout(arguments.allow_dirty)?;
    let targets = highwater::target_folder();
    let output = arguments.output.clone().unwrap_or_else(|| targets.join("images"));
    let mut materials = Vec::new();
    for arch in arguments.arch.map_or(Arch::ALL.to_vec(), |arch| vec![arch]) {
        let binary = match &arguments.binaries {
            Some(folder) => folder.join(arch.name()).join("highwater"),
            None => build_folder(&targets, arch).join("highwater"),
        };
        ensure!(
            binary.is_file(),
            "there is no {}: run cargo xt dist, or name a folder by --binaries",
            binary.display()
        );
        let shell = shell::fetch(arch).context("cannot download busybox-static")?;
        materials.push((arch, Materials { binary, notices: notices(arch)?, shell }));
    }
    let layers = write_images(&release, &materials, &output)?;
    for (arch, layer) in layers {
        println!("image: {}: layer of {} bytes", arch.name(), layer.size);
        ensure!(
            layer.size <= LAYER_BYTES_MAX,
            "a layer has {} bytes, at most {LAYER_BYTES_MAX} are allowed",
            layer.size
        );
    }
    println!("image: {}", output.display());
    Ok(())
}

/// Writes the tarballs of the layers of `highwater:test` for this machine's processor, with this program, below `folder`. Returns
/// them, the lowest layer first.
pub fn write_test_tarballs(binary: &Path, folder: &Path) -> Result<[PathBuf; 2]> {
    let arch = Arch::of_this_machine().context("no image is made for this processor")?;
    let shell = shell::fetch(arch).context("cannot download busybox-static")?;
    let materials = Materials { binary: binary.to_owned(), notices: String::new(), shell };
    let tarballs = ["program.tar", "test.tar"].map(|name| folder.join(name));
    let scratch = tempfile::tempdir()?;
    contents::write_program(scratch.path(), &materials)?;
    layer::pack_tarball(scratch.path(), 0, &tarballs[0])?;
    let scratch = tempfile::tempdir()?;
    contents::write_test_files(scratch.path(), &materials.shell)?;
    layer::pack_tarball(scratch.path(), 0, &tarballs[1])?;
    Ok(tarballs)
}

/// Writes the layouts of both images below `output`, and the layers' tarballs for the Dockerfile. Returns all layers.
fn write_images(
    release: &Release,
    materials: &[(Arch, Materials)],
    output: &Path,
) -> Result<Vec<(Arch, Layer)>> {
    clear_artifacts(output)?;
    let roots = output.join("roots");
    fs::create_dir_all(&roots)?;
    let mut layers = Vec::new();
    let (mut plain, mut testing) = (Vec::new(), Vec::new());
    for (arch, materials) in materials {
        let tarball = |name: &str| roots.join(format!("{name}-{}.tar", arch.debian()));
        let scratch = tempfile::tempdir()?;
        contents::write_program(scratch.path(), materials)?;
        let program = Layer::pack(scratch.path(), release.epoch(), &tarball("highwater"))?;
        let scratch = tempfile::tempdir()?;
        contents::write_test_files(scratch.path(), &materials.shell)?;
        let test = Layer::pack(scratch.path(), release.epoch(), &tarball("test"))?;
        plain.push(PlatformImage { arch: *arch, layers: vec![program.clone()] });
        testing.push(PlatformImage { arch: *arch, layers: vec![program.clone(), test.clone()] });
        layers.extend([(*arch, program), (*arch, test)]);
    }
    layout::write(&output.join("highwater"), release, Kind::Program, &plain)?;
    layout::write(&output.join("highwater-test"), release, Kind::Test, &testing)?;
    Ok(layers)
}

#[cfg(test)]
mod tests;
