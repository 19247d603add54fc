//! Clusters that the lab starts and stops.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result, bail};
use peer::apache_kafka::{self, Brokers, JavaRuntime};
use peer::highwater::{self, Server};
use peer::scratch::{Scratch, Whose};

use super::Cluster;
use experiment::plan::Shape;

/// Deleted topics leave the disk soon, for all targets alike: the files of one round shall not weigh on the next.
const SETTINGS: [(&str, &str); 1] = [("log.segment.delete.delay.ms", "1000")];
/// Heap of each of several Kafka brokers, MiB; one alone has the 1024 of Kafka's own script.
const HEAP_OF_MANY_MIB: u32 = 512;

/// What keeps a cluster alive: dropping it stops the brokers and removes their data.
pub(super) enum Keeper {
    Highwater { servers: Mutex<Vec<Server>>, _folder: Scratch },
    ApacheKafka(Mutex<Brokers>),
    Others,
}

impl Keeper {
    pub(super) fn is_running(&mut self) -> bool {
        match self {
            Keeper::Highwater { servers, .. } => {
                servers.get_mut().is_ok_and(|all| all.iter_mut().all(Server::is_running))
            }
            Keeper::ApacheKafka(brokers) => brokers.get_mut().is_ok_and(|b| b.are_running()),
            Keeper::Others => true,
        }
    }

    pub(super) fn kill(&self, id: i32) -> Result<()> {
        match self {
            Keeper::Highwater { servers, .. } => of_id(&mut locked(servers), id)?.kill_in_place(),
            Keeper::ApacheKafka(brokers) => locked(brokers).kill(index(id)?),
            Keeper::Others => bail!("these brokers are not the lab's to kill"),
        }
    }

    pub(super) fn restart(&self, id: i32) -> Result<()> {
        match self {
            Keeper::Highwater { servers, .. } => of_id(&mut locked(servers), id)?.restart(),
            Keeper::ApacheKafka(brokers) => locked(brokers).restart(index(id)?),
            Keeper::Others => bail!("these brokers are not the lab's to start"),
        }
    }

    /// The process of the broker of this id.
    pub(super) fn pid(&self, id: i32) -> Result<u32> {
        match self {
            Keeper::Highwater { servers, .. } => Ok(of_id(&mut locked(servers), id)?.pid()),
            Keeper::ApacheKafka(brokers) => {
                let pids = locked(brokers).pids();
                pids.get(index(id)?).copied().with_context(|| format!("no broker has the id {id}"))
            }
            Keeper::Others => bail!("the laboratory did not start these brokers"),
        }
    }

    pub(super) fn last_words(&self) -> String {
        match self {
            Keeper::Highwater { servers, .. } => servers.lock().map_or_else(
                |_| String::new(),
                |all| all.iter().map(Server::last_words).collect::<Vec<_>>().join("\n"),
            ),
            Keeper::ApacheKafka(brokers) => {
                brokers.lock().map_or_else(|_| String::new(), |b| b.last_words())
            }
            Keeper::Others => String::new(),
        }
    }
}

fn locked<T>(keeper: &Mutex<T>) -> MutexGuard<'_, T> {
    keeper.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the broker of this id stands among those that were started: ids count from 1.
fn index(id: i32) -> Result<usize> {
    usize::try_from(id - 1).with_context(|| format!("no broker has the id {id}"))
}

fn of_id(servers: &mut [Server], id: i32) -> Result<&mut Server> {
    let found = servers.get_mut(index(id)?);
    found.with_context(|| format!("no broker has the id {id}"))
}

pub(super) fn highwater(program: &Path, shape: &Shape) -> Result<Cluster> {
    let count = shape.brokers.max(1);
    let folder = Scratch::make(Whose::Ours)?;
    let settings = settings(shape);
    let settings = borrowed(&settings);
    let (servers, data_folders) = if count == 1 {
        let data = folder.path().join("data");
        let server = highwater::start(program, &data, highwater::free_port()?, &settings);
        (server.map(|server| vec![server]), vec![data])
    } else {
        let servers = highwater::start_cluster(program, folder.path(), count as usize, &settings);
        let data = (1..=count).map(|id| folder.path().join(format!("broker-{id}")));
        (servers, data.collect())
    };
    let servers = servers
        .with_context(|| format!("cannot start {count} brokers of {}", program.display()))?;
    let bootstrap: Vec<String> = servers.iter().map(Server::bootstrap).collect();
    Ok(Cluster {
        bootstrap: bootstrap.join(","),
        brokers: count,
        pids: servers.iter().map(Server::pid).collect(),
        data_folders,
        front: program.to_owned(),
        keeper: Keeper::Highwater { servers: Mutex::new(servers), _folder: folder },
    })
}

pub(super) fn apache_kafka(shape: &Shape) -> Result<Cluster> {
    let count = shape.brokers.max(1);
    let settings = settings(shape);
    let heap_mib = if count == 1 { 1024 } else { HEAP_OF_MANY_MIB };
    // No experiment measures a start.
    let runtime = JavaRuntime { heap_mib, class_archive: true };
    let brokers = apache_kafka::start_sized(count as usize, None, &borrowed(&settings), runtime)
        .with_context(|| format!("cannot start {count} Apache Kafka brokers"))?;
    Ok(Cluster {
        bootstrap: brokers.bootstrap(),
        brokers: count,
        pids: brokers.pids(),
        data_folders: (0..count as usize).map(|index| brokers.data_folder(index)).collect(),
        front: std::env::current_exe()?,
        keeper: Keeper::ApacheKafka(Mutex::new(brokers)),
    })
}

fn settings(shape: &Shape) -> Vec<(String, String)> {
    let ours = SETTINGS.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    ours.chain(shape.settings.clone()).collect()
}

fn borrowed(settings: &[(String, String)]) -> Vec<(&str, &str)> {
    settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

/// Bytes that a topic's partitions take on the disk, in these data folders.
pub fn disk_bytes(data_folders: &[PathBuf], topic: &str) -> u64 {
    let prefix = format!("{topic}-");
    let partitions =
        data_folders.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten().flatten();
    let ours = partitions.filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix));
    ours.map(|partition| folder_bytes(&partition.path())).sum()
}

/// Bytes of the log segments in a partition's folder; indexes are allocated ahead and say nothing.
fn folder_bytes(folder: &Path) -> u64 {
    let Ok(files) = fs::read_dir(folder) else { return 0 };
    let segments =
        files.flatten().filter(|file| file.path().extension().is_some_and(|e| e == "log"));
    segments.filter_map(|file| Some(file.metadata().ok()?.len())).sum()
}
