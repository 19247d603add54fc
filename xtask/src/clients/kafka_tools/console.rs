//! kafka-console-producer and kafka-console-consumer.

use anyhow::{Result, ensure};

use crate::clients::scenario::{Context, Verdict, must_contain};

const CODECS: [&str; 5] = ["none", "gzip", "snappy", "lz4", "zstd"];

/// Keys, headers, null values, time stamps, partitions and offsets arrive as they left.
pub fn keys_and_headers(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("keys", 1)?;
    let lines = "a:1,b:2,a:3\tkey-1\tvalue-1\nNULL\tkey-2\tNULL\nc:\tkey-3\t\n";
    let produce = [
        "--topic",
        &topic,
        "--reader-property",
        "parse.key=true",
        "--reader-property",
        "parse.headers=true",
        "--reader-property",
        "null.marker=NULL",
    ];
    context.tool_fed("kafka-console-producer", &produce, lines.as_bytes())?;
    let mut consume =
        vec!["--topic", &topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "60000"];
    for property in ["key", "headers", "timestamp", "partition", "offset"] {
        consume.push("--formatter-property");
        consume.push(match property {
            "key" => "print.key=true",
            "headers" => "print.headers=true",
            "timestamp" => "print.timestamp=true",
            "partition" => "print.partition=true",
            _ => "print.offset=true",
        });
    }
    let text = context.tool("kafka-console-consumer", &consume)?;
    must_contain(
        &text,
        &[
            "Partition:0\tOffset:0\ta:1,b:2,a:3\tkey-1\tvalue-1\n",
            "Partition:0\tOffset:1\tNO_HEADERS\tkey-2\tnull\n",
            "Partition:0\tOffset:2\tc:\tkey-3\t\n",
        ],
    )?;
    let stamped = text.lines().filter(|line| line.starts_with("CreateTime:17")).count()
        + text.lines().filter(|line| line.starts_with("CreateTime:18")).count();
    ensure!(stamped == 3, "{stamped} of 3 records carry the time of their creation:\n{text}");
    Ok(Verdict::Pass)
}

/// The Java client's own encoders and decoders for every codec.
pub fn codecs(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("codecs", 1)?;
    let mut wanted = String::new();
    for codec in CODECS {
        let lines: String = (0..200).map(|i| format!("{codec} record {i} {codec}\n")).collect();
        let produce = ["--topic", &topic, "--compression-codec", codec];
        context.tool_fed("kafka-console-producer", &produce, lines.as_bytes())?;
        wanted += &lines;
    }
    let text = read(context, &topic, 1000)?;
    ensure!(text == wanted, "the lines came back changed:\n{text}");
    Ok(Verdict::Pass)
}

/// One partition from one offset on.
pub fn partition_and_offset(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("offset", 1)?;
    let lines: String = (0..50).map(|i| format!("line {i}\n")).collect();
    context.produce_lines(&topic, &lines)?;
    let consume = [
        "--topic",
        &topic,
        "--partition",
        "0",
        "--offset",
        "47",
        "--max-messages",
        "3",
        "--timeout-ms",
        "60000",
    ];
    let text = context.tool("kafka-console-consumer", &consume)?;
    ensure!(text == "line 47\nline 48\nline 49\n", "not the last three lines:\n{text}");
    Ok(Verdict::Pass)
}

/// A group goes on where it stopped.
pub fn group_continues(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("continued", 1)?;
    let group = context.name("group");
    let consume = [
        "--topic",
        &topic,
        "--group",
        &group,
        "--from-beginning",
        "--max-messages",
        "2",
        "--timeout-ms",
        "60000",
    ];
    context.produce_lines(&topic, "1\n2\n3\n4\n")?;
    let first = context.tool("kafka-console-consumer", &consume)?;
    let second = context.tool("kafka-console-consumer", &consume)?;
    ensure!(first == "1\n2\n" && second == "3\n4\n", "first:\n{first}second:\n{second}");
    Ok(Verdict::Pass)
}

/// A topic that is not there is made by the first record.
pub fn auto_create(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.name("auto");
    context.produce_lines(&topic, "hello\n")?;
    let text = read(context, &topic, 1)?;
    ensure!(text == "hello\n", "not what went in:\n{text}");
    Ok(Verdict::Pass)
}

/// Every level of acknowledgement, idempotence off and on.
pub fn acks(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("acks", 1)?;
    for (acks, idempotence) in [("0", "false"), ("1", "false"), ("all", "false"), ("all", "true")] {
        let acks = format!("acks={acks}");
        let idempotence = format!("enable.idempotence={idempotence}");
        let produce =
            ["--topic", &topic, "--command-property", &acks, "--command-property", &idempotence];
        context.tool_fed("kafka-console-producer", &produce, format!("{acks}\n").as_bytes())?;
    }
    let text = read(context, &topic, 4)?;
    ensure!(text == "acks=0\nacks=1\nacks=all\nacks=all\n", "not what went in:\n{text}");
    Ok(Verdict::Pass)
}

fn read(context: &Context<'_>, topic: &str, count: u32) -> Result<String> {
    let count = count.to_string();
    let consume =
        ["--topic", topic, "--from-beginning", "--max-messages", &count, "--timeout-ms", "60000"];
    context.tool("kafka-console-consumer", &consume)
}
