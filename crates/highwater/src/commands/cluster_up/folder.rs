//! The folder of a local cluster: who has it now, the plan that it keeps, and the folders of its brokers.
//!
//! ```text
//! cluster.lock                 held by `cluster up`, and by the brokers that it started
//! cluster.json                 the plan
//! broker-1/                    data of broker 1, and beside it
//!     server.properties        what it is started with
//!     broker.log               what it reports
//! ```

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use peer::procfs;

use super::plan::{Node, Plan};
use crate::failure::Failure;

/// File that `cluster up` and its brokers lock in the cluster's folder.
pub const LOCK: &str = "cluster.lock";
const PLAN: &str = "cluster.json";
const PROPERTIES: &str = "server.properties";
const REPORTS: &str = "broker.log";
/// A broker's own data folder has this file.
const OF_A_BROKER: &str = "meta.properties";
/// How long brokers may take to go whose `cluster up` was killed: the system kills them then.
const ORPHANS_MAX: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(10);
/// Lines of a broker's reports that are shown when it did not start.
const LAST_LINES: usize = 15;

/// A cluster's folder, which nobody else brings up meanwhile.
#[derive(Debug)]
pub struct Folder {
    /// Absolute, and text without a comma.
    path: String,
    lock: File,
}

impl Folder {
    /// Takes the folder, which is made if it is missing.
    pub fn take(typed: &Path) -> Result<Folder, Failure> {
        let path = path_of(typed)?;
        let unusable = |error| Failure::new(format!("cannot use the folder {path}")).detail(error);
        if Path::new(&path).join(OF_A_BROKER).exists() {
            return Err(unusable(io::Error::other("it is the data folder of a single broker"))
                .hint("name another one by --data-dir"));
        }
        fs::create_dir_all(&path).map_err(unusable)?;
        let options = File::options().create(true).truncate(false).read(true).write(true).clone();
        let mut lock = options.open(Path::new(&path).join(LOCK)).map_err(unusable)?;
        if let Err(owner) = take_lock(&mut lock).map_err(unusable)? {
            return Err(Failure::new(format!("the cluster in {path} runs already"))
                .detail(format!("by process {owner}"))
                .hint("stop that one, or name another folder by --data-dir"));
        }
        Ok(Folder { path, lock })
    }

    /// Where it is.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The lock, for a child that has the folder as well for as long as it runs.
    pub fn lock(&self) -> io::Result<File> {
        self.lock.try_clone()
    }

    /// The plan; `None` where no cluster was made yet.
    pub fn plan(&self) -> Result<Option<Plan>, Failure> {
        let file = Path::new(&self.path).join(PLAN);
        let unreadable = || {
            Failure::new(format!("cannot read {}", file.display()))
                .hint("without its plan a cluster cannot be started: put the file back, or name another folder")
        };
        match fs::read_to_string(&file) {
            Ok(text) => Plan::decode(&text).map(Some).map_err(|why| unreadable().detail(why)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(unreadable().detail(error)),
        }
    }

    /// The first of these brokers that has a folder here.
    pub fn inhabited<'a>(&self, nodes: &'a [Node]) -> Option<&'a Node> {
        nodes.iter().find(|node| Path::new(&self.data(node)).exists())
    }

    /// Keeps the plan, for good when this returns.
    pub fn keep(&self, plan: &Plan) -> io::Result<()> {
        let folder = Path::new(&self.path);
        let draft = folder.join(format!("{PLAN}.new"));
        let mut file = File::create(&draft)?;
        file.write_all(plan.encode().as_bytes())?;
        file.sync_all()?;
        fs::rename(&draft, folder.join(PLAN))?;
        File::open(folder)?.sync_all()
    }

    /// A broker's data folder.
    pub fn data(&self, node: &Node) -> String {
        format!("{}/{}", self.path, node.folder())
    }

    /// The file that a broker is started with.
    pub fn properties(&self, node: &Node) -> String {
        format!("{}/{PROPERTIES}", self.data(node))
    }

    /// Makes the broker's folder, and writes the file that it is started with.
    pub fn prepare(&self, node: &Node, properties: &str) -> io::Result<()> {
        fs::create_dir_all(self.data(node))?;
        fs::write(self.properties(node), properties)
    }

    /// Removes the folders of brokers that were just made and never served.
    pub fn remove(&self, nodes: &[Node]) -> io::Result<()> {
        nodes.iter().try_for_each(|node| match fs::remove_dir_all(self.data(node)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        })
    }

    /// Where a broker's reports go.
    pub fn reports(&self, node: &Node) -> Reports {
        Reports { path: PathBuf::from(self.data(node)).join(REPORTS), begin: 0 }
    }
}

