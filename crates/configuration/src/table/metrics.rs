//! Metrics, telemetry and what this broker shows of itself. Facts only: what the broker makes of a
//! value is in `broker_config`.

use super::JMX;
use crate::key::Key;

/// The keys of this area, in the order in which they are explained.
pub(super) const KEYS: &[Key] = &[
    Key::int("kafka.metrics.polling.interval.secs", "10")
        .at_least(1)
        .ignored(JMX)
        .doc("How often reporters of metrics are called."),
    Key::list("kafka.metrics.reporters", "").ignored(JMX).doc("Java classes that report metrics."),
    Key::list("metric.reporters", "org.apache.kafka.common.metrics.JmxReporter")
        .cluster_wide()
        .ignored(JMX)
        .doc("Java classes that report metrics."),
    Key::int("metrics.num.samples", "2")
        .at_least(1)
        .ignored(JMX)
        .doc("Samples of which a metric is made."),
    Key::string("metrics.recording.level", "INFO")
        .ignored(JMX)
        .doc("How detailed metrics are: INFO, DEBUG or TRACE."),
    Key::long("metrics.sample.window.ms", "30000")
        .at_least(1)
        .ignored(JMX)
        .doc("Length of one sample."),
    Key::int("telemetry.max.bytes", "1048576")
        .at_least(1)
        .ignored("clients are asked for no telemetry (KIP-714)")
        .doc("Largest telemetry report of a client."),
];
