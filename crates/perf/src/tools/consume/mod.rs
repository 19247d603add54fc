//! `kafka-consumer-perf-test`: reads records and reports how fast.
//!
//! Read `arguments` (what can be typed), then `progress` (what is counted and how the lines are made).
//! One consumer reads, in this thread, as in Kafka's tool since 2.0.

pub mod arguments;
pub mod progress;

use super::clock::Clock;
use super::console::Console;
use super::consumer_settings::ConsumerSettings;
use super::failure::ToolError;
use super::output;
use super::reach;
use super::settings::Settings;
use super::table::Metrics;
use arguments::{Arguments, Place, Plan, Subject};
use client::{Cluster, Consumer, OffsetSpec};
use model::{Offset, TopicPartition};
use progress::{DETAILED_HEADER, HEADER, Outcome, Progress, Span};
use std::sync::Arc;
use std::time::Duration;

/// How long a poll waits, as in Kafka's tool.
const POLL: Duration = Duration::from_millis(100);

/// Runs the tool with what was typed.
pub fn run(arguments: &Arguments, console: &Arc<Console>) -> Result<(), ToolError> {
    let plan = arguments.plan(console)?;
    plan.file.iter().try_for_each(|(_, path)| output::check_writable(path))?;
    let settings = Settings::new(plan.properties.clone());
    let consumer = ConsumerSettings::read(&settings, console)?;
    if plan.header {
        console.line(if plan.detailed { DETAILED_HEADER } else { HEADER });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|e| ToolError::failed(format!("cannot start: {e}")))?;
    runtime.block_on(consume(&plan, &settings, consumer, console))
}

async fn consume(
    plan: &Plan,
    settings: &Settings,
    consumer: ConsumerSettings,
    console: &Console,
) -> Result<(), ToolError> {
    let clock = Clock::start();
    let mut cluster = settings.cluster()?;
    cluster.allow_auto_create = consumer.allow_auto_create;
    let cluster = reach::connect(cluster, console).await?;
    let poll_records_max = consumer.poll_records_max;
    let mut reader = Consumer::new(cluster.clone(), consumer.config);
    place(&mut reader, &cluster, &plan.subject).await?;
    let mut run = Run {
        plan,
        console,
        clock,
        progress: Progress::new(
            clock.now_ms(),
            plan.records,
            plan.reporting_interval_ms,
            poll_records_max,
        ),
        intervals: Vec::new(),
        polls: 0,
        fetched_bytes: 0,
    };
    let timed_out = run.read(&mut reader).await?;
    let total = run.progress.whole(clock.now_ms());
    if timed_out {
        console.line(format_args!(
            "WARNING: Exiting before consuming the expected number of records: timeout ({} ms) \
             exceeded. You can use the --timeout option to increase the timeout.",
            plan.timeout_ms
        ));
    }
    run.report(total, timed_out, settings.text("client.id").unwrap_or_default())?;
    // The group forgets a member that goes without a word, too; only later.
    let _ = reader.close().await;
    Ok(())
}

/// Says what is read, and from where.
async fn place(
    reader: &mut Consumer,
    cluster: &Cluster,
    subject: &Subject,
) -> Result<(), ToolError> {
    match subject {
        Subject::Topic(name) => reader.subscribe(&[name])?,
        Subject::Pattern(pattern) => {
            let all = cluster.describe_all().await?;
            let known = all.topics.values().filter(|topic| !topic.is_internal);
            let matching: Vec<&str> =
                known.map(|topic| &*topic.name).filter(|name| pattern.is_match(name)).collect();
            reader.subscribe(&matching)?;
        }
        Subject::Partitions(topic, places) => {
            let partition = |index: &i32| TopicPartition::new(topic.as_str(), *index);
            let partitions: Vec<_> = places.iter().map(|(index, _)| partition(index)).collect();
            reader.assign(&partitions).await?;
            for (index, place) in places {
                let partition = partition(index);
                let offset = offset_of(reader, &partition, *place).await?;
                reader.seek(&partition, offset)?;
            }
        }
    }
    Ok(())
}

