//! What looking into a batch costs: CPU seconds per gigabyte on the wire, for each codec, with
//! `records.validation` full and header.
//!
//! ```text
//! cargo run --release -p partition --example check_cost
//! ```
//!
//! CPU time of this thread, so that other work on the machine counts little; the best of five rounds.

use std::hint::black_box;

use model::record::BatchBuilder;
use model::{Compression, Timestamp, Validation};
use partition::{Effort, Settings, check};

const NOW: Timestamp = Timestamp(1_700_000_000_000);
const ROUNDS: usize = 5;
/// Bytes that one round checks at least, as they are on the wire.
const ROUND_BYTES: usize = 64 << 20;

fn main() {
    println!(
        "| codec | batch on the wire, bytes | expands | header, CPU-s/GB | full, CPU-s/GB | full, µs a batch |"
    );
    println!("|---|---|---|---|---|---|");
    for expanded_bytes in [16 << 10, 64 << 10, 1_000_000] {
        for codec in [
            Compression::None,
            Compression::Lz4,
            Compression::Snappy,
            Compression::Zstd,
            Compression::Gzip,
        ] {
            measure(codec, expanded_bytes);
        }
    }
}

fn measure(codec: Compression, expanded_bytes: usize) {
    let (batch, expanded_bytes) = batch_of(codec, expanded_bytes);
    let header = best_of_rounds(&batch, Validation::Header);
    let full = best_of_rounds(&batch, Validation::Full);
    let per_gigabyte = |ns: f64| ns / batch.len() as f64;
    println!(
        "| {} | {} | {:.1}× | {:.2} | {:.2} | {:.0} |",
        codec.name(),
        batch.len(),
        expanded_bytes as f64 / batch.len() as f64,
        per_gigabyte(header),
        per_gigabyte(full),
        full / 1000.0,
    );
}

/// Records of about 200 bytes that look like events: names repeat, numbers do not.
fn batch_of(codec: Compression, expanded_bytes: usize) -> (Vec<u8>, usize) {
    let mut builder = BatchBuilder::new();
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    while builder.size_bytes() < expanded_bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let value = format!(
            r#"{{"event":"order-placed","customer":{},"amount":{}.{:02},"currency":"EUR","session":"{state:016x}","path":"/shop/{}/buy","agent":"Mozilla/5.0"}}"#,
            state % 100_000,
            state % 997,
            state % 100,
            state % 50,
        );
        let key = format!("customer-{}", state % 100_000);
        builder.add(NOW, Some(key.as_bytes()), Some(value.as_bytes()));
    }
    let expanded = builder.size_bytes();
    if codec == Compression::None {
        return (builder.finish(), expanded);
    }
    let mut compressed = Vec::new();
    compression::compress(codec, None, builder.records(), &mut compressed);
    (builder.finish_compressed(codec, &compressed), expanded)
}

/// CPU nanoseconds that one check takes.
fn best_of_rounds(batch: &[u8], validation: Validation) -> f64 {
    let settings = Settings { validation, ..Settings::default() };
    let checks = ROUND_BYTES.div_ceil(batch.len()).max(20);
    let round = |_| {
        let began = cpu_ns();
        for _ in 0..checks {
            let checked = check(black_box(batch), &settings, NOW, Effort::Whole);
            black_box(checked.expect("the batch is well-formed"));
        }
        (cpu_ns() - began) as f64 / checks as f64
    };
    (0..ROUNDS).map(round).fold(f64::INFINITY, f64::min)
}

/// CPU time that this thread has used, in nanoseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux tells it");
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number first")
}
