//! What can be typed behind `kafka-producer-perf-test`: Kafka's flags, old names and new, and ours.

use super::super::console::Console;
use super::super::failure::ToolError;
use super::super::output::{Form, Outputs, Unit};
use super::super::properties::{self, Properties};
use super::keys::Distribution;
use clap::{Args, ValueEnum};
use model::Uuid;
use std::path::PathBuf;

/// Whether every record's value is filled anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PayloadMode {
    /// One value for all records, as Kafka's tool did up to 2.8
    Reuse,
    /// Each filled anew, as it does since 3.0
    Fresh,
}

/// Send records and report rate and latency, as kafka-producer-perf-test does
#[derive(Debug, Clone, Args)]
#[command(after_help = super::super::PRODUCE_LIMITS)]
pub struct Arguments {
    /// The brokers to ask first: host:port, separated by commas; stands above bootstrap.servers,
    /// of which one or the other is required
    #[arg(long, value_name = "BOOTSTRAP-SERVER")]
    bootstrap_server: Option<String>,
    /// Required: send to this topic
    #[arg(long)]
    topic: Option<String>,
    /// Required: how many records to send
    // Here and below: what is short and clear with Kafka's tool stays so beside our flags.
    #[arg(long, aliases = ["n", "nu", "num", "num-"], allow_negative_numbers = true)]
    num_records: Option<i64>,
    /// Size of each record's value in bytes; this, --payload-file or --payload-monotonic is required
    #[arg(
        long,
        aliases = ["rec", "reco", "recor", "record", "record-"],
        allow_negative_numbers = true
    )]
    record_size: Option<i32>,
    /// Take values from this file, each record a random one
    #[arg(long)]
    payload_file: Option<PathBuf>,
    /// The values are the records' numbers: 0, 1, 2, …
    #[arg(long, aliases = ["payload-m", "payload-mo"])]
    payload_monotonic: bool,
    /// What stands between the values in the file, a regular expression
    #[arg(long, default_value = "\\n")]
    payload_delimiter: String,
    /// Required: send about so many records per second at most; -1 for as many as possible
    #[arg(long, allow_negative_numbers = true)]
    throughput: Option<f64>,
    /// Properties of the producer; they stand above those of the file
    #[arg(long, num_args = 1.., value_name = "PROP-NAME=PROP-VALUE")]
    command_property: Vec<String>,
    /// The old name of --command-property
    #[arg(long, num_args = 1.., value_name = "PROP-NAME=PROP-VALUE")]
    producer_props: Vec<String>,
    /// A file of properties of the producer
    #[arg(long, value_name = "CONFIG-FILE")]
    command_config: Option<PathBuf>,
    /// The old name of --command-config
    #[arg(long = "producer.config", value_name = "CONFIG-FILE")]
    producer_config: Option<PathBuf>,
    /// Write the producer's metrics at the end
    #[arg(long)]
    print_metrics: bool,
    /// Send within transactions under this id; stands above the property transactional.id
    #[arg(long)]
    transactional_id: Option<String>,
    /// Commit when a transaction is so many milliseconds old, 3000 if only an id is given; without
    /// an id a random one is used
    #[arg(long, value_name = "TRANSACTION-DURATION", allow_negative_numbers = true)]
    transaction_duration_ms: Option<i64>,
    /// So many records come before those that are reported as the steady state
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    warmup_records: i64,
    /// Milliseconds between the lines that report progress
    #[arg(long, default_value_t = 5000, value_name = "INTERVAL-MS", allow_negative_numbers = true)]
    reporting_interval: i64,

    /// How many producers send, each in a thread of its own; they share records and throughput
    #[arg(
        long,
        default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1024),
        help_heading = "Beyond Kafka's tool"
    )]
    producers: u32,
    /// Fill every record's value anew, or send one value again and again
    #[arg(long, default_value = "fresh", help_heading = "Beyond Kafka's tool")]
    payload_mode: PayloadMode,
    /// Size of each record's key in bytes; 0 for none
    #[arg(long, default_value_t = 0, help_heading = "Beyond Kafka's tool")]
    record_key_size: u32,
    /// How many different keys there are; 0: each is another one
    #[arg(long, default_value_t = 0, help_heading = "Beyond Kafka's tool")]
    key_cardinality: u64,
    /// How often each key comes: uniform, or zipf:S with an exponent S above 0
    #[arg(long, default_value = "uniform", help_heading = "Beyond Kafka's tool")]
    key_distribution: Distribution,
    /// How many headers each record has
    #[arg(long, default_value_t = 0, help_heading = "Beyond Kafka's tool")]
    num_headers: u32,
    /// Size of each header's name in bytes
    #[arg(long, default_value_t = 0, help_heading = "Beyond Kafka's tool")]
    record_header_key_size: u32,
    /// Size of each header's value in bytes; -1 for null
    #[arg(
        long,
        default_value_t = 0,
        allow_negative_numbers = true,
        value_parser = clap::value_parser!(i32).range(-1..),
        help_heading = "Beyond Kafka's tool"
    )]
    record_header_size: i32,
    /// The unit of latencies in the lines; files have microseconds anyway
    #[arg(long, default_value = "ms", help_heading = "Beyond Kafka's tool")]
    latency_unit: Unit,
    /// Write the results to a file too, in this form
    #[arg(long, requires = "output_path", help_heading = "Beyond Kafka's tool")]
    output: Option<Form>,
    /// The file that results are written to
    #[arg(long, value_name = "FILE", help_heading = "Beyond Kafka's tool")]
    output_path: Option<PathBuf>,
    /// Write the distribution of latencies to this file, in HdrHistogram's text form
    #[arg(long, value_name = "FILE", help_heading = "Beyond Kafka's tool")]
    histogram: Option<PathBuf>,
}

