//! An archive of the classes that a Kafka broker loads when it starts, parsed and checked (class data sharing): a start
//! costs less than half of the CPU with it. It changes nothing of how code is compiled or memory is managed.
//!
//! The archive is made by a broker that starts, serves and ends, once for each Java runtime. A Java runtime that it does
//! not fit goes on without it and says so in the broker's log.

use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{
    JVM, NodePlan, START_LIMIT, VERSION, last_lines, ports, properties, runtime, spawn_node,
    storage, wait_until_serving,
};
use crate::cache;
use crate::host::Host;

/// Name of the archive in its folder.
const FILE: &str = "classes.jsa";
/// Heap of the broker that makes it, MiB.
const HEAP_MIB: u32 = 512;
/// How long a broker may take to end: it writes the archive then.
const END_LIMIT: Duration = Duration::from_secs(60);

/// The archive for this installation and the Java runtime that there is. Without one, said once, brokers start as they
/// do anywhere.
pub(super) fn archive(home: &Path) -> Option<&'static Path> {
    static ARCHIVE: OnceLock<Option<PathBuf>> = OnceLock::new();
    let found = ARCHIVE.get_or_init(|| match folder(home) {
        Ok(folder) => Some(folder.join(FILE)),
        Err(error) => {
            eprintln!("Apache Kafka's brokers start slower than they could: {error:#}");
            None
        }
    });
    found.as_deref()
}

fn folder(home: &Path) -> Result<PathBuf> {
    let mut hasher = DefaultHasher::new();
    (runtime::version()?, JVM).hash(&mut hasher);
    let name = format!("apache-kafka-{VERSION}-classes-{:016x}", hasher.finish());
    cache::once(&name, |fresh| make(home, fresh).context("no archive of classes could be made"))
}

/// Lets a broker start, serve and end.
fn make(home: &Path, fresh: &Path) -> Result<()> {
    eprintln!("archiving the classes of Apache Kafka {VERSION}, once …");
    let (client, controller) = ports(1, None)?[0];
    let plan = NodePlan { host: Host::local(), client, controller, properties: Vec::new() };
    fs::write(fresh.join("server.properties"), properties(fresh, 0, &[plan]))?;
    storage::format(home, fresh, 1, &[])?;
    let (archive, log) = (fresh.join(FILE), fresh.join("server.log"));
    let flag = format!("-XX:ArchiveClassesAtExit={}", archive.display());
    let mut broker = spawn_node(home, &Host::local(), fresh, HEAP_MIB, Some(flag))?;
    wait_until_serving(&mut broker, &log, Instant::now() + START_LIMIT)?;
    broker.signal(rustix::process::Signal::TERM);
    let ended = broker.wait(END_LIMIT)?;
    ensure!(ended.is_some(), "the broker did not end in time:\n{}", last_lines(&log));
    ensure!(archive.is_file(), "the Java runtime wrote none:\n{}", last_lines(&log));
    fs::remove_dir_all(fresh.join("data"))?;
    Ok(())
}
