//! A lean Kafka client: connections, metadata, produce, fetch, groups, administration
