//! Metrics under the names of Kafka's JMX beans, in lower case as `jmx_exporter`'s usual rules
//! write them, so that dashboards for Kafka show this broker.

use std::fmt;
use std::sync::Arc;

use metrics::{Families, Row, quantile};
use wire::ApiKey;

use super::observed::{ClusterFacts, PartitionFacts, TopicFacts};
use super::scrape::{Depth, Scrape};
use crate::counters::{Counter, Election, TopicCounters};

/// The quantiles that the beans have.
const QUANTILES: &[(&str, f64)] = &[
    ("0.50", 0.50),
    ("0.75", 0.75),
    ("0.95", 0.95),
    ("0.98", 0.98),
    ("0.99", 0.99),
    ("0.999", 0.999),
];

pub(super) fn write(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    write_topics(families, scrape)?;
    write_replicas(families, scrape)?;
    write_controller(families, scrape)?;
    write_requests(families, scrape)?;
    if scrape.depth == Depth::All {
        write_logs(families, &scrape.topics)?;
    }
    Ok(())
}

/// A metric of `BrokerTopicMetrics`: what of a topic's counters it is.
type OfTopic = (&'static str, &'static str, fn(&TopicCounters) -> &Counter);

const OF_TOPICS: &[OfTopic] = &[
    ("messagesin", "Records that producers wrote", |t| &t.records_in),
    ("bytesin", "Bytes that producers wrote", |t| &t.bytes_in),
    ("bytesout", "Bytes that consumers read", |t| &t.bytes_out),
    ("totalproducerequests", "Batches that producers sent", |t| &t.produce_requests),
    ("totalfetchrequests", "Fetches that were answered with records", |t| &t.fetch_requests),
    ("failedproducerequests", "Batches that were refused", |t| &t.failed_produce_requests),
];

/// Each once for all topics together and, at depth, once for each topic, as the beans are.
fn write_topics(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    for (name, help, counter) in OF_TOPICS {
        let name = format!("kafka_server_brokertopicmetrics_{name}");
        families.counters(&name, help, |row| {
            let values = scrape.topics.iter().map(|topic| counter(&topic.counters).get());
            row(&[], values.sum())?;
            match scrape.depth {
                Depth::Public => Ok(()),
                Depth::All => scrape.topics.iter().try_for_each(|topic| {
                    row(&[("topic", &topic.name)], counter(&topic.counters).get())
                }),
            }
        })?;
    }
    Ok(())
}

fn write_replicas(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    let node_id = scrape.cluster.node_id;
    let local = || scrape.partitions().filter(|p| p.local.is_some());
    let led = || scrape.partitions().filter(|p| p.leader == node_id);
    let short = |p: &&PartitionFacts| p.in_sync.len() < p.replicas.len();
    let below_min = |p: &&PartitionFacts| p.in_sync.len() < p.in_sync_min;
    let at_min = |p: &&PartitionFacts| p.in_sync.len() == p.in_sync_min;
    for (name, help, count) in [
        ("leadercount", "Partitions that this broker leads", led().count()),
        ("partitioncount", "Partitions with a replica here", local().count()),
        (
            "underreplicatedpartitions",
            "Partitions led here of which a replica is not in sync",
            led().filter(short).count(),
        ),
        (
            "underminisrpartitioncount",
            "Partitions led here with fewer in-sync replicas than min.insync.replicas",
            led().filter(below_min).count(),
        ),
        (
            "atminisrpartitioncount",
            "Partitions led here with just min.insync.replicas",
            led().filter(at_min).count(),
        ),
    ] {
        families.gauge(&format!("kafka_server_replicamanager_{name}"), help, count as f64)?;
    }
    let counters = &scrape.counters.cluster;
    for (name, help, count) in [
        ("isrshrinks", "Replicas that fell out of sync", counters.shrinks.total()),
        ("isrexpands", "Replicas that came into sync", counters.expansions.get()),
    ] {
        families.counter(&format!("kafka_server_replicamanager_{name}"), help, count)?;
    }
    Ok(())
}

