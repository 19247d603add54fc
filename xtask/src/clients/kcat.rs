//! kcat, as Debian ships it: librdkafka 2.0.2, the oldest that is still common.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::report::{Ending, Row, print_row};
use super::scenario::{Context, Scenario, Verdict, must_contain};
use super::stream::{self, PER_SECOND, RECORDS, Reader, SEND_LIMIT, Told};
use super::target::Target;
use super::{Arguments, run_scenarios};
use peer::apt;
use peer::process::{self, Guarded, Outcome};

/// How long one call may take.
const LIMIT: Duration = Duration::from_secs(90);

/// kcat's scenarios.
pub const SCENARIOS: [Scenario; 15] = [
    ("list", list),
    ("keys-headers", keys_and_headers),
    ("null-and-empty", null_and_empty),
    ("codecs", codecs),
    ("acks", acks),
    ("idempotence", idempotence),
    ("large-message", large_message),
    ("partitions", partitions),
    ("offset-ranges", offset_ranges),
    ("offsets-by-time", offsets_by_time),
    ("group", group),
    ("auto-create", auto_create),
    ("error-unknown-topic", unknown_topic),
    ("error-too-large", too_large),
    ("restarts", restarts),
];

/// Runs kcat's scenarios; one row says why when it cannot be had.
pub fn run(arguments: &Arguments, target: &Target, run: &str, rows: &mut Vec<Row>) -> Result<()> {
    match installed_version() {
        Ok(version) => {
            let context = Context::new(target, run)?;
            run_scenarios(arguments, "kcat", &version, &SCENARIOS, &context, rows);
        }
        Err(why) => {
            let row = Row {
                client: "kcat".into(),
                version: String::new(),
                scenario: "all".into(),
                result: Ending::Skip,
                reason: format!("{why:#}"),
                seconds: 0.0,
            };
            print_row(&row);
            rows.push(row);
        }
    }
    Ok(())
}

/// The version of kcat and that of the librdkafka inside it. It is installed when that is possible here.
pub fn installed_version() -> Result<String> {
    let ask = || process::run(process::command("kcat").arg("-V"), None, LIMIT);
    let answer = match ask() {
        Ok(outcome) if outcome.success() => outcome,
        _ => {
            install().context("kcat is not installed: `apt-get install kcat` brings it")?;
            ask()?
        }
    };
    version(&answer.text())
}

/// Reads what `kcat -V` says: `Version 1.7.1 (JSON, …, librdkafka 2.0.2 builtin.features=…)`.
fn version(text: &str) -> Result<String> {
    let word_behind = |words: &str| text.split(words).nth(1)?.split_whitespace().next();
    let kcat = word_behind("Version ").context("kcat -V names no version")?;
    let library = word_behind("librdkafka ").context("kcat -V names no librdkafka")?;
    Ok(format!("{kcat} (librdkafka {library})"))
}

fn install() -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "only root may install it");
    for arguments in [&["update", "-q"][..], &["install", "-y", "-q", "kcat"]] {
        let outcome = apt::run(arguments, Path::new("/"), Duration::from_secs(300))?;
        ensure!(outcome.success(), "apt-get {arguments:?}: {}", outcome.story());
    }
    Ok(())
}

fn try_kcat(context: &Context<'_>, arguments: &[&str], input: &[u8]) -> Result<Outcome> {
    let mut kcat = process::command("kcat");
    kcat.args(["-b", context.bootstrap(), "-m", "30"]).args(arguments);
    process::run(&mut kcat, Some(input.to_vec()), LIMIT)
}

fn kcat(context: &Context<'_>, arguments: &[&str], input: &[u8]) -> Result<String> {
    let outcome = try_kcat(context, arguments, input)?;
    ensure!(outcome.success(), "kcat {arguments:?}: {}", outcome.story());
    Ok(outcome.text())
}

/// Brokers, topics, partitions; as text and as JSON.
fn list(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("listed", 3)?;
    let text = kcat(context, &["-L", "-t", &topic], b"")?;
    let brokers = context.target().brokers;
    must_contain(
        &text,
        &[&format!("{brokers} brokers:"), &format!("topic \"{topic}\" with 3 partitions")],
    )?;
    let json: serde_json::Value =
        serde_json::from_str(&kcat(context, &["-L", "-J", "-t", &topic], b"")?)?;
    let partitions = json["topics"][0]["partitions"].as_array().context("no partitions")?;
    ensure!(partitions.len() == 3, "{} partitions, not 3", partitions.len());
    ensure!(json["controllerid"].as_i64().is_some_and(|id| id >= 0), "no controller: {json}");
    Ok(Verdict::Pass)
}

