//! DescribeProducers (key 61), version 0 (KIP-664): which idempotent producers a partition knows. Their
//! state may have to be read first, so the answer is made beside the data threads.

use std::collections::HashSet;
use std::sync::Arc;

use model::{ErrorCode, PartitionIndex};
use wire::describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, ProducerState,
    TopicResponse,
};

use super::{Call, unique};

/// Memory of a producer in an answer, decoded and encoded.
const PRODUCER_BYTES: usize = 96;

/// Answers.
pub async fn handle(
    call: Arc<Call>,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let named = request.topics.iter().flat_map(|topic| {
        topic.partition_indexes.iter().map(|index| (topic.name.as_str(), PartitionIndex(*index)))
    });
    let known = named.collect::<HashSet<_>>().into_iter();
    let partitions = known.filter_map(|(topic, index)| call.server.partition(topic, index).ok());
    let producers: usize = partitions.map(|own| own.with_log(|log| log.producers().count())).sum();
    call.reserve_answer(PRODUCER_BYTES * producers + 4 * call.decoded_bytes).await;
    let described = tokio::task::spawn_blocking(move || describe_all(&call, request)).await;
    let topics = described.unwrap_or_else(|cause| std::panic::resume_unwind(cause.into_panic()));
    DescribeProducersResponse { throttle_time_ms: 0, topics }
}

fn describe_all(call: &Call, mut request: DescribeProducersRequest) -> Vec<TopicResponse> {
    unique::keep_first_partitions(
        &mut request.topics,
        |topic| topic.name.clone(),
        |topic| &mut topic.partition_indexes,
        |index| *index,
    );
    let topics = request.topics.into_iter().map(|topic| {
        let indexes = topic.partition_indexes.iter();
        let partitions = indexes.map(|index| describe(call, &topic.name, *index)).collect();
        TopicResponse { partitions, name: topic.name }
    });
    topics.collect()
}

fn describe(call: &Call, topic: &str, partition_index: i32) -> PartitionResponse {
    let found = call.server.partition(topic, PartitionIndex(partition_index));
    let (code, active_producers) = match found {
        Ok(partition) => match partition.resume() {
            Ok(()) => (ErrorCode::None, partition.with_log(active)),
            Err(cause) => (call.server.refused(&partition, &cause), Vec::new()),
        },
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
