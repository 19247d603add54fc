//! Highwater's own keys, which Kafka does not have.

use crate::key::{Key, Kind};

/// The keys of this area, in the order in which they are explained.
pub(super) const KEYS: &[Key] = &[
    Key::string("durability", "fsync").one_of(&["fsync", "page-cache"]).cluster_wide().doc(
        "When a write with acks=all is acknowledged: once it is synced to the disk of every \
         in-sync replica (fsync), or once it is in their page cache, as Kafka does (page-cache).",
    ),
    Key::int("records.expanded.max.bytes", "134217728").at_least(1).cluster_wide().doc(
        "Bytes that the records of one compressed batch may expand to; a producer's batch that \
         expands to more is refused. For topics that say nothing else.",
    ),
    Key::string("records.validation", "full").one_of(&["full", "header"]).cluster_wide().doc(
        "What is looked into before a batch is stored: every record (full), as in Kafka, or of \
         compressed batches only the header (header). For topics that say nothing else.",
    ),
    Key::long("sync.delay.ms", "20").at_least(0).cluster_wide().doc(
        "With durability=fsync: how long a write that no request waits for (acks=0 or 1, no consumer \
         at the end of the log) may stay unsynced. A loss of power loses at most so much of it.",
    ),
    Key::string("http.listener", ":8080").doc(
        "Where metrics and health are served over HTTP: host:port. No host: all interfaces; \
         port 0: any free one; empty: nowhere.",
    ),
    Key::null("cluster.id", Kind::String).doc(
        "The cluster's id, 22 characters of URL-safe base64. Unset: made up when the data folder \
         is made. A data folder of another cluster is refused.",
    ),
    Key::null("inter.broker.secret", Kind::Password).doc(
        "What brokers of the cluster prove to each other that they belong to it by, the same on all \
         of them. Unset: only brokers on the same machine are talked to.",
    ),
    Key::string("log.format", "text")
        .one_of(&["text", "json"])
        .doc("The form of what the program reports on standard error: lines for people or JSON."),
    Key::string("log.level", "info")
        .one_of(&["error", "warn", "info", "debug", "trace"])
        .doc("How much the program reports on standard error."),
];
