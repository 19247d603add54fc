//! Keys go where Java, Kafka's clients, zip and the CS6 report send them. The numbers in `testdata` were computed by
//! OpenJDK (`String.hashCode`, `Math.floorMod`, `java.util.zip.CRC32`) and Kafka's own `Utils.murmur2`.

use std::fs;

use model::partitioner::murmur2;
use serving::choice::{
    Among, Balancer, BrokerStrategy, Chooser, Distribution, Layout, Pair, PartitionFacts, Rule,
    Strategy, crc32, cs6_mod, java_hash_code,
};

/// The keys of the CS6 report, each in 20,000 of its records.
const KEYS: [&str; 5] = ["60819", "60847", "23568", "61821", "64500"];

/// The lines of a file of data, cut at tabs.
fn rows<const N: usize>(file: &str) -> Vec<[String; N]> {
    let path = format!("{}/testdata/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let fields: Vec<String> = line.split('\t').map(str::to_owned).collect();
            fields.try_into().unwrap_or_else(|_| panic!("{file}: {line:?}"))
        })
        .collect()
}

/// `\xNN` is a byte.
fn bytes(escaped: &str) -> Vec<u8> {
    let mut parts = escaped.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        bytes.push(u8::from_str_radix(&part[..2], 16).unwrap());
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    bytes
}

fn numbers(text: &str) -> Vec<i32> {
    text.split(' ').map(|number| number.parse().unwrap()).collect()
}

/// The place of a key among `count`, counted from 0.
fn place(strategy: Strategy, key: &[u8], count: i32) -> i32 {
    let all: Vec<i32> = (0..count).collect();
    let mut chooser = Chooser::new(strategy, 16_384, 1);
    chooser.choose(Some(key), 300, Among::all(&all), |_| false)
}

#[test]
fn hashes_are_those_of_java_kafka_and_zip() {
    let rows = rows::<4>("hashes.tsv");
    assert!(rows.len() > 30);
    for [key, java, kafka, zip] in rows {
        let bytes = bytes(&key);
        assert_eq!(java_hash_code(&bytes).to_string(), java, "{key}");
        assert_eq!((murmur2(&bytes) as i32).to_string(), kafka, "{key}");
        assert_eq!(crc32(&bytes).to_string(), zip, "{key}");
    }
}

#[test]
fn keys_have_the_places_that_other_clients_give_them() {
    for [key, count, murmur2, crc32, hash_mod, cs6] in rows::<6>("places.tsv") {
        let (bytes, count) = (bytes(&key), count.parse().unwrap());
        for (strategy, expected) in
            [(Strategy::Murmur2, murmur2), (Strategy::Crc32, crc32), (Strategy::HashMod, hash_mod)]
        {
            let found = place(strategy, &bytes, count);
            assert_eq!(found.to_string(), expected, "{strategy:?} of {key} among {count}");
        }
        assert_eq!(cs6_mod(&bytes, count).to_string(), cs6, "cs6-mod of {key} among {count}");
        let expected = match cs6.parse::<i32>().unwrap() {
            0 => count - 1,
            from_one => from_one - 1,
        };
        assert_eq!(place(Strategy::Cs6Mod, &bytes, count), expected, "{key} among {count}");
    }
}

#[test]
fn the_reports_keys_go_where_the_report_says() {
    for [strategy, count, published] in rows::<3>("report.tsv") {
        let strategy = Strategy::from_name(&strategy).unwrap();
        let mut counts = vec![0; count.parse().unwrap()];
        for key in KEYS {
            counts[place(strategy, key.as_bytes(), count.parse().unwrap()) as usize] += 20_000;
        }
        assert_eq!(counts, numbers(&published), "{strategy:?} among {count}");
    }
}

fn layout(preferred: &[i32]) -> Layout {
    let facts = |broker: &i32| PartitionFacts { preferred_leader: Some(*broker), is_led: true };
    Layout::new(&preferred.iter().map(facts).collect::<Vec<_>>())
}

#[test]
fn a_key_goes_to_a_broker_and_then_to_one_of_its_partitions() {
    let rows = rows::<6>("brokers.tsv");
    assert!(rows.len() > 200);
    for row in rows {
        let [preferred, broker, partition, key, expected_broker, expected_partition] = &row;
        let pair = Pair {
            broker: BrokerStrategy::from_name(broker),
            partition: Strategy::from_name(partition).unwrap(),
        };
        let layout = layout(&numbers(preferred));
        let mut balancer = Balancer::new(pair, 16_384, 1);
        let choice = balancer.choose(Some(&bytes(key)), 300, &layout, |_| false).unwrap();
        assert_eq!(choice.broker.map(|broker| broker.to_string()).as_ref(), Some(expected_broker));
        assert_eq!(&choice.partition.to_string(), expected_partition, "{row:?}");
    }
}

/// Experiments 6 and 7 of the report in one run: three brokers with five partitions each.
#[test]
fn both_published_distributions_come_out_of_one_run_of_both_choices() {
    let preferred: Vec<i32> = (0..15).map(|partition| 1 + partition / 5).collect();
    let layout = layout(&preferred);
    let pair = Pair { broker: Some(BrokerStrategy::Cs6Mod), partition: Strategy::Cs6Mod };
    let mut balancer = Balancer::new(pair, 16_384, 1);
    let mut distribution = Distribution::default();
    for record in 0..100_000 {
        let key = KEYS[record % KEYS.len()].as_bytes();
        let choice = balancer.choose(Some(key), 300, &layout, |_| false).unwrap();
        distribution.add(Rule::Chosen(pair), choice, 1);
    }
    let (mut by_broker, mut by_partition) = ([0; 3], [0; 5]);
    for row in distribution.rows() {
        by_broker[row.broker.unwrap() as usize - 1] += row.records;
        by_partition[row.partition as usize % 5] += row.records;
    }
    assert_eq!(by_broker, [80_000, 20_000, 0]);
    assert_eq!(by_partition, [40_000, 0, 0, 20_000, 40_000]);
}