async fn offset_of(
    reader: &Consumer,
    partition: &TopicPartition,
    place: Place,
) -> Result<Offset, ToolError> {
    let spec = match place {
        Place::Offset(offset) => return Ok(Offset(offset)),
        Place::Earliest => OffsetSpec::Earliest,
        Place::Latest => OffsetSpec::Latest,
    };
    let found = reader.offsets(&[(partition.clone(), spec)]).await?;
    let found = found.get(partition).and_then(|found| found.offset);
    Ok(found.unwrap_or(Offset(0)))
}

/// A run.
struct Run<'a> {
    plan: &'a Plan,
    console: &'a Console,
    clock: Clock,
    progress: Progress,
    intervals: Vec<Span>,
    polls: u64,
    fetched_bytes: u64,
}

impl Run<'_> {
    /// Reads until there was enough; true if no record came for too long.
    async fn read(&mut self, reader: &mut Consumer) -> Result<bool, ToolError> {
        let mut buffer = Vec::new();
        while !self.progress.is_done() {
            // Joining a group takes as long as it takes; the timeout holds meanwhile, too.
            let idle_ms = self.clock.now_ms().saturating_sub(self.progress.consumed_ms());
            if idle_ms > self.plan.timeout_ms {
                return Ok(true);
            }
            let left = Duration::from_millis(self.plan.timeout_ms - idle_ms + 1);
            let polled = tokio::time::timeout(left, reader.poll(POLL)).await;
            let rebalance_ms = reader.rebalance_time().as_millis() as u64;
            self.progress.rebalanced(rebalance_ms);
            let Ok(polled) = polled else { continue };
            self.polls += 1;
            for fetched in polled? {
                self.fetched_bytes += fetched.size_bytes() as u64;
                let mut next = fetched.fetch_offset;
                fetched.for_each(&mut buffer, |record| {
                    if self.progress.is_done() {
                        return;
                    }
                    next = record.offset.plus(1);
                    let length = |bytes: Option<&[u8]>| bytes.map_or(0, <[u8]>::len) as u64;
                    let clock = self.clock;
                    let size_bytes = length(record.key) + length(record.value);
                    let span = self.progress.record(size_bytes, || clock.now_ms());
                    if let Some(span) = span {
                        self.interval(span);
                    }
                })?;
                if self.progress.is_done() {
                    // More was fetched than is counted: the group goes on there, not behind it.
                    reader.seek(&fetched.partition, next)?;
                }
            }
            self.progress.poll_ended();
        }
        Ok(false)
    }

    fn interval(&mut self, span: Span) {
        if self.plan.detailed {
            self.console.line(span.detailed_line(&self.plan.date_format));
        }
        self.intervals.push(span);
    }

    fn report(self, total: Span, timed_out: bool, client_id: &str) -> Result<(), ToolError> {
        if self.plan.summary {
            if self.plan.detailed && self.plan.header {
                self.console.line(HEADER);
            }
            self.console.line(total.line(&self.plan.date_format));
        }
        if self.plan.print_metrics {
            self.metrics(&total, client_id).print(self.console);
        }
        let Some((form, path)) = &self.plan.file else { return Ok(()) };
        let intervals = self.intervals;
        let tool = "kafka-consumer-perf-test";
        output::write_results(*form, path, &Outcome { tool, timed_out, total, intervals })
    }

    /// The consumer's counters under the names that Kafka's have, where they mean the same. Rates
    /// are means over the whole run.
    fn metrics(&self, total: &Span, client_id: &str) -> Metrics {
        const FETCH: &str = "consumer-fetch-manager-metrics";
        let seconds = (total.end_ms - total.start_ms) as f64 / 1000.0;
        let mut metrics = Metrics::default();
        metrics.text("app-info", "version", client_id, env!("CARGO_PKG_VERSION"));
        let rows = [
            ("bytes-consumed-total", self.fetched_bytes as f64),
            ("bytes-consumed-rate", self.fetched_bytes as f64 / seconds),
            ("records-consumed-total", total.records as f64),
            ("records-consumed-rate", total.records as f64 / seconds),
        ];
        for (name, value) in rows {
            metrics.number(FETCH, name, client_id, value);
        }
        let rebalance_ms = total.rebalance_ms as f64;
        let group = "consumer-coordinator-metrics";
        metrics.number(group, "rebalance-latency-total", client_id, rebalance_ms);
        metrics.number("consumer-metrics", "poll-total", client_id, self.polls as f64);
        metrics
    }
}
