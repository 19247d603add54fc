//! The leader's side of fetches: who asks, what a request wants of a partition, and what an answer says in front of the
//! records. Waiting, reading and sending is up to the broker. The follower's side is [`crate::fetching`].

use model::{BrokerEpoch, BrokerId, ErrorCode, LeaderEpoch, Moment, Offset, PartitionIndex};
use partition::{FollowerFetch, Read, ReplicaRead};
use storage::ReadCursor;
use wire::fetch::EpochEndOffset;
use wire::hot::fetch::{FetchPartition, FetchRequest};
use wire::hot::fetch_response::FetchedPartition;

use crate::mutants::{Mutant, is_planted};

/// The replica id of Kafka's verification tool, which reads like a consumer.
const DEBUG_REPLICA: i32 = -2;

/// A broker that fetches as a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follower {
    /// Which one.
    pub broker: BrokerId,
    /// In which registration.
    pub epoch: BrokerEpoch,
}

impl Follower {
    /// Who fetches as a replica, on a connection whose other end has proven to be `caller`; `None` for a consumer. Fails with
    /// the code that is the answer if the request is another one's.
    pub fn of(
        request: &FetchRequest,
        caller: Option<BrokerId>,
    ) -> Result<Option<Follower>, ErrorCode> {
        match request.replica_id {
            id if (DEBUG_REPLICA..0).contains(&id.0) => Ok(None),
            id if Some(id) == caller => {
                Ok(Some(Follower { broker: id, epoch: request.replica_epoch }))
            }
            _ => Err(ErrorCode::ClusterAuthorizationFailed),
        }
    }

    /// What it asks of a partition of which it wants this: its fetch is its acknowledgement. The rest of the answer leaves room for
    /// `left_bytes`, but for a first batch if there is to be one in any case.
    pub fn read(
        &self,
        wanted: &Wanted,
        cursor: ReadCursor,
        left_bytes: u32,
        at_least_one: bool,
        now: Moment,
    ) -> ReplicaRead {
        ReplicaRead {
            fetch: FollowerFetch {
                follower: self.broker,
                broker_epoch: self.epoch,
                leader_epoch: wanted.known_epoch,
                position: wanted.offset,
                log_start: wanted.log_start,
                now,
            },
            last_epoch: wanted.last_fetched_epoch,
            cursor,
            max_bytes: wanted.max_bytes.min(left_bytes),
            at_least_one,
        }
    }
}

/// What is wanted of one partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The first offset wanted.
    pub offset: Offset,
    /// The follower's durable first offset; -1 of a consumer.
    pub log_start: Offset,
    /// Bytes at most.
    pub max_bytes: u32,
    /// The leader epoch that the fetcher knows; [`LeaderEpoch::NONE`] if it does not say.
    pub known_epoch: LeaderEpoch,
    /// The leader epoch of the last record that it has; [`LeaderEpoch::NONE`] if it does not say.
    pub last_fetched_epoch: LeaderEpoch,
    /// The high watermark that it knows, if it says.
    pub known_high_watermark: Option<Offset>,
}

impl Wanted {
    /// What a request says of a partition.
    pub fn of(partition: &FetchPartition) -> Wanted {
        Wanted {
            offset: partition.fetch_offset,
            log_start: partition.log_start_offset,
            max_bytes: partition.partition_max_bytes.max(0) as u32,
            known_epoch: partition.current_leader_epoch,
            last_fetched_epoch: partition.last_fetched_epoch,
            known_high_watermark: Some(partition.high_watermark).filter(|it| it.0 < i64::MAX),
        }
    }
}

/// What an answer says of a partition that can be read, in front of its records.
pub fn found(partition: PartitionIndex, read: &Read) -> FetchedPartition<'static> {
    let diverging = read.diverging.filter(|_| !is_planted(Mutant::DropsDivergences));
    FetchedPartition {
        partition,
        error_code: ErrorCode::None,
        high_watermark: read.high_watermark,
        last_stable_offset: read.last_stable,
        log_start_offset: read.log_start,
        aborted_transactions: None,
        preferred_read_replica: BrokerId::NONE,
        diverging_epoch: diverging
            .map(|(epoch, end)| EpochEndOffset { epoch: epoch.0, end_offset: end.0 }),
        current_leader: None,
    }
}

/// What an answer says of a partition that cannot be read. `range`: where its log begins and ends, of which a replica is told that
/// is out of range.
pub fn failed(
    partition: PartitionIndex,
    code: ErrorCode,
    range: Option<(Offset, Offset)>,
) -> FetchedPartition<'static> {
    let failed = FetchedPartition::failed(partition, code);
    match range {
        Some((log_start, log_end)) => {
            FetchedPartition { log_start_offset: log_start, high_watermark: log_end, ..failed }
        }
        None => failed,
    }
}
