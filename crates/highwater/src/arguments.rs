//! What can be typed: commands, arguments and flags. What they do is in `commands`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use configuration::HostPort;
use model::TopicPartition;
use serving::rights::Role;

use crate::address::bootstrap_servers;
use crate::logging;
use crate::output::Format;
use crate::pattern::Form;
use crate::position::Place;

mod cluster;
mod container;
mod testing;

pub use cluster::{Cluster, ClusterUp, Elect, Regenerate};
pub use container::Healthcheck;
pub use testing::{FaultFiles, TestBroker, TestTopic};

/// What every command takes stands behind what is its own.
const GLOBAL: &str = "Global options";
const LAST: usize = 1000;

/// Event streaming in one binary: a broker that speaks Kafka's protocol, and its tools.
#[derive(Debug, Parser)]
#[command(name = "highwater", version = env!("HIGHWATER_VERSION"), arg_required_else_help = true)]
pub struct Program {
    /// How much is reported on standard error: error, warn, info, debug or trace
    #[arg(
        long,
        global = true,
        value_name = "LEVEL",
        help_heading = GLOBAL,
        display_order = LAST,
        hide_possible_values = true
    )]
    pub log_level: Option<logging::Level>,
    /// The form of reports: text or json
    #[arg(
        long,
        global = true,
        value_name = "FORM",
        help_heading = GLOBAL,
        display_order = LAST,
        hide_possible_values = true
    )]
    pub log_format: Option<logging::Form>,
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a broker, with a gateway beside it
    Start(Start),
    /// Run a gateway for HTTP in front of any Kafka cluster
    Gateway(Gateway),
    /// Run a proxy of Kafka's protocol in front of any Kafka cluster
    Proxy(Proxy),
    /// Run a broker for tests: a free port, a temporary folder, faults by rule; it ends with the process that started it
    TestBroker(TestBroker),
    /// Probe a broker on this machine: the health check of a container
    Healthcheck(Healthcheck),
    /// Create, list, show, change and delete topics
    #[command(subcommand)]
    Topic(Topic),
    /// List, show, move and delete consumer groups
    #[command(subcommand)]
    Group(Group),
    /// Make, list and remove those who may come to a gateway and its console
    #[command(subcommand)]
    User(User),
    /// Send lines of standard input or a file as records
    Produce(Produce),
    /// Write records to standard output
    Consume(Consume),
    /// Show and change configurations of topics and brokers
    #[command(subcommand)]
    Config(Config),
    /// Show the cluster
    #[command(subcommand)]
    Cluster(Cluster),
    /// Look into the files of a broker
    #[command(subcommand)]
    Log(Log),
    /// Measure any Kafka cluster as Kafka's own performance tools do
    #[command(subcommand)]
    Perf(Perf),
    /// Run published experiments against any Kafka cluster, with numbers that can be trusted
    #[command(subcommand)]
    Lab(lab::arguments::Lab),
    /// Make links by which this program is known under the names of Kafka's performance tools
    InstallLinks(InstallLinks),
    /// Write what completes commands in a shell to standard output
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages, one a command, into a folder
    ManPages {
        /// The folder; it is made if it is missing
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Say which version this is, and of which commit, where that is known
    Version,
}

/// KEY=VALUE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// What stands before the first `=`.
    pub key: String,
    /// What stands behind it.
    pub value: String,
}

impl FromStr for Pair {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Pair, &'static str> {
        match text.split_once('=') {
            Some((key, value)) if !key.trim().is_empty() => {
                Ok(Pair { key: key.trim().to_owned(), value: value.to_owned() })
            }
            _ => Err("write KEY=VALUE"),
        }
    }
}

/// A header of a record.
fn header(text: &str) -> Result<Pair, &'static str> {
    text.parse().map_err(|_| "write NAME=VALUE")
}

/// Where the values of a broker come from.
#[derive(Debug, Args)]
pub struct ConfigSources {
    /// Read the configuration from this file, a server.properties of Kafka's for example
    #[arg(value_name = "server.properties")]
    pub file: Option<PathBuf>,
    /// Keep all data in this folder; it is made if it is missing [key: log.dirs]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Set a configuration key; may be given many times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<Pair>,
    /// Refuse unknown keys rather than warn of them
    #[arg(long)]
    pub strict: bool,
    /// Run as in an image of Kafka: server.properties of this folder, if it exists, all interfaces, and Kafka's ready lines
    #[arg(long, value_name = "DIR")]
    pub container: Option<PathBuf>,
}

