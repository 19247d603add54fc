//! Arguments of `test-broker`, and the fault rules of a proxy.

use std::path::PathBuf;

use clap::Args;

use super::Pair;

/// Fault rules.
#[derive(Debug, Default, Args)]
pub struct FaultFiles {
    /// Inject faults by the rules in this file: TOML or JSON
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,
    /// Seed of rules that fire by probability; otherwise the one in the file
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// Write the faults of this run to this file, a JSON object a line
    #[arg(long, value_name = "FILE")]
    pub journal: Option<PathBuf>,
    /// Inject the faults of the run that wrote this journal
    #[arg(long, value_name = "FILE", conflicts_with_all = ["faults", "seed"])]
    pub replay: Option<PathBuf>,
}

/// `test-broker`
#[derive(Debug, Args)]
pub struct TestBroker {
    /// Create these topics: NAME or NAME:PARTITIONS, separated by commas
    #[arg(long, value_name = "TOPICS", value_delimiter = ',', value_parser = topic)]
    pub topics: Vec<TestTopic>,
    /// How many brokers, from 1 to 9; several are processes of their own, and each is started again when it ends
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=9))]
    pub brokers: u16,
    /// Keep the data in this folder and leave it there; otherwise in a temporary folder, which is removed at the end
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Set a configuration key of the broker; may be given many times. Here durability is page-cache (acknowledged records
    /// survive the end of the process, but not a power failure) and group.initial.rebalance.delay.ms is 0
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub sets: Vec<Pair>,
    /// Begin with a copy of this snapshot, the folder of a running test broker
    #[arg(long, value_name = "DIR", hide = true, conflicts_with_all = ["data_dir", "brokers", "topics"])]
    pub fork_of: Option<PathBuf>,
    #[command(flatten)]
    pub faults: FaultFiles,
}

/// A topic to create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestTopic {
    /// Its name.
    pub name: String,
    /// Its partitions, from 1 on.
    pub partitions: i32,
}

fn topic(text: &str) -> Result<TestTopic, &'static str> {
    const FORM: &str =
        "write NAME or NAME:PARTITIONS with 1 partition or more, for example orders:3";
    let (name, partitions) = match text.split_once(':') {
        Some((name, count)) => (name, count.parse().map_err(|_| FORM)?),
        None => (text, 1),
    };
    match !name.is_empty() && partitions > 0 {
        true => Ok(TestTopic { name: name.to_owned(), partitions }),
        false => Err(FORM),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_has_one_partition_unless_it_names_more() {
        let of = |text: &str| topic(text).map(|topic| (topic.name, topic.partitions));
        assert_eq!(of("a").unwrap(), ("a".to_owned(), 1));
        assert_eq!(of("a.b:12").unwrap(), ("a.b".to_owned(), 12));
        for text in ["", ":3", "a:", "a:0", "a:-1", "a:x", "a:1:2"] {
            assert!(of(text).is_err(), "{text}");
        }
    }
}
