//! Requests recorded from Kafka's own code, as they are and with bytes flipped: whatever comes of
//! them, no thread of the data path panics and the broker goes on.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use wire::ApiKey;

use crate::fixture::*;
use crate::hostile::raw_frame;

/// Broken variants of each recorded request.
const VARIANTS: usize = 2;

/// Panics of the broker's own threads since [`count_panics`].
static PANICS: AtomicUsize = AtomicUsize::new(0);

fn count_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if std::thread::current().name() == Some("data") {
            PANICS.fetch_add(1, Ordering::SeqCst);
        }
        before(panic);
    }));
}

/// The recorded requests of an API: version and message.
fn recorded(api: ApiKey) -> Vec<(i16, Vec<u8>)> {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../wire/testdata/golden");
    let file = golden.join(format!("{}.txt", snake_case(api.name())));
    let text = std::fs::read_to_string(&file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    text.lines().filter(|line| line.starts_with("request ")).map(parse).collect()
}

fn parse(line: &str) -> (i16, Vec<u8>) {
    let mut words = line.split(' ').skip(1);
    let version = words.next().unwrap().parse().unwrap();
    let hex = words.nth(1).unwrap();
    let byte = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (version, (0..hex.len()).step_by(2).map(byte).collect())
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !snake.is_empty() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}

/// Flips one to four bytes.
fn mutate(message: &mut [u8], random: &mut fastrand::Rng) {
    if message.is_empty() {
        return;
    }
    for _ in 0..random.usize(1..=4) {
        let at = random.usize(..message.len());
        message[at] ^= random.u8(1..);
    }
}

/// Sends it on a connection of its own, which the broker then closes.
async fn send(broker: &Broker, frame: &[u8]) {
    let mut conn = broker.connect().await;
    let _ = conn.stream.write_all(frame).await;
    let _ = conn.stream.shutdown().await;
    let mut answer = Vec::new();
    let read = timeout(PATIENCE, conn.stream.read_to_end(&mut answer)).await;
    read.expect("the connection ends").ok();
}

#[tokio::test]
async fn flipped_bytes_in_any_request_leave_the_broker_alive() {
    count_panics();
    let broker = Broker::start(&[]).await;
    let mut random = fastrand::Rng::with_seed(2026);
    let mut sent = 0;
    for advertised in broker::advertised() {
        for (version, message) in recorded(advertised.api) {
            send(&broker, &raw_frame(advertised.api, version, &message)).await;
            for _ in 0..VARIANTS {
                let mut broken = message.clone();
                mutate(&mut broken, &mut random);
                send(&broker, &raw_frame(advertised.api, version, &broken)).await;
                sent += 1;
            }
            assert_eq!(PANICS.load(Ordering::SeqCst), 0, "{} {version}", advertised.api);
        }
        broker.assert_serves().await;
    }
    assert!(sent > 500, "only {sent} requests were recorded");
    broker.stop().await;
}
