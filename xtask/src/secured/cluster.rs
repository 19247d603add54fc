//! An Apache Kafka of one broker or several with a listener for each way in, its certificates, and files of properties that
//! lead in, or not.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use peer::apache_kafka::{self, Brokers, JavaRuntime, NodePlan};
use peer::{ports, process};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// The password of `alice`.
pub const PASSWORD: &str = "open-sesame";
/// How long a login lasts, in milliseconds: short, so that the gateway's connections log in again while they are used.
pub const SESSION_MS: u64 = 2000;

const SCRAM: &str = "org.apache.kafka.common.security.scram.ScramLoginModule required";
const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule required";

/// The way by SCRAM over TLS.
pub const SCRAM_512_TLS: &str = "scram-512-tls";

/// A way into the cluster.
pub struct Way {
    pub name: &'static str,
    pub at: String,
    pub properties: PathBuf,
}

/// A way that does not lead in, and what must be said of it.
pub struct Refusal {
    pub name: &'static str,
    pub at: String,
    pub properties: PathBuf,
    pub words: &'static str,
}

/// A running cluster.
pub struct Protected {
    brokers: Brokers,
    pub ways: Vec<Way>,
    pub refusals: Vec<Refusal>,
}

/// The ports of a broker's listeners.
struct Ports {
    open: u16,
    controller: u16,
    secured: u16,
    mutual: u16,
    login: u16,
}

impl Protected {
    /// Starts so many brokers with a user `alice`, and writes certificates and properties into this folder.
    pub fn start(folder: &Path, count: usize, java_runtime: JavaRuntime) -> Result<Protected> {
        certificates(folder)?;
        let all = ports::free(5 * count)?;
        let nodes: Vec<Ports> = all
            .chunks(5)
            .map(|five| Ports {
                open: five[0],
                controller: five[1],
                secured: five[2],
                mutual: five[3],
                login: five[4],
            })
            .collect();
        let plan = |ports: &Ports| NodePlan {
            host: peer::host::Host::local(),
            client: ports.open,
            controller: ports.controller,
            properties: settings(folder, ports),
        };
        let plans: Vec<NodePlan> = nodes.iter().map(plan).collect();
        let brokers = apache_kafka::start_planned(&plans, java_runtime)?;
        for mechanism in ["SCRAM-SHA-256", "SCRAM-SHA-512"] {
            let config = format!("{mechanism}=[password={PASSWORD}]");
            let arguments = [
                "--bootstrap-server",
                &brokers.bootstrap(),
                "--alter",
                "--add-config",
                &config,
                "--entity-type",
                "users",
                "--entity-name",
                "alice",
            ];
            let mut tool = apache_kafka::brief_tool("kafka-configs", &arguments)?;
            let outcome = process::run(&mut tool, None, super::LIMIT)?;
            ensure!(outcome.success(), "no user could be made: {}", outcome.story());
        }
        let (ways, refusals) = (ways(folder, &nodes)?, refusals(folder, &nodes[0])?);
        Ok(Protected { brokers, ways, refusals })
    }

    /// Where it is open.
    pub fn open(&self) -> String {
        self.brokers.bootstrap()
    }

    pub fn stop(self) -> Result<()> {
        self.brokers.stop()
    }
}

/// An authority, a broker's certificate for `localhost`, one for a client, and an authority of others.
fn certificates(folder: &Path) -> Result<()> {
    let authority = |name: &str| -> Result<CertifiedIssuer<'static, KeyPair>> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        Ok(CertifiedIssuer::self_signed(params, KeyPair::generate()?)?)
    };
    let ours = authority("of the check")?;
    fs::write(folder.join("ca.pem"), ours.pem())?;
    fs::write(folder.join("others.pem"), authority("of others")?.pem())?;
    for (file, name) in [("broker.pem", "localhost"), ("alice.pem", "alice")] {
        let key = KeyPair::generate()?;
        let certificate = CertificateParams::new(vec![name.to_owned()])?.signed_by(&key, &ours)?;
        fs::write(folder.join(file), key.serialize_pem() + &certificate.pem())?;
    }
    Ok(())
}

fn settings(folder: &Path, ports: &Ports) -> Vec<(String, String)> {
    let Ports { open, controller, secured, mutual, login } = ports;
    let file = |name: &str| folder.join(name).display().to_string();
    let listeners = format!(
        "PLAINTEXT://127.0.0.1:{open},CONTROLLER://127.0.0.1:{controller},SECURED://127.0.0.1:{secured},\
         MUTUAL://127.0.0.1:{mutual},LOGIN://127.0.0.1:{login}"
    );
    let advertised = format!(
        "PLAINTEXT://127.0.0.1:{open},SECURED://localhost:{secured},MUTUAL://localhost:{mutual},\
         LOGIN://localhost:{login}"
    );
    let map =
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL,MUTUAL:SSL,LOGIN:SASL_PLAINTEXT";
    let mut settings = vec![
        ("listeners".to_owned(), listeners),
        ("advertised.listeners".to_owned(), advertised),
        ("listener.security.protocol.map".to_owned(), map.to_owned()),
        ("ssl.keystore.type".to_owned(), "PEM".to_owned()),
        ("ssl.keystore.location".to_owned(), file("broker.pem")),
        ("ssl.truststore.type".to_owned(), "PEM".to_owned()),
        ("ssl.truststore.location".to_owned(), file("ca.pem")),
        ("listener.name.mutual.ssl.client.auth".to_owned(), "required".to_owned()),
        ("sasl.enabled.mechanisms".to_owned(), "SCRAM-SHA-256,SCRAM-SHA-512,PLAIN".to_owned()),
        ("connections.max.reauth.ms".to_owned(), SESSION_MS.to_string()),
    ];
    for listener in ["secured", "login"] {
        let plain = format!("{PLAIN} user_alice=\"{PASSWORD}\";");
        for (mechanism, login) in [
            ("scram-sha-256", format!("{SCRAM};")),
            ("scram-sha-512", format!("{SCRAM};")),
            ("plain", plain),
        ] {
            let key = format!("listener.name.{listener}.{mechanism}.sasl.jaas.config");
            settings.push((key, login));
        }
    }
    settings
}

