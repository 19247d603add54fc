//! The whole program where it hurts: the power fails under load, disks are lost, files of its data folder are damaged, the
//! machine is full.
//!
//! Brokers run as users run them, as processes on real folders; what they answer is judged from outside. The same faults,
//! at every single operation but on a simulated disk, are in the tests of the room `storage`.

mod adoption;
mod busy;
mod damage;
mod gaps;
mod herd;
mod hostile;
mod ledger;
mod picture;
mod powerloss;
mod rejoin;
mod replicas;
mod requests;
mod upgrade;
mod volume;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "trials",
    about = "The whole program under power loss and on damaged data folders"
)]
struct Arguments {
    #[command(subcommand)]
    trial: Trial,
}

#[derive(Subcommand)]
enum Trial {
    /// Fail the power of one broker or of all under load, ten times: what was acknowledged must be there
    Powerloss(powerloss::Arguments),
    /// Kill one of three brokers, and take its disk away: how soon it is in sync again
    Rejoin(rejoin::Arguments),
    /// Load three brokers for an hour with all that the machine has: none may be fenced
    Busy(busy::Arguments),
    /// Sick disks and silent brokers: the longest time without an acknowledgement of each partition
    Gaps(gaps::Arguments),
    /// Readers of events by the ten thousand: a tenth stops reading, a gateway is killed, and its readers all come again
    Herd(herd::Arguments),
    /// A hostile client beside honest ones: memory of broker, gateway and proxy, and the latency of the others
    Hostile(hostile::Arguments),
    /// The client that `hostile` starts
    #[command(hide = true)]
    HostileClient(hostile::Targets),
    /// What `herd` starts: readers that are told what to do on the standard input
    #[command(hide = true)]
    HerdReaders {
        /// The number of the first one
        #[arg(long)]
        first: usize,
        /// How many
        #[arg(long)]
        count: usize,
        /// Where they read
        gateways: Vec<String>,
    },
    /// Open data folders of an earlier version: every record must be served, and nothing removed
    Adoption(adoption::Arguments),
    /// Change three brokers under load to this release, back and forward, finalize, and try the earlier program
    Upgrade(upgrade::Arguments),
    /// Flip bits, cut and remove files of a data folder: nothing may be believed that is not so
    Damage(damage::Arguments),
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().trial {
        Trial::Powerloss(arguments) => powerloss::run(&arguments),
        Trial::Rejoin(arguments) => rejoin::run(&arguments),
        Trial::Busy(arguments) => busy::run(&arguments),
        Trial::Gaps(arguments) => gaps::run(&arguments),
        Trial::Herd(arguments) => herd::run(&arguments),
        Trial::Hostile(arguments) => hostile::run(&arguments),
        Trial::HostileClient(targets) => hostile::serve_client(&targets),
        Trial::HerdReaders { first, count, gateways } => {
            herd::serve_readers(&gateways, first, count)
        }
        Trial::Adoption(arguments) => adoption::run(&arguments),
        Trial::Upgrade(arguments) => upgrade::run(&arguments),
        Trial::Damage(arguments) => damage::run(&arguments),
    }
}
