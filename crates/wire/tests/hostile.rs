//! Bytes that nobody would write on purpose, unless to do harm: nothing panics, and nothing takes
//! much more memory than the frame. One test in a program of its own, because memory is counted
//! for the whole program.

use peak_alloc::PeakAlloc;
use wire::{ApiKey, Message, Request};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Bytes of memory that decoding may take for every byte of the frame.
const PER_BYTE: usize = 32;
/// Bytes of memory that decoding may take on top.
const BASE: usize = 160 * 1024;

/// Decodes and says whether that went well; fails if it took too much memory.
fn try_decode<M: Message>(bytes: &[u8], version: i16) -> bool {
    ALLOCATOR.reset_peak_usage();
    let before = ALLOCATOR.current_usage();
    let decoded = wire::decode::<M>(bytes, version).is_ok();
    let peak = ALLOCATOR.peak_usage() - before;
    let allowed = BASE + PER_BYTE * bytes.len();
    assert!(peak <= allowed, "{} v{version}: {peak} bytes for {}", M::NAME, bytes.len());
    decoded
}

/// Whatever both messages of an API make of the bytes.
fn try_api<R: Request>(bytes: &[u8], version: i16) {
    try_decode::<R>(bytes, version);
    try_decode::<R::Response>(bytes, version);
    if R::API_KEY == ApiKey::Produce
        && let Ok((_, walk)) = wire::hot::produce::walk(bytes, 0, version)
    {
        walk.for_each(drop);
    }
    if R::API_KEY == ApiKey::Fetch {
        let _ = wire::hot::fetch::FetchRequest::default().decode(bytes, version);
    }
}

/// The bytes of the golden file's lines, with their versions.
fn golden(api: &str) -> Vec<(i16, Vec<u8>)> {
    let mut file = String::new();
    for c in api.chars() {
        if c.is_uppercase() && !file.is_empty() {
            file.push('_');
        }
        file.extend(c.to_lowercase());
    }
    let path = format!("{}/testdata/golden/{file}.txt", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let line = |line: &str| {
        let mut parts = line.split(' ').skip(1);
        let version = parts.next().unwrap().parse().unwrap();
        let hex = parts.nth(1).unwrap();
        let digits = (0..hex.len()).step_by(2).map(|i| &hex[i..i + 2]);
        (version, digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect())
    };
    text.lines().map(line).collect()
}

/// What a hostile client writes over lengths, counts and tags.
const PATTERNS: &[&[u8]] = &[
    &[0xff],
    &[0x00],
    &[0x7f],
    &[0x7f, 0xff],
    &[0x00, 0x7f, 0xff, 0xff],
    &[0x7f, 0xff, 0xff, 0xff],
    &[0x80, 0x80, 0x80, 0x80, 0x08],
    &[0xff, 0xff, 0xff, 0xff, 0x0f],
];

/// Damages every golden message of an API everywhere; returns how many messages there are.
fn attack<R: Request>() -> usize {
    let messages = golden(R::API_KEY.name());
    for (version, bytes) in &messages {
        let version = *version;
        for at in 0..bytes.len() {
            try_api::<R>(&bytes[..at], version);
            for pattern in PATTERNS.iter().filter(|p| at + p.len() <= bytes.len()) {
                let mut damaged = bytes.clone();
                damaged[at..at + pattern.len()].copy_from_slice(pattern);
                try_api::<R>(&damaged, version);
            }
        }
    }
    messages.len()
}

/// Large frames of one byte: arrays that claim as many elements as could just fit.
fn flood<R: Request>() {
    for version in R::MIN_VERSION..=R::MAX_VERSION {
        for byte in [0x00, 0x01, 0x02, 0x03, 0x7f, 0xff] {
            let mut frame = vec![byte; 256 * 1024];
            try_api::<R>(&frame, version);
            // A count, plain and compact, at each of the first places, then the same byte.
            for at in 0..24 {
                frame[at..at + 4].copy_from_slice(&[0x00, 0x03, 0x00, 0x00]);
                try_api::<R>(&frame, version);
                frame[at..at + 4].copy_from_slice(&[0xff, 0xff, 0x03, byte]);
                try_api::<R>(&frame, version);
                frame[at..at + 4].copy_from_slice(&[byte; 4]);
            }
        }
    }
}

macro_rules! for_all {
    ($($api:ident $request:ident $response:ident,)*) => {
        #[test]
        fn hostile_bytes_neither_panic_nor_take_memory() {
            let mut attacked = 0;
            $(
                attacked += attack::<wire::$request>();
                flood::<wire::$request>();
            )*
            assert!(attacked > 1000, "only {attacked} golden messages");
        }
    };
}

wire::for_each_api!(for_all);