/// A file of properties; `trust` and `own` are files of certificates, `login` a mechanism and a password.
fn properties(
    folder: &Path,
    name: &str,
    protocol: &str,
    (trust, own): (&str, Option<&str>),
    login: Option<(&str, &str)>,
) -> Result<PathBuf> {
    let file = |name: &str| folder.join(name).display().to_string();
    let mut text = format!(
        "security.protocol={protocol}\nssl.truststore.type=PEM\nssl.truststore.location={}\n",
        file(trust)
    );
    if let Some(own) = own {
        text += &format!("ssl.keystore.type=PEM\nssl.keystore.location={}\n", file(own));
    }
    if let Some((mechanism, password)) = login {
        let module = if mechanism == "PLAIN" { PLAIN } else { SCRAM };
        text += &format!(
            "sasl.mechanism={mechanism}\nsasl.jaas.config={module} \\\n  username=\"alice\" \\\n  \
             password=\"{password}\";\n"
        );
    }
    let path = folder.join(format!("{name}.properties"));
    fs::write(&path, text)?;
    Ok(path)
}

fn ways(folder: &Path, nodes: &[Ports]) -> Result<Vec<Way>> {
    let at = |port: fn(&Ports) -> u16| {
        let addresses = nodes.iter().map(|ports| format!("localhost:{}", port(ports)));
        addresses.collect::<Vec<_>>().join(",")
    };
    let secured = || at(|ports| ports.secured);
    let (mutual, login) = (at(|ports| ports.mutual), at(|ports| ports.login));
    let trusting = ("ca.pem", None);
    let mut ways = Vec::new();
    for (name, at, protocol, stores, mechanism) in [
        (SCRAM_512_TLS, secured(), "SASL_SSL", trusting, Some("SCRAM-SHA-512")),
        ("scram-256-tls", secured(), "SASL_SSL", trusting, Some("SCRAM-SHA-256")),
        ("plain-tls", secured(), "SASL_SSL", trusting, Some("PLAIN")),
        ("scram-256", login, "SASL_PLAINTEXT", trusting, Some("SCRAM-SHA-256")),
        ("client-certificate", mutual, "SSL", ("ca.pem", Some("alice.pem")), None),
    ] {
        let login = mechanism.map(|mechanism| (mechanism, PASSWORD));
        let properties = properties(folder, name, protocol, stores, login)?;
        ways.push(Way { name, at, properties });
    }
    Ok(ways)
}

fn refusals(folder: &Path, ports: &Ports) -> Result<Vec<Refusal>> {
    let Ports { open, secured, mutual, login, .. } = *ports;
    let trusting = ("ca.pem", None);
    let right = Some(("SCRAM-SHA-512", PASSWORD));
    let mut refusals = Vec::new();
    for (name, host, port, protocol, stores, who, words) in [
        (
            "wrong password",
            "localhost",
            secured,
            "SASL_SSL",
            trusting,
            Some(("SCRAM-SHA-512", "barley")),
            "invalid credentials",
        ),
        (
            "wrong password, PLAIN",
            "localhost",
            secured,
            "SASL_SSL",
            trusting,
            Some(("PLAIN", "barley")),
            "look at user, password",
        ),
        (
            "unknown authority",
            "localhost",
            secured,
            "SASL_SSL",
            ("others.pem", None),
            right,
            "no authority that is trusted",
        ),
        (
            "another host's name",
            "127.0.0.1",
            secured,
            "SASL_SSL",
            trusting,
            right,
            "not for 127.0.0.1 but for localhost",
        ),
        (
            "no client certificate",
            "localhost",
            mutual,
            "SSL",
            trusting,
            None,
            "ssl.keystore.location",
        ),
        ("no login", "localhost", secured, "SSL", trusting, None, "SASL_SSL"),
        (
            "TLS where there is none",
            "localhost",
            open,
            "SSL",
            trusting,
            None,
            "if the port has no TLS",
        ),
        (
            "no TLS where there is",
            "localhost",
            secured,
            "SASL_PLAINTEXT",
            trusting,
            right,
            "answers in TLS",
        ),
        (
            "a login where there is none",
            "localhost",
            open,
            "SASL_PLAINTEXT",
            trusting,
            right,
            "has no login",
        ),
        ("no login, no TLS", "localhost", login, "PLAINTEXT", trusting, None, "SASL_PLAINTEXT"),
    ] {
        let file = name.replace([' ', ',', '\''], "-");
        let properties = properties(folder, &file, protocol, stores, who)?;
        refusals.push(Refusal { name, at: format!("{host}:{port}"), properties, words });
    }
    Ok(refusals)
}
