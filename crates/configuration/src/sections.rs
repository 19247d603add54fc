//! The parts of `BrokerConfig` that are plain values: one field for each key. What joins several
//! keys is in `broker_config`.

use super::settings::settings;

settings! {
    /// Sockets and requests.
    pub struct Network {
        /// A longer frame closes its connection before any memory is set aside.
        request_bytes_max: usize = "socket.request.max.bytes",
        /// -1: the system's choice.
        send_buffer_bytes: i32 = "socket.send.buffer.bytes",
        /// -1: the system's choice.
        receive_buffer_bytes: i32 = "socket.receive.buffer.bytes",
        /// Connections that wait to be accepted.
        backlog: i32 = "socket.listen.backlog.size",
        /// All requests in memory; -1: no limit was asked for.
        queued_request_bytes_max: i64 = "queued.max.request.bytes",
        /// Open at a time, all listeners together.
        connections_max: u32 = "max.connections",
        /// Open at a time from one address.
        connections_per_ip_max: u32 = "max.connections.per.ip",
        /// A connection without a request for this long is closed; negative: never.
        connections_idle_ms_max: i64 = "connections.max.idle.ms",
        /// In one DescribeTopicPartitions answer.
        described_partitions_max: u32 = "max.request.partition.size.limit",
    }
}

settings! {
    /// What a fetch may ask for.
    pub struct FetchLimits {
        /// Of one answer, whatever the client asks for.
        response_bytes_max: u32 = "fetch.max.bytes",
        /// Incremental sessions at a time (KIP-227).
        session_slots: usize = "max.incremental.fetch.session.cache.slots",
    }
}

settings! {
    /// A broker's place in the cluster.
    pub struct Membership {
        /// How often it tells the controller that it lives.
        heartbeat_ms: u64 = "broker.heartbeat.interval.ms",
        /// It is fenced after a silence of this length.
        session_ms: u64 = "broker.session.timeout.ms",
        /// Silence after which the active controller suspects a broker, in milliseconds; 0: never.
        suspect_after_ms: u64 = "highwater.suspect.after.ms",
        /// Whether a leader refuses `acks=0` and `acks=1` while another may have been elected.
        refuses_in_doubt: bool = "highwater.superseded.leader.refuses",
        /// Time since the start after which replicas in a missing log directory are copied to others, in milliseconds.
        missing_copied_ms: u64 = "highwater.missing.directory.copy.after.ms",
        /// How long an election by log ends waits for complete replicas, in milliseconds.
        election_wait_ms: u64 = "highwater.election.wait.ms",
        /// Interval in which marks of log directories are raised and recorded, in milliseconds.
        mark_interval_ms: u64 = "highwater.mark.interval.ms",
        /// How long a start tries to register.
        registration_ms_max: u64 = "initial.broker.registration.timeout.ms",
        /// Whether a stop first hands leaderships over.
        hands_over: bool = "controlled.shutdown.enable",
        /// Whether the controller gives leaderships back to preferred replicas.
        rebalances: bool = "auto.leader.rebalance.enable",
        /// How often it does.
        rebalance_s: u64 = "leader.imbalance.check.interval.seconds",
    }
}

settings! {
    /// How followers copy from their leaders.
    pub struct Followers {
        /// Connections to each leader, each with a thread of its own.
        fetchers: u16 = "num.replica.fetchers",
        /// Asked for of one partition.
        partition_bytes_max: u32 = "replica.fetch.max.bytes",
        /// Waited for by the leader, up to `wait_ms_max`.
        bytes_min: i32 = "replica.fetch.min.bytes",
        /// Asked for in all.
        response_bytes_max: u32 = "replica.fetch.response.max.bytes",
        /// How long the leader may wait for records.
        wait_ms_max: u32 = "replica.fetch.wait.max.ms",
        /// The pause after a connection or an answer that failed.
        backoff_ms: u64 = "replica.fetch.backoff.ms",
        /// How long an answer may take beyond that wait.
        timeout_ms: u64 = "replica.socket.timeout.ms",
    }
}

