//! `cargo xt realtext`: a real text of more than a million lines goes in and comes back byte for byte.
//!
//! The text is the GNU Collaborative International Dictionary of English (Debian's package
//! `dict-gcide`): 1.2 million lines, every fifth one empty. It goes in through `highwater produce` and
//! through kcat, one record a line, and is read by kcat, Kafka's console consumer and franz-go. Then
//! the same again while the broker is killed ten times and started again on its data: nothing that was
//! acknowledged may be missing, nothing may come twice, and the order must hold.

mod broker;
mod compare;
mod producers;
mod readers;
mod text;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;

use broker::Broker;
use peer::apache_kafka;
use peer::process;
use producers::{Producer, Running};

/// How long producing may take, crashes included.
const PRODUCE_LIMIT: Duration = Duration::from_secs(900);

/// `cargo xt realtext`
#[derive(Debug, Args)]
pub struct Arguments {
    /// highwater or apache-kafka (which has no `highwater produce`: kcat only)
    #[arg(long, default_value = "highwater")]
    target: String,
    /// How often the broker is killed while the text goes in
    #[arg(long, default_value_t = 10)]
    kills: usize,
    /// Another text than the dictionary
    #[arg(long)]
    text: Option<PathBuf>,
    /// Seed of the moments at which the broker is killed
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs both parts with every producer.
pub fn run(arguments: &Arguments) -> Result<()> {
    let text = text::load(arguments.text.as_deref())?;
    println!("{}: {} lines, {} bytes", text.name, text.lines, text.bytes.len());
    let mut broker = Broker::start(&arguments.target)?;
    let mut moments = Moments(arguments.seed);
    for &producer in producers::of(&arguments.target) {
        for kills in [0, arguments.kills] {
            let topic = make_topic(&broker, &format!("{}-{kills}-kills", producer.name()))?;
            let seconds = produce(producer, &mut broker, &topic, &text, kills, &mut moments)?;
            println!(
                "\n{} wrote it in {seconds:.1} s; the broker was killed {kills} times",
                producer.name()
            );
            read_back(&broker, &arguments.target, &topic, &text)?;
        }
    }
    broker.stop()?;
    println!("\nevery byte came back, once and in order");
    Ok(())
}

/// One partition, so that the order of all lines is the broker's promise.
fn make_topic(broker: &Broker, topic: &str) -> Result<String> {
    let bootstrap = broker.bootstrap();
    let arguments =
        ["--bootstrap-server", &bootstrap, "--create", "--topic", topic, "--partitions", "1"];
    let mut tool = apache_kafka::brief_tool("kafka-topics", &arguments)?;
    let outcome = process::run(&mut tool, None, Duration::from_secs(120))?;
    ensure!(outcome.success(), "the topic {topic} could not be made: {}", outcome.story());
    Ok(topic.to_owned())
}

/// Feeds the text in `kills + 1` parts and kills the broker in the middle of each but the first;
/// returns the seconds that it took until the last record was acknowledged.
fn produce(
    producer: Producer,
    broker: &mut Broker,
    topic: &str,
    text: &text::Text,
    kills: usize,
    moments: &mut Moments,
) -> Result<f64> {
    let start = Instant::now();
    let running = Running::start(producer, &broker.bootstrap(), topic, &text.bytes, kills + 1)?;
    running.feed_next()?;
    for kill in 1..=kills {
        // The next part is on its way when the broker dies under it.
        running.wait_until_fed(PRODUCE_LIMIT)?;
        running.feed_next()?;
        thread::sleep(moments.next(100));
        broker.crash().with_context(|| format!("kill {kill}"))?;
        thread::sleep(moments.next(200));
        broker.restart().with_context(|| format!("start after kill {kill}"))?;
    }
    running.finish(PRODUCE_LIMIT)?;
    Ok(start.elapsed().as_secs_f64())
}

fn read_back(broker: &Broker, target: &str, topic: &str, text: &text::Text) -> Result<()> {
    for &reader in readers::of(target) {
        let start = Instant::now();
        let received = reader.read(&broker.bootstrap(), topic, text.lines)?;
        compare::same_lines(&text.bytes, &received)
            .map_err(|fault| anyhow::anyhow!("{} from {topic}: {fault}", reader.name()))?;
        println!("  {} read it back in {:.1} s", reader.name(), start.elapsed().as_secs_f64());
    }
    Ok(())
}

/// Moments that look random and are the same for one seed.
#[derive(Debug)]
struct Moments(u64);

impl Moments {
    /// Something below `limit_ms` milliseconds.
    fn next(&mut self, limit_ms: u64) -> Duration {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_millis((self.0 >> 33) % limit_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_differ_and_repeat_with_their_seed() {
        let take = |seed| {
            let mut moments = Moments(seed);
            (0..10).map(|_| moments.next(100)).collect::<Vec<_>>()
        };
        assert_eq!(take(7), take(7));
        assert_ne!(take(7), take(8));
        assert!(take(7).iter().all(|moment| *moment < Duration::from_millis(100)));
    }
}
