//! A file system that loses power: ext4 on a loop device, shut down without flushing its journal, so that everything is gone
//! that was not synced; then mounted again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use tempfile::TempDir;

/// Size of the file system. Sparse: only what is written takes room.
const IMAGE_BYTES: u64 = 1 << 30;
/// `EXT4_IOC_SHUTDOWN` with `EXT4_GOING_FLAGS_NOLOGFLUSH`: from here on the file system writes nothing, its journal neither.
/// All are opened before the first is shut down. Python, because a program without unsafe code has no way to make this call.
const SHUTDOWN: &str = "import fcntl, os, struct, sys\n\
    mounts = [os.open(mount, os.O_RDONLY) for mount in sys.argv[1:]]\n\
    for mount in mounts: fcntl.ioctl(mount, 0x8004587D, struct.pack('I', 2))\n";

/// What this machine lacks to fail the power of a file system.
pub fn lacking() -> Option<&'static str> {
    let lacks = |program: &str| !peer::process::is_installed(program);
    if !rustix::process::geteuid().is_root() {
        return Some("root, to mount a file system");
    }
    if lacks("mkfs.ext4") || lacks("mount") {
        return Some("mkfs.ext4 and mount");
    }
    if lacks("python3") {
        return Some("python3");
    }
    (!Path::new("/dev/loop-control").exists()).then_some("loop devices")
}

/// An ext4 file system in a file; unmounted when dropped.
pub struct Volume {
    folder: TempDir,
    mount: PathBuf,
}

impl Volume {
    /// Makes an empty one and mounts it.
    pub fn make() -> Result<Volume> {
        let folder = tempfile::Builder::new().prefix("highwater-volume-").tempdir()?;
        let image = folder.path().join("image");
        fs::File::create(&image)?.set_len(IMAGE_BYTES)?;
        command("mkfs.ext4", &["-q", "-F", &text(&image)])?;
        let mount = folder.path().join("mount");
        fs::create_dir(&mount)?;
        let volume = Volume { folder, mount };
        volume.mount()?;
        // What a repair of the file system needs is no folder of a broker.
        fs::remove_dir(volume.mount.join("lost+found"))?;
        Ok(volume)
    }

    /// Where it is mounted.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    fn mount(&self) -> Result<()> {
        let image = self.folder.path().join("image");
        command("mount", &["-o", "loop", &text(&image), &text(&self.mount)])
    }

    /// Brings it back after a failure, with what was synced. Nobody may use it.
    pub fn mount_again(&self) -> Result<()> {
        command("umount", &[&text(&self.mount)])?;
        self.mount()
    }

    /// Removes everything in it, as somebody does who puts another disk in.
    pub fn empty(&self) -> Result<()> {
        for entry in fs::read_dir(&self.mount)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let _unmounted = command("umount", &["-l", &text(&self.mount)]);
    }
}

/// Fails the power of all of them, microseconds apart.
pub fn fail_power(volumes: &[&Volume]) -> Result<()> {
    let mounts: Vec<String> = volumes.iter().map(|volume| text(&volume.mount)).collect();
    let mut arguments = vec!["-c", SHUTDOWN];
    arguments.extend(mounts.iter().map(String::as_str));
    command("python3", &arguments)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn command(program: &str, arguments: &[&str]) -> Result<()> {
    let output = Command::new(program).args(arguments).output()?;
    if !output.status.success() {
        bail!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    Ok(())
}