/// Keys, several headers of one name, and every verb of the format.
fn keys_and_headers(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("headers", 1)?;
    let produce = ["-P", "-t", &topic, "-K", ":", "-H", "a=1", "-H", "b=2", "-H", "a=3", "-H", "n"];
    kcat(context, &produce, b"k1:v1\nk2:v2\n")?;
    let format = "%t|%p|%o|%K|%k|%S|%s|%h|%T\n";
    let text = kcat(context, &["-C", "-e", "-q", "-t", &topic, "-f", format], b"")?;
    must_contain(&text, &[&format!("{topic}|0|0|2|k1|2|v1|a=1,b=2,a=3,n=NULL|17")]).or_else(
        |_| must_contain(&text, &[&format!("{topic}|0|0|2|k1|2|v1|a=1,b=2,a=3,n=NULL|18")]),
    )?;
    must_contain(&text, &[&format!("{topic}|0|1|2|k2|2|v2|a=1,b=2,a=3,n=NULL|")])?;
    Ok(Verdict::Pass)
}

/// Null and empty are two things (`%K` and `%S` say −1 and 0).
fn null_and_empty(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("nulls", 1)?;
    kcat(context, &["-P", "-t", &topic, "-K", ":", "-Z"], b"key:\n:value\n")?;
    kcat(context, &["-P", "-t", &topic, "-K", ":"], b"key:\n:value\n")?;
    let text = kcat(context, &["-C", "-e", "-q", "-t", &topic, "-f", "%K/%S "], b"")?;
    ensure!(text == "3/-1 -1/5 3/0 0/5 ", "lengths of keys and values: {text}");
    Ok(Verdict::Pass)
}

/// librdkafka's encoders and decoders for every codec.
fn codecs(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("codecs", 1)?;
    let mut wanted = String::new();
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let lines: String = (0..500).map(|i| format!("{codec} record {i} {codec}\n")).collect();
        kcat(context, &["-P", "-t", &topic, "-z", codec], lines.as_bytes())?;
        wanted += &lines;
    }
    let text = kcat(context, &["-C", "-e", "-q", "-t", &topic, "-X", "check.crcs=true"], b"")?;
    ensure!(text == wanted, "the lines came back changed ({} bytes)", text.len());
    Ok(Verdict::Pass)
}

/// No answer, the leader's answer, everybody's answer.
fn acks(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("acks", 1)?;
    let mut wanted = String::new();
    for (count, acks) in ["1", "2", "3"].into_iter().zip(["0", "1", "-1"]) {
        let (setting, line) = (format!("acks={acks}"), format!("{acks}\n"));
        kcat(context, &["-P", "-t", &topic, "-X", &setting], line.as_bytes())?;
        wanted += &line;
        // Nobody answers the first one: it is read before the next one is sent, which could be quicker.
        let text = kcat(context, &["-C", "-c", count, "-q", "-t", &topic, "-o", "beginning"], b"")?;
        ensure!(text == wanted, "not what went in: {text}");
    }
    Ok(Verdict::Pass)
}

/// An idempotent producer.
fn idempotence(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("once", 1)?;
    let lines: String = (0..20_000).map(|i| format!("{i}\n")).collect();
    let settings =
        ["-X", "enable.idempotence=true", "-X", "linger.ms=1", "-X", "batch.num.messages=100"];
    kcat(context, &[&["-P", "-t", &topic], &settings[..]].concat(), lines.as_bytes())?;
    let text = kcat(context, &["-C", "-e", "-q", "-t", &topic], b"")?;
    ensure!(text == lines, "not exactly what went in, in its order ({} bytes)", text.len());
    Ok(Verdict::Pass)
}

