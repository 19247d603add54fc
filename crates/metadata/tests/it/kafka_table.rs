//! The table of topic configurations, compared with what a real Kafka answers to DescribeConfigs.

use configuration::TopicSettings;
use metadata::topic_config::{ConfigSource, DescribedConfig, Resolver, StaticConfigs};
use metadata::{ClusterImage, ConfigResource, MetadataRecord};

const RECORDED: &str = include_str!("../../testdata/kafka-4.3.1-topic-configs.tsv");

/// Keys of topics that Kafka does not have.
const OURS: [&str; 3] = ["durability", "records.expanded.max.bytes", "records.validation"];

fn line(config: &DescribedConfig) -> String {
    let mut line =
        [config.name, &config.kind.name().to_uppercase(), config.source.name(), &config.value]
            .join("\t");
    line += if config.is_read_only { "\ttrue" } else { "\tfalse" };
    for synonym in &config.synonyms {
        line += &format!("\t{}:{}={}", synonym.source.name(), synonym.name, synonym.value);
    }
    line
}

/// The situation in which the real one was asked.
fn as_recorded() -> (ClusterImage, StaticConfigs) {
    let mut image = ClusterImage::default();
    let set = MetadataRecord::ConfigSet {
        resource: ConfigResource::ClusterDefault,
        key: "min.insync.replicas".into(),
        value: "2".into(),
    };
    image.replay(&set).unwrap();
    (image, StaticConfigs::from([("log.segment.bytes".into(), "1073741824".into())]))
}

#[test]
fn every_configuration_is_described_as_kafka_describes_it() {
    let (image, statics) = as_recorded();
    let described = Resolver::new(&image, &statics, None).describe("fresh");
    let ours: Vec<String> =
        described.iter().filter(|config| !OURS.contains(&config.name)).map(line).collect();
    let kafkas: Vec<&str> = RECORDED.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(ours, kafkas);
}

#[test]
fn settings_are_the_values_in_force() {
    let (mut image, mut statics) = as_recorded();
    assert_eq!(TopicSettings::default().retention_ms, 604_800_000);
    statics.insert("log.retention.minutes".into(), "2".into());
    statics.insert("log.retention.hours".into(), "1".into());
    statics.insert("log.roll.jitter.hours".into(), "3".into());
    let settings = Resolver::new(&image, &statics, None).settings("t");
    assert_eq!((settings.retention_ms, settings.segment_jitter_ms), (120_000, 10_800_000));
    assert_eq!(settings.min_insync_replicas, 2);
    let set = |resource, key: &str, value: &str| MetadataRecord::ConfigSet {
        resource,
        key: key.into(),
        value: value.into(),
    };
    let topic = ConfigResource::Topic("t".into());
    image.replay(&set(topic.clone(), "retention.ms", "7")).unwrap();
    image.replay(&set(topic, "internal.segment.bytes", "1000")).unwrap();
    let settings = Resolver::new(&image, &statics, None).settings("t");
    assert_eq!((settings.retention_ms, settings.segment_bytes), (7, 1000));
    statics.insert("log.retention.minutes".into(), "-1".into());
    assert_eq!(Resolver::new(&image, &statics, None).settings("u").retention_ms, -1);
}

#[test]
fn an_invalid_value_gives_way_to_the_next_weaker_one() {
    let (image, mut statics) = as_recorded();
    statics.insert("log.segment.bytes".into(), "many".into());
    let settings = Resolver::new(&image, &statics, None).settings("t");
    assert_eq!(settings.segment_bytes, 1_073_741_824);
}

#[test]
fn dynamic_values_are_stronger_than_the_file() {
    let (mut image, statics) = as_recorded();
    for (resource, value) in [
        (ConfigResource::ClusterDefault, "3000000"),
        (ConfigResource::Broker(model::BrokerId(1)), "2000000"),
    ] {
        let key = "log.segment.bytes".into();
        image.replay(&MetadataRecord::ConfigSet { resource, key, value: value.into() }).unwrap();
    }
    let of = |broker| {
        let described = Resolver::new(&image, &statics, broker).describe("t");
        let found = described.into_iter().find(|config| config.name == "segment.bytes").unwrap();
        (found.value, found.source)
    };
    assert_eq!(of(None), ("3000000".into(), ConfigSource::DynamicDefaultBroker));
    assert_eq!(of(Some(model::BrokerId(1))), ("2000000".into(), ConfigSource::DynamicBroker));
}
