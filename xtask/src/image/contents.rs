//! Files of the layers.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use anyhow::{Context, Result};

use super::Materials;
use super::shell::Shell;
use crate::repository::repository;

/// Folders that every user may write, also one that the container program chooses: data, temporary files, and the files that
/// test suites put into a container.
const SHARED_FOLDERS: [&str; 2] = ["tmp", "var/lib/kafka/data"];
const SHARED_TEST_FOLDERS: [&str; 3] = ["opt/kafka", "opt/bitnami/kafka", "bitnami/kafka"];
/// A folder that test suites change: `sed` puts another file in the place of a script.
const CHANGED_FOLDER: &str = "etc/confluent/docker";
/// Programs that start scripts of test suites and health checks call.
const APPLETS: &[&str] = &[
    "[", "[[", "awk", "basename", "cat", "chmod", "cp", "cut", "date", "dirname", "echo", "false",
    "find", "grep", "head", "hostname", "id", "kill", "ln", "ls", "mkdir", "mv", "nc", "printf",
    "ps", "rm", "sed", "seq", "sh", "sleep", "sort", "tail", "tee", "test", "timeout", "touch",
    "tr", "true", "uname", "wc", "which", "xargs",
];

/// Writes the layer of the program: `highwater`, a user, and empty folders.
pub(super) fn write_program(root: &Path, materials: &Materials) -> Result<()> {
    copy_tree(&repository().join("packaging/image/highwater"), root)?;
    copy(&materials.binary, &root.join("usr/bin/highwater"), 0o755)?;
    let doc = root.join("usr/share/doc/highwater");
    copy(&repository().join("LICENSE"), &doc.join("LICENSE"), 0o644)?;
    fs::write(doc.join("THIRD-PARTY-LICENSES.txt"), &materials.notices)?;
    fs::create_dir_all(root.join("mnt/shared/config"))?;
    for folder in SHARED_FOLDERS {
        fs::create_dir_all(root.join(folder))?;
    }
    set_modes(root)?;
    share(root, &SHARED_FOLDERS, 0o1777)
}

/// Writes the layer of `highwater:test`: the shell, and the scripts of Kafka's images.
pub(super) fn write_test_files(root: &Path, shell: &Shell) -> Result<()> {
    copy_tree(&repository().join("packaging/image/test"), root)?;
    let bin = root.join("bin");
    copy(&shell.program, &bin.join("busybox"), 0o755)?;
    for applet in APPLETS {
        symlink("busybox", bin.join(applet))?;
    }
    let programs = root.join("usr/bin");
    fs::create_dir_all(&programs)?;
    symlink("/bin/busybox", programs.join("env"))?;
    copy(&shell.licence, &root.join("usr/share/doc/busybox-static/copyright"), 0o644)?;
    // Images of Confluent have the tools on PATH, without an ending.
    let tools = root.join("opt/kafka/bin");
    for entry in fs::read_dir(&tools)? {
        let name = entry?.file_name();
        let name = name.to_str().context("a name is not UTF-8")?;
        symlink(format!("/opt/kafka/bin/{name}"), programs.join(name.trim_end_matches(".sh")))?;
    }
    for folder in SHARED_TEST_FOLDERS {
        fs::create_dir_all(root.join(folder))?;
    }
    symlink("/opt/kafka/bin", root.join("opt/bitnami/kafka/bin"))?;
    set_modes(root)?;
    share(root, &SHARED_TEST_FOLDERS, 0o1777)?;
    share(root, &[CHANGED_FOLDER], 0o777)?;
    for entry in fs::read_dir(root.join(CHANGED_FOLDER))? {
        fs::set_permissions(entry?.path(), fs::Permissions::from_mode(0o777))?;
    }
    Ok(())
}

fn copy(from: &Path, to: &Path, mode: u32) -> Result<()> {
    fs::create_dir_all(to.parent().context("a file without a folder")?)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display()))?;
    fs::set_permissions(to, fs::Permissions::from_mode(mode))?;
    Ok(())
}

/// Copies a folder of files and folders.
fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_tree(&entry.path(), &target)?,
            false => drop(fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

/// Gives folders and programs the mode 0755 and other files 0644, whatever the umask and the checkout have.
fn set_modes(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_symlink() {
            continue;
        }
        if kind.is_dir() {
            set_modes(&path)?;
        }
        let is_program = kind.is_dir() || is_program(&path)?;
        let mode = if is_program { 0o755 } else { 0o644 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// Whether a file is a script or a binary.
fn is_program(path: &Path) -> Result<bool> {
    let bytes = fs::read(path)?;
    Ok(bytes.starts_with(b"#!") || bytes.starts_with(b"\x7fELF"))
}

fn share(root: &Path, folders: &[&str], mode: u32) -> Result<()> {
    for folder in folders {
        fs::set_permissions(root.join(folder), fs::Permissions::from_mode(mode))?;
    }
    Ok(())
}
