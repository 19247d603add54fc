//! The rows of the comparison: what load, which figures count, and what is to be reached. Data only.

use super::broker::Class;

/// One row: a workload and its bars.
pub struct Row {
    /// For `--rows`.
    pub name: &'static str,
    /// For the table.
    pub title: &'static str,
    /// What runs.
    pub work: Work,
    /// Which contract the candidate is started with.
    pub class: Class,
    /// What is shown, and what is to be reached.
    pub bars: &'static [Bar],
}

/// The kinds of work.
#[derive(Clone, Copy)]
pub enum Work {
    /// librdkafka, flat out.
    Produce(Produce),
    /// librdkafka, linger 0, 1 KiB records at a fixed rate.
    Paced { rate: u64, seconds: u64, acks: &'static str },
    /// Kafka's Java producer tool, 1 KiB records.
    JavaProduce { records: u64 },
    /// librdkafka reads what was written in batches of 1 MB.
    Fetch { records: u64 },
    /// Kafka's Java consumer tool reads what was written in batches of 16 KiB.
    JavaFetch { records: u64, fetch_bytes: u64 },
    /// One connection, then many, at the same rate together; one record a request.
    Connections { rate: u64, seconds: u64, many: u64 },
    /// Pre-encoded batches of 1 KiB records on one connection, five in flight.
    Flood { batch_bytes: u64, records: u64 },
    /// Start-up, memory, idle CPU, size.
    FixedCosts,
    /// So many topics of so many partitions each, and so much log, in bytes.
    ManyPartitions { topics: u64, partitions: u64, log_bytes: u64 },
}

/// librdkafka flat out.
#[derive(Clone, Copy)]
pub struct Produce {
    /// Size of a record's value.
    pub record_bytes: u64,
    /// `batch.size`.
    pub batch_bytes: u64,
    /// Partitions of the topic.
    pub partitions: u64,
    /// How many records.
    pub records: u64,
    /// `acks`.
    pub acks: &'static str,
}

/// A figure that is shown.
pub struct Bar {
    /// Its name in [`super::figures::Figures`].
    pub figure: &'static str,
    /// For the table.
    pub title: &'static str,
    /// What is to be reached.
    pub limit: Limit,
}

/// What the candidate is to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Its own figure is at most this.
    AtMost(f64),
    /// Its figure is at least so many times the reference's.
    TimesReference(f64),
    /// Nothing: shown only.
    Shown,
}

const fn bar(figure: &'static str, title: &'static str, limit: Limit) -> Bar {
    Bar { figure, title, limit }
}

const CPU_PER_GB: &str = "broker CPU-s/GB";
const CPU_PER_MILLION: &str = "broker CPU-s per million records";
const CPU_PER_REQUEST: &str = "broker CPU per request, µs";
const MIB_PER_S: &str = "throughput, MiB/s";
const RECORDS_PER_S: &str = "throughput, records/s";

const fn kib1(batch_bytes: u64, records: u64, acks: &'static str) -> Work {
    Work::Produce(Produce { record_bytes: 1024, batch_bytes, partitions: 1, records, acks })
}

const fn bytes128(records: u64, acks: &'static str) -> Work {
    let batch_bytes = 1_000_000;
    Work::Produce(Produce { record_bytes: 128, batch_bytes, partitions: 6, records, acks })
}

