//! Kafka's wire protocol: headers, generated messages, one table of APIs and versions
