//! Tests of the metadata room: transcripts, properties over random requests, and the table of
//! topic configurations against what a real Kafka says.

mod commands;
mod kafka_table;
mod properties;
mod transcript;