/// All rows, in the order in which they run: fixed costs after the load, so that memory shows it.
pub const ROWS: &[Row] = &[
    Row {
        name: "native-16k",
        title: "librdkafka, 1 KiB records, 16 KiB batches, acks=1",
        work: kib1(16_384, 1_000_000, "1"),
        class: Class::PageCache,
        bars: &[
            bar("cpu_s_per_gb", CPU_PER_GB, Limit::AtMost(2.0)),
            bar("mib_per_s", MIB_PER_S, Limit::TimesReference(2.0)),
        ],
    },
    Row {
        name: "native-1m",
        title: "librdkafka, 1 KiB records, 1 MB batches, acks=1",
        work: kib1(1_000_000, 3_000_000, "1"),
        class: Class::PageCache,
        bars: &[
            bar("cpu_s_per_gb", CPU_PER_GB, Limit::AtMost(0.9)),
            bar("mib_per_s", MIB_PER_S, Limit::TimesReference(1.3)),
        ],
    },
    Row {
        name: "native-128b",
        title: "librdkafka, 128 B records, 1 MB batches, 6 partitions, acks=1",
        work: bytes128(20_000_000, "1"),
        class: Class::PageCache,
        bars: &[
            bar("cpu_s_per_million_records", CPU_PER_MILLION, Limit::AtMost(0.12)),
            bar("records_per_s", RECORDS_PER_S, Limit::TimesReference(1.2)),
        ],
    },
    Row {
        name: "java-1k",
        title: "Kafka's Java producer tool, 1 KiB records, its batches, acks=1",
        work: Work::JavaProduce { records: 600_000 },
        class: Class::PageCache,
        bars: &[
            bar("cpu_s_per_gb", CPU_PER_GB, Limit::AtMost(1.8)),
            bar("mib_per_s", MIB_PER_S, Limit::TimesReference(1.25)),
        ],
    },
    Row {
        name: "single-5k",
        title: "librdkafka, linger 0, 1 KiB, 5,000 records/s, acks=1",
        work: Work::Paced { rate: 5_000, seconds: 10, acks: "1" },
        class: Class::PageCache,
        bars: &[
            bar("cpu_us_per_request", CPU_PER_REQUEST, Limit::AtMost(30.0)),
            bar("p50_ms", "p50, ms", Limit::Shown),
            bar("p99_ms", "p99, ms", Limit::AtMost(1.0)),
            bar("p999_ms", "p99.9, ms", Limit::AtMost(3.0)),
        ],
    },
    Row {
        name: "single-20k",
        title: "librdkafka, linger 0, 1 KiB, 20,000 records/s, acks=1",
        work: Work::Paced { rate: 20_000, seconds: 8, acks: "1" },
        class: Class::PageCache,
        bars: &[
            bar("cpu_us_per_request", CPU_PER_REQUEST, Limit::Shown),
            bar("records_per_request", "records per request", Limit::Shown),
            bar("p99_ms", "p99, ms", Limit::AtMost(3.0)),
        ],
    },
    Row {
        name: "fetch-native",
        title: "librdkafka fetch, its defaults, from the page cache",
        work: Work::Fetch { records: 3_000_000 },
        class: Class::PageCache,
        bars: &[
            bar("cpu_s_per_gb", CPU_PER_GB, Limit::AtMost(0.40)),
            bar("mib_per_s", MIB_PER_S, Limit::Shown),
        ],
    },
    Row {
        name: "fetch-java",
        title: "Kafka's Java consumer tool, fetch-size 30000, 16 KiB batches",
        work: Work::JavaFetch { records: 600_000, fetch_bytes: 30_000 },
        class: Class::PageCache,
        bars: &[
            bar("cpu_s_per_gb", CPU_PER_GB, Limit::AtMost(1.5)),
            bar("mib_per_s", MIB_PER_S, Limit::Shown),
        ],
    },
    Row {
        name: "connections",
        title: "1,000 connections, one record a request, 10,000/s together",
        work: Work::Connections { rate: 10_000, seconds: 7, many: 1000 },
        class: Class::PageCache,
        bars: &[
            bar("cpu_us_per_request", CPU_PER_REQUEST, Limit::Shown),
            bar(
                "cpu_times_one_connection",
                "CPU per request against one connection's",
                Limit::AtMost(1.5),
            ),
            bar("p99_ms", "p99, ms", Limit::AtMost(5.0)),
        ],
    },
    Row {
        name: "flood-16k",
        title: "raw, one connection, 16 KiB batches, 5 in flight, acks=1",
        work: Work::Flood { batch_bytes: 16_384, records: 1_000_000 },
        class: Class::PageCache,
        bars: &[
            bar("cpu_s_per_gb", CPU_PER_GB, Limit::Shown),
            bar("mib_per_s", MIB_PER_S, Limit::Shown),
        ],
    },
    Row {
        name: "flood-1m",
        title: "raw, one connection, 1 MB batches, 5 in flight, acks=1",
        work: Work::Flood { batch_bytes: 1_000_000, records: 3_000_000 },
        class: Class::PageCache,
        bars: &[
            bar("cpu_s_per_gb", CPU_PER_GB, Limit::Shown),
            bar("mib_per_s", MIB_PER_S, Limit::Shown),
        ],
    },
    Row {
        name: "default-16k",
        title: "librdkafka, 1 KiB records, 16 KiB batches, acks=1, default durability",
        work: kib1(16_384, 1_000_000, "1"),
        class: Class::Fsync,
        bars: &[
            bar("cpu_s_per_gb", CPU_PER_GB, Limit::Shown),
            bar("mib_per_s", MIB_PER_S, Limit::TimesReference(1.0)),
        ],
    },
    Row {
        name: "default-1m",
        title: "librdkafka, 1 KiB records, 1 MB batches, acks=1, default durability",
        work: kib1(1_000_000, 3_000_000, "1"),
        class: Class::Fsync,
        bars: &[
            bar("cpu_s_per_gb", CPU_PER_GB, Limit::Shown),
            bar("mib_per_s", MIB_PER_S, Limit::TimesReference(1.0)),
        ],
    },
    Row {
        name: "default-5k",
        title: "librdkafka, linger 0, 1 KiB, 5,000 records/s, acks=1, default durability",
        work: Work::Paced { rate: 5_000, seconds: 10, acks: "1" },
        class: Class::Fsync,
        bars: &[
            bar("cpu_us_per_request", CPU_PER_REQUEST, Limit::AtMost(30.0)),
            bar("p50_ms", "p50, ms", Limit::Shown),
            bar("p99_ms", "p99, ms", Limit::AtMost(1.0)),
            bar("p999_ms", "p99.9, ms", Limit::AtMost(3.0)),
        ],
    },
    Row {
        name: "durable-16k",
        title: "librdkafka, 1 KiB records, 16 KiB batches, acks=all",
        work: kib1(16_384, 1_000_000, "all"),
        class: Class::Fsync,
        bars: &[
            bar("cpu_s_per_gb", CPU_PER_GB, Limit::Shown),
            bar("mib_per_s", MIB_PER_S, Limit::TimesReference(1.0)),
        ],
    },
    Row {
        name: "durable-1m",
        title: "librdkafka, 1 KiB records, 1 MB batches, acks=all",
        work: kib1(1_000_000, 3_000_000, "all"),
        class: Class::Fsync,
        bars: &[
            bar("cpu_s_per_gb", CPU_PER_GB, Limit::Shown),
            bar("mib_per_s", MIB_PER_S, Limit::TimesReference(1.0)),
        ],
    },
    Row {
        name: "durable-128b",
        title: "librdkafka, 128 B records, 1 MB batches, 6 partitions, acks=all",
        work: bytes128(20_000_000, "all"),
        class: Class::Fsync,
        bars: &[
            bar("cpu_s_per_million_records", CPU_PER_MILLION, Limit::Shown),
            bar("records_per_s", RECORDS_PER_S, Limit::TimesReference(1.0)),
        ],
    },
    Row {
        name: "durable-5k",
        title: "librdkafka, linger 0, 1 KiB, 5,000 records/s, acks=all",
        work: Work::Paced { rate: 5_000, seconds: 10, acks: "all" },
        class: Class::Fsync,
        bars: &[
            bar("cpu_us_per_request", CPU_PER_REQUEST, Limit::AtMost(55.0)),
            bar("p50_ms", "p50, ms", Limit::AtMost(0.25)),
            bar("p99_ms", "p99, ms", Limit::AtMost(0.6)),
            bar("p999_ms", "p99.9, ms", Limit::AtMost(1.5)),
        ],
    },
    Row {
        name: "fixed",
        title: "fixed costs",
        work: Work::FixedCosts,
        class: Class::PageCache,
        bars: &[
            bar("start_s", "exec to first acknowledged record, s", Limit::AtMost(0.05)),
            bar("idle_mib", "memory, fresh and idle, MiB", Limit::AtMost(20.0)),
            bar("loaded_mib", "memory after the runs, MiB", Limit::AtMost(64.0)),
            bar("idle_cpu_percent", "idle CPU, % of a core", Limit::AtMost(0.1)),
            bar("program_mb", "size of the program, MB", Limit::AtMost(30.0)),
        ],
    },
    Row {
        name: "partitions",
        title: "10,000 partitions on one broker",
        work: Work::ManyPartitions { topics: 10, partitions: 1000, log_bytes: 5_000_000_000 },
        class: Class::PageCache,
        bars: &[
            bar("create_s", "creating them, s", Limit::Shown),
            bar("clean_start_s", "start after a clean stop, s", Limit::AtMost(2.0)),
            bar("resident_mib", "memory, MiB", Limit::AtMost(300.0)),
            bar("recovery_start_s", "start after kill −9 with 5 GB of log, s", Limit::AtMost(3.0)),
        ],
    },
];

