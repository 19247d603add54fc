//! A folder as a container: mounts and a network of its own by `unshare`, another root by `chroot`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use peer::process::{self, Guarded};
use tempfile::TempDir;

use super::modules::{COMMON, Module};

/// User of the image.
const USER: u32 = 1000;
/// Longest time until the ready line, and of one program.
const LIMIT: Duration = Duration::from_secs(60);

/// The permission that is missing here, if one is.
pub(super) fn missing_permission() -> Option<&'static str> {
    let mut unshare = Command::new("unshare");
    unshare.args(["--net", "--mount", "mount", "-t", "proc", "proc", "/proc"]);
    let status = unshare.stderr(Stdio::null()).status();
    match status.is_ok_and(|status| status.success()) {
        true => None,
        false => Some("namespaces or mounts are not allowed, or there is no unshare"),
    }
}

/// The unpacked image, from which sandboxes are made. Containers do not run in it.
pub(super) struct Template {
    root: TempDir,
}

/// A copy of the image for one container.
pub(super) struct Sandbox {
    root: TempDir,
}

/// Top-level folders whose files no module changes: copies share them by links.
const SHARED: [&str; 4] = ["bin", "lib", "lib64", "usr"];

/// A container that runs, and ends when this is dropped.
pub(super) struct Container<'a> {
    root: &'a Path,
    process: Guarded,
    lines: Receiver<String>,
    output: Vec<String>,
}

/// A folder that the user of the image reads.
fn readable_folder() -> Result<TempDir> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
    Ok(folder)
}

impl Template {
    /// Unpacks the layers. A dynamic program gets the libraries of this machine.
    pub(super) fn unpack(tarballs: &[PathBuf], binary: &Path) -> Result<Template> {
        let root = readable_folder()?;
        for tarball in tarballs {
            let mut tar = process::command("tar");
            tar.args(["--extract", "--preserve-permissions", "--file"]).arg(tarball);
            let outcome = process::run(tar.arg("--directory").arg(root.path()), None, LIMIT)?;
            ensure!(outcome.success(), "tar: {}", outcome.story());
        }
        for library in libraries(binary)? {
            let to = root.path().join(library.strip_prefix("/").unwrap_or(&library));
            fs::create_dir_all(to.parent().context("a library without a folder")?)?;
            fs::copy(&library, to)?;
        }
        for folder in ["proc", "dev", "usr/sbin"] {
            fs::create_dir_all(root.path().join(folder))?;
        }
        // Container programs write this file.
        let name = fs::read_to_string("/proc/sys/kernel/hostname")?;
        fs::write(root.path().join("etc/hosts"), format!("127.0.0.1 localhost {name}"))?;
        Ok(Template { root })
    }

    /// Folder of the unpacked image.
    pub(super) fn root(&self) -> &Path {
        self.root.path()
    }

    /// Packs the unpacked image into one tarball.
    pub(super) fn pack(&self, tarball: &Path) -> Result<()> {
        let mut tar = process::command("tar");
        tar.args(["--create", "--file"]).arg(tarball).arg("--directory").arg(self.root()).arg(".");
        let outcome = process::run(&mut tar, None, LIMIT)?;
        ensure!(outcome.success(), "tar: {}", outcome.story());
        Ok(())
    }

    /// Copies the image. Program and libraries are links, so that a copy costs little.
    pub(super) fn sandbox(&self) -> Result<Sandbox> {
        let root = readable_folder()?;
        let (mut shared, mut copied) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(self.root())? {
            let entry = entry?;
            let is_shared = SHARED.iter().any(|name| entry.file_name() == *name);
            if is_shared { &mut shared } else { &mut copied }.push(entry.path());
        }
        for (link, paths) in [(Some("--link"), shared), (None, copied)] {
            let mut cp = process::command("cp");
            cp.arg("--archive").args(link).args(paths).arg(root.path());
            let outcome = process::run(&mut cp, None, LIMIT)?;
            ensure!(outcome.success(), "cp: {}", outcome.story());
        }
        Ok(Sandbox { root })
    }
}

impl Sandbox {
    /// Starts the module's command, and writes the start script when it runs.
    pub(super) fn start(&self, module: &Module) -> Result<Container<'_>> {
        const SETUP: &str = "set -e; root=$1; shift; $root/bin/busybox ip link set lo up; \
            mount -t proc proc $root/proc; mount --rbind /dev $root/dev; \
            cd /; exec chroot --userspec=1000:1000 $root /bin/sh -c 'cd /tmp; exec \"$@\"' sh \"$@\"";
        let root = self.root.path();
        let mut unshare = process::command("unshare");
        unshare.args(["--net", "--mount", "sh", "-c", SETUP, "sh"]).arg(root).args(module.command);
        unshare.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin:/opt/kafka/bin");
        unshare.envs(COMMON.iter().chain(module.variables).copied());
        unshare.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = Guarded::spawn(&mut unshare)?;
        let (sender, lines) = channel();
        let streams: [Option<Box<dyn std::io::Read + Send>>; 2] = [
            process.child().stdout.take().map(|it| Box::new(it) as _),
            process.child().stderr.take().map(|it| Box::new(it) as _),
        ];
        for stream in streams.into_iter().flatten() {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).lines().map_while(Result::ok) {
                    // The container may have ended.
                    let _ = sender.send(line);
                }
            });
        }
        let path = root.join(module.script_path.trim_start_matches('/'));
        let draft = path.with_extension("draft");
        fs::write(&draft, module.script)?;
        fs::set_permissions(&draft, fs::Permissions::from_mode(0o755))?;
        chown(&draft, Some(USER), Some(USER))?;
        fs::rename(draft, path)?;
        Ok(Container { root, process, lines, output: Vec::new() })
    }
}

impl Container<'_> {
    /// Waits for a line with these words.
    pub(super) fn wait_for(&mut self, words: &str) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => {
                    let is_found = line.contains(words);
                    self.output.push(line);
                    if is_found {
                        return Ok(());
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("no {words:?} within {LIMIT:?}:\n{}", self.output.join("\n"))
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("the container ended before {words:?}:\n{}", self.output.join("\n"))
                }
            }
        }
    }

    /// Produces a record and consumes it, in the container.
    pub(super) fn exchange_record(&self, port: u16) -> Result<()> {
        let script = format!(
            "echo hello | highwater produce t -b localhost:{port} && \
             highwater consume t --from start --count 1 -b localhost:{port}"
        );
        let mut nsenter = process::command("nsenter");
        nsenter.args(["--net", "--mount", "--target"]).arg(self.process.pid().to_string());
        nsenter.args(["chroot", "--userspec=1000:1000"]).arg(self.root).args(["/bin/sh", "-c"]);
        nsenter.arg(script).env("PATH", "/usr/bin:/bin:/usr/sbin:/sbin");
        let outcome = process::run(&mut nsenter, None, LIMIT)?;
        let is_read = outcome.success() && outcome.text().lines().any(|line| line == "hello");
        ensure!(is_read, "{}\n{}", outcome.story(), self.output.join("\n"));
        Ok(())
    }
}

/// Shared libraries and the loader of a dynamic program; none of a static one.
fn libraries(binary: &Path) -> Result<Vec<PathBuf>> {
    let mut ldd = process::command("ldd");
    let outcome = process::run(ldd.arg(binary), None, LIMIT)?;
    let text = outcome.text();
    let path_of =
        |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    Ok(text.lines().filter_map(path_of).collect())
}
