//! Test suites' modules as they are published, with real containers: Debian's podman and crun, in namespaces of their own.
//!
//! Everything that podman writes is in a temporary folder or in mounts that end with the namespaces, so neither the
//! machine's own containers nor its network change. All processes are in one process namespace, which the kernel ends with
//! its first process.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use peer::{apt, process};

use super::sandbox::Template;
use crate::clients::python_environment;
use crate::repository::repository;

/// Longest time of an installation and of one program.
const LIMIT: Duration = Duration::from_secs(600);
/// Longest time of one start with its record.
const START_LIMIT: Duration = Duration::from_secs(300);
/// Packages of Debian. The plugins connect containers to a network.
const PACKAGES: [&str; 4] = ["podman", "crun", "conmon", "containernetworking-plugins"];
/// Name of the image. Modules compare the tag with versions of Confluent's images.
const IMAGE: &str = "localhost/highwater:7.6.0";

/// A published module with a program that uses it.
pub(super) struct PublishedModule {
    pub(super) name: &'static str,
    /// Folder of the program below `conformance/containers`.
    folder: &'static str,
}

pub(super) const PUBLISHED: &[PublishedModule] =
    &[PublishedModule { name: "testcontainers-python", folder: "python" }];

/// Runs with namespaces and mounts of its own: `sh -c SETUP sh STATE ROOT PROGRAM ARGUMENTS`.
const SETUP: &str = r#"set -eu
state=$1; root=$2; shift 2
"$root/bin/busybox" ip link set lo up
# crun refuses the older kind of control groups.
umount -R /sys/fs/cgroup 2> /dev/null || true
mount -t cgroup2 none /sys/fs/cgroup
for folder in /run /dev/shm /var/lib/cni /var/lib/containers; do
    mkdir -p "$folder"
    mount -t tmpfs tmpfs "$folder"
done
export HOME="$state" XDG_RUNTIME_DIR=/run
export CONTAINERS_CONF="$state/containers.conf" CONTAINERS_STORAGE_CONF="$state/storage.conf"
podman import --quiet --change USER=1000:1000 --change WORKDIR=/tmp \
    --change ENV=PATH=/usr/sbin:/usr/bin:/sbin:/bin:/opt/kafka/bin "$state/image.tar" "$IMAGE" > /dev/null
export DOCKER_HOST=unix:///run/podman.sock TESTCONTAINERS_RYUK_DISABLED=true
# This command may run in a container itself, whose gateway is not the one of the containers.
export TESTCONTAINERS_CONNECTION_MODE=docker_host TESTCONTAINERS_HOST_OVERRIDE=localhost
podman system service --time=0 "$DOCKER_HOST" &
while [ ! -S /run/podman.sock ]; do sleep 0.1; done
"$@"
"#;

const CONTAINERS_CONF: &str = r#"[containers]
cgroups = "disabled"
default_ulimits = ["nofile=1024:4096", "nproc=4096:4096"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
[network]
network_backend = "cni"
"#;

/// Installs podman where it is missing. Returns the reason if published modules cannot run here.
pub(super) fn missing_part() -> Result<Option<&'static str>> {
    let mut unshare = namespaces();
    unshare.args(["mount", "-t", "cgroup2", "none", "/sys/fs/cgroup"]);
    let status = unshare.stdin(Stdio::null()).stderr(Stdio::null()).status()?;
    if !status.success() {
        return Ok(Some("process namespaces or control groups are not allowed"));
    }
    if ["podman", "crun", "conmon", "iptables"].iter().all(process::is_installed) {
        return Ok(None);
    }
    if !process::is_installed("apt-get") {
        return Ok(Some("podman and apt-get are missing"));
    }
    let install = [&["install", "-y", "-q", "--no-install-recommends"][..], &PACKAGES].concat();
    for arguments in [&["update", "-q"][..], &install] {
        let outcome = apt::run(arguments, Path::new("/"), LIMIT)?;
        ensure!(outcome.success(), "apt-get {arguments:?}: {}", outcome.story());
    }
    Ok(None)
}

/// A command in namespaces of its own: network, mounts and processes.
fn namespaces() -> Command {
    let mut unshare = process::command("unshare");
    unshare.args(["--net", "--mount", "--propagation", "private"]);
    unshare.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    unshare
}

/// Starts the image by the module `starts` times, each with a record. Returns the milliseconds of each start.
pub(super) fn run(module: &PublishedModule, template: &Template, starts: u32) -> Result<Vec<u128>> {
    let folder = repository().join("conformance/containers").join(module.folder);
    let python = python_environment(&folder.join("requirements.txt"))?;
    let state = tempfile::tempdir()?;
    write_settings(state.path())?;
    template.pack(&state.path().join("image.tar"))?;
    let mut command = namespaces();
    command.args(["sh", "-c", SETUP, "sh"]).arg(state.path()).arg(template.root());
    command.arg(python.join("bin/python")).arg(folder.join("main.py"));
    command.args([IMAGE, &starts.to_string()]).env("IMAGE", IMAGE);
    let outcome = process::run(&mut command, None, LIMIT + START_LIMIT * starts)?;
    ensure!(outcome.success(), "{}", outcome.story());
    let milliseconds = ready_times(&outcome.text())?;
    ensure!(milliseconds.len() == starts as usize, "{}", outcome.story());
    Ok(milliseconds)
}

/// Milliseconds of all lines `ready MILLISECONDS`.
fn ready_times(text: &str) -> Result<Vec<u128>> {
    let times = text.lines().filter_map(|line| line.strip_prefix("ready "));
    times.map(|time| time.parse().with_context(|| format!("{time:?}"))).collect()
}

/// Writes podman's configuration below `state`, where its images and containers are, too.
fn write_settings(state: &Path) -> Result<()> {
    let path = |name: &str| -> Result<PathBuf> {
        let path = state.join(name);
        fs::create_dir_all(path.parent().context("a file without a folder")?)?;
        Ok(path)
    };
    fs::write(path("containers.conf")?, CONTAINERS_CONF)?;
    let storage = format!(
        "[storage]\ndriver = \"vfs\"\ngraphroot = {:?}\nrunroot = \"/run/containers\"\n",
        state.join("storage")
    );
    fs::write(path("storage.conf")?, storage)?;
    // Images come from this folder only.
    let policy = r#"{"default": [{"type": "insecureAcceptAnything"}]}"#;
    Ok(fs::write(path(".config/containers/policy.json")?, policy)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_counted_by_their_ready_lines() {
        assert_eq!(ready_times("Pulling\nready 120\nready 99\n").unwrap(), [120, 99]);
        assert!(ready_times("ready soon\n").is_err());
    }

    #[test]
    fn each_published_module_has_its_program_and_pinned_packages() {
        for module in PUBLISHED {
            let folder = repository().join("conformance/containers").join(module.folder);
            assert!(folder.join("main.py").is_file(), "{}", module.name);
            let packages = fs::read_to_string(folder.join("requirements.txt")).unwrap();
            let pins = packages.lines().filter(|line| !line.starts_with('#'));
            assert!(pins.clone().count() > 0 && pins.clone().all(|line| line.contains("==")));
        }
    }
}