impl Work {
    /// A tenth of the volume, three seconds: to see that everything runs, not to conclude.
    pub fn quick(self) -> Work {
        self.scaled(10, 3)
    }

    /// What is run before the counted rounds and discarded: the first run after a change of work
    /// often costs more.
    pub fn discarded(self) -> Work {
        self.scaled(3, 4)
    }

    /// Volumes divided by `divisor`, and at most so many seconds at a fixed rate.
    fn scaled(self, divisor: u64, seconds_max: u64) -> Work {
        match self {
            Work::Produce(produce) => {
                Work::Produce(Produce { records: produce.records / divisor, ..produce })
            }
            Work::Paced { rate, seconds, acks } => {
                Work::Paced { rate, seconds: seconds.min(seconds_max), acks }
            }
            Work::JavaProduce { records } => Work::JavaProduce { records: records / divisor },
            Work::Fetch { records } => Work::Fetch { records: records / divisor },
            Work::JavaFetch { records, fetch_bytes } => {
                Work::JavaFetch { records: records / divisor, fetch_bytes }
            }
            Work::Connections { rate, seconds, many } => {
                Work::Connections { rate, seconds: seconds.min(seconds_max), many }
            }
            Work::Flood { batch_bytes, records } => {
                Work::Flood { batch_bytes, records: records / divisor }
            }
            Work::FixedCosts => Work::FixedCosts,
            Work::ManyPartitions { topics, partitions, log_bytes } => Work::ManyPartitions {
                topics,
                partitions: partitions / divisor,
                log_bytes: log_bytes / divisor,
            },
        }
    }

