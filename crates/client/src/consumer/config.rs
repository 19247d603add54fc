//! How records are consumed. The fields are those of Kafka's consumer, and so are the defaults.

use super::assignor::Assignor;
use bytes::Bytes;
use std::time::Duration;

/// Where to begin when there is no offset to begin at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffsetReset {
    /// At the first readable offset.
    Earliest,
    /// Behind the last readable record.
    Latest,
    /// Nowhere: the poll fails.
    Fail,
}

/// How records are consumed.
#[derive(Debug, Clone)]
pub struct ConsumerConfig {
    /// `group.id`; needed to subscribe and to commit.
    pub group_id: Option<String>,
    /// `group.instance.id`: a static member (KIP-345).
    pub group_instance_id: Option<String>,
    /// `partition.assignment.strategy`, the preferred one first.
    pub assignors: Vec<Assignor>,
    /// Bytes that every member of the group may read (`UserData` of the member's subscription); at most some hundred.
    pub user_data: Bytes,
    /// `session.timeout.ms`.
    pub session_timeout: Duration,
    /// `heartbeat.interval.ms`.
    pub heartbeat_interval: Duration,
    /// How long members may take to join again.
    pub rebalance_timeout: Duration,
    /// `max.poll.interval.ms`: without a poll for so long, the member leaves.
    pub poll_interval_max: Duration,
    /// `auto.offset.reset`.
    pub offset_reset: OffsetReset,
    /// `enable.auto.commit` and `auto.commit.interval.ms` in one; `None` for no automatic commits.
    pub auto_commit: Option<Duration>,
    /// `isolation.level`: whether to leave aborted transactions out and stop before open ones.
    pub read_committed: bool,
    /// `check.crcs`.
    pub check_crcs: bool,
    /// `fetch.min.bytes`.
    pub fetch_bytes_min: i32,
    /// `fetch.max.wait.ms`.
    pub fetch_wait_max: Duration,
    /// `fetch.max.bytes`.
    pub fetch_bytes_max: i32,
    /// `max.partition.fetch.bytes`.
    pub partition_bytes_max: i32,
    /// Whether a partition that fails for good is given up by itself ([`crate::Consumer::take_failures`]), and a place
    /// outside of a log is such a failure; else it fails the poll, and `offset_reset` decides.
    pub failures_apart: bool,
    /// Whether the next records travel while the caller works on those of a poll; else they are asked for by the next
    /// poll, and a consumer at rest holds none.
    pub prefetch: bool,
    /// `client.rack`: read from a replica nearby (KIP-392).
    pub rack: String,
}

impl Default for ConsumerConfig {
    fn default() -> ConsumerConfig {
        ConsumerConfig {
            group_id: None,
            group_instance_id: None,
            assignors: vec![Assignor::Range],
            user_data: Bytes::new(),
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            rebalance_timeout: Duration::from_secs(300),
            poll_interval_max: Duration::from_secs(300),
            offset_reset: OffsetReset::Latest,
            auto_commit: Some(Duration::from_secs(5)),
            read_committed: false,
            check_crcs: true,
            fetch_bytes_min: 1,
            fetch_wait_max: Duration::from_millis(500),
            fetch_bytes_max: 50 * 1024 * 1024,
            partition_bytes_max: 1024 * 1024,
            failures_apart: false,
            prefetch: true,
            rack: String::new(),
        }
    }
}

impl ConsumerConfig {
    /// The defaults, in this group.
    pub fn group(group_id: &str) -> ConsumerConfig {
        ConsumerConfig { group_id: Some(group_id.to_owned()), ..ConsumerConfig::default() }
    }
}
