//! Conversations of public WebSocket clients with the gateway: each produces, reads and consumes with acknowledgements over
//! reconnects. The programs are in `conformance/websocket`.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, ensure};
use peer::{cache, process};

use crate::highwater;
use crate::repository::repository;

/// How long an installation may take.
const INSTALL_LIMIT: Duration = Duration::from_secs(300);
/// How long a conversation may take.
const CONVERSATION_LIMIT: Duration = Duration::from_secs(120);
const WEBSOCKETS: &str = "websockets==17.4";

/// Runs all that can be installed here; those that cannot are named.
pub fn run() -> Result<()> {
    let folder = cache::folder()?.join("websocket");
    fs::create_dir_all(&folder)?;
    for name in ["main.py", "main.mjs", "main.go", "go.mod", "go.sum", "package.json"] {
        fs::copy(repository().join("conformance/websocket").join(name), folder.join(name))?;
    }
    let data = tempfile::tempdir()?;
    let gateway = format!("127.0.0.1:{}", highwater::free_port()?);
    let settings = [("gateway.listener", gateway.as_str()), ("http.listener", "")];
    let server = highwater::start(data.path(), highwater::free_port()?, &settings)?;
    let mut spoke = 0;
    for (client, install) in
        [("python", python as fn(&Path) -> Result<Vec<PathBuf>>), ("node", node), ("go", go)]
    {
        let words = match install(&folder) {
            Ok(words) => words,
            Err(error) => {
                println!("websocket: without {client}, which cannot be installed here: {error:#}");
                continue;
            }
        };
        create(&gateway, client)?;
        let mut command = process::command(&words[0]);
        command.args(&words[1..]).args([&*gateway, client]).current_dir(&folder);
        let outcome = process::run(&mut command, None, CONVERSATION_LIMIT)?;
        ensure!(
            outcome.success() && outcome.text().trim() == "ok",
            "{client}: {}",
            outcome.story()
        );
        println!("websocket: {client} produced, read and consumed");
        spoke += 1;
    }
    server.stop()?;
    ensure!(spoke > 0, "no client could be installed");
    Ok(())
}

/// Creates the topic of a conversation, with three partitions.
fn create(gateway: &str, topic: &str) -> Result<()> {
    let body = format!("{{\"topic_name\":\"{topic}\",\"partitions_count\":3}}");
    let head = format!(
        "POST /admin/topics HTTP/1.1\r\nhost: {gateway}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    let mut stream = TcpStream::connect(gateway)?;
    stream.write_all(format!("{head}{body}").as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    ensure!(answer.starts_with("HTTP/1.1 20"), "the topic was not created: {answer}");
    Ok(())
}

fn installed(program: &str, arguments: &[&str], folder: &Path) -> Result<()> {
    let mut command = process::command(program);
    command.args(arguments).current_dir(folder);
    let outcome = process::run(&mut command, None, INSTALL_LIMIT)?;
    ensure!(outcome.success(), "{}", outcome.story());
    Ok(())
}

fn python(folder: &Path) -> Result<Vec<PathBuf>> {
    let program = folder.join("python/bin/python");
    if !program.exists() {
        installed("python3", &["-m", "venv", "python"], folder)?;
    }
    let pip = program.display().to_string();
    installed(&pip, &["-m", "pip", "install", "--quiet", WEBSOCKETS], folder)?;
    Ok(vec![program, "main.py".into()])
}

fn node(folder: &Path) -> Result<Vec<PathBuf>> {
    installed("npm", &["install", "--silent", "--no-audit", "--no-fund"], folder)?;
    Ok(vec!["node".into(), "main.mjs".into()])
}

fn go(folder: &Path) -> Result<Vec<PathBuf>> {
    installed("go", &["build", "-o", "conversation", "."], folder)?;
    Ok(vec![folder.join("conversation")])
}