    /// Whether librdkafka is needed.
    pub fn needs_native(self) -> bool {
        matches!(self, Work::Produce(_) | Work::Paced { .. } | Work::Fetch { .. })
    }

    /// Whether one round says it all: it takes long, or starts brokers afresh by itself.
    pub fn single_round(self) -> bool {
        matches!(self, Work::ManyPartitions { .. })
    }

    /// Whether it uses the seats' running brokers, and so needs them warm.
    pub fn uses_running_broker(self) -> bool {
        !matches!(self, Work::FixedCosts | Work::ManyPartitions { .. })
    }
}

impl Limit {
    /// Whether the medians reach it; `None` where nothing is to be reached.
    pub fn met(self, reference: f64, candidate: f64) -> Option<bool> {
        match self {
            Limit::AtMost(most) => Some(candidate <= most),
            Limit::TimesReference(times) => Some(candidate >= times * reference),
            Limit::Shown => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_of_rows_are_different() {
        let names: HashSet<&str> = ROWS.iter().map(|row| row.name).collect();
        assert_eq!(names.len(), ROWS.len());
    }

    #[test]
    fn the_discarded_run_is_shorter_and_of_the_same_kind() {
        let paced = Work::Paced { rate: 5, seconds: 10, acks: "1" }.discarded();
        assert!(matches!(paced, Work::Paced { rate: 5, seconds: 4, acks: "1" }));
        let fetch = Work::Fetch { records: 300 }.discarded();
        assert!(matches!(fetch, Work::Fetch { records: 100 }));
    }

    #[test]
    fn a_bar_is_missed_on_the_wrong_side_only() {
        assert_eq!(Limit::AtMost(2.0).met(9.0, 2.0), Some(true));
        assert_eq!(Limit::AtMost(2.0).met(9.0, 2.1), Some(false));
        assert_eq!(Limit::TimesReference(1.3).met(100.0, 130.0), Some(true));
        assert_eq!(Limit::TimesReference(1.3).met(100.0, 129.0), Some(false));
        assert_eq!(Limit::Shown.met(1.0, 1.0), None);
    }
}
