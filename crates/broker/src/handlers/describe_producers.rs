//! DescribeProducers (key 61), version 0 (KIP-664): which idempotent producers a partition knows.

use std::sync::Arc;

use model::{ErrorCode, PartitionIndex};
use wire::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, ProducerState,
    TopicResponse,
};

use super::Call;

/// Answers.
pub async fn handle(
    call: Arc<Call>,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let topics = request
        .topics
        .into_iter()
        .map(|topic| TopicResponse {
            partitions: topic
                .partition_indexes
                .iter()
                .map(|index| describe(&call, &topic.name, *index))
                .collect(),
            name: topic.name,
        })
        .collect();
    DescribeProducersResponse { throttle_time_ms: 0, topics }
}

fn describe(call: &Call, topic: &str, partition_index: i32) -> PartitionResponse {
    let found = call.server.partition(topic, PartitionIndex(partition_index));
    let (code, active_producers) = match found {
        Ok(partition) => (ErrorCode::None, partition.with_log(active)),
        Err(code) => (code, Vec::new()),
    };
    PartitionResponse {
        partition_index,
        error_code: code.code(),
        error_message: None,
        active_producers,
    }
}

fn active(log: &storage::Log) -> Vec<ProducerState> {
    log.producers()
        .map(|producer| ProducerState {
            producer_id: producer.producer_id.0,
            producer_epoch: i32::from(producer.epoch.0),
            last_sequence: producer.last_sequence.0,
            last_timestamp: producer.last_timestamp.0,
            coordinator_epoch: producer.coordinator_epoch,
            current_txn_start_offset: producer.transaction_start.map_or(-1, |offset| offset.0),
        })
        .collect()
}
