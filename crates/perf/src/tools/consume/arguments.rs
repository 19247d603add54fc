//! What can be typed behind `kafka-consumer-perf-test`: Kafka's flags, old names and new, and ours.

use super::super::console::Console;
use super::super::date_format::{self, DateFormat};
use super::super::failure::ToolError;
use super::super::output::Form;
use super::super::properties::{self, Properties};
use clap::Args;
use regex::Regex;
use std::path::PathBuf;
use std::str::FromStr;

/// Read records and report how fast, as kafka-consumer-perf-test does
#[derive(Debug, Clone, Args)]
#[command(after_help = super::super::CONSUME_LIMITS)]
pub struct Arguments {
    /// Required: the brokers to ask first, host:port, separated by commas
    // Here and below: what is short and clear with Kafka's tool stays so beside our flags.
    #[arg(long, alias = "b", value_name = "server to connect to")]
    bootstrap_server: Option<String>,
    /// The name of --bootstrap-server before 4.0
    #[arg(long, hide = true)]
    broker_list: Option<String>,
    /// Read this topic; either this or --include is required
    #[arg(long)]
    topic: Option<String>,
    /// Read all topics whose whole name this regular expression matches
    #[arg(long, value_name = "regex")]
    include: Option<String>,
    /// Required: how many records to read at least
    #[arg(
        long,
        aliases = ["n", "nu", "num", "num-"],
        value_name = "count",
        allow_negative_numbers = true
    )]
    num_records: Option<i64>,
    /// The old name of --num-records
    #[arg(long, value_name = "count", allow_negative_numbers = true)]
    messages: Option<i64>,
    /// Read as a member of this group; otherwise perf-consumer- and a random number
    #[arg(long, value_name = "gid")]
    group: Option<String>,
    /// How much a fetch may bring of each partition: max.partition.fetch.bytes
    #[arg(
        long,
        value_name = "size",
        default_value_t = 1024 * 1024,
        allow_negative_numbers = true
    )]
    fetch_size: i32,
    /// The socket's receive buffer in bytes
    #[arg(
        long,
        value_name = "size",
        default_value_t = 2 * 1024 * 1024,
        allow_negative_numbers = true
    )]
    socket_buffer_size: i32,
    /// Begin behind the last record, where the group has no offset yet
    #[arg(long)]
    from_latest: bool,
    /// A property of the consumer; stands above those of the file; may be given many times
    #[arg(long, value_name = "prop=val")]
    command_property: Vec<String>,
    /// A file of properties of the consumer
    #[arg(long, value_name = "config file")]
    command_config: Option<PathBuf>,
    /// The old name of --command-config
    #[arg(long = "consumer.config", value_name = "config file")]
    consumer_config: Option<PathBuf>,
    /// Give up when no record came for so many milliseconds
    #[arg(
        long,
        value_name = "milliseconds",
        default_value_t = 10_000,
        num_args = 0..=1,
        default_missing_value = "10000",
        allow_negative_numbers = true
    )]
    timeout: i64,
    /// Milliseconds between the lines that report progress
    #[arg(long, value_name = "interval_ms", default_value_t = 5000, allow_negative_numbers = true)]
    reporting_interval: i64,
    /// Report each interval rather than the whole
    #[arg(long)]
    show_detailed_stats: bool,
    /// The form of times, as in Java's SimpleDateFormat
    #[arg(long, value_name = "date format", default_value = date_format::DEFAULT)]
    date_format: String,
    /// Leave the header out
    #[arg(long)]
    hide_header: bool,
    /// Write the consumer's metrics at the end
    #[arg(long, alias = "p")]
    print_metrics: bool,
    /// Of before 4.0, when it had lost its meaning already
    #[arg(long, hide = true)]
    threads: Option<u32>,
    /// Of before 4.0, when it had lost its meaning already
    #[arg(long, hide = true)]
    num_fetch_threads: Option<u32>,
    /// Of before 2.0
    #[arg(long, hide = true)]
    new_consumer: bool,

    /// With --show-detailed-stats: report the whole too
    #[arg(long, help_heading = "Beyond Kafka's tool")]
    summary: bool,
    /// Read these partitions by hand rather than as a group's member: 0,1,2
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        conflicts_with = "include",
        value_parser = clap::value_parser!(i32).range(0..),
        help_heading = "Beyond Kafka's tool"
    )]
    partitions: Vec<i32>,
    /// Where to begin in these partitions, one place for all or one for each: earliest, latest or
    /// an offset
    #[arg(
        long,
        value_name = "LIST",
        value_delimiter = ',',
        requires = "partitions",
        help_heading = "Beyond Kafka's tool"
    )]
    offsets: Vec<Place>,
    /// Write the results to a file too, in this form
    #[arg(long, requires = "output_path", help_heading = "Beyond Kafka's tool")]
    output: Option<Form>,
    /// The file that results are written to
    #[arg(long, value_name = "FILE", help_heading = "Beyond Kafka's tool")]
    output_path: Option<PathBuf>,
}