/// `start`
#[derive(Debug, Args)]
pub struct Start {
    #[command(flatten)]
    pub sources: ConfigSources,
    /// Ignore the dynamic value of this key in this process; may be given many times
    #[arg(long, value_name = "KEY")]
    pub ignore_dynamic: Vec<String>,
    /// The process that starts this broker and ends it: without that process it ends at once
    #[arg(long, value_name = "PID", hide = true)]
    pub child_of: Option<u32>,
}

/// `gateway`
#[derive(Debug, Args)]
pub struct Gateway {
    /// Listen here: host:port; no host: all interfaces, port 0: any free one [key: gateway.listener]
    #[arg(long, value_name = "HOST:PORT")]
    pub listener: Option<String>,
    /// Set a key gateway.* or console.*; may be given many times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<Pair>,
    #[command(flatten)]
    pub connection: Connection,
}

/// `proxy`
#[derive(Debug, Args)]
pub struct Proxy {
    /// Brokers to begin with: host:port, separated by commas; without a port it is 9092
    #[arg(
        long,
        short = 'b',
        value_name = "HOST:PORT",
        value_parser = bootstrap_servers,
        default_value = "127.0.0.1:9092",
        env = "HIGHWATER_BOOTSTRAP_SERVER"
    )]
    pub bootstrap_server: String,
    /// Listen here for clients that begin: host:port. Broker N is at the port N + 1 above it; with port 0 at free ones
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9192", value_parser = host_port)]
    pub listen: HostPort,
    /// The host that clients are told to connect to; otherwise the one of --listen
    #[arg(long, value_name = "HOST")]
    pub advertised_host: Option<String>,
    /// Show metrics and health here, over HTTP: host:port
    #[arg(long, value_name = "HOST:PORT", value_parser = host_port)]
    pub metrics_listener: Option<HostPort>,
    /// Connections of clients at a time; otherwise half of the open files that this process may have
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    pub connections_max: Option<u32>,
    /// Memory of all connections, in MiB: a request or answer that must be held whole needs three times its size
    #[arg(
        long,
        value_name = "MIB",
        default_value = "256",
        value_parser = clap::value_parser!(u32).range(16..)
    )]
    pub memory_max: u32,
    #[command(flatten)]
    pub faults: FaultFiles,
}

fn host_port(text: &str) -> Result<HostPort, &'static str> {
    HostPort::parse(text).ok_or("write host:port, for example 127.0.0.1:9192 or :9192")
}

/// How to reach a cluster.
#[derive(Debug, Args)]
pub struct Connection {
    /// Brokers to ask first: host:port, separated by commas; without a port it is 9092
    #[arg(
        long,
        short = 'b',
        value_name = "HOST:PORT",
        value_parser = bootstrap_servers,
        default_value = "127.0.0.1:9092",
        env = "HIGHWATER_BOOTSTRAP_SERVER"
    )]
    pub bootstrap_server: String,
    /// A file of properties, as Kafka's tools take: security.protocol, sasl.*, ssl.*
    #[arg(long, value_name = "FILE", env = "HIGHWATER_COMMAND_CONFIG")]
    pub command_config: Option<PathBuf>,
}

/// `user …`
#[derive(Debug, Subcommand)]
pub enum User {
    /// Make a user; a password that is not said is made up and shown once
    Add {
        /// The user's name
        name: String,
        /// What it may do: read, produce (and join groups), write (make topics, move groups), admin (all)
        #[arg(long, value_name = "ROLE", value_parser = role)]
        role: Role,
        /// Prefixes of the topics that the role holds for, separated by commas; * is all topics
        #[arg(long, value_name = "PREFIX,…", default_value = "*")]
        topics: String,
        /// Take the password from the first line of this file; - is standard input
        #[arg(long, value_name = "FILE", conflicts_with = "no_password")]
        password_file: Option<PathBuf>,
        /// Give it no password: it comes with tokens only
        #[arg(long)]
        no_password: bool,
        /// Change a user that is there already; its tokens stay
        #[arg(long)]
        replace: bool,
        #[command(flatten)]
        users_file: UsersFile,
    },
    /// Make a token for a user, and show it once
    Token {
        /// The user's name
        name: String,
        #[command(flatten)]
        users_file: UsersFile,
    },
    /// List all users
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        listing: Listing,
        #[command(flatten)]
        users_file: UsersFile,
    },
    /// Remove a user with its tokens, or one of its tokens
    #[command(visible_alias = "rm")]
    Remove {
        /// The user's name
        name: String,
        /// Only this token, by the digits that list shows
        #[arg(long, value_name = "DIGITS")]
        token: Option<String>,
        #[command(flatten)]
        users_file: UsersFile,
    },
}

