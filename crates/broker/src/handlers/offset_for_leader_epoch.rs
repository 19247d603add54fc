//! OffsetForLeaderEpoch (key 23), versions 2 to 4: where a leader epoch ended, so that a client or a
//! follower sees whether its history is ours (KIP-101, KIP-279, KIP-320). librdkafka asks in
//! version 2 only.

use std::sync::Arc;

use model::{ErrorCode, LeaderEpoch, PartitionIndex};
use wire::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition, OffsetForLeaderTopicResult,
};

use super::{Call, known_epoch, unique};

/// Answers.
pub async fn handle(
    call: Arc<Call>,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let mut wanted = request.topics;
    unique::keep_first_partitions(
        &mut wanted,
        |topic| topic.topic.clone(),
        |topic| &mut topic.partitions,
        |partition| partition.partition,
    );
    let topics = wanted
        .into_iter()
        .map(|topic| OffsetForLeaderTopicResult {
            partitions: topic
                .partitions
                .iter()
                .map(|wanted| look_up(&call, &topic.topic, wanted))
                .collect(),
            topic: topic.topic,
        })
        .collect();
    OffsetForLeaderEpochResponse { throttle_time_ms: 0, topics }
}

fn look_up(call: &Call, topic: &str, wanted: &OffsetForLeaderPartition) -> EpochEndOffset {
    let index = PartitionIndex(wanted.partition);
    let known = known_epoch(LeaderEpoch(wanted.current_leader_epoch));
    let found = call.server.partition(topic, index).and_then(|partition| {
        partition
            .epoch_end(LeaderEpoch(wanted.leader_epoch), known)
            .map_err(|error| call.server.complaints.code_of(&partition, &error))
    });
    let (error_code, leader_epoch, end_offset) = match found {
        Ok(found) => (ErrorCode::None, found.epoch.0, found.end.0),
        Err(code) => (code, -1, -1),
    };
    let error_code = error_code.code();
    EpochEndOffset { error_code, partition: wanted.partition, leader_epoch, end_offset }
}
