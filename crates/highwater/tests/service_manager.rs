//! `highwater start` as systemd starts it: a socket that the test opens takes its messages.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");
/// Longest wait for a message, on a machine that is busy with much else.
const LIMIT: Duration = Duration::from_secs(120);

/// A broker that is killed when the test ends before it.
struct Broker(Child);

impl Drop for Broker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a broker with this name of the manager's socket.
fn start(data: &std::path::Path, socket: &str, errors: Stdio) -> Broker {
    let mut command = Command::new(HIGHWATER);
    command.arg("start").arg("--data-dir").arg(data);
    for setting in ["listeners=PLAINTEXT://127.0.0.1:0", "http.listener=", "gateway.listener="] {
        command.args(["--set", setting]);
    }
    command.env("NOTIFY_SOCKET", socket).env("WATCHDOG_USEC", "200000").env_remove("WATCHDOG_PID");
    Broker(command.stdout(Stdio::null()).stderr(errors).spawn().unwrap())
}

/// The next message with this assignment; messages before it.
fn message_with(socket: &UnixDatagram, assignment: &str) -> (String, Vec<String>) {
    let mut before = Vec::new();
    loop {
        let mut buffer = [0; 8192];
        let length = socket.recv(&mut buffer).unwrap_or_else(|cause| {
            panic!("no message with {assignment}: {cause}; before: {before:?}")
        });
        let text = String::from_utf8(buffer[..length].to_vec()).unwrap();
        if text.lines().any(|line| line == assignment) {
            return (text, before);
        }
        before.push(text);
    }
}

fn check(socket: &UnixDatagram, name: &str) {
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let mut broker = start(&folder.path().join("data"), name, Stdio::null());
    let (_, before) = message_with(socket, "READY=1");
    assert!(before.iter().all(|text| !text.contains("WATCHDOG=1")), "{before:?}");
    assert!(before.iter().any(|text| text.contains("EXTEND_TIMEOUT_USEC=")), "{before:?}");
    message_with(socket, "WATCHDOG=1");
    let (_, between) = message_with(socket, "WATCHDOG=1");
    let status = between.iter().find_map(|text| text.strip_prefix("STATUS=serving ")).unwrap();
    // The status is the address, and the reasons of health behind a comma.
    TcpStream::connect(status.split(',').next().unwrap()).unwrap();
    kill_process(Pid::from_child(&broker.0), Signal::TERM).unwrap();
    message_with(socket, "STOPPING=1");
    assert!(broker.0.wait().unwrap().success());
}

#[test]
fn a_manager_gets_readiness_signs_of_life_and_the_stop() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notify");
    check(&UnixDatagram::bind(&path).unwrap(), path.to_str().unwrap());
}

#[test]
fn the_socket_may_be_in_the_abstract_namespace() {
    let name = format!("highwater-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    check(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
}

#[test]
fn a_socket_that_is_missing_does_not_end_the_broker() {
    let folder = tempfile::tempdir().unwrap();
    let mut broker = start(&folder.path().join("data"), "/nonexistent/notify", Stdio::piped());
    let errors = BufReader::new(broker.0.stderr.take().unwrap());
    let warned = |line: &String| line.contains("cannot notify the service manager");
    // At the start, READY, a sign of life, a status.
    let warnings = errors.lines().map(Result::unwrap).filter(warned).take(4).count();
    assert_eq!(warnings, 4);
    assert!(broker.0.try_wait().unwrap().is_none(), "the broker ended");
}