settings! {
    /// How topics come to be and to go.
    pub struct TopicDefaults {
        /// Whether asking for an unknown topic creates it.
        auto_create: bool = "auto.create.topics.enable",
        /// Of a topic that does not say.
        partitions: i32 = "num.partitions",
        /// Of a topic that does not say.
        replication_factor: i16 = "default.replication.factor",
        /// Whether DeleteTopics works.
        deletion_enabled: bool = "delete.topic.enable",
    }
}

settings! {
    /// Consumer groups.
    pub struct Groups {
        /// A new group waits for more members.
        initial_rebalance_delay_ms: i32 = "group.initial.rebalance.delay.ms",
        /// Shortest that a member may ask for.
        session_timeout_ms_min: i32 = "group.min.session.timeout.ms",
        /// Longest that a member may ask for.
        session_timeout_ms_max: i32 = "group.max.session.timeout.ms",
        /// Members of one group.
        size_max: usize = "group.max.size",
        /// Memory of members of all groups.
        memory_bytes_max: usize = "group.coordinator.memory.max.bytes",
        /// Memory of committed offsets of all groups.
        offset_memory_bytes_max: usize = "group.coordinator.offsets.memory.max.bytes",
    }
}

settings! {
    /// Committed offsets and the topic that holds them.
    pub struct Offsets {
        /// Of the topic; fixed once it exists.
        partitions: i32 = "offsets.topic.num.partitions",
        /// Of the topic; the caller takes fewer if the cluster has fewer brokers.
        replication_factor: i16 = "offsets.topic.replication.factor",
        /// Of the topic.
        segment_bytes: u32 = "offsets.topic.segment.bytes",
        /// Of a group without members.
        retention_minutes: i64 = "offsets.retention.minutes",
        /// How often offsets to forget are looked for.
        retention_check_ms: u64 = "offsets.retention.check.interval.ms",
        /// How long a commit waits for its replicas.
        commit_timeout_ms: u32 = "offsets.commit.timeout.ms",
        /// Text with a committed offset.
        metadata_bytes_max: usize = "offset.metadata.max.bytes",
    }
}

settings! {
    /// The topic that holds the state of transactions, when it is made.
    pub struct TransactionTopic {
        /// Fixed once it exists.
        partitions: i32 = "transaction.state.log.num.partitions",
        /// The caller takes fewer if the cluster has fewer brokers.
        replication_factor: i16 = "transaction.state.log.replication.factor",
        /// `min.insync.replicas` of the topic.
        min_insync_replicas: i32 = "transaction.state.log.min.isr",
        /// `segment.bytes` of the topic.
        segment_bytes: u32 = "transaction.state.log.segment.bytes",
    }
}

settings! {
    /// The topic that holds the state of share groups, when it is made.
    pub struct ShareTopic {
        /// Fixed once it exists.
        partitions: i32 = "share.coordinator.state.topic.num.partitions",
        /// The caller takes fewer if the cluster has fewer brokers.
        replication_factor: i16 = "share.coordinator.state.topic.replication.factor",
        /// `min.insync.replicas` of the topic.
        min_insync_replicas: i16 = "share.coordinator.state.topic.min.isr",
        /// `segment.bytes` of the topic.
        segment_bytes: u32 = "share.coordinator.state.topic.segment.bytes",
    }
}

settings! {
    /// Idempotent producers.
    pub struct Producers {
        /// Idle for this long, they are forgotten.
        expiration_ms: i64 = "producer.id.expiration.ms",
        /// How often that is looked at.
        expiration_check_ms: u64 = "producer.id.expiration.check.interval.ms",
    }
}

settings! {
    /// Compaction.
    pub struct Cleaner {
        /// Whether it happens at all.
        enabled: bool = "log.cleaner.enable",
        /// Threads.
        threads: usize = "log.cleaner.threads",
        /// Pause when there is nothing to do.
        backoff_ms: u64 = "log.cleaner.backoff.ms",
        /// For keys, all threads together.
        dedupe_buffer_bytes: u64 = "log.cleaner.dedupe.buffer.size",
        /// How full that may be, 0 to 1.
        buffer_load_factor: f64 = "log.cleaner.io.buffer.load.factor",
        /// Read and written.
        io_bytes_per_s_max: f64 = "log.cleaner.io.max.bytes.per.second",
    }
}
