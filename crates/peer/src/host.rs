//! Where a broker runs: on the machine itself, or in a network namespace that can be cut off from the others.

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::process::Command;

use crate::process;

/// Address and network namespace of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The address that the broker binds and advertises.
    pub address: Ipv4Addr,
    /// Name of the network namespace (`ip netns`); `None`: that of this process.
    pub namespace: Option<String>,
}

impl Host {
    /// 127.0.0.1 in the namespace of this process.
    #[must_use]
    pub fn local() -> Host {
        Host { address: Ipv4Addr::LOCALHOST, namespace: None }
    }

    /// A command that runs `program` on this host, as [`process::command`] does. Its process id is the program's.
    #[must_use]
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let Some(namespace) = &self.namespace else { return process::command(program) };
        let mut command = process::command("ip");
        command.args(["netns", "exec", namespace]).arg(program);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_entered_before_the_program_runs() {
        let namespace = Some("cut-1".to_owned());
        let host = Host { address: Ipv4Addr::new(198, 18, 0, 1), namespace };
        let command = host.command("broker");
        let arguments: Vec<_> = command.get_args().collect();
        let end = &arguments[arguments.len().saturating_sub(4)..];
        assert_eq!(end, ["netns", "exec", "cut-1", "broker"]);
    }
}
