//! Several Highwater brokers, each on a folder and on ports that stay the same, so that each can be killed and
//! started again while clients go on with the addresses that they know.

use std::mem;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::{STOP_LIMIT, Server, Start, spawn};
use crate::host::Host;
use crate::ports;
use crate::process::{self, Outcome};

/// The id of a cluster that is started here: any will do.
const CLUSTER_ID: &str = "peerpeerpeerpeerpeerpA";

/// The brokers 1 to N of one cluster; those that run are killed when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Node>,
}

/// The name of a listener for replication alone, if `inter.broker.listener.name` asks for another one than that of clients.
fn own_listener<'a>(settings: &[(&str, &'a str)]) -> Option<&'a str> {
    let asked = settings.iter().find(|(key, _)| *key == "inter.broker.listener.name");
    asked.map(|(_, name)| *name).filter(|name| *name != "PLAINTEXT")
}

/// One broker: how it is started, and the process while there is one.
#[derive(Debug)]
struct Node {
    host: Host,
    /// The program of the next start.
    binary: PathBuf,
    data: PathBuf,
    port: u16,
    listeners: String,
    settings: Vec<(String, String)>,
    running: Option<Server>,
    /// Bytes that its output had before the process that runs, or ran last.
    written: u64,
}

impl Node {
    fn start(&self) -> Start {
        let settings: Vec<(&str, &str)> =
            self.settings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        Start::new(&self.host, &self.binary, &self.data, &self.listeners, &settings)
    }
}

impl Cluster {
    /// A cluster of a broker for each of `folders`, its data folder, made if missing; the broker's output goes beside it.
    /// `settings` are handed to each as `--set`; a listener that `inter.broker.listener.name` names is made. The first three vote. Nothing is started yet.
    ///
    /// # Errors
    /// No port can be bound.
    pub fn new(binary: &Path, folders: &[PathBuf], settings: &[(&str, &str)]) -> Result<Cluster> {
        let hosts = vec![Host::local(); folders.len()];
        Cluster::on_hosts(binary, folders, &hosts, settings)
    }

    /// As [`Cluster::new`], each broker on the host of the same index.
    ///
    /// # Errors
    /// No port can be bound.
    ///
    /// # Panics
    /// If there are fewer hosts than folders.
    pub fn on_hosts(
        binary: &Path,
        folders: &[PathBuf],
        hosts: &[Host],
        settings: &[(&str, &str)],
    ) -> Result<Cluster> {
        let count = folders.len();
        let voters = count.min(3);
        let own_listener = own_listener(settings);
        let of_brokers = if own_listener.is_some() { count } else { 0 };
        let ports = ports::free(count + voters + of_brokers)?;
        let (of_clients, others) = ports.split_at(count);
        let (of_voters, of_brokers) = others.split_at(voters);
        let listed = of_voters.iter().enumerate();
        let listed = listed.map(|(at, port)| format!("{}@{}:{port}", at + 1, hosts[at].address));
        let quorum = listed.collect::<Vec<_>>().join(",");
        let node = |(at, data): (usize, &PathBuf)| {
            let (port, host) = (of_clients[at], hosts[at].clone());
            let mut listeners = format!("PLAINTEXT://{}:{port}", host.address);
            let roles = match of_voters.get(at) {
                Some(controller) => {
                    listeners += &format!(",CONTROLLER://{}:{controller}", host.address);
                    "broker,controller"
                }
                None => "broker",
            };
            let mut protocols = String::from("CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT");
            if let (Some(name), Some(port)) = (own_listener, of_brokers.get(at)) {
                listeners += &format!(",{name}://{}:{port}", host.address);
                protocols += &format!(",{name}:PLAINTEXT");
            }
            let id = (at + 1).to_string();
            let own = [
                ("node.id", id.as_str()),
                ("process.roles", roles),
                ("cluster.id", CLUSTER_ID),
                ("controller.listener.names", "CONTROLLER"),
                ("controller.quorum.voters", &quorum),
            ];
            let map = [("listener.security.protocol.map", protocols.as_str())];
            let map = if own_listener.is_some() { &map[..] } else { &[] };
            let all = own.iter().chain(map).chain(settings);
            let settings = all.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
            let settings = settings.collect();
            let (binary, data) = (binary.to_owned(), data.clone());
            Node { host, binary, data, port, listeners, settings, running: None, written: 0 }
        };
        let nodes = folders.iter().enumerate().map(node).collect();
        Ok(Cluster { nodes })
    }

