//! `kafka-e2e-latency`: sends a record, waits until it can be read, and so on; reports how long each
//! took. Producer and consumer share a thread and a clock.

pub mod arguments;

use super::console::Console;
use super::consumer_settings::ConsumerSettings;
use super::failure::ToolError;
use super::letters::Letters;
use super::number::{fixed, shortest};
use super::output::{self, LatencyUs, Results, Unit, cell, histogram_us};
use super::producer_settings::ProducerSettings;
use super::properties::Properties;
use super::reach;
use super::settings::Settings;
use arguments::{Arguments, Plan};
use client::admin::NewTopic;
use client::{Admin, Cluster, Consumer, ConsumerRecord, OffsetReset, Producer, Record};
use model::TopicPartition;
use serde::Serialize;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a record may take.
const TIMEOUT: Duration = Duration::from_secs(60);
/// Time of one poll before the ends of all partitions are known.
const POLL: Duration = Duration::from_millis(10);

/// Runs the tool with what was typed.
pub fn run(arguments: &Arguments, console: &Arc<Console>) -> Result<(), ToolError> {
    let plan = arguments.plan(console)?;
    plan.outputs.check()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| ToolError::failed(format!("cannot start: {e}")))?;
    let latencies = runtime.block_on(measure(&plan, console))?;
    report(&plan, latencies, console)
}

/// A record as it was sent.
struct Sent {
    key: Option<Vec<u8>>,
    value: Vec<u8>,
    headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Sent {
    fn draw(plan: &Plan, letters: &mut Letters) -> Sent {
        let header = |letters: &mut Letters| {
            let name = letters.take(plan.header_name_bytes);
            let name = String::from_utf8(name).expect("letters from A to Z are text");
            (name, plan.header_value_bytes.map(|size| letters.take(size)))
        };
        Sent {
            key: (plan.key_bytes > 0).then(|| letters.take(plan.key_bytes)),
            value: letters.take(plan.record_bytes),
            headers: (0..plan.headers).map(|_| header(letters)).collect(),
        }
    }

    fn headers(&self) -> Vec<(&str, Option<&[u8]>)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_deref())).collect()
    }

    /// What differs in the record that was read.
    fn difference(&self, read: &ConsumerRecord<'_>) -> Option<&'static str> {
        let headers = read.headers().eq(self.headers());
        match () {
            () if read.key != self.key.as_deref() => Some("key"),
            () if read.value != Some(&self.value[..]) => Some("value"),
            () if !headers => Some("headers"),
            () => None,
        }
    }
}

/// Producer and consumer, ready.
struct Ends {
    producer: Producer,
    consumer: Consumer,
}

