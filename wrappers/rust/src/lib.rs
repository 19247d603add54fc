//! A Kafka broker for tests: starts `highwater test-broker` and ends it, with fault rules over HTTP. Rules are JSON.

use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Names the program `highwater`.
pub const BINARY_VARIABLE: &str = "HIGHWATER_BIN";
/// Time for the start of a broker, after which it is killed.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for the end of a broker, after which it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);
/// How long an answer over HTTP may take.
const HTTP_TIMEOUT: Duration = Duration::from_secs(30);

/// The broker cannot be started, or refuses a fault rule. The message is the program's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Error {
        Error(error.to_string())
    }
}

/// Options of a broker.
#[derive(Debug, Clone, Default)]
pub struct Options {
    arguments: Vec<String>,
    rules: Vec<String>,
    binary: Option<PathBuf>,
}

impl Options {
    /// One broker without topics and rules.
    pub fn new() -> Options {
        Options::default()
    }

    /// Adds arguments of `highwater test-broker`.
    pub fn arguments(mut self, arguments: &[&str]) -> Options {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// Creates topics: `NAME` or `NAME:PARTITIONS` each.
    pub fn topics(self, topics: &[&str]) -> Options {
        self.arguments(&["--topics", &topics.join(",")])
    }

    /// Starts so many brokers.
    pub fn brokers(self, count: u16) -> Options {
        self.arguments(&["--brokers", &count.to_string()])
    }

    /// Sets a configuration key of the broker.
    pub fn set(self, key: &str, value: &str) -> Options {
        self.arguments(&["--set", &format!("{key}={value}")])
    }

    /// Sets the seed of the rules that fire by probability.
    pub fn seed(self, seed: u64) -> Options {
        self.arguments(&["--seed", &seed.to_string()])
    }

    /// Adds a rule at the start: JSON with its name.
    pub fn fault(mut self, rule: &str) -> Options {
        self.rules.push(rule.to_owned());
        self
    }

    /// Names the program; [`find_binary`] finds it otherwise.
    pub fn binary(mut self, binary: &Path) -> Options {
        self.binary = Some(binary.to_owned());
        self
    }

    /// Starts the broker and waits until it serves.
    ///
    /// # Errors
    /// The program cannot be found, or does not start; the message is the program's.
    pub fn start(&self) -> Result<TestBroker, Error> {
        let binary = match &self.binary {
            Some(binary) => binary.clone(),
            None => find_binary()?,
        };
        let mut command = Command::new(binary);
        command.arg("test-broker").args(&self.arguments);
        let mut rules = None;
        if !self.rules.is_empty() {
            let file = TemporaryFile::create("rules.json")?;
            fs::write(&file.0, format!("{{\"rules\": [{}]}}", self.rules.join(",")))?;
            command.arg("--faults").arg(&file.0);
            rules = Some(file);
        }
        let broker = TestBroker::start(command);
        drop(rules);
        broker
    }
}

/// A file that is removed when it is dropped.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn create(name: &str) -> io::Result<TemporaryFile> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("highwater-{}-{number}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        File::options().write(true).create_new(true).open(&path)?;
        Ok(TemporaryFile(path))
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // A file that is gone needs no removal.
        let _ = fs::remove_file(&self.0);
    }
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|it| it.is_file() && it.permissions().mode() & 0o111 != 0)
}

/// Returns the path of `highwater`: of `HIGHWATER_BIN`, beside this program, or of `PATH`.
///
/// # Errors
/// There is none, or `HIGHWATER_BIN` names something else.
pub fn find_binary() -> Result<PathBuf, Error> {
    if let Some(named) = std::env::var_os(BINARY_VARIABLE).filter(|named| !named.is_empty()) {
        let path = PathBuf::from(named);
        return match is_program(&path) {
            true => Ok(path),
            false => Err(Error(format!(
                "{BINARY_VARIABLE} names {}, which is not a program",
                path.display()
            ))),
        };
    }
    let this = std::env::current_exe()?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = this.parent().map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    let mut files = folders.map(|folder| folder.join("highwater"));
    files.find(|file| is_program(file)).ok_or_else(|| {
        Error(format!(
            "highwater is not installed: set {BINARY_VARIABLE} to its path, or put it on PATH"
        ))
    })
}

