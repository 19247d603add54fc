//! Arguments of `cluster …`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Connection, Listing, Pair};

/// `cluster …`
#[derive(Debug, Subcommand)]
pub enum Cluster {
    /// Show the brokers
    Info {
        #[command(flatten)]
        listing: Listing,
        #[command(flatten)]
        connection: Connection,
    },
    /// Say whether every partition has its leader and its replicas; exit code 1 if not
    Health {
        #[command(flatten)]
        listing: Listing,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show who decides the cluster's metadata, and how far each member has it
    Quorum {
        #[command(flatten)]
        listing: Listing,
        #[command(flatten)]
        connection: Connection,
    },
    /// Have partitions led by their preferred replicas, or by any replica that serves
    Elect(Elect),
    /// Forget a broker that will not come back; it must be stopped
    Unregister {
        /// Its node.id
        #[arg(value_name = "ID", value_parser = clap::value_parser!(i32).range(0..))]
        broker: i32,
        #[command(flatten)]
        connection: Connection,
    },
    /// Make a new metadata quorum from the metadata folder of one stopped voter, when a majority of the voters is lost for good
    Regenerate(Regenerate),
    /// Show the release of each broker, and the format levels that it reads and that the cluster has
    Versions {
        #[command(flatten)]
        listing: Listing,
        #[command(flatten)]
        connection: Connection,
    },
    /// Raise the cluster's format levels to the newest that every broker reads; earlier releases cannot run
    /// afterwards
    Finalize {
        /// Only check that every registered broker reads the new levels
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        listing: Listing,
        #[command(flatten)]
        connection: Connection,
    },
    /// Make up an id for a new cluster, for `cluster.id` in each broker's file
    Id,
    /// Run a cluster of several brokers on this machine until Ctrl-C
    Up(ClusterUp),
}

/// `cluster regenerate`
#[derive(Debug, Args)]
pub struct Regenerate {
    /// The data folder of a stopped broker: of those that are left the one with the newest metadata
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The brokers that are to vote, this one among them [default: those that voted before]
    #[arg(long, value_name = "ID,ID", value_delimiter = ',')]
    pub voters: Vec<i32>,
    /// Do it: what only the lost voters had is LOST. Otherwise it is only shown
    #[arg(long)]
    pub yes: bool,
}

/// `cluster elect`
#[derive(Debug, Args)]
pub struct Elect {
    /// The partitions: TOPIC or TOPIC:PARTITION
    #[arg(value_name = "TOPIC[:PARTITION]", required_unless_present = "all")]
    pub partitions: Vec<String>,
    /// All partitions that need it
    #[arg(long, conflicts_with = "partitions")]
    pub all: bool,
    /// Where there is no leader, let any replica that serves lead: what was acknowledged and only others have is LOST
    #[arg(long)]
    pub unclean: bool,
    #[command(flatten)]
    pub connection: Connection,
}

/// `cluster up`
#[derive(Debug, Args)]
pub struct ClusterUp {
    /// How many brokers, from 1 to 9; the first three vote in the metadata quorum. Of two, both are needed for every change of the metadata
    #[arg(value_name = "BROKERS", value_parser = clap::value_parser!(u16).range(1..=9))]
    pub brokers: u16,
    /// Keep everything in this folder: ports, the cluster's id, and a folder for each broker; it is made if it
    /// is missing
    #[arg(long, value_name = "DIR", default_value = "./highwater-cluster")]
    pub data_dir: PathBuf,
    /// Set a configuration key of every broker; may be given many times. gateway.listener=HOST:PORT is the first broker's,
    /// the others' gateways with their consoles are on the ports behind it; gateway.listener= goes without them
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<Pair>,
    /// Start a broker again when its process has ended
    #[arg(long)]
    pub restart: bool,
}
