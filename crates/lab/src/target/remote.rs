//! Brokers that run already, here or elsewhere. The lab uses them and never stops them; those on this machine are
//! measured as its own are.

use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use client::Metadata;
use client::metadata::Broker;
use experiment::plan::Shape;
use peer::procfs;

use super::Cluster;
use super::started::Keeper;
use crate::admin;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(3);

/// What the cluster says of itself.
fn metadata(address: &str) -> Result<Metadata> {
    let told = admin::block_on(async {
        let admin = admin::connect(address).await?;
        Ok(admin.describe_all().await?)
    });
    told.with_context(|| format!("no Kafka broker answers at {address}: {}", obstacle(address)))
}

/// How far one gets there, for an error.
fn obstacle(address: &str) -> &'static str {
    let found: Vec<SocketAddr> =
        address.split(',').filter_map(|one| one.to_socket_addrs().ok()).flatten().collect();
    if found.is_empty() {
        "the name is not known; is it spelt right?"
    } else if !found.iter().any(is_open) {
        "nothing can be connected to there; are host and port right, and does the broker run?"
    } else {
        "something listens there, but it does not speak plain Kafka; is it another program's port, or one for TLS or SASL, \
         which the lab does not speak?"
    }
}

/// Whether a connection comes about.
fn is_open(address: &SocketAddr) -> bool {
    TcpStream::connect_timeout(address, CONNECT).is_ok()
}

/// Fails early, and says why, if the cluster cannot be used from here.
pub(super) fn check(address: &str) -> Result<()> {
    for broker in metadata(address)?.brokers.values() {
        let named = broker.address();
        let mut found = named.to_socket_addrs().into_iter().flatten();
        ensure!(
            found.any(|address| is_open(&address)),
            "the cluster at {address} says that broker {} is at {named}, and nothing can be connected to there from here: \
             see its advertised.listeners",
            broker.id
        );
    }
    Ok(())
}

pub(super) fn cluster(address: &str, shape: &Shape) -> Result<Cluster> {
    ensure!(
        shape.settings.is_empty(),
        "this cell needs brokers started with {:?}, and the brokers at {address} are not the lab's to start",
        shape.settings
    );
    let metadata = metadata(address)?;
    let pids: Vec<u32> = metadata.brokers.values().filter_map(process_of).collect();
    let all_here = pids.len() == metadata.brokers.len();
    Ok(Cluster {
        bootstrap: address.to_owned(),
        brokers: metadata.brokers.len() as u32,
        // The CPU of some of them says nothing.
        pids: if all_here { pids } else { Vec::new() },
        data_folders: if all_here { data_folders(address) } else { Vec::new() },
        front: std::env::current_exe()?,
        keeper: Keeper::Others,
    })
}

/// The broker's process, if it is on this machine and we may see it.
fn process_of(broker: &Broker) -> Option<u32> {
    let port = u16::try_from(broker.port).ok()?;
    let mut addresses = (broker.host.as_str(), port).to_socket_addrs().ok()?;
    if !addresses.any(|address| is_ours(address.ip())) {
        return None;
    }
    procfs::listener(port).filter(|pid| !is_forwarder(*pid))
}

/// Programs that listen for a broker which is somewhere else, in a container or behind a tunnel.
const FORWARDERS: [&str; 8] = [
    "docker-proxy",
    "rootlessport",
    "rootlesskit",
    "slirp4netns",
    "pasta",
    "ssh",
    "kubectl",
    "socat",
];

/// Whether a process only passes on what it is sent: its CPU would be taken for the broker's.
fn is_forwarder(pid: u32) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    FORWARDERS.contains(&name.trim())
}

/// Whether an address is one of this machine's: only then can a socket be bound to it.
fn is_ours(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The log directories that the brokers name and that are there.
fn data_folders(address: &str) -> Vec<PathBuf> {
    let told = admin::block_on(async {
        let admin = admin::connect(address).await?;
        Ok(admin.describe_log_dirs().await?)
    });
    let named = told.unwrap_or_default().into_iter().flat_map(|(_, folders)| folders);
    named.map(|folder| PathBuf::from(folder.log_dir)).filter(|folder| folder.is_dir()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn obstacles_are_told_from_one_another() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        assert!(obstacle(&address).contains("TLS"));
        drop(listener);
        assert!(obstacle(&address).contains("does the broker run"));
        assert!(obstacle("no such name:9092").contains("spelt"));
    }
}