/// Where to begin in a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// At the first record.
    Earliest,
    /// Behind the last.
    Latest,
    /// At this offset.
    Offset(i64),
}

impl FromStr for Place {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Place, &'static str> {
        match text {
            "earliest" => Ok(Place::Earliest),
            "latest" => Ok(Place::Latest),
            text => match text.parse() {
                Ok(offset) if offset >= 0 => Ok(Place::Offset(offset)),
                _ => Err("write earliest, latest or an offset"),
            },
        }
    }
}

/// Which records are read.
#[derive(Debug, Clone)]
pub enum Subject {
    /// A topic, as a group's member.
    Topic(String),
    /// Topics whose name this matches, as a group's member.
    Pattern(Regex),
    /// Partitions of a topic, by hand.
    Partitions(String, Vec<(i32, Place)>),
}

/// What is to be done, after all checks.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is read.
    pub subject: Subject,
    /// Records at least.
    pub records: u64,
    /// Without a record for longer than this, it is given up.
    pub timeout_ms: u64,
    /// Milliseconds between lines.
    pub reporting_interval_ms: u64,
    /// Whether intervals are reported.
    pub detailed: bool,
    /// Whether the whole is.
    pub summary: bool,
    /// Whether there are headers.
    pub header: bool,
    /// Whether the table of metrics is wanted.
    pub print_metrics: bool,
    /// The form of times.
    pub date_format: DateFormat,
    /// Of the consumer, complete.
    pub properties: Properties,
    /// A file of results.
    pub file: Option<(Form, PathBuf)>,
}

fn exactly_one<T>(
    (first_name, first): (&str, Option<T>),
    (second_name, second): (&str, Option<T>),
) -> Result<T, ToolError> {
    match (first, second) {
        (Some(value), None) | (None, Some(value)) => Ok(value),
        _ => Err(ToolError::usage(format!(
            "Exactly one of the following arguments is required: [{first_name}], [{second_name}]"
        ))),
    }
}

impl Arguments {
    /// Checks all, says what is deprecated, and reads the properties.
    pub fn plan(&self, console: &Console) -> Result<Plan, ToolError> {
        let servers = self.bootstrap_server.clone().or_else(|| self.broker_list.clone());
        let servers = servers
            .ok_or_else(|| ToolError::usage("Missing required argument \"[bootstrap-server]\""))?;
        let subject =
            exactly_one(("topic", self.topic.clone()), ("include", self.include.clone()))?;
        let records = exactly_one(("messages", self.messages), ("num-records", self.num_records))?;
        if self.command_config.is_some() && self.consumer_config.is_some() {
            let text = "Option \"[command-config]\" can't be used with option \
                        \"[consumer.config]\"";
            return Err(ToolError::usage(text));
        }
        let interval_ms = u64::try_from(self.reporting_interval).ok().filter(|ms| *ms > 0);
        let interval_ms = interval_ms
            .ok_or_else(|| ToolError::failed("Reporting interval must be greater than 0."))?;
        self.warn(console);
        Ok(Plan {
            subject: self.subject(subject)?,
            records: u64::try_from(records).unwrap_or_default(),
            timeout_ms: u64::try_from(self.timeout).unwrap_or_default(),
            reporting_interval_ms: interval_ms,
            detailed: self.show_detailed_stats,
            summary: self.summary || !self.show_detailed_stats,
            header: !self.hide_header,
            print_metrics: self.print_metrics,
            date_format: DateFormat::new(&self.date_format)?,
            properties: self.properties(servers)?,
            file: self.output.or(Some(Form::Json)).zip(self.output_path.clone()),
        })
    }