async fn ends(plan: &Plan, console: &Console) -> Result<Ends, ToolError> {
    let with = |more: &[(&str, &str)]| {
        let mut all: Properties = plan.properties.clone();
        all.extend(more.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        Settings::new(all)
    };
    let for_producer = with(&[("linger.ms", "0"), ("acks", &plan.acks)]);
    let for_consumer = with(&[("fetch.max.wait.ms", "0"), ("enable.auto.commit", "false")]);
    // One file serves both clients: unknown to one may be known to the other.
    let silent = Console::of(std::io::sink(), std::io::sink());
    let producing = ProducerSettings::read(&for_producer, &silent)?.config;
    if producing.transactional_id.is_some() {
        let reason = "this tool sends each record by itself, in no transaction";
        return Err(for_producer.refuse("transactional.id", reason));
    }
    let mut consuming = ConsumerSettings::read(&for_consumer, &silent)?.config;
    (consuming.group_id, consuming.offset_reset) = (None, OffsetReset::Latest);
    let cluster = reach::connect(for_producer.cluster()?, console).await?;
    make_topic(&cluster, &plan.topic, console).await?;
    let topic = cluster.topic(&plan.topic).await?;
    let mut consumer = Consumer::new(cluster.clone(), consuming);
    let partition = |index| TopicPartition::new(plan.topic.as_str(), index);
    let partitions: Vec<_> = (0..topic.partitions.len() as i32).map(partition).collect();
    consumer.assign(&partitions).await?;
    find_ends(&mut consumer, &partitions).await?;
    Ok(Ends { producer: Producer::new(cluster, producing).await?, consumer })
}

/// Waits until the consumer has the end of each partition: an end that is found after the first record is sent hides the record.
async fn find_ends(
    consumer: &mut Consumer,
    partitions: &[TopicPartition],
) -> Result<(), ToolError> {
    let deadline = Instant::now() + TIMEOUT;
    while partitions.iter().any(|partition| consumer.position(partition).is_none()) {
        if Instant::now() >= deadline {
            return Err(ToolError::failed(format!(
                "the ends of the topic could not be read within {} ms",
                TIMEOUT.as_millis()
            )));
        }
        consumer.poll(POLL).await?;
    }
    Ok(())
}

async fn make_topic(cluster: &Cluster, name: &str, console: &Console) -> Result<(), ToolError> {
    if cluster.describe_all().await?.topics.contains_key(name) {
        return Ok(());
    }
    console.line(format_args!(
        "Topic \"{name}\" does not exist. Will create topic with 1 partition(s) and replication \
         factor = 1"
    ));
    Admin::new(cluster.clone()).create_topic(&NewTopic::new(name, 1, 1)).await?;
    Ok(())
}

async fn measure(plan: &Plan, console: &Console) -> Result<Vec<Duration>, ToolError> {
    let Ends { producer, mut consumer } = ends(plan, console).await?;
    let mut letters = Letters::new(0);
    let mut latencies = Vec::with_capacity(plan.records.min(1 << 24) as usize);
    for number in 0..plan.records {
        let sent = Sent::draw(plan, &mut letters);
        let latency = once(plan, &producer, &mut consumer, &sent).await?;
        if number % 1000 == 0 {
            let (time, _) = in_unit(latency, plan.outputs.unit);
            console.line(format_args!("{number}\t{}", shortest(time)));
        }
        latencies.push(latency);
    }
    let _ = consumer.close().await;
    Ok(latencies)
}

async fn once(
    plan: &Plan,
    producer: &Producer,
    consumer: &mut Consumer,
    sent: &Sent,
) -> Result<Duration, ToolError> {
    let headers = sent.headers();
    let record = Record {
        key: sent.key.as_deref(),
        value: Some(&sent.value),
        headers: &headers,
        ..Record::default()
    };
    let began = Instant::now();
    producer.send(&plan.topic, &record).await?.wait().await?;
    let polled = consumer.poll(TIMEOUT).await?;
    let latency = began.elapsed();
    let (mut count, mut difference) = (0, None);
    for fetched in polled {
        count += fetched.for_each(&mut Vec::new(), |read| {
            difference = difference.or_else(|| sent.difference(&read));
        })?;
    }
    match (count, difference) {
        (0, _) => Err(ToolError::failed(format!(
            "the record could not be read within {} ms",
            TIMEOUT.as_millis()
        ))),
        (1, None) => Ok(latency),
        (1, Some(part)) => {
            Err(ToolError::failed(format!("the {part} that was read is not the one that was sent")))
        }
        _ => Err(ToolError::failed(format!("one record was sent, but {count} were read"))),
    }
}

/// A latency in the lines' unit: exactly, and as a whole number of it.
fn in_unit(latency: Duration, unit: Unit) -> (f64, u64) {
    let ns = latency.as_nanos() as f64;
    match unit {
        Unit::Ms => (ns / 1000.0 / 1000.0, latency.as_millis() as u64),
        Unit::Us => (ns / 1000.0, latency.as_micros() as u64),
    }
}

/// The last two lines.
fn summary(latencies: &[Duration], unit: Unit) -> String {
    let total: Duration = latencies.iter().sum();
    let avg = in_unit(total, unit).0 / latencies.len() as f64;
    let mut sorted: Vec<u64> = latencies.iter().map(|l| in_unit(*l, unit).1).collect();
    sorted.sort_unstable();
    let at = |p: f64| sorted.get((sorted.len() as f64 * p) as usize).copied().unwrap_or_default();
    format!(
        "Avg latency: {} {}\nPercentiles: 50th = {}, 99th = {}, 99.9th = {}",
        fixed(avg, 4),
        unit.name(),
        at(0.5),
        at(0.99),
        at(0.999)
    )
}

/// All that is known of a run, for its file.
#[derive(Debug, Serialize)]
struct Outcome {
    tool: &'static str,
    topic: String,
    records: u64,
    latency_us: Option<LatencyUs>,
}

impl Results for Outcome {
    const COLUMNS: &'static [&'static str] =
        &["records", "avg_us", "p50_us", "p95_us", "p99_us", "p999_us", "max_us"];

    fn rows(&self) -> Vec<Vec<String>> {
        let mut row = vec![self.records.to_string()];
        row.extend(self.latency_us.map(|us| cell(us.avg)));
        let rest = self.latency_us.map(|us| [us.p50, us.p95, us.p99, us.p999, us.max]);
        row.extend(rest.iter().flatten().map(u64::to_string));
        row.resize(Outcome::COLUMNS.len(), String::new());
        vec![row]
    }
}

fn report(plan: &Plan, latencies: Vec<Duration>, console: &Console) -> Result<(), ToolError> {
    console.line(summary(&latencies, plan.outputs.unit));
    let mut histogram = histogram_us();
    for latency in &latencies {
        histogram.saturating_record((latency.as_micros() as u64).max(1));
    }
    if let Some(path) = &plan.outputs.histogram {
        output::write_histogram(path, &histogram)?;
    }
    let Some((form, path)) = &plan.outputs.file else { return Ok(()) };
    let outcome = Outcome {
        tool: "kafka-e2e-latency",
        topic: plan.topic.clone(),
        records: latencies.len() as u64,
        latency_us: LatencyUs::of(&histogram),
    };
    output::write_results(*form, path, &outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_has_the_form_of_kafkas_tool() {
        let latencies: Vec<_> = (1..=1000).map(|i| Duration::from_micros(i * 10)).collect();
        assert_eq!(
            summary(&latencies, Unit::Ms),
            "Avg latency: 5.0050 ms\nPercentiles: 50th = 5, 99th = 9, 99.9th = 10"
        );
        assert_eq!(
            summary(&latencies, Unit::Us),
            "Avg latency: 5005.0000 us\nPercentiles: 50th = 5010, 99th = 9910, 99.9th = 10000"
        );
        assert!(summary(&[], Unit::Ms).starts_with("Avg latency: NaN ms\n"));
    }
}
