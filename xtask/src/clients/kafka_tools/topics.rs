//! kafka-topics and kafka-broker-api-versions.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};

use crate::clients::scenario::{Context, Verdict, must_contain, must_lack};

/// Every API that a plain client needs is offered in a version that the newest Java client uses.
pub fn api_versions(context: &Context<'_>) -> Result<Verdict> {
    let text = context.tool("kafka-broker-api-versions", &[])?;
    for api in ["Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "JoinGroup"] {
        let line = text.lines().find(|line| line.trim_start().starts_with(&format!("{api}(")));
        ensure!(line.is_some_and(|line| line.contains("usable")), "{api} is not usable:\n{text}");
    }
    for id in 1..=context.target().brokers {
        must_contain(&text, &[&format!(" (id: {id} rack: ")])?;
    }
    Ok(Verdict::Pass)
}

/// What a topic was created with is what is described and listed.
pub fn create_and_describe(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.name("made");
    let create =
        ["--create", "--topic", &topic, "--partitions", "3", "--config", "retention.ms=3600000"];
    let said = context.tool("kafka-topics", &create)?;
    must_contain(&said, &[&format!("Created topic {topic}.")])?;
    let described = context.tool("kafka-topics", &["--describe", "--topic", &topic])?;
    let replicas = format!("ReplicationFactor: {}", context.target().replicas());
    must_contain(&described, &["PartitionCount: 3", &replicas, "retention.ms=3600000"])?;
    must_contain(&described, &["TopicId: ", "Partition: 2", "Leader: ", "Isr: "])?;
    must_lack(&described, "Leader: none")?;
    let leaders: BTreeSet<&str> = described
        .split("Leader: ")
        .skip(1)
        .filter_map(|rest| rest.split_whitespace().next())
        .collect();
    let wanted = context.target().brokers.min(3);
    ensure!(
        leaders.len() == wanted,
        "{wanted} brokers do not share three partitions:\n{described}"
    );
    for what in
        ["--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions"]
    {
        let said = context.tool("kafka-topics", &["--describe", "--topic", &topic, what])?;
        ensure!(said.trim().is_empty(), "{what} of a new topic:\n{said}");
    }
    must_contain(&context.tool("kafka-topics", &["--list"])?, &[&topic])?;
    Ok(Verdict::Pass)
}

/// A name that is taken is refused, unless that is wanted.
pub fn create_twice(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("twice", 1)?;
    let again = ["--create", "--topic", &topic, "--partitions", "1"];
    let outcome = context.try_tool("kafka-topics", &again, b"")?;
    ensure!(!outcome.success(), "a second creation succeeded");
    must_contain(&(outcome.text() + &outcome.errors()), &["already exists"])?;
    context.tool("kafka-topics", &[&again[..], &["--if-not-exists"]].concat())?;
    Ok(Verdict::Pass)
}

/// Bad names, counts and configurations are refused with a word, and leave nothing behind.
pub fn create_refused(context: &Context<'_>) -> Result<Verdict> {
    let good = context.name("refused");
    let cases: [(&[&str], &str); 4] = [
        (&["--topic", "bad name!"], "InvalidTopicException"),
        (&["--topic", &good, "--replication-factor", "9"], "InvalidReplicationFactorException"),
        (&["--topic", &good, "--config", "retention.ms=soon"], "Invalid value soon"),
        (&["--topic", &good, "--config", "no.such.key=1"], "Unknown topic config name"),
    ];
    for (arguments, wanted) in cases {
        let outcome =
            context.try_tool("kafka-topics", &[&["--create"], arguments].concat(), b"")?;
        ensure!(!outcome.success(), "{arguments:?} was accepted");
        must_contain(&(outcome.text() + &outcome.errors()), &[wanted])?;
    }
    must_lack(&context.tool("kafka-topics", &["--list"])?, &good)?;
    Ok(Verdict::Pass)
}

/// Partitions can be added, never taken away.
pub fn add_partitions(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("grown", 2)?;
    context.tool("kafka-topics", &["--alter", "--topic", &topic, "--partitions", "5"])?;
    let described = context.tool("kafka-topics", &["--describe", "--topic", &topic])?;
    must_contain(&described, &["PartitionCount: 5"])?;
    let fewer = ["--alter", "--topic", &topic, "--partitions", "3"];
    let outcome = context.try_tool("kafka-topics", &fewer, b"")?;
    ensure!(!outcome.success(), "partitions were taken away");
    must_contain(&(outcome.text() + &outcome.errors()), &["InvalidPartitionsException"])?;
    Ok(Verdict::Pass)
}

/// A deleted topic is gone; its name can be used again and starts empty, under another id.
pub fn delete(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("deleted", 1)?;
    context.produce_lines(&topic, "one\ntwo\n")?;
    context.tool("kafka-topics", &["--delete", "--topic", &topic])?;
    must_lack(&context.tool("kafka-topics", &["--list"])?, &topic)?;
    let outcome = context.try_tool("kafka-topics", &["--describe", "--topic", &topic], b"")?;
    ensure!(!outcome.success(), "a deleted topic is still described");
    context.tool("kafka-topics", &["--create", "--topic", &topic, "--partitions", "1"])?;
    let offsets = context.tool("kafka-get-offsets", &["--topic", &topic])?;
    must_contain(&offsets, &[&format!("{topic}:0:0")])?;
    Ok(Verdict::Pass)
}