/// A record just under the default limit.
fn large_message(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("large", 1)?;
    let file = context.folder().join("large");
    let bytes: Vec<u8> =
        (0..900_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(&file, &bytes)?;
    let path = file.display().to_string();
    kcat(context, &["-P", "-t", &topic, &path], b"")?;
    let outcome = try_kcat(context, &["-C", "-e", "-q", "-t", &topic, "-f", "%s"], b"")?;
    ensure!(outcome.stdout == bytes, "{} bytes came back changed", outcome.stdout.len());
    Ok(Verdict::Pass)
}

/// A chosen partition, and the partitioner of Java's producer.
fn partitions(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("spread", 4)?;
    for partition in ["0", "1", "2", "3"] {
        kcat(context, &["-P", "-t", &topic, "-p", partition], partition.as_bytes())?;
        let text =
            kcat(context, &["-C", "-e", "-q", "-t", &topic, "-p", partition, "-f", "%s"], b"")?;
        ensure!(text == partition, "partition {partition} holds {text}");
    }
    let keyed: String = (0..100).map(|i| format!("key-{i}:x\n")).collect();
    let settings = ["-X", "topic.partitioner=murmur2_random"];
    kcat(context, &[&["-P", "-t", &topic, "-K", ":"], &settings[..]].concat(), keyed.as_bytes())?;
    let text = kcat(context, &["-C", "-e", "-q", "-t", &topic, "-f", "%p "], b"")?;
    ensure!(text.split_whitespace().count() == 104, "not 104 records: {text}");
    Ok(Verdict::Pass)
}

/// From the start, from an offset, the last few, from the end.
fn offset_ranges(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("ranges", 1)?;
    let lines: String = (0..100).map(|i| format!("{i}\n")).collect();
    kcat(context, &["-P", "-t", &topic], lines.as_bytes())?;
    for (from, wanted) in [("beginning", "0"), ("42", "42"), ("-5", "95"), ("99", "99")] {
        let text = kcat(context, &["-C", "-e", "-q", "-t", &topic, "-o", from, "-f", "%s "], b"")?;
        let first = text.split_whitespace().next();
        ensure!(first == Some(wanted), "-o {from} starts at {first:?}, not {wanted}");
        ensure!(text.ends_with("99 "), "-o {from} does not reach the end: {text}");
    }
    let text = kcat(context, &["-C", "-e", "-q", "-t", &topic, "-o", "end"], b"")?;
    ensure!(text.is_empty(), "-o end reads {text}");
    Ok(Verdict::Pass)
}

/// `-Q` and `-o s@…` agree with the time stamps that the records have.
fn offsets_by_time(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("times", 1)?;
    for line in ["0\n", "1\n", "2\n"] {
        kcat(context, &["-P", "-t", &topic], line.as_bytes())?;
    }
    let text = kcat(context, &["-C", "-e", "-q", "-t", &topic, "-f", "%T\n"], b"")?;
    let stamps: Vec<&str> = text.lines().collect();
    ensure!(stamps.len() == 3, "not three records: {text}");
    let query = format!("{topic}:0:{}", stamps[1]);
    let answer = kcat(context, &["-Q", "-t", &query], b"")?;
    let wanted = stamps.iter().position(|stamp| *stamp == stamps[1]).unwrap_or_default();
    must_contain(&answer, &[&format!("{topic} [0] offset {wanted}")])?;
    let from = format!("s@{}", stamps[2]);
    let text = kcat(context, &["-C", "-e", "-q", "-t", &topic, "-o", &from, "-f", "%s"], b"")?;
    ensure!(text.ends_with('2'), "-o {from} reads {text}");
    Ok(Verdict::Pass)
}

/// A balanced consumer goes on where the one before stopped.
fn group(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("grouped", 2)?;
    let group = context.name("group");
    let lines: String = (0..20).map(|i| format!("{i:02}\n")).collect();
    kcat(context, &["-P", "-t", &topic, "-p", "0"], lines.as_bytes())?;
    let consume = |count: &str, settings: &[&str]| -> Result<String> {
        let common = ["-q", "-c", count, "-X", "auto.offset.reset=earliest"];
        let all = [&["-G", &group], &common[..], settings, &[&topic]].concat();
        kcat(context, &all, b"")
    };
    let first = consume("12", &[])?;
    let second = consume("8", &["-X", "partition.assignment.strategy=cooperative-sticky"])?;
    ensure!(first + &second == lines, "the two consumers did not read everything once, in order");
    Ok(Verdict::Pass)
}

/// The first record makes the topic.
fn auto_create(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.name("auto");
    kcat(context, &["-P", "-t", &topic], b"hello\n")?;
    let text = kcat(context, &["-C", "-e", "-q", "-t", &topic], b"")?;
    ensure!(text == "hello\n", "not what went in: {text}");
    // The first command that the broker prints may be a reader's.
    let other = context.name("auto-read");
    let allowed = ["-C", "-e", "-q", "-X", "allow.auto.create.topics=true", "-t", &other];
    let text = kcat(context, &allowed, b"")?;
    ensure!(text.is_empty(), "a new topic has no record: {text}");
    kcat(context, &["-P", "-t", &other], b"hello\n")?;
    let text = kcat(context, &allowed, b"")?;
    ensure!(text == "hello\n", "not what went in: {text}");
    Ok(Verdict::Pass)
}

/// A consumer is told that a topic is not there, and does not make it.
fn unknown_topic(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.name("absent");
    let outcome = try_kcat(context, &["-C", "-e", "-t", &topic], b"")?;
    ensure!(!outcome.success(), "reading a topic that is not there succeeded");
    must_contain(&outcome.errors(), &["Unknown topic or partition"])?;
    let text = kcat(context, &["-L"], b"")?;
    ensure!(!text.contains(&topic), "the consumer made the topic");
    Ok(Verdict::Pass)
}

/// What is acknowledged while brokers are killed in turn stays, once and in order.
fn restarts(context: &Context<'_>) -> Result<Verdict> {
    let topic = stream::make_topic(context)?;
    let mut reader = process::command("kcat");
    reader.args(["-b", context.bootstrap(), "-C", "-q", "-u", "-t", &topic, "-f", "%p %o %s\n"]);
    reader.args(["-o", "beginning"]);
    let reader = Reader::start(context, reader)?;
    let mut writer = process::command("kcat");
    writer.args(["-b", context.bootstrap(), "-P", "-t", &topic, "-X", "enable.idempotence=true"]);
    writer.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut writer = Guarded::spawn(&mut writer)?;
    let mut input = writer.child().stdin.take().context("it has an input")?;
    let errors = writer.child().stderr.take().context("it has an output for errors")?;
    let errors = thread::spawn(move || io::read_to_string(errors));
    let taken = (0..RECORDS).try_for_each(|number| {
        thread::sleep(Duration::from_secs(1) / PER_SECOND);
        writeln!(input, "{number}")
    });
    drop(input);
    let status = writer.wait(SEND_LIMIT)?.context("kcat does not end")?;
    let said = errors.join().map_err(|_| anyhow::anyhow!("the reading of errors panicked"))??;
    taken
        .with_context(|| format!("kcat takes no more records, and ended with {status}: {said}"))?;
    // It ends with 0 when everything was acknowledged, and says no offsets.
    ensure!(status.success(), "kcat ended with {status}: {said}");
    let told: Vec<Told> = (0..RECORDS).map(|number| (number, None)).collect();
    let again = reader.check(&told)?;
    let mut counted = BTreeMap::new();
    for line in said.lines().filter(|line| line.starts_with('%')) {
        *counted.entry(kind(line)).or_default() += 1;
    }
    let words = stream::tell(&counted);
    Ok(Verdict::Told(format!("{words}; {RECORDS} of {RECORDS} acknowledged, {again} read again")))
}

/// What a line that kcat or librdkafka wrote is about: `%3|time|FAIL|…`, or its first words.
fn kind(line: &str) -> String {
    let word = line.split('|').nth(2);
    let first = || line.split([':', '(']).take(2).collect::<Vec<_>>().join(":");
    word.map_or_else(first, |word| format!("logged: {word}")).trim().to_owned()
}

/// A record above the broker's limit is refused with the right error.
fn too_large(context: &Context<'_>) -> Result<Verdict> {
    let topic = context.make_topic("toolarge", 1)?;
    let file = context.folder().join("toolarge");
    std::fs::write(&file, vec![b'x'; 2_000_000])?;
    let path = file.display().to_string();
    let produce = ["-P", "-t", &topic, "-X", "message.max.bytes=5000000", &path];
    let outcome = try_kcat(context, &produce, b"")?;
    ensure!(!outcome.success(), "2 MB were accepted");
    must_contain(&outcome.errors(), &["Message size too large"])?;
    Ok(Verdict::Pass)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_of_kcat_and_of_its_library_are_read() {
        let said = "kcat - a tool\nVersion 1.7.1 (JSON, Transactions, librdkafka 2.0.2 builtin.features=gzip)\n";
        assert_eq!(version(said).unwrap(), "1.7.1 (librdkafka 2.0.2)");
        assert!(version("kcat").is_err());
    }
}
