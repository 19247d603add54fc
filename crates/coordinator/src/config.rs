//! What an operator may set for consumer groups, with Kafka's names and defaults. The broker reads
//! the files; this room only sees the values.

use model::Timestamp;

/// Limits and times of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupConfig {
    /// `group.min.session.timeout.ms`: the shortest session time-out that a member may ask for.
    pub session_timeout_ms_min: i32,
    /// `group.max.session.timeout.ms`: the longest.
    pub session_timeout_ms_max: i32,
    /// `group.max.size`: how many members a group may have; at least 1.
    pub group_size_max: usize,
    /// `group.initial.rebalance.delay.ms`: how long an empty group waits for more members before
    /// its first rebalance completes. Each new member extends the wait, up to the group's
    /// rebalance time-out.
    pub initial_rebalance_delay_ms: i64,
    /// `group.coordinator.new.group.join.timeout.ms`: how long a member's first JoinGroup may wait.
    pub new_member_join_timeout_ms: i64,
    /// `offset.metadata.max.bytes`: the longest metadata of a committed offset, in UTF-16 units
    /// as Kafka counts.
    pub offset_metadata_length_max: usize,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`: how often offsets and groups are looked through.
    pub offsets_retention_check_interval_ms: i64,
    /// Nothing expires before this time.
    pub expiry_from: Timestamp,
    /// `offsets.commit.timeout.ms`: how long an answer waits for its records to be committed.
    pub write_timeout_ms: i64,
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig {
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            group_size_max: i32::MAX as usize,
            initial_rebalance_delay_ms: 3_000,
            new_member_join_timeout_ms: 5 * 60 * 1_000,
            offset_metadata_length_max: 4_096,
            offsets_retention_ms: 10_080 * 60_000,
            offsets_retention_check_interval_ms: 600_000,
            expiry_from: Timestamp::NONE,
            write_timeout_ms: 5_000,
        }
    }
}

impl GroupConfig {
    /// Panics on values with which no shard can work; the broker checks what operators write.
    pub(crate) fn assert_valid(&self) {
        assert!(self.session_timeout_ms_min <= self.session_timeout_ms_max);
        assert!(self.group_size_max >= 1, "group.max.size is at least 1");
        assert!(self.initial_rebalance_delay_ms >= 0 && self.new_member_join_timeout_ms > 0);
        assert!(self.offsets_retention_ms > 0 && self.offsets_retention_check_interval_ms > 0);
        assert!(self.write_timeout_ms > 0);
        // A string of the record formats holds 32,767 bytes; a UTF-16 unit takes up to three.
        assert!(self.offset_metadata_length_max <= STRING_BYTES_MAX / 3);
    }
}

/// The longest string that the record formats can hold, in bytes.
pub(crate) const STRING_BYTES_MAX: usize = i16::MAX as usize;

/// Bytes of records that go into one write, if it has more than one record.
pub(crate) const WRITE_BYTES_MAX: usize = 256 << 10;
