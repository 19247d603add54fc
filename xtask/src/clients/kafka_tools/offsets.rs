//! kafka-get-offsets and kafka-delete-records.

use std::fs;

use anyhow::{Context as _, Result, ensure};

use crate::clients::scenario::{Context, Verdict, must_contain};

const TOOL: &str = "kafka-get-offsets";

fn one_offset(context: &Context<'_>, topic: &str, time: &str) -> Result<String> {
    let text = context.tool(TOOL, &["--topic", topic, "--time", time])?;
    let offset = text.trim().strip_prefix(&format!("{topic}:0:")).map(str::to_owned);
    offset.with_context(|| format!("not an offset of {topic}:\n{text}"))
}

/// Earliest, latest, the record with the greatest time stamp; by number and by name.
pub fn get_offsets(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("ends", 1)?;
    ensure!(one_offset(context, &topic, "-1")? == "0", "an empty log does not end at 0");
    for line in ["1\n", "2\n", "3\n"] {
        context.produce_lines(&topic, line)?;
    }
    let cases = [
        ("-1", "3"),
        ("latest", "3"),
        ("-2", "0"),
        ("earliest", "0"),
        ("-3", "2"),
        ("max-timestamp", "2"),
        ("-4", "0"),
    ];
    for (time, wanted) in cases {
        let offset = one_offset(context, &topic, time)?;
        ensure!(offset == wanted, "--time {time}: {offset}, not {wanted}");
    }
    Ok(Verdict::Pass)
}

/// The first record at or after a time.
pub fn by_time(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("times", 1)?;
    for line in ["1\n", "2\n", "3\n"] {
        context.produce_lines(&topic, line)?;
    }
    let consume = [
        "--topic",
        &topic,
        "--from-beginning",
        "--max-messages",
        "3",
        "--timeout-ms",
        "60000",
        "--formatter-property",
        "print.timestamp=true",
    ];
    let text = context.tool("kafka-console-consumer", &consume)?;
    let stamp = |line: &str| -> Option<i64> {
        line.strip_prefix("CreateTime:")?.split('\t').next()?.parse().ok()
    };
    let stamps: Vec<i64> = text.lines().filter_map(stamp).collect();
    ensure!(stamps.len() == 3 && stamps.is_sorted(), "no three time stamps in order:\n{text}");
    for (offset, time) in stamps.iter().enumerate() {
        for (asked, wanted) in [(*time, offset), (time + 1, offset + 1)] {
            let arguments = ["--topic", &topic, "--time", &asked.to_string()];
            let text = context.tool(TOOL, &arguments)?;
            // Past the last record there is no such offset: the tool then prints none, or the end.
            let found = text.trim() == format!("{topic}:0:{wanted}");
            ensure!(found || wanted == 3, "--time {asked}: {text}, not {wanted}");
        }
    }
    Ok(Verdict::Pass)
}

/// Everything below an offset goes; reading starts there.
pub fn delete_records(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("cut", 1)?;
    context.produce_lines(&topic, "0\n1\n2\n3\n4\n")?;
    let delete = |offset: i64| -> Result<String> {
        let file = context.folder().join("delete.json");
        fs::write(
            &file,
            format!(
                "{{\"partitions\":[{{\"topic\":\"{topic}\",\"partition\":0,\"offset\":{offset}}}],\"version\":1}}"
            ),
        )?;
        let path = file.display().to_string();
        context.tool("kafka-delete-records", &["--offset-json-file", &path])
    };
    must_contain(&delete(3)?, &[&format!("{topic}-0\tlow_watermark: 3")])?;
    ensure!(one_offset(context, &topic, "-2")? == "3", "the log does not start at 3");
    let consume =
        ["--topic", &topic, "--from-beginning", "--max-messages", "2", "--timeout-ms", "60000"];
    let text = context.tool("kafka-console-consumer", &consume)?;
    ensure!(text == "3\n4\n", "reading does not start at 3:\n{text}");
    must_contain(&delete(-1)?, &[&format!("{topic}-0\tlow_watermark: 5")])?;
    must_contain(&delete(99)?, &["OffsetOutOfRange"])?;
    Ok(Verdict::Pass)
}