/// Where the users are.
#[derive(Debug, Args)]
pub struct UsersFile {
    /// The file of users [key: gateway.users.file]
    #[arg(long = "users-file", value_name = "FILE", env = "HIGHWATER_GATEWAY_USERS_FILE")]
    pub path: PathBuf,
}

fn role(text: &str) -> Result<Role, &'static str> {
    Role::from_name(text).ok_or("write read, produce, write or admin")
}

/// How to write the answer.
#[derive(Debug, Args)]
pub struct Listing {
    /// The form of the answer
    #[arg(long, default_value = "table")]
    pub format: Format,
}

/// `topic …`
#[derive(Debug, Subcommand)]
pub enum Topic {
    /// Create topics
    Create {
        /// The topics' names
        #[arg(required = true)]
        names: Vec<String>,
        /// Partitions of each; otherwise the broker's num.partitions
        #[arg(long, short = 'p', value_parser = clap::value_parser!(i32).range(1..))]
        partitions: Option<i32>,
        /// Replicas of each partition; otherwise the broker's default.replication.factor
        #[arg(long, short = 'r', value_parser = clap::value_parser!(i16).range(1..))]
        replication_factor: Option<i16>,
        /// A configuration of the topics; may be given many times
        #[arg(long = "config", short = 'c', value_name = "KEY=VALUE")]
        configs: Vec<Pair>,
        /// Succeed if a topic already exists
        #[arg(long)]
        if_not_exists: bool,
        /// Only check whether they could be created
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// List topics
    #[command(visible_alias = "ls")]
    List {
        /// List the cluster's own topics too
        #[arg(long)]
        internal: bool,
        #[command(flatten)]
        listing: Listing,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show the partitions of topics
    Describe {
        /// The topics' names; none: all
        names: Vec<String>,
        #[command(flatten)]
        listing: Listing,
        #[command(flatten)]
        connection: Connection,
    },
    /// Change the configuration of a topic
    Alter {
        /// The topic's name
        name: String,
        #[command(flatten)]
        changes: Changes,
        #[command(flatten)]
        connection: Connection,
    },
    /// Delete topics with all their records
    #[command(visible_alias = "rm")]
    Delete {
        /// The topics' names
        #[arg(required = true)]
        names: Vec<String>,
        /// Succeed if a topic does not exist
        #[arg(long)]
        if_exists: bool,
        #[command(flatten)]
        connection: Connection,
    },
    /// Give a topic more partitions; keys will go to other partitions than before
    AddPartitions {
        /// The topic's name
        name: String,
        /// How many partitions it has afterwards
        #[arg(
            long,
            alias = "partitions",
            value_name = "COUNT",
            value_parser = clap::value_parser!(i32).range(1..)
        )]
        total: i32,
        #[command(flatten)]
        connection: Connection,
    },
}

/// What to set and what to remove.
#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub struct Changes {
    /// Set this key; may be given many times
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<Pair>,
    /// Take this key back to its default; may be given many times
    #[arg(long = "delete", value_name = "KEY")]
    pub deletes: Vec<String>,
}