fn write_controller(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    let ClusterFacts { is_controller, brokers, fenced_broker_count, .. } = &scrape.cluster;
    // Kafka's beans of the controller hold numbers on the active one only.
    let active = |count: usize| if *is_controller { count as f64 } else { 0.0 };
    let offline = scrape.partitions().filter(|p| p.leader < 0).count();
    for (name, help, value) in [
        ("activecontrollercount", "1 on the active controller", active(1)),
        ("offlinepartitionscount", "Partitions without a leader", active(offline)),
        ("globaltopiccount", "Topics of the cluster", active(scrape.topics.len())),
        ("globalpartitioncount", "Partitions of the cluster", active(scrape.partitions().count())),
        ("activebrokercount", "Brokers that serve", active(brokers.len())),
        ("fencedbrokercount", "Brokers that do not serve", active(*fenced_broker_count)),
    ] {
        families.gauge(&format!("kafka_controller_kafkacontroller_{name}"), help, value)?;
    }
    let unclean = scrape.counters.cluster.elections.of(Election::Unclean);
    families.counter(
        "kafka_controller_controllerstats_uncleanleaderelections",
        "Leaders that may lack acknowledged records, counted by the active controller",
        unclean,
    )
}

fn write_requests(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    let apis = scrape.apis_in_use();
    families.counters("kafka_network_requestmetrics_requests", "Requests received", |row| {
        apis.iter().try_for_each(|api| {
            row(&[("request", api.name())], scrape.counters.api(*api).requests.get())
        })
    })?;
    families.gauges(
        "kafka_network_requestmetrics_totaltimems",
        "Milliseconds from a request's arrival to its answer",
        |row| apis.iter().try_for_each(|api| write_quantiles(row, scrape, *api)),
    )?;
    let Some(idle) = scrape.idle else { return Ok(()) };
    // One kind of thread does what Kafka's two kinds do.
    let idle_help = "Part of their time, 0 to 1, in which the threads of the data path are idle";
    families.gauge(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        idle_help,
        idle,
    )?;
    let name = "kafka_network_socketserver_networkprocessoravgidle_percent";
    families.gauge(name, idle_help, idle)
}

fn write_quantiles(row: Row<'_, f64>, scrape: &Scrape<'_>, api: ApiKey) -> fmt::Result {
    let durations = &scrape.counters.api(api).durations;
    if durations.count() == 0 {
        return Ok(());
    }
    QUANTILES.iter().try_for_each(|(label, part)| {
        let labels = [("request", api.name()), ("quantile", *label)];
        row(&labels, quantile(durations, *part) * 1e3)
    })
}

fn write_logs(families: &mut Families<'_>, topics: &[TopicFacts]) -> fmt::Result {
    for (name, help, value) in [
        (
            "size",
            "Bytes of a partition's segments here",
            (|log| log.size_bytes as f64) as fn(&super::LocalReplica) -> f64,
        ),
        ("logstartoffset", "First offset that is there", |log| log.log_start_offset as f64),
        ("logendoffset", "Offset of the next record", |log| log.log_end_offset as f64),
        ("numlogsegments", "Segments of a partition here", |log| log.segment_count as f64),
    ] {
        families.gauges(&format!("kafka_log_log_{name}"), help, |row| {
            each_log(topics, |topic, partition, log| {
                row(&[("topic", topic), ("partition", partition)], value(log))
            })
        })?;
    }
    Ok(())
}

fn each_log(
    topics: &[TopicFacts],
    mut visit: impl FnMut(&Arc<str>, &str, &super::LocalReplica) -> fmt::Result,
) -> fmt::Result {
    for topic in topics {
        for partition in &topic.partitions {
            if let Some(local) = &partition.local {
                visit(&topic.name, &partition.index.to_string(), local)?;
            }
        }
    }
    Ok(())
}
