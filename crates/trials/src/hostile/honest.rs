//! Honest clients: a producer and a consumer of the broker, and a producer over HTTP, at rates that an idle machine serves at once.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use perf::load::{self, ConsumeLoad, PostLoad, ProduceLoad, Sizes, Stop};

/// Records a second of the producer, and requests a second over HTTP.
const RATES: [f64; 2] = [500.0, 50.0];
/// Connections of the producer over HTTP: a slow answer delays no later request.
const POST_CONNECTIONS: u32 = 8;
/// Length of the values, in bytes.
const VALUE_BYTES: usize = 256;
/// Part of the time that is not counted.
const WARMUP: Duration = Duration::from_secs(2);

/// 99th percentiles, in milliseconds.
pub(super) struct Latencies {
    produce: f64,
    end_to_end: f64,
    post: f64,
}

impl Latencies {
    fn named(&self) -> [(&'static str, f64); 3] {
        [("produce", self.produce), ("end to end", self.end_to_end), ("HTTP produce", self.post)]
    }

    /// Each by the same of `other`.
    pub(super) fn by(&self, other: &Latencies) -> Vec<(&'static str, f64)> {
        let pairs = self.named().into_iter().zip(other.named());
        pairs
            .map(|((name, ours), (_, theirs))| (name, ours / theirs.max(f64::MIN_POSITIVE)))
            .collect()
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let rows = self.named().map(|(name, ms)| format!("{name} p99 {ms:.2} ms"));
        f.write_str(&rows.join(", "))
    }
}

/// Produces and consumes for a time. `run` numbers the records, which are found once and in order or fail the trial.
pub(super) fn run(
    bootstrap: &str,
    gateway: &str,
    lasting: Duration,
    run: u32,
) -> Result<Latencies> {
    let ([topic, posted], stop) = (super::HONEST_TOPICS, Stop::default());
    let produce = ProduceLoad {
        sizes: Sizes::Fixed(VALUE_BYTES),
        offered: RATES[0],
        time: lasting,
        warmup: WARMUP,
        stamp: Some(run),
        ..ProduceLoad::new(bootstrap, topic)
    };
    let consume = ConsumeLoad {
        idle: Duration::from_secs(10),
        stamp: Some(run),
        ..ConsumeLoad::new(bootstrap, topic)
    };
    let post = PostLoad {
        gateway: gateway.to_owned(),
        topic: posted.to_owned(),
        connections: POST_CONNECTIONS,
        records_per_request: 1,
        sizes: Sizes::Fixed(VALUE_BYTES),
        keys: load::Keys::None,
        payload: load::Payload::Reuse,
        query: String::new(),
        offered: RATES[1],
        records: 0,
        time: lasting,
        warmup: WARMUP,
        stamp: None,
        seed: 0,
    };
    let (direct, posted) = thread::scope(|scope| {
        let posting = scope.spawn(|| load::post(&post, &stop));
        let direct = load::both(&produce, &consume, &stop);
        (direct, posting.join().expect("a load does not panic"))
    });
    let ((produced, consumed), posted) = (direct?, posted.context("the gateway is gone")?);
    ensure!(produced.failed == 0, "{} records failed: {:?}", produced.failed, produced.errors);
    ensure!(
        posted.errors.is_empty(),
        "the gateway refused an honest producer: {:?}",
        posted.errors
    );
    let verdict = consumed.findings.verdict(&produced.acknowledgements);
    ensure!(verdict.is_clean(), "records are not as they were acknowledged: {verdict:?}");
    let p99_ms =
        |histogram: &hdrhistogram::Histogram<u64>| histogram.value_at_quantile(0.99) as f64 / 1e3;
    Ok(Latencies {
        produce: p99_ms(&produced.response),
        end_to_end: p99_ms(&consumed.end_to_end),
        post: p99_ms(&posted.response),
    })
}