/// As text, because it stands in files and in commands that are printed; without a comma, which separates
/// folders in log.dirs.
fn path_of(typed: &Path) -> Result<String, Failure> {
    let refused = |why: &str| {
        let typed = typed.display();
        Failure::new(format!("cannot use the folder {typed}")).detail(why.to_owned())
    };
    let path = std::path::absolute(typed).map_err(|error| refused(&error.to_string()))?;
    let path = path.components().collect::<PathBuf>();
    let path = path.to_str().ok_or_else(|| refused("its name is not UTF-8 text"))?;
    match path.contains(',') {
        true => Err(refused("log.dirs cannot name a folder with a comma")),
        false => Ok(path.to_owned()),
    }
}

/// Takes the lock and writes our process id into it; or says whose it is. Brokers have the lock too: those of
/// a process that was killed are waited for.
fn take_lock(lock: &mut File) -> io::Result<Result<(), String>> {
    let deadline = Instant::now() + ORPHANS_MAX;
    loop {
        match lock.try_lock() {
            Ok(()) => break,
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) => {}
        }
        let mut owner = String::new();
        lock.rewind()?;
        lock.read_to_string(&mut owner)?;
        let is_dead = owner.trim().parse().is_ok_and(|pid| !procfs::is_running(pid));
        if !is_dead || Instant::now() > deadline {
            return Ok(Err(owner.trim().to_owned()));
        }
        thread::sleep(LOOK);
    }
    lock.set_len(0)?;
    lock.rewind()?;
    writeln!(lock, "{}", std::process::id())?;
    Ok(Ok(()))
}

/// The file to which a broker reports.
#[derive(Debug, Clone)]
pub struct Reports {
    path: PathBuf,
    /// Where the reports of the present process begin.
    begin: u64,
}

impl Reports {
    /// Opens the file for a process that is about to be started.
    pub fn open(&mut self) -> io::Result<File> {
        let file = File::options().create(true).append(true).open(&self.path)?;
        self.begin = file.metadata()?.len();
        Ok(file)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The last lines of the process that was started last.
    pub fn last_lines(&self) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let (mut file, mut bytes) = (File::open(&self.path)?, Vec::new());
            file.seek(io::SeekFrom::Start(self.begin))?;
            file.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        let bytes = read().unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan() -> Plan {
        Plan::new("AAAAAAAAAAAAAAAAAAAAAA".to_owned(), 1, &[10_001, 10_002, 10_003, 10_004])
    }

    #[test]
    fn a_folder_is_made_and_keeps_its_plan() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::take(&place.path().join("a/../b")).unwrap();
        assert_eq!(folder.plan().unwrap(), None);
        folder.keep(&plan()).unwrap();
        assert_eq!(folder.plan().unwrap(), Some(plan()));
        let nodes = plan().brokers;
        assert_eq!(folder.inhabited(&nodes), None);
        folder.prepare(&nodes[0], "node.id=1\n").unwrap();
        assert_eq!(folder.inhabited(&nodes), Some(&nodes[0]));
        assert_eq!(fs::read_to_string(folder.properties(&nodes[0])).unwrap(), "node.id=1\n");
        folder.remove(&nodes).unwrap();
        folder.remove(&nodes).unwrap();
        assert_eq!(folder.inhabited(&nodes), None);
        fs::write(Path::new(folder.path()).join(PLAN), "{}").unwrap();
        let said = folder.plan().unwrap_err().to_string();
        assert!(said.starts_with("cannot read ") && said.contains(PLAN), "{said}");
    }

    #[test]
    fn a_folder_belongs_to_one_at_a_time() {
        let place = tempfile::tempdir().unwrap();
        let first = Folder::take(place.path()).unwrap();
        let said = Folder::take(place.path()).unwrap_err().to_string();
        let us = format!("runs already: by process {}", std::process::id());
        assert!(said.contains(&us), "{said}");
        // A child has it for as long as it runs.
        let childs = first.lock().unwrap();
        drop(first);
        assert!(Folder::take(place.path()).is_err());
        drop(childs);
        Folder::take(place.path()).unwrap();
    }

    #[test]
    fn folders_that_cannot_be_a_clusters_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let said = Folder::take(&place.path().join("a,b")).unwrap_err().to_string();
        assert!(said.contains("a comma"), "{said}");
        fs::write(place.path().join(OF_A_BROKER), "").unwrap();
        let said = Folder::take(place.path()).unwrap_err().to_string();
        assert!(said.contains("the data folder of a single broker"), "{said}");
        let file = place.path().join(OF_A_BROKER);
        assert!(Folder::take(&file).unwrap_err().to_string().contains("cannot use the folder"));
    }

    #[test]
    fn of_the_reports_the_last_lines_of_the_last_start_are_shown() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::take(place.path()).unwrap();
        let node = &plan().brokers[0];
        folder.prepare(node, "").unwrap();
        let mut reports = folder.reports(node);
        assert_eq!(reports.last_lines(), "");
        writeln!(reports.open().unwrap(), "before").unwrap();
        let mut file = reports.open().unwrap();
        (1..=20).for_each(|n| writeln!(file, "line {n}").unwrap());
        let lines = reports.last_lines();
        assert!(lines.starts_with("line 6\n") && lines.ends_with("\nline 20"), "{lines}");
    }
}