/// Where values come from.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// Letters, so many bytes.
    Letters {
        /// Bytes of each.
        size_bytes: usize,
        /// Filled anew or not.
        mode: PayloadMode,
    },
    /// Pieces of a file.
    File {
        /// The file.
        path: PathBuf,
        /// What stands between them, a regular expression.
        delimiter: String,
    },
    /// The record's number.
    Monotonic,
}

/// Keys and headers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extras {
    /// Bytes of each key; 0 for as many as its number needs, or for no key.
    pub key_bytes: usize,
    /// How many keys; 0 for a new one each time, if there are keys.
    pub key_cardinality: u64,
    /// How often each comes.
    pub key_distribution: Distribution,
    /// How many headers.
    pub headers: usize,
    /// Bytes of each name.
    pub header_name_bytes: usize,
    /// Bytes of each value; `None` for null.
    pub header_value_bytes: Option<usize>,
}

/// The age of a transaction if none is given, in milliseconds.
const TRANSACTION_DURATION_MS: u64 = 3000;

/// What is to be done, after all checks.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The topic.
    pub topic: String,
    /// Records of all producers.
    pub records: u64,
    /// Records before the steady state.
    pub warmup_records: u64,
    /// Records per second of all producers; negative for no limit.
    pub throughput: f64,
    /// Values.
    pub source: Source,
    /// Keys and headers.
    pub extras: Extras,
    /// Threads.
    pub producers: u32,
    /// Milliseconds between lines.
    pub reporting_interval_ms: u64,
    /// How old a transaction may become, in milliseconds; `None` to send without transactions.
    pub transaction_duration_ms: Option<u64>,
    /// Whether the table of metrics is wanted.
    pub print_metrics: bool,
    /// Of the producers, with `bootstrap.servers` and `client.id`, and with `transactional.id` if
    /// there are transactions.
    pub properties: Properties,
    /// What else is written.
    pub outputs: Outputs,
}

fn required<T>(value: Option<T>, flag: &str) -> Result<T, ToolError> {
    value.ok_or_else(|| ToolError::usage(format!("argument {flag} is required")))
}

fn above_zero(value: i64, flag: &str) -> Result<u64, ToolError> {
    let number = u64::try_from(value).ok().filter(|number| *number > 0);
    number.ok_or_else(|| ToolError::usage(format!("{flag} should be greater than zero.")))
}

fn one_of_two(new: (&str, bool), old: (&str, bool)) -> Result<(), ToolError> {
    match new.1 && old.1 {
        true => {
            let text = format!("{} and {} cannot be specified together.", new.0, old.0);
            Err(ToolError::usage(text))
        }
        false => Ok(()),
    }
}

impl Arguments {
    /// Checks all in the order of Kafka's tool, says what is deprecated, and reads the properties.
    pub fn plan(&self, console: &Console) -> Result<Plan, ToolError> {
        let topic = required(self.topic.clone(), "--topic")?;
        let records = required(self.num_records, "--num-records")?;
        let throughput = required(self.throughput, "--throughput")?;
        let source = self.source()?;
        self.check_names()?;
        let records = above_zero(records, "--num-records")?;
        let reporting_interval_ms = above_zero(self.reporting_interval, "--reporting-interval")?;
        let warmup_records = self.warmup(records)?;
        let duration = self.transaction_duration_ms;
        let duration =
            duration.map(|ms| above_zero(ms, "--transaction-duration-ms")).transpose()?;
        let plan = Plan {
            topic,
            records,
            warmup_records,
            throughput,
            source,
            extras: self.extras()?,
            producers: self.producers.min(records.try_into().unwrap_or(u32::MAX)),
            reporting_interval_ms,
            transaction_duration_ms: None,
            print_metrics: self.print_metrics,
            properties: Properties::new(),
            outputs: self.outputs(),
        };
        self.warn(console);
        let mut properties = self.properties()?;
        let transaction_duration_ms = self.transactions(duration, &mut properties);
        Ok(Plan { properties, transaction_duration_ms, ..plan })
    }

