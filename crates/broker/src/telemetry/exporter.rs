//! Metrics under the names of `kafka_exporter`: partitions, groups and their lag, so that lag
//! dashboards and alerts work without it.

use std::fmt;

use super::observed::{CommittedOffset, GroupFacts, PartitionFacts};
use super::scrape::{Depth, Scrape};
use metrics::Families;

pub(super) fn write(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    write_brokers(families, scrape)?;
    if scrape.depth == Depth::All {
        write_partitions(families, scrape)?;
        write_offsets(families, &scrape.groups)?;
    } else {
        write_worst(families, &scrape.groups)?;
    }
    write_groups(families, &scrape.groups)
}

fn write_brokers(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    let brokers = &scrape.cluster.brokers;
    families.gauge("kafka_brokers", "Brokers of the cluster", brokers.len() as f64)?;
    families.gauges("kafka_broker_info", "A broker and its address", |row| {
        brokers.iter().try_for_each(|broker| {
            row(&[("address", &broker.address), ("id", &broker.id.to_string())], 1.0)
        })
    })
}

/// What a partition's metric is; `None`: this broker cannot know.
type OfPartition = (&'static str, &'static str, fn(&PartitionFacts) -> Option<f64>);

const OF_PARTITIONS: &[OfPartition] = &[
    ("current_offset", "Everything below may be read", |p| Some(p.local?.high_watermark as f64)),
    ("oldest_offset", "First offset that is there", |p| Some(p.local?.log_start_offset as f64)),
    ("leader", "Id of the leader", |p| Some(f64::from(p.leader))),
    ("replicas", "Replicas of a partition", |p| Some(p.replicas.len() as f64)),
    ("in_sync_replica", "In-sync replicas", |p| Some(p.in_sync.len() as f64)),
    ("leader_is_preferred", "1 if the preferred replica leads", |p| {
        Some(flag(p.replicas.first() == Some(&p.leader)))
    }),
    ("under_replicated_partition", "1 if a replica is not in sync", |p| {
        Some(flag(p.in_sync.len() < p.replicas.len()))
    }),
];

fn flag(holds: bool) -> f64 {
    if holds { 1.0 } else { 0.0 }
}

fn write_partitions(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    families.gauges("kafka_topic_partitions", "Partitions of a topic", |row| {
        scrape
            .topics
            .iter()
            .try_for_each(|topic| row(&[("topic", &topic.name)], topic.partitions.len() as f64))
    })?;
    for (name, help, value) in OF_PARTITIONS {
        families.gauges(&format!("kafka_topic_partition_{name}"), help, |row| {
            for topic in &scrape.topics {
                for partition in &topic.partitions {
                    let index = partition.index.to_string();
                    let labels = [("topic", &*topic.name), ("partition", &index)];
                    value(partition).map_or(Ok(()), |value| row(&labels, value))?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Also the help of the worst of a group's partitions: one name, with fewer labels where little is shown.
const LAG_SECONDS: &str = "How long ago the oldest record arrived that a group has still to read";

fn write_offsets(families: &mut Families<'_>, groups: &[GroupFacts]) -> fmt::Result {
    for (name, help, value) in [
        (
            "current_offset",
            "Where a group will go on reading",
            (|o| Some(o.offset as f64)) as fn(&CommittedOffset) -> Option<f64>,
        ),
        ("lag", "Records that a group has still to read", |o| Some(o.lag()? as f64)),
        ("lag_seconds", LAG_SECONDS, |o| Some(o.behind?.as_secs_f64())),
    ] {
        families.gauges(&format!("kafka_consumergroup_{name}"), help, |row| {
            for group in groups {
                for offset in &group.offsets {
                    let Some(value) = value(offset) else { continue };
                    let partition = offset.partition.to_string();
                    let labels = [
                        ("consumergroup", group.name.as_str()),
                        ("topic", &offset.topic),
                        ("partition", &partition),
                    ];
                    row(&labels, value)?;
                }
            }
            Ok(())
        })?;
    }
    Ok(())
}

fn write_worst(families: &mut Families<'_>, groups: &[GroupFacts]) -> fmt::Result {
    families.gauges("kafka_consumergroup_lag_seconds", LAG_SECONDS, |row| {
        for group in groups {
            let Some(behind) = group.behind else { continue };
            row(&[("consumergroup", &group.name)], behind.as_secs_f64())?;
        }
        Ok(())
    })
}

fn write_groups(families: &mut Families<'_>, groups: &[GroupFacts]) -> fmt::Result {
    families.gauges("kafka_consumergroup_lag_sum", "Lag of a group in a topic", |row| {
        for group in groups {
            for (topic, lag) in &group.lags {
                row(&[("consumergroup", &group.name), ("topic", topic)], *lag as f64)?;
            }
        }
        Ok(())
    })?;
    families.gauges("kafka_consumergroup_members", "Members of a group", |row| {
        groups
            .iter()
            .try_for_each(|group| row(&[("consumergroup", &group.name)], group.member_count as f64))
    })
}
