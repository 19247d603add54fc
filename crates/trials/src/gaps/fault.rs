//! Faults of one broker out of three, and how each begins and ends.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use peer::process;

use super::network;

/// Bytes that a fill writes behind the reserved ones: brokers write meanwhile.
const WRITTEN_BYTES: u64 = 16 << 20;

/// A fault of one broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Fault {
    /// The whole disk of the active controller hangs
    ControllerDisk,
    /// The data disk of a broker hangs, its metadata is on another one
    DataDisk,
    /// The disk of a broker is full
    FullDisk,
    /// The process of a broker is paused: rows of the follower and of the leader
    Pause,
    /// A broker is cut off from all others and from clients
    CutOff,
}

impl Fault {
    /// All faults, in the order of the table.
    pub const ALL: [Fault; 5] =
        [Fault::ControllerDisk, Fault::DataDisk, Fault::FullDisk, Fault::Pause, Fault::CutOff];

    /// Whether each broker needs a file system of its own.
    pub fn needs_volumes(self) -> bool {
        matches!(self, Fault::ControllerDisk | Fault::DataDisk | Fault::FullDisk)
    }

    /// Whether each broker needs a network namespace of its own.
    pub fn needs_network(self) -> bool {
        self == Fault::CutOff
    }
}

/// The sick broker, as faults act on it.
pub struct Victim<'a> {
    pub pid: u32,
    /// Mount point of its file system.
    pub volume: Option<&'a Path>,
    /// The bridge's end of its cable.
    pub cable: Option<String>,
}

/// A fault that lasts until it is ended or dropped.
pub enum Sickness {
    Frozen(PathBuf),
    Full(PathBuf),
    Paused(u32),
    /// The cable stays pulled: the network ends with the run.
    CutOff,
}

impl Sickness {
    /// Starts the fault.
    pub fn begin(fault: Fault, victim: &Victim<'_>) -> Result<Sickness> {
        let volume = || victim.volume.context("no volume").map(Path::to_owned);
        Ok(match fault {
            Fault::ControllerDisk | Fault::DataDisk => {
                let path = volume()?;
                freeze("-f", &path)?;
                Sickness::Frozen(path)
            }
            Fault::FullDisk => {
                let volume = volume()?;
                let filler = volume.join("filler");
                fill(&volume, &filler)?;
                Sickness::Full(filler)
            }
            Fault::Pause => {
                process::pause_processes(&[victim.pid])?;
                Sickness::Paused(victim.pid)
            }
            Fault::CutOff => {
                network::pull(victim.cable.as_deref().context("no network")?)?;
                Sickness::CutOff
            }
        })
    }

    /// Ends the fault.
    pub fn end(self) -> Result<()> {
        self.undo()
    }

    fn undo(&self) -> Result<()> {
        match self {
            Sickness::Frozen(path) => freeze("-u", path),
            Sickness::Full(filler) => match fs::remove_file(filler) {
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                removed => Ok(removed?),
            },
            Sickness::Paused(pid) => process::resume_process(*pid),
            Sickness::CutOff => Ok(()),
        }
    }
}

impl Drop for Sickness {
    fn drop(&mut self) {
        // Ended before, mostly: then there is nothing to undo.
        let _ = self.undo();
    }
}

/// Takes every free byte of a volume. Most of them are reserved at once, so that the disk is full soon after the start.
fn fill(volume: &Path, filler: &Path) -> Result<()> {
    let state = rustix::fs::statvfs(volume)?;
    let reserved = (state.f_bavail * state.f_frsize).saturating_sub(WRITTEN_BYTES);
    let reserve = Command::new("fallocate")
        .args(["-l", &reserved.to_string(), &filler.display().to_string()])
        .output()?;
    ensure!(reserve.status.success(), "fallocate: {}", String::from_utf8_lossy(&reserve.stderr));
    // Ends without room, and with every free byte taken.
    let of = format!("of={}", filler.display());
    let append = ["if=/dev/zero", "bs=64k", "oflag=append", "conv=notrunc", &of];
    let _full = Command::new("dd").args(append).output()?;
    Ok(())
}

fn freeze(how: &str, path: &Path) -> Result<()> {
    let status = Command::new("fsfreeze").arg(how).arg(path).output()?;
    ensure!(status.status.success(), "fsfreeze {how}: {}", String::from_utf8_lossy(&status.stderr));
    Ok(())
}
