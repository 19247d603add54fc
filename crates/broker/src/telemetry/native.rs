//! Highwater's own metrics, in base units, and those of the process under the names that every
//! Prometheus client library uses.

use std::fmt;

use metrics::{Families, process};
use serving::health::Condition;

use super::observed::RequestFacts;
use super::scrape::Scrape;

pub(super) fn write(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    families.gauges("highwater_build_info", "The version that runs", |row| {
        row(&[("version", env!("CARGO_PKG_VERSION"))], 1.0)
    })?;
    families.gauges("highwater_cluster_info", "The cluster and this node in it", |row| {
        let node_id = scrape.cluster.node_id.to_string();
        row(&[("cluster_id", &scrape.cluster.cluster_id), ("node_id", &node_id)], 1.0)
    })?;
    families.gauge(
        "highwater_healthy",
        "1 if /healthz answers 200",
        if scrape.health.is_available() { 1.0 } else { 0.0 },
    )?;
    write_conditions(families, scrape)?;
    write_connections(families, scrape)?;
    write_requests(families, &scrape.requests)?;
    write_durations(families, scrape)?;
    process::write(families)
}

fn write_conditions(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    for (name, help, condition) in [
        (
            "coordinators_failed",
            "Partitions of __consumer_offsets whose groups could not be loaded",
            Condition::CoordinatorFailed,
        ),
        (
            "log_directories_offline",
            "Log directories that are not used until the broker is started again",
            Condition::DirectoryOffline,
        ),
        (
            "partitions_refused",
            "Partitions whose logs are refused or could not be opened",
            Condition::PartitionRefused,
        ),
        ("stray_folders", "Folders that belong to no topic", Condition::StrayFolder),
        (
            "partitions_not_compacted",
            "Partitions that are not compacted any more, for they are damaged",
            Condition::PartitionNotCompacted,
        ),
    ] {
        let reasons = scrape.health.reasons().iter();
        let count = reasons.filter(|reason| reason.condition == condition).count();
        families.gauge(&format!("highwater_{name}"), help, count as f64)?;
    }
    Ok(())
}

fn write_connections(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    let counters = scrape.counters;
    let open =
        counters.connections_accepted.get().saturating_sub(counters.connections_closed.get());
    families.gauge("highwater_connections", "Connections of clients that are open", open as f64)?;
    for (name, help, counter) in [
        ("connections_accepted", "Connections accepted", &counters.connections_accepted),
        (
            "connections_refused",
            "Connections turned away by max.connections or max.connections.per.ip",
            &counters.connections_refused,
        ),
        (
            "connections_broken_off",
            "Connections ended because of what the client sent",
            &counters.connections_broken_off,
        ),
        (
            "batches_unreadable",
            "Batches met by look-ups by time and by compaction whose records cannot be read",
            &counters.batches_unreadable,
        ),
        (
            "committed_cuts",
            "Cuts of logs that took committed records, because a leader was elected that lacks them",
            &counters.committed_cuts,
        ),
        (
            "truncations_refused",
            "Truncations that followers refused, because their leaders lack committed records",
            &counters.truncations_refused,
        ),
        ("network_received_bytes", "Bytes read from clients", &counters.bytes_received),
        ("network_sent_bytes", "Bytes sent to clients", &counters.bytes_sent),
    ] {
        families.counter(&format!("highwater_{name}"), help, counter.get())?;
    }
    Ok(())
}

fn write_requests(families: &mut Families<'_>, facts: &RequestFacts) -> fmt::Result {
    for (name, help, value) in [
        ("request_memory_bytes", "Bytes of requests that were not taken in yet", facts.frame_bytes),
        ("request_memory_max_bytes", "Bytes that these may be", facts.frame_bytes_max),
        (
            "decoded_memory_bytes",
            "Bytes of decoded requests and of answers that wait to be sent",
            facts.decoded_bytes,
        ),
        ("decoded_memory_max_bytes", "Bytes that these may be", facts.decoded_bytes_max),
        ("answer_memory_bytes", "Bytes reserved for answers above 1 MiB", facts.answer_bytes),
        (
            "answer_memory_max_bytes",
            "Largest value of highwater_answer_memory_bytes",
            facts.answer_bytes_max,
        ),
        (
            "group_memory_bytes",
            "Bytes of members and assignments of consumer groups",
            facts.member_bytes,
        ),
        (
            "group_memory_max_bytes",
            "Largest value of highwater_group_memory_bytes",
            facts.member_bytes_max,
        ),
        (
            "offset_memory_bytes",
            "Bytes of committed offsets of consumer groups",
            facts.offset_bytes,
        ),
        (
            "offset_memory_max_bytes",
            "Largest value of highwater_offset_memory_bytes",
            facts.offset_bytes_max,
        ),
        ("slow_requests", "Requests that have been arriving for seconds", facts.slow_frames),
        ("fetch_sessions", "Fetch sessions that are kept", facts.fetch_sessions),
        (
            "fetch_session_partitions",
            "Partitions of all fetch sessions",
            facts.fetch_session_partitions,
        ),
    ] {
        families.gauge(&format!("highwater_{name}"), help, value as f64)?;
    }
    Ok(())
}

fn write_durations(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    let apis = scrape.apis_in_use();
    let labels: Vec<_> = apis.iter().map(|api| [("api", api.name())]).collect();
    families.histograms(
        "highwater_request_duration_seconds",
        "From a request's arrival to its answer",
        apis.iter()
            .zip(&labels)
            .map(|(api, labels)| (&labels[..], &scrape.counters.api(*api).durations)),
    )?;
    families.histograms(
        "highwater_fsync_duration_seconds",
        "How long syncs of log files take",
        std::iter::once((&[][..], &scrape.counters.syncs)),
    )
}