    /// Sets the program of one broker, from its next start on; `index` counts from 0.
    pub fn set_program(&mut self, index: usize, binary: &Path) {
        self.nodes[index].binary = binary.to_owned();
    }

    /// Sets a key of one broker alone, from its next start on; `index` counts from 0.
    pub fn set(&mut self, index: usize, key: &str, value: &str) {
        let settings = &mut self.nodes[index].settings;
        settings.retain(|(set, _)| set != key);
        settings.push((key.to_owned(), value.to_owned()));
    }

    /// How many brokers it has, whether they run or not.
    #[must_use]
    pub fn count(&self) -> usize {
        self.nodes.len()
    }

    /// `host:port,…` for clients.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        let address = |node: &Node| format!("{}:{}", node.host.address, node.port);
        self.nodes.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// `host:port` of one broker; `index` counts from 0.
    #[must_use]
    pub fn address(&self, index: usize) -> String {
        format!("{}:{}", self.nodes[index].host.address, self.nodes[index].port)
    }

    /// The data folder of one broker.
    #[must_use]
    pub fn data_folder(&self, index: usize) -> &Path {
        &self.nodes[index].data
    }

    /// The process id of one broker; `None` when it was not started, or killed.
    #[must_use]
    pub fn pid(&self, index: usize) -> Option<u32> {
        self.nodes[index].running.as_ref().map(Server::pid)
    }

    /// Starts every broker that does not run, and waits until all serve: none does before a majority of the voters is
    /// there.
    ///
    /// # Errors
    /// A broker cannot be started, or does not serve.
    pub fn start_all(&mut self) -> Result<()> {
        for index in 0..self.count() {
            if self.nodes[index].running.is_none() {
                self.spawn(index)?;
            }
        }
        (0..self.count()).try_for_each(|index| self.wait_until_serving(index))
    }

    /// Starts one broker and does not wait for it.
    ///
    /// # Errors
    /// The program cannot be run.
    pub fn spawn(&mut self, index: usize) -> Result<()> {
        let node = &mut self.nodes[index];
        let (server, written) = spawn(node.start(), node.port)?;
        (node.running, node.written) = (Some(server), written);
        Ok(())
    }

    /// Waits until a broker that was started serves; at once if it does already.
    ///
    /// # Errors
    /// It ended, or does not serve in time.
    pub fn wait_until_serving(&mut self, index: usize) -> Result<()> {
        let node = &mut self.nodes[index];
        let server = node.running.as_mut().context("the broker was not started")?;
        server.wait_until_listening(node.written).with_context(|| format!("broker {}", index + 1))
    }

    /// Kills one broker as `kill -9` does; nothing happens if it does not run.
    ///
    /// # Errors
    /// The system refuses.
    pub fn kill(&mut self, index: usize) -> Result<()> {
        self.nodes[index].running.take().map_or(Ok(()), Server::kill)
    }

    /// Stops one broker in an orderly way; nothing happens if it does not run.
    ///
    /// # Errors
    /// The system refuses.
    pub fn stop_one(&mut self, index: usize) -> Result<()> {
        self.nodes[index].running.take().map_or(Ok(()), Server::stop)
    }

    /// Runs one broker that does not run until its process ends by itself, at most for `limit`. Its output does not
    /// go to the broker's log.
    ///
    /// # Errors
    /// The program cannot be run.
    pub fn run_to_end(&self, index: usize, limit: Duration) -> Result<Outcome> {
        let node = &self.nodes[index];
        process::run(&mut node.start().command(), None, limit)
    }

