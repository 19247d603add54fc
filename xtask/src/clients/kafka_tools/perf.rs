//! kafka-producer-perf-test, kafka-consumer-perf-test, kafka-e2e-latency and the verifiable clients.

use anyhow::{Context as _, Result, ensure};

use crate::clients::scenario::{Context, TOOL_LIMIT, Verdict, must_contain};
use peer::apache_kafka;
use peer::process;

/// All records are acknowledged with every codec.
pub fn producer(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("perf", 3)?;
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let compression = format!("compression.type={codec}");
        let text = context.tool(
            "kafka-producer-perf-test",
            &[
                "--topic",
                &topic,
                "--num-records",
                "20000",
                "--record-size",
                "200",
                "--throughput",
                "-1",
                "--command-property",
                &compression,
            ],
        )?;
        must_contain(&text, &["20000 records sent"])?;
    }
    must_count(context, &topic, 100_000)?;
    Ok(Verdict::Pass)
}

/// All records are read by a group of one.
pub fn consumer(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("perf", 3)?;
    context.tool(
        "kafka-producer-perf-test",
        &[
            "--topic",
            &topic,
            "--num-records",
            "50000",
            "--record-size",
            "100",
            "--throughput",
            "-1",
        ],
    )?;
    let text = context.tool(
        "kafka-consumer-perf-test",
        &["--topic", &topic, "--num-records", "50000", "--timeout", "60000", "--hide-header"],
    )?;
    let line = text.lines().last().unwrap_or_default();
    let count = line.split(", ").nth(4).context("no fifth column")?;
    ensure!(count == "50000", "{count} of 50000 records were read: {line}");
    Ok(Verdict::Pass)
}

/// Records come back one by one. This tool takes positions, not options.
pub fn end_to_end(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("latency", 1)?;
    for acks in ["1", "all"] {
        let arguments = [
            "--bootstrap-server",
            context.bootstrap(),
            "--topic",
            &topic,
            "--num-records",
            "500",
            "--producer-acks",
            acks,
            "--record-size",
            "100",
        ];
        let mut tool = apache_kafka::tool("kafka-e2e-latency", &arguments)?;
        let outcome = process::run(&mut tool, None, TOOL_LIMIT)?;
        ensure!(outcome.success(), "acks={acks}: {}", outcome.story());
        must_contain(&outcome.text(), &["Avg latency: ", "Percentiles: "])?;
    }
    Ok(Verdict::Pass)
}

/// Every record is acknowledged with the offset that it has.
pub fn verifiable_producer(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("verified", 1)?;
    for acks in ["1", "-1"] {
        let arguments = ["--topic", &topic, "--max-messages", "500", "--acks", acks];
        let text = context.tool("kafka-verifiable-producer", &arguments)?;
        let acked = text.matches("\"producer_send_success\"").count();
        ensure!(acked == 500, "{acked} of 500 records were acknowledged:\n{text}");
        must_contain(&text, &["\"sent\":500,\"acked\":500"])?;
    }
    must_count(context, &topic, 1000)?;
    Ok(Verdict::Pass)
}

/// Everything is consumed and committed.
pub fn verifiable_consumer(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("verified", 2)?;
    let group = context.name("group");
    context.tool("kafka-verifiable-producer", &["--topic", &topic, "--max-messages", "500"])?;
    let arguments = [
        "--topic",
        &topic,
        "--group-id",
        &group,
        "--max-messages",
        "500",
        "--reset-policy",
        "earliest",
    ];
    let text = context.tool("kafka-verifiable-consumer", &arguments)?;
    must_contain(&text, &["partitions_assigned", "offsets_committed", "\"success\":true"])?;
    Ok(Verdict::Pass)
}

/// The end offsets of all partitions add up to `wanted`.
fn must_count(context: &Context<'_>, topic: &str, wanted: u64) -> Result<()> {
    let text = context.tool("kafka-get-offsets", &["--topic", topic])?;
    let end = |line: &str| line.rsplit(':').next().and_then(|end| end.parse::<u64>().ok());
    let sum: u64 = text.lines().filter_map(end).sum();
    ensure!(sum == wanted, "{sum} records are in the log, not {wanted}:\n{text}");
    Ok(())
}