/// `group …`
#[derive(Debug, Subcommand)]
pub enum Group {
    /// List groups
    #[command(visible_alias = "ls")]
    List {
        #[command(flatten)]
        listing: Listing,
        #[command(flatten)]
        connection: Connection,
    },
    /// Show offsets, lag and members of groups
    ///
    /// Of share groups and streams groups, which Apache Kafka has, also their states and epochs.
    Describe {
        /// The groups' names; none: all
        names: Vec<String>,
        #[command(flatten)]
        listing: Listing,
        #[command(flatten)]
        connection: Connection,
    },
    /// Move a group to another place; it must have no members
    #[command(visible_aliases = ["reset", "reset-offsets"])]
    Seek {
        /// The group's name
        name: String,
        /// Where to: start, end, an offset, +N, -N, a date (2026-11-22T08:30, UTC), a time ago (-1h30m),
        /// or ts:MS
        #[arg(long, value_name = "PLACE", allow_hyphen_values = true)]
        to: Place,
        /// Only this topic, or topic:partition; may be given many times
        #[arg(long = "topic", value_name = "TOPIC[:PARTITION]")]
        topics: Vec<String>,
        /// Only show where it would go
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        listing: Listing,
        #[command(flatten)]
        connection: Connection,
    },
    /// Delete groups with their offsets
    #[command(visible_alias = "rm")]
    Delete {
        /// The groups' names
        #[arg(required = true)]
        names: Vec<String>,
        #[command(flatten)]
        connection: Connection,
    },
}

/// A codec of record batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Codec {
    /// None.
    None,
    /// gzip
    Gzip,
    /// snappy
    Snappy,
    /// lz4
    Lz4,
    /// zstd
    Zstd,
}

/// Who must have a record before it counts as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Acks {
    /// Nobody: what is lost is not noticed
    #[value(name = "0")]
    None,
    /// The partition's leader
    #[value(name = "1")]
    Leader,
    /// All in-sync replicas
    #[value(name = "all", alias = "-1")]
    All,
}

/// `produce`
#[derive(Debug, Args)]
pub struct Produce {
    /// The topic
    pub topic: String,
    /// Read from this file rather than from standard input
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// What stands between key and value on each line; without it, lines are values
    #[arg(long, value_name = "TEXT", value_parser = separator)]
    pub key_separator: Option<Separator>,
    /// A header of every record; may be given many times
    #[arg(long = "header", alias = "headers", value_name = "NAME=VALUE", value_parser = header)]
    pub headers: Vec<Pair>,
    /// Send everything to this partition
    #[arg(long, short = 'p', value_parser = clap::value_parser!(i32).range(0..))]
    pub partition: Option<i32>,
    /// How batches are compressed
    #[arg(long, default_value = "none")]
    pub compression: Codec,
    /// Who must have a record before it counts as sent
    #[arg(long, default_value = "all")]
    pub acks: Acks,
    /// Whether the cluster sorts out what was sent twice; with --acks all it does unless this is
    /// false
    #[arg(long, value_name = "BOOL")]
    pub idempotent: Option<bool>,
    /// Give up on a record that was not acknowledged for this long, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "120", value_parser = seconds)]
    pub timeout: Duration,
    #[command(flatten)]
    pub connection: Connection,
}

/// Some bytes, not none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Separator(pub Vec<u8>);

fn separator(text: &str) -> Result<Separator, String> {
    match text.replace("\\t", "\t") {
        text if text.is_empty() => Err("it must not be empty".to_owned()),
        text => Ok(Separator(text.into_bytes())),
    }
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "write a number of seconds".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("write a number of seconds above 0".to_owned()),
    }
}

/// `consume`
#[derive(Debug, Args)]
pub struct Consume {
    /// The topic
    pub topic: String,
    /// Where to begin: start, end, an offset, +N, -N, a date (2026-11-22T08:30, UTC), a time ago
    /// (-1h30m), or ts:MS. With --group: where the group has no offset yet
    #[arg(long, value_name = "PLACE", default_value = "start", allow_hyphen_values = true)]
    pub from: Place,
    /// Only this partition; may be given many times
    #[arg(long = "partition", short = 'p', value_parser = clap::value_parser!(i32).range(0..))]
    pub partitions: Vec<i32>,
    /// Read as a member of this group, and commit what was written
    #[arg(long, short = 'g', conflicts_with = "partitions")]
    pub group: Option<String>,
    /// Stop after this many records
    #[arg(long, short = 'n', value_name = "COUNT")]
    pub count: Option<u64>,
    /// Stop at what was the end when the command began
    #[arg(long)]
    pub until_end: bool,
    /// text, json, or a pattern such as '%t %p %o %k %v\n'
    #[arg(long, short = 'f', default_value = "text")]
    pub format: Form,
    #[command(flatten)]
    pub connection: Connection,
}