/// The process that a broker is.
#[derive(Debug)]
enum Process {
    /// A child of this process.
    Child {
        child: Child,
        /// The broker ends when it is closed, also when this process is killed.
        stdin: Option<ChildStdin>,
    },
    /// A child of the test broker with this address.
    Fork { parent: String },
}

/// A broker, or several, for one test. Dropping it ends it.
#[derive(Debug)]
pub struct TestBroker {
    process: Process,
    log: File,
    ready: String,
}

impl TestBroker {
    fn start(mut command: Command) -> Result<TestBroker, Error> {
        let file = TemporaryFile::create("log")?;
        let log = File::options().read(true).append(true).open(&file.0)?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log.try_clone()?);
        let mut child = command.spawn()?;
        let stdin = child.stdin.take();
        let (sender, receiver) = mpsc::channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                let mut line = String::new();
                let read = BufReader::new(stdout).read_line(&mut line);
                // A start that timed out has dropped the receiver.
                let _ = sender.send(read.map(|_| line));
            });
        }
        let ready = receiver.recv_timeout(START_TIMEOUT).ok().and_then(Result::ok);
        let has_timed_out = ready.is_none();
        let ready = ready.unwrap_or_default();
        let process = Process::Child { child, stdin };
        let mut broker = TestBroker { process, log, ready };
        match broker.ready.is_empty() {
            false => Ok(broker),
            true => {
                if let (true, Process::Child { child, .. }) = (has_timed_out, &mut broker.process) {
                    // `stop` waits for its end.
                    let _ = child.kill();
                }
                broker.stop();
                Err(Error(format!("the test broker did not start: {}", broker.log()?.trim())))
            }
        }
    }

    fn field(&self, name: &str) -> String {
        field(&self.ready, name).unwrap_or_default()
    }

    /// Where clients connect, `host:port`.
    pub fn bootstrap_servers(&self) -> String {
        self.field("bootstrap_servers")
    }

    /// Address of metrics and fault rules.
    pub fn http(&self) -> String {
        self.field("http")
    }

    /// Folder of the data.
    pub fn data_dir(&self) -> PathBuf {
        PathBuf::from(self.field("data_dir"))
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.field("pid").parse().unwrap_or_default()
    }

    /// Number of brokers.
    pub fn brokers(&self) -> u16 {
        self.field("brokers").parse().unwrap_or_default()
    }

    /// Version of the program.
    pub fn version(&self) -> String {
        self.field("version")
    }

    /// Reports of the program so far; of a fork, the reports of its test broker.
    ///
    /// # Errors
    /// They cannot be read.
    pub fn log(&self) -> Result<String, Error> {
        let (mut file, mut text) = (self.log.try_clone()?, Vec::new());
        file.rewind()?;
        file.read_to_end(&mut text)?;
        Ok(String::from_utf8_lossy(&text).into_owned())
    }

    /// Whether the process runs: a rule with the action `kill` ends it.
    pub fn is_running(&mut self) -> bool {
        let pid = format!("\"pid\":{},", self.pid());
        match &mut self.process {
            Process::Child { child, .. } => matches!(child.try_wait(), Ok(None)),
            // A parent that has ended has no forks.
            Process::Fork { parent } => {
                call(parent, "GET", "/forks", "").is_ok_and(|forks| forks.contains(&pid))
            }
        }
    }

    /// Ends the broker, its forks, and their temporary folders. Does nothing if it has ended.
    pub fn stop(&mut self) {
        let start = Instant::now();
        while self.is_running() {
            let pid = self.pid();
            match &mut self.process {
                Process::Child { child, stdin } => {
                    drop(stdin.take());
                    if start.elapsed() > STOP_TIMEOUT {
                        // It is waited for next.
                        let _ = child.kill();
                    }
                    thread::sleep(Duration::from_millis(1));
                }
                Process::Fork { parent } => {
                    // Fails only if the fork has ended meanwhile.
                    let _ = call(parent, "DELETE", &format!("/forks/{pid}"), "");
                    return;
                }
            }
        }
    }

    /// Keeps the data of this moment under a name: records, topics, groups' offsets.
    ///
    /// # Errors
    /// A snapshot has the name.
    pub fn snapshot(&self, name: &str) -> Result<(), Error> {
        self.call("PUT", &path("snapshots", name), "").map(drop)
    }

    /// Removes a snapshot. Its forks go on.
    ///
    /// # Errors
    /// No snapshot has the name.
    pub fn remove_snapshot(&self, name: &str) -> Result<(), Error> {
        self.call("DELETE", &path("snapshots", name), "").map(drop)
    }

    /// Starts a broker with the data of a snapshot. It ends by [`TestBroker::stop`], or with this broker.
    ///
    /// # Errors
    /// No snapshot has the name.
    pub fn fork(&self, name: &str) -> Result<TestBroker, Error> {
        let ready = self.call("POST", &(path("snapshots", name) + "/forks"), "")?;
        let process = Process::Fork { parent: self.http() };
        Ok(TestBroker { process, log: self.log.try_clone()?, ready })
    }

    /// All rules with their counts, and the seed: JSON.
    ///
    /// # Errors
    /// The broker cannot be reached.
    pub fn faults(&self) -> Result<String, Error> {
        self.call("GET", "/faults", "")
    }

    /// One rule with its counts: JSON.
    ///
    /// # Errors
    /// No rule has the name.
    pub fn fault(&self, name: &str) -> Result<String, Error> {
        self.call("GET", &path("faults", name), "")
    }

    /// How many faults a rule injected.
    ///
    /// # Errors
    /// No rule has the name.
    pub fn fault_count(&self, name: &str) -> Result<u64, Error> {
        let rule = self.fault(name)?;
        let count = field(&rule, "faults").and_then(|count| count.parse().ok());
        count.ok_or_else(|| Error(format!("no count in {rule}")))
    }

    /// Sets a rule, in the place of the one of its name. Its counts begin at 0.
    ///
    /// # Errors
    /// The rule is invalid; the message has the allowed values.
    pub fn set_fault(&self, name: &str, rule: &str) -> Result<(), Error> {
        self.call("PUT", &path("faults", name), rule).map(drop)
    }

    /// Removes a rule.
    ///
    /// # Errors
    /// No rule has the name.
    pub fn remove_fault(&self, name: &str) -> Result<(), Error> {
        self.call("DELETE", &path("faults", name), "").map(drop)
    }

    /// Removes all rules.
    ///
    /// # Errors
    /// The broker cannot be reached.
    pub fn clear_faults(&self) -> Result<(), Error> {
        self.call("DELETE", "/faults", "").map(drop)
    }

    fn call(&self, method: &str, path: &str, body: &str) -> Result<String, Error> {
        call(&self.http(), method, path, body)
    }
}

