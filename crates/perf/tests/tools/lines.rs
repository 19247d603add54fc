//! Readers of the tools' lines, as test suites and benchmarks have them: by regular expression, and
//! by counting commas and blanks. What Kafka's tools wrote and what ours write must read alike.

use regex::Regex;
use std::collections::BTreeSet;

/// What Kafka's tools wrote.
pub const PRODUCE: &str = include_str!("recorded/produce.txt");
/// What Kafka's tools wrote.
pub const CONSUME: &str = include_str!("recorded/consume.txt");
/// What Kafka's tools wrote.
pub const CONSUME_DETAILED: &str = include_str!("recorded/consume_detailed.txt");
/// What Kafka's tools wrote.
pub const E2E: &str = include_str!("recorded/e2e.txt");

/// A line of the producer's tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Sent {
    /// `records sent`
    pub records: u64,
    /// Whether it is of the steady state.
    pub steady: bool,
    /// `records/sec`
    pub records_per_sec: f64,
    /// `MB/sec`
    pub mb_per_sec: f64,
    /// `avg latency` and `max latency`
    pub latency_ms: (f64, f64),
    /// `50th` to `99.9th`; none in the line of an interval.
    pub percentiles_ms: Option<[u64; 4]>,
}

/// The producer's lines by regular expression.
pub fn sent_by_regex(lines: &[String]) -> Vec<Sent> {
    let regex = Regex::new(
        r"^(\d+)( steady state)? records sent, ([0-9.]+) records/sec \(([0-9.]+) MB/sec\), ([0-9.]+|NaN) ms avg latency, ([0-9.]+) ms max latency(?:, (\d+) ms 50th, (\d+) ms 95th, (\d+) ms 99th, (\d+) ms 99\.9th)?\.$",
    )
    .unwrap();
    let sent = lines.iter().filter_map(|line| regex.captures(line)).map(|found| {
        let number = |group: usize| found[group].parse::<f64>().unwrap();
        let whole = |group: usize| found.get(group).map(|m| m.as_str().parse::<u64>().unwrap());
        let percentiles = [7, 8, 9, 10].map(whole);
        Sent {
            records: found[1].parse().unwrap(),
            steady: found.get(2).is_some(),
            records_per_sec: number(3),
            mb_per_sec: number(4),
            latency_ms: (number(5), number(6)),
            percentiles_ms: percentiles[0].map(|_| percentiles.map(Option::unwrap)),
        }
    });
    sent.collect()
}

/// A producer's total by commas and blanks.
pub fn sent_by_commas(line: &str) -> Sent {
    let parts: Vec<&str> = line.split(',').collect();
    let word = |part: usize, word: usize| parts[part].split_whitespace().nth(word).unwrap();
    let number = |part| word(part, 0).parse::<f64>().unwrap();
    let mb = parts[1].split('(').nth(1).unwrap().split_whitespace().next().unwrap();
    Sent {
        records: word(0, 0).parse().unwrap(),
        steady: word(0, 1) == "steady",
        records_per_sec: number(1),
        mb_per_sec: mb.parse().unwrap(),
        latency_ms: (number(2), number(3)),
        percentiles_ms: Some([4, 5, 6, 7].map(|part| number(part) as u64)),
    }
}

/// The ten columns of a consumer's line; the first two are times, or a time and a thread.
pub fn consumed(line: &str) -> (&str, &str, [f64; 8]) {
    let parts: Vec<&str> = line.split(", ").collect();
    let [start, end, ..] = parts[..] else { panic!("{line}") };
    let numbers: Vec<f64> = parts[2..].iter().map(|part| part.parse().unwrap()).collect();
    (start, end, numbers.try_into().unwrap_or_else(|_| panic!("{line}")))
}

/// Mean and percentiles of the latency tool, by the words of its last two lines.
pub fn latencies(lines: &[String]) -> (f64, [f64; 3]) {
    let find = |start: &str| lines.iter().find(|line| line.starts_with(start)).unwrap();
    let avg: Vec<&str> = find("Avg latency:").split_whitespace().collect();
    let percentiles: Vec<&str> = find("Percentiles").split_whitespace().collect();
    let at = |word: usize| percentiles[word].trim_end_matches(',').parse::<f64>().unwrap();
    (avg[2].parse().unwrap(), [3, 6, 9].map(at))
}

/// A line with every number replaced: its shape.
pub fn shape(line: &str) -> String {
    let numbers = Regex::new(r"\d+").unwrap();
    let blanks = Regex::new(r" {2,}").unwrap();
    blanks.replace_all(&numbers.replace_all(line, "9"), "  ").into_owned()
}

/// Checks that each line has a shape that Kafka's tool's lines have.
pub fn assert_shapes(ours: &[String], recorded: &str) {
    let known: BTreeSet<String> = recorded.lines().map(shape).collect();
    for line in ours {
        assert!(known.contains(&shape(line)), "no line of Kafka's tool looks like {line:?}");
    }
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn both_readers_understand_what_kafkas_producer_tool_wrote() {
    let recorded = lines(PRODUCE);
    let sent = sent_by_regex(&recorded);
    assert_eq!(
        sent.iter().map(|s| s.records).collect::<Vec<_>>(),
        [19_842, 19_842, 20_060, 60_000, 40_000]
    );
    assert_eq!(sent[3].percentiles_ms, Some([5, 25, 30, 35]));
    let totals = recorded.iter().filter(|line| line.ends_with("99.9th."));
    assert_eq!(totals.map(|line| sent_by_commas(line)).collect::<Vec<_>>(), sent[3..]);
}

#[test]
fn the_readers_understand_what_kafkas_other_tools_wrote() {
    let (start, end, numbers) = consumed(CONSUME.lines().nth(1).unwrap());
    assert_eq!((start, end), ("2026-11-22 00:18:40:630", "2026-11-22 00:18:44:657"));
    assert_eq!(numbers[2], 100_280.0);
    assert_eq!(consumed(CONSUME_DETAILED.lines().nth(3).unwrap()).1, "0");
    assert_eq!(latencies(&lines(E2E)), (1.9732, [1.0, 9.0, 17.0]));
}
