//! Transactions (KIP-98, KIP-890). Facts only: what the broker makes of a value is in
//! `broker_config`.

use super::TXN;
use crate::key::Key;

/// The keys of this area, in the order in which they are explained.
pub(super) const KEYS: &[Key] = &[
    Key::int("add.partitions.to.txn.retry.backoff.max.ms", "100")
        .at_least(0)
        .ignored(TXN)
        .doc("Longest time that the broker tries to add a partition to a transaction."),
    Key::int("add.partitions.to.txn.retry.backoff.ms", "20")
        .at_least(1)
        .ignored(TXN)
        .doc("Pause before a partition is again added to a transaction."),
    Key::int("transaction.abort.timed.out.transaction.cleanup.interval.ms", "10000")
        .at_least(1)
        .ignored(TXN)
        .doc("How often the broker looks for transactions that ran out of time."),
    Key::int("transaction.max.timeout.ms", "900000")
        .at_least(1)
        .ignored(TXN)
        .doc("Longest timeout that a transactional producer may ask for."),
    Key::boolean("transaction.partition.verification.enable", "true")
        .cluster_wide()
        .ignored(TXN)
        .doc(
            "Whether a partition is checked to be part of a transaction before records are \
             written.",
        ),
    Key::int("transaction.remove.expired.transaction.cleanup.interval.ms", "3600000")
        .at_least(1)
        .ignored(TXN)
        .doc("How often the broker looks for transactional ids to forget."),
    Key::int("transaction.state.log.load.buffer.size", "5242880")
        .at_least(1)
        .ignored(TXN)
        .doc("Bytes that are read at a time when a transaction coordinator loads its state."),
    Key::int("transaction.state.log.min.isr", "2")
        .at_least(1)
        .doc("In-sync replicas that the transaction topic needs."),
    Key::int("transaction.state.log.num.partitions", "50")
        .at_least(1)
        .doc("Partitions of the transaction topic."),
    Key::short("transaction.state.log.replication.factor", "3")
        .at_least(1)
        .doc("Replicas of the transaction topic."),
    Key::int("transaction.state.log.segment.bytes", "104857600")
        .at_least(1)
        .doc("Segment size of the transaction topic."),
    Key::boolean("transaction.two.phase.commit.enable", "false")
        .refused("two-phase commit (KIP-939) is not served")
        .doc("Whether transactions may be driven by a coordinator outside."),
    Key::int("transactional.id.expiration.ms", "604800000")
        .at_least(1)
        .ignored(TXN)
        .doc("A transactional id that was not used for this long is forgotten."),
];