impl Drop for TestBroker {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The body of an answer over HTTP; an error that the program reports is an error.
fn call(http: &str, method: &str, path: &str, body: &str) -> Result<String, Error> {
    let address = http.trim_start_matches("http://");
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(HTTP_TIMEOUT))?;
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
    write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let malformed = || Error(format!("malformed answer: {answer}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(malformed)?;
    let code: u16 =
        head.split(' ').nth(1).and_then(|code| code.parse().ok()).ok_or_else(malformed)?;
    match code {
        ..400 => Ok(body.to_owned()),
        _ => Err(Error(field(body, "error").unwrap_or_else(|| body.to_owned()))),
    }
}

/// Path of a rule or snapshot: everything but letters, digits and a few signs is escaped.
fn path(kind: &str, name: &str) -> String {
    let escaped = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    format!("/{kind}/{}", name.bytes().map(escaped).collect::<String>())
}

/// A text or number of a JSON object that has no field of the same name inside another.
fn field(json: &str, name: &str) -> Option<String> {
    let (_, rest) = json.split_once(&format!("\"{name}\":"))?;
    let Some(text) = rest.strip_prefix('"') else {
        return Some(rest.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect());
    };
    let (mut value, mut chars) = (String::new(), text.chars());
    loop {
        match chars.next()? {
            '"' => return Some(value),
            '\\' => match chars.next()? {
                'n' => value.push('\n'),
                other => value.push(other),
            },
            other => value.push(other),
        }
    }
}