/// Whose configuration.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub struct Resource {
    /// Of this topic
    #[arg(long, value_name = "NAME")]
    pub topic: Option<String>,
    /// Of this broker
    #[arg(long, value_name = "ID")]
    pub broker: Option<i32>,
    /// Of all brokers
    #[arg(long)]
    pub brokers: bool,
}

/// `config …`
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Show the configuration of a topic or of brokers
    Get {
        /// Only these keys
        keys: Vec<String>,
        #[command(flatten)]
        resource: Resource,
        #[command(flatten)]
        listing: Listing,
        #[command(flatten)]
        connection: Connection,
    },
    /// Change the configuration of a topic or of brokers
    Set {
        /// What to set
        #[arg(value_name = "KEY=VALUE", required_unless_present = "deletes")]
        sets: Vec<Pair>,
        /// Take this key back to its default; may be given many times
        #[arg(long = "delete", value_name = "KEY")]
        deletes: Vec<String>,
        #[command(flatten)]
        resource: Resource,
        #[command(flatten)]
        connection: Connection,
    },
    /// Take back the dynamic value of a key in the data folder of a stopped broker
    Reset {
        /// The key
        key: String,
        /// Without a broker: the folder of the only voter of a cluster is changed
        #[arg(long, required = true)]
        offline: bool,
        /// The data folder, with the metadata of the cluster
        #[arg(long, value_name = "DIR")]
        data_dir: PathBuf,
    },
    /// Show what a broker started like this would work with, and where each value comes from
    Explain {
        #[command(flatten)]
        sources: ConfigSources,
        /// Show only what is not at its default
        #[arg(long)]
        changed: bool,
        /// Write the list of all keys as a document
        #[arg(long, conflicts_with = "changed")]
        markdown: bool,
        #[command(flatten)]
        listing: Listing,
    },
}

/// `log …`
#[derive(Debug, Subcommand)]
pub enum Log {
    /// Check and show segments, indexes and snapshots; exit code 1 on damage
    Dump {
        /// Files, folders of partitions, or a whole data folder
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Show the records of each batch too
        #[arg(long)]
        records: bool,
        #[command(flatten)]
        listing: Listing,
    },
    /// List folders of a stopped broker that belong to no topic; move them away, or delete them by name
    Strays(Strays),
    /// Repair a partition that the broker refuses to serve; shows first what is lost
    Mend {
        /// The data folder of the stopped broker
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// The partition, as its folder is called: orders-0
        #[arg(long, value_name = "TOPIC-NUMBER", value_parser = partition_name)]
        partition: TopicPartition,
        /// Do it, and go on without what is lost; otherwise it is only shown
        #[arg(long)]
        yes: bool,
    },
    /// Copy partitions of Kafka, or of another data folder, into an empty topic of a stopped broker
    Adopt(Adopt),
}

/// `log strays`
#[derive(Debug, Args)]
pub struct Strays {
    /// The data folder of the stopped broker
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// The data folder in which the broker keeps the cluster's metadata, if that is another one
    /// [key: metadata.log.dir]
    #[arg(long, value_name = "DIR")]
    pub metadata_dir: Option<PathBuf>,
    /// Move this folder away, into the folder --to; may be given many times
    #[arg(long = "move", value_name = "FOLDER", requires = "to")]
    pub moves: Vec<String>,
    /// Where to
    #[arg(long, value_name = "DIR", requires = "moves")]
    pub to: Option<PathBuf>,
    /// Delete this folder with all its records, for good; may be given many times
    #[arg(long = "delete", value_name = "FOLDER")]
    pub deletes: Vec<String>,
    #[command(flatten)]
    pub listing: Listing,
}

/// `log adopt`
#[derive(Debug, Args)]
pub struct Adopt {
    /// Data folders, or folders of single partitions, of a stopped broker; they are only read
    #[arg(value_name = "SOURCE", required = true)]
    pub sources: Vec<PathBuf>,
    /// The topic here that gets the records; it must exist and be empty
    #[arg(long, value_name = "NAME")]
    pub topic: String,
    /// The data folder of the stopped broker here; all of them, if it has several
    #[arg(long, value_name = "DIR", required = true)]
    pub into: Vec<PathBuf>,
    /// The topic's name in the sources, if that is another one
    #[arg(long, value_name = "NAME")]
    pub source_topic: Option<String>,
    /// Go on without what is damaged or missing in the sources
    #[arg(long)]
    pub accept_losses: bool,
    /// Only look, and say what would be adopted
    #[arg(long)]
    pub dry_run: bool,
}