    fn subject(&self, name: String) -> Result<Subject, ToolError> {
        if self.include.is_some() {
            let regex = Regex::new(&format!("^(?:{name})$"));
            let failed = |e| ToolError::failed(format!("--include {name}: {e}"));
            return Ok(Subject::Pattern(regex.map_err(failed)?));
        }
        if self.partitions.is_empty() {
            return Ok(Subject::Topic(name));
        }
        let places = match self.offsets[..] {
            [] => vec![self.first_place(); self.partitions.len()],
            [place] => vec![place; self.partitions.len()],
            _ if self.offsets.len() == self.partitions.len() => self.offsets.clone(),
            _ => {
                let text = "--offsets needs one place for all partitions, or one for each";
                return Err(ToolError::usage(text));
            }
        };
        Ok(Subject::Partitions(name, self.partitions.iter().copied().zip(places).collect()))
    }

    fn first_place(&self) -> Place {
        if self.from_latest { Place::Latest } else { Place::Earliest }
    }

    fn warn(&self, console: &Console) {
        let old = [
            (self.messages.is_some(), "--messages", "--num-records"),
            (self.consumer_config.is_some(), "--consumer.config", "--command-config"),
        ];
        for (_, old, new) in old.iter().filter(|(given, _, _)| *given) {
            console.line(format_args!("Warning: {old} is deprecated. Use {new} instead."));
        }
        if self.broker_list.is_some() {
            console.notice("--broker-list was removed in Kafka 4.0; read as --bootstrap-server");
        }
        let without_effect = [
            (self.threads.is_some(), "--threads"),
            (self.num_fetch_threads.is_some(), "--num-fetch-threads"),
            (self.new_consumer, "--new-consumer"),
        ];
        for (_, name) in without_effect.iter().filter(|(given, _)| *given) {
            console.notice(format_args!(
                "{name} was removed from Kafka's tool and had no effect before; it has none here"
            ));
        }
    }

    /// What stands above what: the flags, pairs, the file; all forced as in Kafka's tool.
    fn properties(&self, servers: String) -> Result<Properties, ToolError> {
        let file = self.command_config.as_ref().or(self.consumer_config.as_ref());
        let mut all = file.map_or(Ok(Properties::new()), |path| properties::load(path))?;
        all.extend(properties::of_pairs(&self.command_property));
        let group = || format!("perf-consumer-{}", fastrand::u32(..100_000));
        let forced = [
            ("bootstrap.servers", servers),
            ("group.id", self.group.clone().unwrap_or_else(group)),
            ("receive.buffer.bytes", self.socket_buffer_size.to_string()),
            ("max.partition.fetch.bytes", self.fetch_size.to_string()),
            (
                "auto.offset.reset",
                (if self.from_latest { "latest" } else { "earliest" }).to_owned(),
            ),
            ("check.crcs", "false".to_owned()),
        ];
        all.extend(forced.map(|(key, value)| (key.to_owned(), value)));
        let id = "perf-consumer-client".to_owned();
        all.entry("client.id".to_owned()).or_insert(id);
        Ok(all)
    }
}
