//! Kafka's own command-line tools, unmodified, against the cluster: what an operator types.

mod administration;
mod configs;
mod console;
mod groups;
mod offsets;
mod perf;
mod restarts;
mod storage;
mod topics;

use super::scenario::Scenario;

/// The tools' scenarios, in the order in which they run.
pub const SCENARIOS: [Scenario; 43] = [
    ("broker-api-versions", topics::api_versions),
    ("topics-create-describe", topics::create_and_describe),
    ("topics-create-twice", topics::create_twice),
    ("topics-create-refused", topics::create_refused),
    ("topics-add-partitions", topics::add_partitions),
    ("topics-delete", topics::delete),
    ("console-keys-headers", console::keys_and_headers),
    ("console-codecs", console::codecs),
    ("console-partition-offset", console::partition_and_offset),
    ("console-group", console::group_continues),
    ("console-auto-create", console::auto_create),
    ("console-acks", console::acks),
    ("producer-perf-test", perf::producer),
    ("consumer-perf-test", perf::consumer),
    ("e2e-latency", perf::end_to_end),
    ("verifiable-producer", perf::verifiable_producer),
    ("verifiable-consumer", perf::verifiable_consumer),
    ("groups-list-describe", groups::list_and_describe),
    ("groups-active-members", groups::active_members),
    ("groups-reset-offsets", groups::reset_offsets),
    ("groups-delete", groups::delete),
    ("groups-delete-offsets", groups::delete_offsets),
    ("configs-topics", configs::topics),
    ("configs-lists", configs::lists),
    ("configs-refused", configs::refused),
    ("configs-brokers", configs::brokers),
    ("get-offsets", offsets::get_offsets),
    ("get-offsets-by-time", offsets::by_time),
    ("delete-records", offsets::delete_records),
    ("log-dirs", storage::log_dirs),
    ("dump-log", storage::dump_log),
    ("acls", administration::access_lists),
    ("configs-users-clients", administration::users_and_clients),
    ("configs-broker-loggers", administration::broker_loggers),
    ("metadata-quorum", administration::quorum),
    ("leader-election", administration::elections),
    ("reassign-partitions", administration::reassignments),
    ("features", administration::features),
    ("transactions-list", administration::transactions),
    ("groups-of-all-kinds", administration::groups),
    ("cluster", administration::cluster),
    ("client-metrics", administration::client_metrics),
    ("restarts", restarts::stays),
];