fn partition_name(text: &str) -> Result<TopicPartition, &'static str> {
    storage::log_dir::partition_of(text)
        .ok_or("write TOPIC-NUMBER, as the folder is called: orders-0")
}

/// `perf …`
#[derive(Debug, Subcommand)]
pub enum Perf {
    /// Send records and report rate and latency: kafka-producer-perf-test
    #[command(infer_long_args = true, args_override_self = true)]
    Produce(Box<perf::tools::produce::arguments::Arguments>),
    /// Read records and report how fast: kafka-consumer-perf-test
    #[command(infer_long_args = true)]
    Consume(Box<perf::tools::consume::arguments::Arguments>),
    /// Send records one by one and report how long until they were read: kafka-e2e-latency
    #[command(infer_long_args = true)]
    E2e(Box<perf::tools::e2e::arguments::Arguments>),
}

/// `install-links`
#[derive(Debug, Args)]
pub struct InstallLinks {
    /// Make the links in this folder; it is made if it is missing
    #[arg(value_name = "DIR")]
    pub folder: PathBuf,
    /// Replace what stands there under these names
    #[arg(long)]
    pub force: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn parse(line: &str) -> Result<Program, clap::Error> {
        Program::try_parse_from(line.split_whitespace())
    }

    #[test]
    fn the_definition_of_all_arguments_is_sound() {
        Program::command().debug_assert();
    }

    #[test]
    fn places_before_the_end_are_no_flags() {
        let program = parse("highwater consume t --from -3 -p 1 -p 2").unwrap();
        let Command::Consume(consume) = program.command else { panic!("{program:?}") };
        assert_eq!(consume.from, Place::BeforeEnd(3));
        assert_eq!(consume.partitions, [1, 2]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_before_anything_is_asked() {
        for line in [
            "highwater",
            "highwater topic create",
            "highwater topic create t -p 0",
            "highwater topic alter t",
            "highwater config get",
            "highwater config get --topic t --broker 1",
            "highwater config set --topic t",
            "highwater config set --topic t nonsense",
            "highwater consume t --group g -p 1",
            "highwater consume t --from nowhere",
            "highwater produce t --timeout 0",
            "highwater start --set nonsense",
            "highwater log dump",
            "highwater topic list -b localhost:nonsense",
            "highwater topic list -b ::1",
            "highwater cluster up",
            "highwater cluster up 0",
            "highwater cluster up 10",
            "highwater cluster up three",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn what_other_tools_call_it_is_understood() {
        for line in [
            "highwater topic ls",
            "highwater topic rm t",
            "highwater topic add-partitions t --partitions 5",
            "highwater group ls",
            "highwater group rm g",
            "highwater group reset g --to start",
            "highwater group reset-offsets g --to -1h",
            "highwater group describe",
        ] {
            assert!(parse(line).is_ok(), "{line}");
        }
    }

    #[test]
    fn what_every_command_takes_stands_last_in_its_help() {
        let mut program = Program::command();
        program.build();
        let topic = program.find_subcommand_mut("topic").unwrap();
        let create = topic.find_subcommand_mut("create").unwrap();
        let help = create.render_long_help().to_string();
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("no {text} in:\n{help}"));
        assert!(at("--partitions") < at("Global options:"));
        assert!(at("--bootstrap-server") < at("Global options:"));
        assert!(at("Global options:") < at("--log-level"));
    }

    #[test]
    fn a_value_may_hold_an_equals_sign() {
        assert_eq!(header("a"), Err("write NAME=VALUE"));
        assert_eq!(header("a=b").map(|header| header.value), Ok("b".to_owned()));
        let pair: Pair = "sasl.jaas.config=a b=c".parse().unwrap();
        assert_eq!((pair.key.as_str(), pair.value.as_str()), ("sasl.jaas.config", "a b=c"));
    }
}