    /// The first broker that has ended by itself, with the end of what it wrote.
    pub fn ended(&mut self) -> Option<String> {
        self.nodes.iter_mut().enumerate().find_map(|(index, node)| {
            let server = node.running.as_mut()?;
            let has_ended = !server.is_running();
            has_ended.then(|| format!("broker {} has ended:\n{}", index + 1, server.last_words()))
        })
    }

    /// Stops all brokers at once, in an orderly way.
    ///
    /// # Errors
    /// The system refuses.
    pub fn stop(&mut self) -> Result<()> {
        let mut servers: Vec<Server> =
            self.nodes.iter_mut().filter_map(|node| node.running.take()).collect();
        servers.iter_mut().for_each(|server| server.process.signal(Signal::TERM));
        let began = Instant::now();
        servers.iter_mut().try_for_each(|server| {
            server.process.wait(STOP_LIMIT.saturating_sub(began.elapsed()))?;
            server.process.kill()
        })
    }

    /// The running brokers as they are, in the order of their ids.
    #[must_use]
    pub fn into_servers(mut self) -> Vec<Server> {
        mem::take(&mut self.nodes).into_iter().filter_map(|node| node.running).collect()
    }
}

impl Drop for Cluster {
    /// Kills them all at once, so that none works on while another one ends.
    fn drop(&mut self) {
        for server in self.nodes.iter_mut().filter_map(|node| node.running.as_mut()) {
            server.process.signal(Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster(brokers: usize) -> Cluster {
        cluster_with(brokers, &[("durability", "fsync")])
    }

    fn cluster_with(brokers: usize, settings: &[(&str, &str)]) -> Cluster {
        let folders: Vec<PathBuf> =
            (0..brokers).map(|at| PathBuf::from(format!("/{at}"))).collect();
        Cluster::new(Path::new("highwater"), &folders, settings).unwrap()
    }

    #[test]
    fn a_listener_for_replication_is_made_where_its_name_is_asked_for() {
        let key = "inter.broker.listener.name";
        for name in ["REPLICATION", "PLAINTEXT"] {
            let cluster = cluster_with(4, &[(key, name)]);
            let own = name != "PLAINTEXT";
            for node in &cluster.nodes {
                assert_eq!(node.listeners.contains("REPLICATION://127.0.0.1:"), own);
                let map = node.settings.iter().find(|(key, _)| key.ends_with("protocol.map"));
                assert_eq!(map.is_some_and(|(_, map)| map.contains("REPLICATION:PLAINTEXT")), own);
                assert_eq!(setting(node, key), name);
            }
        }
    }

    fn setting<'a>(node: &'a Node, key: &str) -> &'a str {
        let found = node.settings.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str()).unwrap()
    }

    #[test]
    fn both_of_two_vote_and_three_of_four() {
        for (brokers, voters) in [(1, 1), (2, 2), (3, 3), (4, 3)] {
            let cluster = cluster(brokers);
            let votes = |node: &&Node| setting(node, "process.roles") == "broker,controller";
            assert_eq!(cluster.nodes.iter().filter(votes).count(), voters);
            let quorum = setting(&cluster.nodes[0], "controller.quorum.voters");
            assert_eq!(quorum.split(',').count(), voters, "{quorum}");
            for (at, node) in cluster.nodes.iter().enumerate().take(voters) {
                let port = node.listeners.rsplit(':').next().unwrap();
                let voter = format!("{}@127.0.0.1:{port}", at + 1);
                assert!(quorum.contains(&voter), "{voter} is missing in {quorum}");
            }
            assert_eq!(setting(&cluster.nodes[brokers - 1], "durability"), "fsync");
        }
    }

    #[test]
    fn addresses_are_known_before_anything_runs() {
        let cluster = cluster(3);
        let addresses: Vec<String> = (0..3).map(|index| cluster.address(index)).collect();
        assert_eq!(cluster.bootstrap(), addresses.join(","));
        assert_eq!(cluster.pid(0), None);
    }
}
