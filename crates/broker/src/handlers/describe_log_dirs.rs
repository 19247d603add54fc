//! DescribeLogDirs (key 35), versions 1 to 5 (KIP-113): sizes of partitions, and of the volume (v4,
//! KIP-827). v5 says whether a directory takes no new partitions (KIP-1066): none is cordoned here.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::ErrorCode;
use partition::Partition;
use wire::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsRequest, DescribeLogDirsResponse,
    DescribeLogDirsResult, DescribeLogDirsTopic,
};

use super::Call;

/// Memory of a partition in an answer, decoded and encoded, with a topic of its own.
const PARTITION_BYTES: usize = 256;

/// Answers.
pub async fn handle(call: Arc<Call>, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    let wanted: Option<BTreeSet<(String, i32)>> = request.topics.map(|topics| {
        let each = |topic: wire::describe_log_dirs::DescribableLogDirTopic| {
            let name = topic.topic;
            topic.partitions.into_iter().map(move |index| (name.clone(), index))
        };
        topics.into_iter().flat_map(each).collect()
    });
    let partitions = call.server.topics.load().partitions().count();
    call.reserve_answer(partitions * PARTITION_BYTES + 3 * call.decoded_bytes).await;
    let results = call.server.logs.directories().map(|dir| describe(&call, dir, &wanted)).collect();
    DescribeLogDirsResponse { throttle_time_ms: 0, error_code: ErrorCode::None.code(), results }
}

fn describe(
    call: &Call,
    dir: &crate::logs::Directory,
    wanted: &Option<BTreeSet<(String, i32)>>,
) -> DescribeLogDirsResult {
    let log_dir = dir.path().display().to_string();
    if dir.is_offline() {
        let error_code = ErrorCode::KafkaStorageError.code();
        return DescribeLogDirsResult { error_code, log_dir, ..Default::default() };
    }
    let mut topics: BTreeMap<String, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for partition in call.server.topics.load().partitions() {
        let name = partition.topic_partition();
        let key = (name.topic.to_string(), name.partition.0);
        if wanted.as_ref().is_some_and(|wanted| !wanted.contains(&key)) {
            continue;
        }
        if call.server.logs.directory_of(partition).path() == dir.path() {
            topics.entry(key.0).or_default().push(size(partition));
        }
    }
    let (total_bytes, usable_bytes) = dir.volume_bytes().unwrap_or((-1, -1));
    DescribeLogDirsResult {
        error_code: ErrorCode::None.code(),
        log_dir,
        topics: topics
            .into_iter()
            .map(|(name, mut partitions)| {
                partitions.sort_by_key(|partition| partition.partition_index);
                DescribeLogDirsTopic { name, partitions }
            })
            .collect(),
        total_bytes,
        usable_bytes,
        is_cordoned: false,
    }
}

fn size(partition: &Arc<Partition>) -> DescribeLogDirsPartition {
    let (size_bytes, log_end) = partition.with_log(|log| (log.size_bytes(), log.log_end_offset()));
    DescribeLogDirsPartition {
        partition_index: partition.topic_partition().partition.0,
        partition_size: size_bytes as i64,
        offset_lag: (partition.high_watermark().0 - log_end.0).max(0),
        is_future_key: false,
    }
}
