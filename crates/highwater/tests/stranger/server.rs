//! The program as it is started by users, killed when dropped, and a small disk for it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, pidfd_open, pidfd_send_signal, prlimit,
};
use tempfile::TempDir;

pub struct Server {
    process: Child,
    pub address: SocketAddr,
    pub http: SocketAddr,
    output: Arc<Mutex<String>>,
    _folder: Option<TempDir>,
}

impl Server {
    /// Starts it on a folder of its own, with these arguments, and with a limit of open files.
    pub fn start(arguments: &[&str], open_files: Option<u32>) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::start_in(&folder.path().join("data"), arguments, open_files);
        server._folder = Some(folder);
        server
    }

    pub fn start_in(data: &Path, arguments: &[&str], open_files: Option<u32>) -> Server {
        let limit = open_files.map_or(String::new(), |files| format!("ulimit -n {files};"));
        let mut process = Command::new("sh")
            .args(["-c", &format!("{limit} exec \"$@\""), "sh", env!("CARGO_BIN_EXE_highwater")])
            .args(["--log-level", "info", "start", "--data-dir"])
            .arg(data)
            .args(["--set", "listeners=PLAINTEXT://127.0.0.1:0"])
            .args(["--set", "http.listener=127.0.0.1:0"])
            .args(["--set", "gateway.listener=127.0.0.1:0"])
            .args(["--set", "log.segment.delete.delay.ms=100"])
            .args(["--set", "offsets.topic.num.partitions=3"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = Arc::new(Mutex::new(String::new()));
        let (errors, writing) = (process.stderr.take().unwrap(), Arc::clone(&output));
        std::thread::spawn(move || {
            for line in BufReader::new(errors).lines().map_while(Result::ok) {
                let mut output = writing.lock().unwrap();
                output.push_str(&line);
                output.push('\n');
            }
        });
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut found = |prefix: &str| {
            let line = lines.by_ref().map(Result::unwrap).find(|line| line.starts_with(prefix));
            line.unwrap_or_else(|| panic!("no line begins with {prefix:?}"))[prefix.len()..]
                .to_owned()
        };
        let address = found("broker: listening on ").parse().unwrap();
        let http = found("http: http://");
        let http = http[..http.find('/').unwrap()].parse().unwrap();
        Server { process, address, http, output, _folder: None }
    }

    /// Memory that it has resident now.
    pub fn resident_bytes(&self) -> u64 {
        self.status_bytes("VmRSS:")
    }

    /// Of that, what is not pages of the program, of which a build with debugging symbols has many.
    pub fn anonymous_bytes(&self) -> u64 {
        self.status_bytes("RssAnon:")
    }

    fn status_bytes(&self, name: &str) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(name)).expect("it runs");
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }

    /// The descriptors that it has now.
    pub fn descriptors(&self) -> Vec<u64> {
        let listed = std::fs::read_dir(format!("/proc/{}/fd", self.process.id())).unwrap();
        let names = listed.flatten().map(|entry| entry.file_name());
        names.filter_map(|name| name.to_string_lossy().parse().ok()).collect()
    }

    /// Has the system let it have so many descriptors from now on.
    pub fn limit_descriptors(&self, max: u64) {
        let pid = self.process.id();
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).expect("told");
        let hard = line.split_whitespace().nth(4).expect("a soft and a hard one").parse().ok();
        let limits = Rlimit { current: Some(max), maximum: hard };
        prlimit(Some(Pid::from_child(&self.process)), Resource::Nofile, limits).unwrap();
    }

    /// Asks it to stop, and waits until it has: cleanly, or not within `patience`.
    pub fn stop(mut self, patience: Duration) {
        // Readable once the process has ended.
        let end = pidfd_open(Pid::from_child(&self.process), PidfdFlags::empty()).unwrap();
        pidfd_send_signal(&end, Signal::TERM).unwrap();
        let patience = Timespec::try_from(patience).unwrap();
        let ended = poll(&mut [PollFd::new(&end, PollFlags::IN)], Some(&patience)).unwrap();
        assert_eq!(ended, 1, "the broker does not stop: {}", self.output());
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}: {}", self.output());
    }

    /// What it wrote to standard error so far.
    pub fn output(&self) -> String {
        self.output.lock().unwrap().clone()
    }

    /// The whole answer to `GET /healthz`.
    pub fn health(&self) -> String {
        let mut stream = TcpStream::connect(self.http).unwrap();
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let output = self.output();
            eprintln!("{}", &output[output.len().saturating_sub(8000)..]);
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A file system in memory of a few MiB, unmounted when dropped.
pub struct SmallDisk {
    folder: TempDir,
}

impl SmallDisk {
    /// `None` where this user may not mount.
    pub fn mount(size_mib: u32) -> Option<SmallDisk> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size_mib}m"), "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then_some(SmallDisk { folder })
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().to_owned()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.folder.path()).status();
    }
}
