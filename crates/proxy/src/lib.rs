//! A Kafka-protocol proxy: one listener for each broker, addresses rewritten, delay and bandwidth shaped.
