//! Kafka's Java clients while brokers are killed in turn: the verifiable producer says what it was told of each
//! record, the console consumer reads alongside in a group.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use peer::apache_kafka;
use peer::process;
use serde_json::Value;

use crate::clients::scenario::{Context, Verdict};
use crate::clients::stream::{self, PER_SECOND, RECORDS, Reader, SEND_LIMIT, Told};

/// What is acknowledged stays, once and in order.
pub fn stays(context: &Context<'_>) -> Result<Verdict> {
    let topic = stream::make_topic(context)?;
    let group = context.name("group");
    let mut consume = vec![
        "--bootstrap-server",
        context.bootstrap(),
        "--topic",
        &topic,
        "--group",
        &group,
        "--from-beginning",
    ];
    for property in ["print.partition=true", "print.offset=true"] {
        consume.extend(["--formatter-property", property]);
    }
    let reader =
        Reader::start(context, apache_kafka::brief_tool("kafka-console-consumer", &consume)?)?;
    // Of itself this tool has its producer try nothing again.
    let config = context.folder().join(format!("{topic}.properties"));
    fs::write(&config, "retries=2147483647\nlinger.ms=5\n")?;
    let config = config.display().to_string();
    let (records, per_second) = (RECORDS.to_string(), PER_SECOND.to_string());
    let produce = [
        "--bootstrap-server",
        context.bootstrap(),
        "--topic",
        &topic,
        "--max-messages",
        &records,
        "--throughput",
        &per_second,
        "--acks",
        "-1",
        "--command-config",
        &config,
    ];
    let mut producer = apache_kafka::brief_tool("kafka-verifiable-producer", &produce)?;
    let outcome = process::run(&mut producer, None, SEND_LIMIT)?;
    let (told, mut errors) = answers(&outcome.text())?;
    let again =
        reader.check(&told).with_context(|| format!("the producer: {}", outcome.story()))?;
    for line in outcome.errors().lines().filter(|line| line.starts_with('[')) {
        *errors.entry(logged(line)).or_default() += 1;
    }
    Ok(Verdict::Told(format!(
        "{}; {} of {RECORDS} acknowledged, {again} read again by the group",
        stream::tell(&errors),
        told.len()
    )))
}

/// What the producer was told: of records, and which errors.
fn answers(output: &str) -> Result<(Vec<Told>, BTreeMap<String, usize>)> {
    let (mut told, mut errors) = (Vec::new(), BTreeMap::new());
    for line in output.lines().filter(|line| line.starts_with('{')) {
        let said: Value = serde_json::from_str(line).with_context(|| format!("no JSON: {line}"))?;
        match said["name"].as_str() {
            Some("producer_send_success") => {
                let number = said["value"].as_str().and_then(|value| value.parse().ok());
                let partition =
                    said["partition"].as_u64().and_then(|index| u32::try_from(index).ok());
                // Negative where a broker had the batch already.
                let place = partition.zip(said["offset"].as_u64());
                told.push((number.with_context(|| format!("no number: {line}"))?, place));
            }
            Some("producer_send_error") => {
                let class = said["exception"].as_str().unwrap_or("an error");
                let class = class.rsplit(['.', ' ']).next().unwrap_or(class);
                *errors.entry(format!("producing: {class}")).or_default() += 1;
            }
            _ => {}
        }
    }
    Ok((told, errors))
}

/// A line of the log without what differs each time: the kind of warning is what it begins with, up to the first
/// number or quotation.
fn logged(line: &str) -> String {
    let words = line.split_once("] ").map_or(line, |(_, rest)| rest);
    let words = words.rsplit_once("] ").map_or(words, |(_, rest)| rest);
    let end = words.find(|c: char| c.is_ascii_digit() || "(/'\"".contains(c));
    format!("logged: {}", words[..end.unwrap_or(words.len())].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_and_errors_are_told_apart() {
        let output = r#"{"timestamp":1,"name":"startup_complete"}
{"timestamp":2,"name":"producer_send_success","key":null,"value":"7","topic":"t","partition":1,"offset":3}
{"timestamp":2,"name":"producer_send_success","key":null,"value":"8","topic":"t","partition":2,"offset":-1}
{"timestamp":3,"name":"producer_send_error","exception":"class org.apache.kafka.common.errors.TimeoutException","value":"9"}
"#;
        let (told, errors) = answers(output).unwrap();
        assert_eq!(told, [(7, Some((1, 3))), (8, None)]);
        assert_eq!(errors, BTreeMap::from([("producing: TimeoutException".to_owned(), 1)]));
    }

    #[test]
    fn a_warning_is_known_by_its_kind() {
        let line = "[2026-01-01 10:00:00,000] WARN [Producer clientId=p-1] Connection to node 2 (/127.0.0.1:1) failed. (x.NetworkClient)";
        assert_eq!(logged(line), "logged: Connection to node");
    }
}
