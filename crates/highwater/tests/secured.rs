//! The program in front of a cluster with TLS, which here is a broker of Highwater's behind a door that speaks TLS: commands, the
//! gateway with its console, a performance tool. Logins are tested in `client`, and both against Apache Kafka by `cargo xt secured`.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

const HIGHWATER: &str = env!("CARGO_BIN_EXE_highwater");

/// A process that ends with the test; its first lines up to one with this beginning, of which the rest is kept.
struct Process {
    child: Child,
    address: String,
}

impl Process {
    fn start(command: &mut Command, beginning: &str) -> Process {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let found = lines.find_map(|line| Some(line.unwrap().strip_prefix(beginning)?.to_owned()));
        thread::spawn(move || lines.count());
        Process { child, address: found.expect("it says where it is") }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A broker that says that it is behind the door.
struct Cluster {
    _broker: Process,
    /// `localhost:port` of the door.
    at: String,
    folder: tempfile::TempDir,
}

impl Cluster {
    fn start() -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let tls = certificates(folder.path());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = format!("localhost:{}", listener.local_addr().unwrap().port());
        let mut command = Command::new(HIGHWATER);
        command
            .args(["--log-level", "warn", "start", "--data-dir"])
            .arg(folder.path().join("data"));
        let advertised = format!("advertised.listeners=PLAINTEXT://{at}");
        for setting in [
            "listeners=PLAINTEXT://127.0.0.1:0",
            "http.listener=",
            "gateway.listener=",
            &advertised,
        ] {
            command.args(["--set", setting]);
        }
        let broker = Process::start(&mut command, "broker: listening on ");
        let to = broker.address.clone();
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let (to, tls) = (to.clone(), tls.clone());
                thread::spawn(move || carry(client, &to, tls));
            }
        });
        Cluster { _broker: broker, at, folder }
    }

    /// A file of properties that trusts the authority in `ca`.
    fn properties(&self, ca: &str) -> PathBuf {
        let path = self.folder.path().join(format!("{ca}.properties"));
        let ca = self.folder.path().join(ca);
        let text = format!("security.protocol=SSL\nssl.truststore.location={}\n", ca.display());
        std::fs::write(&path, text).unwrap();
        path
    }

    fn run(&self, line: &str, properties: &Path, input: &str) -> Output {
        let mut command = Command::new(HIGHWATER);
        command.args(line.split(' ')).args(["--bootstrap-server", &self.at]);
        command.arg("--command-config").arg(properties).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        // Who does not read has gone, and says why.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        child.wait_with_output().unwrap()
    }

    /// Runs a command that must succeed; what it wrote.
    fn done(&self, line: &str, input: &str) -> String {
        let output = self.run(line, &self.properties("ca.pem"), input);
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Writes an authority and another one, and makes a server of the first.
fn certificates(folder: &Path) -> Arc<ServerConfig> {
    let authority = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    let ours = authority();
    std::fs::write(folder.join("ca.pem"), ours.pem()).unwrap();
    std::fs::write(folder.join("others.pem"), authority().pem()).unwrap();
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &ours).unwrap().pem();
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().unwrap();
    Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap())
}

/// Carries requests in and answers out, one after the other: no more than one is under way on a connection of these commands.
fn carry(client: TcpStream, to: &str, tls: Arc<ServerConfig>) {
    let mut client = StreamOwned::new(ServerConnection::new(tls).unwrap(), client);
    let mut broker = TcpStream::connect(to).unwrap();
    let mut answers = broker.try_clone().unwrap();
    let mut frame = || -> std::io::Result<()> {
        pass(&mut client, &mut broker)?;
        pass(&mut answers, &mut client)
    };
    while frame().is_ok() {}
    let _ = broker.shutdown(Shutdown::Both);
}

fn pass(from: &mut impl Read, to: &mut impl Write) -> std::io::Result<()> {
    let mut length = [0; 4];
    from.read_exact(&mut length)?;
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    from.read_exact(&mut frame)?;
    to.write_all(&length)?;
    to.write_all(&frame)?;
    to.flush()
}

fn http(address: &str, request: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let length = body.len();
    let head = format!(
        "{request} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    stream.write_all((head + body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn commands_reach_a_cluster_with_tls() {
    let cluster = Cluster::start();
    cluster.done("topic create t", "");
    cluster.done("produce t", "first\nsecond\n");
    assert_eq!(cluster.done("consume t --until-end --format %v\\n", ""), "first\nsecond\n");
    let written = cluster
        .done("perf produce --topic t --num-records 500 --record-size 10 --throughput -1", "");
    assert!(written.contains("500 records sent"), "{written}");
    let stranger = cluster.run("topic list", &cluster.properties("others.pem"), "");
    let said = String::from_utf8(stranger.stderr).unwrap();
    assert!(!stranger.status.success());
    assert!(said.contains("no authority that is trusted"), "{said}");
    let none = Command::new(HIGHWATER).args(["topic", "list", "-b", &cluster.at]).output().unwrap();
    let said = String::from_utf8(none.stderr).unwrap();
    assert!(said.contains("answers in TLS") && said.contains("--command-config"), "{said}");
}

#[test]
fn a_gateway_and_its_console_reach_a_cluster_with_tls_by_a_file_or_by_keys() {
    let cluster = Cluster::start();
    cluster.done("topic create t", "");
    let properties = cluster.properties("ca.pem");
    let trust = format!(
        "gateway.client.ssl.truststore.location={}",
        cluster.folder.path().join("ca.pem").display()
    );
    let by_file = ["--command-config", properties.to_str().unwrap()];
    let by_keys = ["--set", "gateway.client.security.protocol=SSL", "--set", &trust];
    for how in [&by_file[..], &by_keys[..]] {
        let mut command = Command::new(HIGHWATER);
        command.args(["gateway", "-b", &cluster.at, "--listener", "127.0.0.1:0"]).args(how);
        let gateway = Process::start(&mut command, "gateway: http://");
        let answer = http(&gateway.address, "POST /topics/t/raw", "over HTTP");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        let topics = http(&gateway.address, "GET /api/v1/topics", "");
        assert!(topics.contains("\"name\":\"t\""), "{topics}");
    }
    let both = [&by_file[..], &by_keys[..]].concat();
    let mut command = Command::new(HIGHWATER);
    let output = command.args(["gateway", "-b", &cluster.at]).args(both).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("told twice"), "{said}");
}

#[test]
fn a_gateway_beside_a_broker_is_not_told_to_speak_what_the_broker_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(HIGHWATER);
    command.arg("start").arg("--data-dir").arg(folder.path().join("data"));
    command.args(["--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "http.listener="]);
    let output = command.args(["--set", "gateway.client.security.protocol=SSL"]).output().unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("gateway.client.security.protocol"), "{said}");
    assert!(!folder.path().join("data").exists(), "nothing was begun");
}
