//! kafka-log-dirs, and kafka-dump-log on the broker's own files.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::clients::scenario::{Context, TOOL_LIMIT, Verdict, must_contain, must_lack};
use peer::apache_kafka;
use peer::process;

/// The size on disk of what was written.
pub fn log_dirs(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("sized", 2)?;
    context.produce_lines(&topic, "hello\nworld\n")?;
    let text = context.tool("kafka-log-dirs", &["--describe", "--topic-list", &topic])?;
    let line = text.lines().find(|line| line.starts_with('{')).context("no JSON in the answer")?;
    let answer: serde_json::Value = serde_json::from_str(line)?;
    let brokers = answer["brokers"].as_array().context("no brokers")?;
    let wanted = context.target().brokers;
    ensure!(brokers.len() == wanted, "{} brokers, not {wanted}: {line}", brokers.len());
    // Of three brokers or fewer each has a replica of every partition.
    let replicas = context.target().replicas();
    let mut copies = 0;
    for folder in brokers.iter().map(|broker| &broker["logDirs"][0]) {
        ensure!(folder["error"].is_null(), "the log directory reports {}", folder["error"]);
        let partitions = folder["partitions"].as_array().context("no partitions")?;
        copies += partitions.len();
        let sum: u64 = partitions.iter().filter_map(|partition| partition["size"].as_u64()).sum();
        ensure!(sum > 60 || replicas < wanted, "two records take {sum} bytes: {line}");
    }
    ensure!(copies == 2 * replicas, "{copies} replicas, not {}: {line}", 2 * replicas);
    Ok(Verdict::Pass)
}

/// Kafka's reader of log files finds the records and nothing wrong in segments, indexes and
/// producer snapshots.
pub fn dump_log(context: &Context<'_>) -> Result<Verdict> {
    let Some(data) = context.target().data_folder.clone() else {
        return Ok(Verdict::Skip("the data folder of a cluster elsewhere is out of reach".into()));
    };
    let topic = context.name("dumped");
    let small = [
        "--create",
        "--topic",
        &topic,
        "--partitions",
        "1",
        "--config",
        "segment.bytes=1048576",
        "--config",
        "index.interval.bytes=256",
    ];
    context.tool("kafka-topics", &small)?;
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let compression = format!("compression.type={codec}");
        context.tool(
            "kafka-producer-perf-test",
            &[
                "--topic",
                &topic,
                "--num-records",
                "3000",
                "--record-size",
                "300",
                "--throughput",
                "-1",
                "--command-property",
                &compression,
            ],
        )?;
    }
    let folder = data.join(format!("{topic}-0"));
    let segments = files(&folder, "log")?;
    ensure!(segments.len() > 1, "nothing was rolled: {segments:?}");
    wait_for_last_batch_at_end(segments.last().context("no segment")?)?;
    let said = dump(&segments, &["--deep-iteration"])?;
    let records = said.lines().filter(|line| line.trim_start().starts_with("| offset: ")).count();
    ensure!(records == 15_000, "{records} records in the files, not 15000");
    must_contain(&said, &["isvalid: true"])?;
    must_lack(&said, "isvalid: false")?;
    let sealed = |ending: &str| -> Result<Vec<PathBuf>> {
        let mut files = files(&folder, ending)?;
        files.truncate(segments.len() - 1);
        Ok(files)
    };
    for ending in ["index", "timeindex"] {
        let said = dump(&sealed(ending)?, &["--index-sanity-check"])?;
        must_contain(&said, &["passed sanity check"])?;
        let said = dump(&sealed(ending)?, &[])?;
        must_lack(&said, "Found ")?;
        must_lack(&said, "Mismatch")?;
    }
    dump(&files(&folder, "snapshot")?, &[])?;
    Ok(Verdict::Pass)
}

/// Waits until the file of the active segment ends where its batches do: of a log that is not appended to any
/// more Highwater soon gives the zeros ahead of its end back. Kafka's reader calls zeros, its own
/// (`preallocate`) included, a batch that it does not know.
fn wait_for_last_batch_at_end(active: &std::path::Path) -> Result<()> {
    let began = Instant::now();
    while fs::read(active)?.ends_with(&[0; 64]) {
        ensure!(began.elapsed() < TOOL_LIMIT, "{} still ends in zeros", active.display());
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// The files of a partition with this ending, in order.
fn files(folder: &std::path::Path, ending: &str) -> Result<Vec<PathBuf>> {
    let entries =
        fs::read_dir(folder).with_context(|| format!("no folder {}", folder.display()))?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|found| found == ending))
        .collect();
    files.sort();
    ensure!(!files.is_empty(), "no .{ending} file in {}", folder.display());
    Ok(files)
}

fn dump(files: &[PathBuf], options: &[&str]) -> Result<String> {
    let files: Vec<String> = files.iter().map(|file| file.display().to_string()).collect();
    let list = files.join(",");
    let mut arguments = vec!["--files", list.as_str()];
    arguments.extend(options);
    let mut tool = apache_kafka::brief_tool("kafka-dump-log", &arguments)?;
    let outcome = process::run(&mut tool, None, TOOL_LIMIT)?;
    ensure!(outcome.success(), "kafka-dump-log {options:?}: {}", outcome.story());
    Ok(outcome.text())
}
