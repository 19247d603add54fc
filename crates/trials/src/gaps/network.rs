//! A network of brokers that can be cut: each broker in a network namespace of its own, joined by a bridge.

use std::net::Ipv4Addr;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Result, ensure};
use peer::host::Host;

/// Reason why this machine cannot make such a network.
pub fn lacking() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("root, to make network namespaces");
    }
    (!peer::process::is_installed("ip")).then_some("ip (iproute2)")
}

/// A bridge with a cable to each broker's namespace; removed when dropped.
pub struct Network {
    /// Prefix of all names: unique on this machine.
    prefix: String,
    hosts: Vec<Host>,
}

impl Network {
    /// Makes a network of `count` hosts, of addresses reserved for benchmarks (RFC 2544).
    pub fn make(count: usize) -> Result<Network> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let serial = MADE.fetch_add(1, Ordering::Relaxed) % 10;
        // Names of interfaces have 15 bytes at most, a process id has up to 7 digits.
        let prefix = format!("hw{}n{serial}", std::process::id());
        let subnet = (std::process::id() % 250) as u8;
        let mut network = Network { prefix, hosts: Vec::new() };
        let bridge = network.bridge();
        ip(&["link", "add", &bridge, "type", "bridge"])?;
        let own = Ipv4Addr::new(198, 18, subnet, 254);
        ip(&["addr", "add", &format!("{own}/24"), "dev", &bridge])?;
        ip(&["link", "set", &bridge, "up"])?;
        for at in 0..count {
            let address = Ipv4Addr::new(198, 18, subnet, at as u8 + 1);
            let namespace = format!("{}h{at}", network.prefix);
            ip(&["netns", "add", &namespace])?;
            network.hosts.push(Host { address, namespace: Some(namespace.clone()) });
            let cable = network.cable(at);
            let far_end = ["peer", "name", "eth0", "netns", &namespace];
            ip(&[&["link", "add", &cable, "type", "veth"][..], &far_end[..]].concat())?;
            ip(&["-n", &namespace, "addr", "add", &format!("{address}/24"), "dev", "eth0"])?;
            ip(&["-n", &namespace, "link", "set", "eth0", "up"])?;
            ip(&["-n", &namespace, "link", "set", "lo", "up"])?;
            network.join(at)?;
        }
        Ok(network)
    }

    /// All hosts, in the order of their addresses.
    pub fn hosts(&self) -> &[Host] {
        &self.hosts
    }

    /// The bridge's end of the cable of host `at`.
    pub fn cable(&self, at: usize) -> String {
        format!("{}v{at}", self.prefix)
    }

    fn bridge(&self) -> String {
        format!("{}b", self.prefix)
    }

    /// Plugs the cable of host `at` into the bridge.
    fn join(&self, at: usize) -> Result<()> {
        let cable = self.cable(at);
        ip(&["link", "set", &cable, "master", &self.bridge()])?;
        ip(&["link", "set", &cable, "up"])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for at in 0..self.hosts.len() {
            let _removed = ip(&["link", "del", &self.cable(at)]);
        }
        for namespace in self.hosts.iter().filter_map(|host| host.namespace.as_ref()) {
            let _removed = ip(&["netns", "del", namespace]);
        }
        let _removed = ip(&["link", "del", &self.bridge()]);
    }
}

/// Pulls a cable out of its bridge: every packet in both directions is lost from here on.
pub fn pull(cable: &str) -> Result<()> {
    ip(&["link", "set", cable, "nomaster"])
}

fn ip(arguments: &[&str]) -> Result<()> {
    let output = Command::new("ip").args(arguments).output()?;
    let words = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip {}: {words}", arguments.join(" "));
    Ok(())
}
