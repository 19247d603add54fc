//! The gateway's WebSockets before Autobahn's test suite: some 300 conversations that judge framing, pings, fragments, UTF-8,
//! closing and limits (those on compression are left out: it is not offered).
//!
//! The suite needs Python 2.7. Where there is none, this says so. With `--clients` public clients speak with the gateway as well.

mod conversations;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::tidy;

/// The suite, of which 0.8.2 is the last that its own requirements install.
const SUITE: &str = "autobahntestsuite==0.8.2";
/// Begins the suite out of the folder that is its first argument. In PYTHONPATH alone its packages that share a name
/// (zope.interface) would not be found.
const PROGRAM: &str = "import site, sys; site.addsitedir(sys.argv.pop(1)); \
                       from autobahntestsuite.wstest import run; sys.exit(run())";
/// How a case may end: served, served otherwise than the suite would like where the standard leaves it open, or only told.
const FINE: [&str; 4] = ["OK", "NON-STRICT", "INFORMATIONAL", "UNIMPLEMENTED"];
/// Cases on compression.
const LEFT_OUT: [&str; 2] = ["12.*", "13.*"];

/// Which Python, and which cases.
#[derive(Args)]
pub struct Arguments {
    /// A Python 2.7; looked for otherwise
    #[arg(long)]
    python: Option<PathBuf>,
    /// Cases to run, as the suite names them: 1.*, 6.4.2
    #[arg(long, default_value = "*")]
    cases: String,
    /// Have public clients speak with a gateway, too
    #[arg(long)]
    clients: bool,
}

/// A server that ends with this.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the suite.
pub fn run(arguments: &Arguments) -> Result<()> {
    if arguments.clients {
        conversations::run()?;
    }
    let root = tidy::root()?;
    let Some(python) = arguments.python.clone().or_else(find) else {
        println!("websocket: skipped, Autobahn's suite needs Python 2.7 and there is none here");
        return Ok(());
    };
    let folder = root.join("target/autobahn");
    std::fs::create_dir_all(&folder)?;
    let library = install(&python, &folder)?;
    let (_server, port) = serve(&root)?;
    let spec = json!({
        "outdir": folder.join("reports"),
        "servers": [{"agent": "highwater", "url": format!("ws://127.0.0.1:{port}")}],
        "cases": [arguments.cases],
        "exclude-cases": LEFT_OUT,
        "exclude-agent-cases": {},
    });
    let spec_file = folder.join("spec.json");
    std::fs::write(&spec_file, spec.to_string())?;
    let status = Command::new(&python)
        .args(["-c", PROGRAM])
        .arg(&library)
        .args(["-m", "fuzzingclient", "-s"])
        .arg(&spec_file)
        .current_dir(&folder)
        .stdout(Stdio::null())
        .status()
        .context("the suite cannot be started")?;
    ensure!(status.success(), "the suite failed: {status}");
    judge(&folder.join("reports/index.json"))
}

/// A Python 2.7 on this machine.
fn find() -> Option<PathBuf> {
    let mut candidates = vec![PathBuf::from("python2.7"), PathBuf::from("python2")];
    if let Some(home) = std::env::var_os("HOME") {
        let versions = std::fs::read_dir(Path::new(&home).join(".pyenv/versions"));
        let installed = versions.into_iter().flatten().flatten().map(|entry| entry.path());
        candidates.extend(installed.map(|path| path.join("bin/python2.7")));
    }
    candidates.into_iter().find(|candidate| {
        let asked = Command::new(candidate).arg("--version").output();
        asked.is_ok_and(|output| output.status.success())
    })
}

/// Installs the suite into a folder of its own, once.
fn install(python: &Path, folder: &Path) -> Result<PathBuf> {
    let library = folder.join("library");
    if library.join("autobahntestsuite").is_dir() {
        return Ok(library);
    }
    println!("websocket: installing {SUITE}");
    let installed = Command::new(python)
        .args(["-m", "pip", "install", "--quiet", "--target"])
        .arg(&library)
        .arg(SUITE)
        .status()
        .context("pip cannot be started")?;
    ensure!(installed.success(), "{SUITE} cannot be installed");
    Ok(library)
}

fn serve(root: &Path) -> Result<(Server, u16)> {
    let mut server = Command::new("cargo")
        .args(["run", "--quiet", "-p", "gateway", "--example", "websocket_echo"])
        .current_dir(root)
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let output = server.stdout.take().context("the server has no output")?;
    let server = Server(server);
    let mut line = String::new();
    BufReader::new(output).read_line(&mut line)?;
    let port = line.trim().parse().context("the server did not say its port")?;
    Ok((server, port))
}

fn judge(index: &Path) -> Result<()> {
    let index: Value = serde_json::from_str(&std::fs::read_to_string(index)?)?;
    let cases = index["highwater"].as_object().context("no report")?;
    let mut failed = Vec::new();
    for (name, case) in cases {
        let (behavior, close) = (text(case, "behavior"), text(case, "behaviorClose"));
        if ![behavior, close].iter().all(|how| FINE.contains(how)) {
            failed.push(format!("{name}: {behavior}, closing {close}"));
        }
    }
    let strict = cases.values().filter(|case| text(case, "behavior") == "OK").count();
    println!(
        "websocket: {} cases, {strict} as the suite wants them, {} failed",
        cases.len(),
        failed.len()
    );
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n")) }
}

fn text<'a>(case: &'a Value, name: &str) -> &'a str {
    case[name].as_str().unwrap_or("nothing")
}