    /// An id by flag or property or a duration: any of them asks for transactions, and what is not
    /// given has a default.
    fn transactions(&self, duration_ms: Option<u64>, properties: &mut Properties) -> Option<u64> {
        let key = "transactional.id";
        if let Some(id) = &self.transactional_id {
            properties.insert(key.to_owned(), id.clone());
        }
        if duration_ms.is_none() && !properties.contains_key(key) {
            return None;
        }
        let random = || {
            let uuid = Uuid::from_random(fastrand::u128(..).to_be_bytes());
            format!("performance-producer-{uuid}")
        };
        properties.entry(key.to_owned()).or_insert_with(random);
        Some(duration_ms.unwrap_or(TRANSACTION_DURATION_MS))
    }

    fn source(&self) -> Result<Source, ToolError> {
        match (self.record_size, &self.payload_file, self.payload_monotonic) {
            (Some(size), None, false) => {
                let size_bytes = above_zero(size.into(), "--record-size")? as usize;
                Ok(Source::Letters { size_bytes, mode: self.payload_mode })
            }
            (None, Some(path), false) => {
                Ok(Source::File { path: path.clone(), delimiter: self.payload_delimiter.clone() })
            }
            (None, None, true) => Ok(Source::Monotonic),
            (None, None, false) => Err(ToolError::usage(
                "one of the arguments --record-size --payload-file --payload-monotonic is required",
            )),
            _ => Err(ToolError::usage(
                "only one of --record-size, --payload-file and --payload-monotonic is allowed",
            )),
        }
    }

    fn check_names(&self) -> Result<(), ToolError> {
        let new = ("--command-property", !self.command_property.is_empty());
        let old = ("--producer-props", !self.producer_props.is_empty());
        one_of_two(new, old)?;
        let new_file = ("--command-config", self.command_config.is_some());
        let old_file = ("--producer.config", self.producer_config.is_some());
        one_of_two(new_file, old_file)?;
        let any = new.1 || old.1 || new_file.1 || old_file.1 || self.bootstrap_server.is_some();
        match any {
            true => Ok(()),
            false => Err(ToolError::usage(
                "At least one of --bootstrap-server, --command-property, --producer-props, \
                 --producer.config or --command-config must be specified.",
            )),
        }
    }

    fn warmup(&self, records: u64) -> Result<u64, ToolError> {
        let warmup = u64::try_from(self.warmup_records)
            .map_err(|_| ToolError::usage("--warmup-records should not be negative."))?;
        match warmup < records {
            true => Ok(warmup),
            false => Err(ToolError::usage(
                "The value for --warmup-records must be strictly fewer than the number of records \
                 in the test, --num-records.",
            )),
        }
    }

    fn extras(&self) -> Result<Extras, ToolError> {
        if self.key_cardinality == 0 && self.key_distribution != Distribution::Uniform {
            return Err(ToolError::usage("--key-distribution zipf needs --key-cardinality"));
        }
        let key_bytes = self.record_key_size as usize;
        let digits = self.key_cardinality.saturating_sub(1).to_string().len();
        if self.key_cardinality > 0 && key_bytes > 0 && key_bytes < digits {
            let text = format!(
                "--record-key-size {key_bytes} has no room for the {digits} digits of so many keys"
            );
            return Err(ToolError::usage(text));
        }
        Ok(Extras {
            key_bytes: if self.key_cardinality > 0 { key_bytes.max(digits) } else { key_bytes },
            key_cardinality: self.key_cardinality,
            key_distribution: self.key_distribution,
            headers: self.num_headers as usize,
            header_name_bytes: self.record_header_key_size as usize,
            header_value_bytes: usize::try_from(self.record_header_size).ok(),
        })
    }

    fn outputs(&self) -> Outputs {
        let form = self.output.or(self.output_path.as_ref().map(|_| Form::Json));
        let file = form.zip(self.output_path.clone());
        Outputs { file, histogram: self.histogram.clone(), unit: self.latency_unit }
    }

    fn warn(&self, console: &Console) {
        let old = [
            (!self.producer_props.is_empty(), "--producer-props", "--command-property"),
            (self.producer_config.is_some(), "--producer.config", "--command-config"),
        ];
        for (_, old, new) in old.iter().filter(|(given, _, _)| *given) {
            console.line(format_args!(
                "Option {old} has been deprecated and will be removed in a future version. Use \
                 {new} instead."
            ));
        }
    }

    /// What stands above what: `--bootstrap-server`, pairs, the file.
    fn properties(&self) -> Result<Properties, ToolError> {
        let file = self.command_config.as_ref().or(self.producer_config.as_ref());
        let mut all = file.map_or(Ok(Properties::new()), |path| properties::load(path))?;
        all.extend(properties::of_strict_pairs(&self.command_property)?);
        all.extend(properties::of_strict_pairs(&self.producer_props)?);
        if let Some(servers) = &self.bootstrap_server {
            all.insert("bootstrap.servers".to_owned(), servers.clone());
        }
        let id = "perf-producer-client".to_owned();
        all.entry("client.id".to_owned()).or_insert(id);
        Ok(all)
    }
}
