//! What can be typed behind `kafka-e2e-latency`: flags, or the positions of before 4.2.

use super::super::console::Console;
use super::super::failure::ToolError;
use super::super::output::{Form, Outputs, Unit};
use super::super::properties::{self, Properties};
use clap::Args;
use std::path::PathBuf;

/// Send records one by one and report how long until they were read, as kafka-e2e-latency does
#[derive(Debug, Clone, Args)]
#[command(after_help = super::super::E2E_LIMITS)]
pub struct Arguments {
    /// Required: the brokers to ask first, host:port, separated by commas
    #[arg(long)]
    bootstrap_server: Option<String>,
    /// Required: send to and read from this topic; it is made if it is missing
    #[arg(long, value_name = "topic-name")]
    topic: Option<String>,
    /// Required: how many records to send, one after the other
    #[arg(long, value_name = "count", allow_negative_numbers = true)]
    num_records: Option<i64>,
    /// Required: who must have a record before it counts as sent, 1 or all
    #[arg(long)]
    producer_acks: Option<String>,
    /// Required: size of each record's value in bytes
    #[arg(long, value_name = "bytes", allow_negative_numbers = true)]
    record_size: Option<i32>,
    /// A file of properties for producer and consumer
    #[arg(long, value_name = "config-file")]
    command_config: Option<PathBuf>,
    /// Size of each record's key in bytes; 0 for none
    #[arg(long, value_name = "bytes", default_value_t = 0, allow_negative_numbers = true)]
    record_key_size: i64,
    /// How many headers each record has
    #[arg(long, value_name = "count", default_value_t = 0, allow_negative_numbers = true)]
    num_headers: i64,
    /// Size of each header's name in bytes
    #[arg(long, value_name = "bytes", default_value_t = 0, allow_negative_numbers = true)]
    record_header_key_size: i64,
    /// Size of each header's value in bytes; -1 for null
    #[arg(long, value_name = "bytes", default_value_t = 0, allow_negative_numbers = true)]
    record_header_size: i64,
    /// The old form: bootstrap-server topic num-records producer-acks record-size [command-config]
    #[arg(value_name = "POSITIONAL", hide = true)]
    positions: Vec<String>,

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

/// What is to be done, after all checks.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The topic.
    pub topic: String,
    /// How many records.
    pub records: u64,
    /// `1` or `all`.
    pub acks: String,
    /// Of values.
    pub record_bytes: usize,
    /// Of keys; 0 for none.
    pub key_bytes: usize,
    /// How many headers.
    pub headers: usize,
    /// Of their names.
    pub header_name_bytes: usize,
    /// Of their values; `None` for null.
    pub header_value_bytes: Option<usize>,
    /// Of both clients, with `bootstrap.servers`.
    pub properties: Properties,
    /// What else is written.
    pub outputs: Outputs,
}

const POSITIONAL: &str = "WARNING: Positional argument usage is deprecated and will be removed in Apache Kafka 5.0. \
     Please use named arguments instead: --bootstrap-server, --topic, --num-records, \
     --producer-acks, --record-size, --command-config";

fn required<T>(value: Option<T>, name: &str) -> Result<T, ToolError> {
    value.ok_or_else(|| ToolError::usage(format!("Missing required argument \"[{name}]\"")))
}

/// A number of a flag that Kafka's tool refuses in these words.
fn at_least<T: TryFrom<i64>>(least: i64, value: i64, name: &str) -> Result<T, ToolError> {
    let must = match least {
        1 => "be a positive integer.",
        0 => "be a non-negative integer.",
        _ => "be a non-negative integer or -1 for null header value.",
    };
    let fits = T::try_from(value).ok().filter(|_| value >= least);
    fits.ok_or_else(|| ToolError::usage(format!("Value for --{name} must {must}")))
}

fn number<T: std::str::FromStr>(text: &str, name: &str) -> Result<Option<T>, ToolError> {
    let failed = |_| ToolError::failed(format!("Cannot parse argument '{text}' of option {name}"));
    text.parse().map(Some).map_err(failed)
}

impl Arguments {
    /// Checks all, says what is deprecated, and reads the properties.
    pub fn plan(&self, console: &Console) -> Result<Plan, ToolError> {
        match self.positions.len() {
            0 => self.named(),
            5 | 6 => {
                console.line(POSITIONAL);
                self.of_positions()?.named()
            }
            count => Err(ToolError::failed(format!(
                "Invalid number of arguments. Expected 5 or 6 positional arguments, but got \
                 {count}. Usage: bootstrap-server topic num-records producer-acks record-size \
                 [optional] command-config"
            ))),
        }
    }

    /// The same with names.
    fn of_positions(&self) -> Result<Arguments, ToolError> {
        let at = |index: usize| self.positions[index].clone();
        Ok(Arguments {
            bootstrap_server: Some(at(0)),
            topic: Some(at(1)),
            num_records: number(&at(2), "num-records")?,
            producer_acks: Some(at(3)),
            record_size: number(&at(4), "record-size")?,
            command_config: self.positions.get(5).map(PathBuf::from),
            positions: Vec::new(),
            ..self.clone()
        })
    }

    fn named(&self) -> Result<Plan, ToolError> {
        let servers = required(self.bootstrap_server.clone(), "bootstrap-server")?;
        let topic = required(self.topic.clone(), "topic")?;
        let records = required(self.num_records, "num-records")?;
        let acks = required(self.producer_acks.clone(), "producer-acks")?;
        let record_bytes = required(self.record_size, "record-size")?;
        if acks != "1" && acks != "all" {
            return Err(ToolError::usage(
                "Invalid value for --producer-acks. Latency testing requires synchronous \
                 acknowledgement. Please use '1' or 'all'.",
            ));
        }
        let header_value_bytes = match self.record_header_size {
            -1 => None,
            size => Some(at_least(-1, size, "record-header-size")?),
        };
        let file = self.command_config.as_ref();
        let mut properties = file.map_or(Ok(Properties::new()), |path| properties::load(path))?;
        properties.insert("bootstrap.servers".to_owned(), servers);
        let form = self.output.or(Some(Form::Json));
        Ok(Plan {
            topic,
            records: at_least(1, records, "num-records")?,
            acks,
            record_bytes: at_least(0, record_bytes.into(), "record-size")?,
            key_bytes: at_least(0, self.record_key_size, "record-key-size")?,
            headers: at_least(0, self.num_headers, "num-headers")?,
            header_name_bytes: at_least(0, self.record_header_key_size, "record-header-key-size")?,
            header_value_bytes,
            properties,
            outputs: Outputs {
                file: form.zip(self.output_path.clone()),
                histogram: self.histogram.clone(),
                unit: self.latency_unit,
            },
        })
    }
}
