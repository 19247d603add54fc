//! Tests of the metadata room: transcripts, properties over random requests, the facts beside logs that
//! crash, and the table of topic configurations against what a real Kafka says.

mod commands;
mod kafka_table;
mod machines;
mod properties;
mod transcript;
