//! The rows of the comparison: what load, which figures count, and what is to be reached. Data only.

use super::bars::{Bar, Limit, bar};
use super::broker::Class;
use super::floor::Floor;

/// One row: a workload and its bars.
pub struct Row {
    /// For `--rows`.
    pub name: &'static str,
    /// For the table.
    pub title: &'static str,
    /// What runs.
    pub work: Work,
    /// How many brokers each seat has; topics have three replicas where there are as many.
    pub brokers: u16,
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
    /// librdkafka, 1 KiB records at a fixed rate.
    Paced(Paced),
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
    /// Memory and CPU of fresh brokers that have nothing to do.
    Idle,
    /// So many topics of so many partitions each, and so much log, in bytes.
    ManyPartitions { topics: u64, partitions: u64, log_bytes: u64 },
    /// The same, made by one request and with few descriptors, and what it costs while it runs and stops.
    FullBroker { topics: u64, partitions: u64, log_bytes: u64 },
}

/// librdkafka flat out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Whether each round also runs what the device alone reaches ([`super::floor::device`]).
    pub device: bool,
}

/// librdkafka at a fixed rate, on one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Paced {
    /// Records a second.
    pub rate: u64,
    /// Measured time, behind a second of warm-up.
    pub seconds: u64,
    /// `acks`.
    pub acks: &'static str,
    /// `linger.ms`.
    pub linger_ms: u64,
    /// A consumer waits at the end meanwhile.
    pub read: bool,
    /// Whether each round also runs the floor ([`super::floor`]) beside the two seats.
    pub floor: bool,
    /// What happens meanwhile on the same broker.
    pub beside: Beside,
}

/// What a broker has to do besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// A topic of so many bytes is deleted.
    Deletion(u64),
    /// The topic itself goes on in a new file each time it has grown by so many bytes.
    Rolling(u64),
}

const CPU_PER_GB: &str = "broker CPU-s/GB";
const CPU_PER_MILLION: &str = "broker CPU-s per million records";
const CPU_PER_REQUEST: &str = "broker CPU per request, µs";
const CPU_OF_ALL_PER_GB: &str = "CPU-s/GB of all brokers";
const CPU_OF_ALL_PER_MILLION: &str = "CPU-s per million records of all brokers";
const MIB_PER_S: &str = "throughput, MiB/s";
const RECORDS_PER_S: &str = "throughput, records/s";

const fn kib1(batch_bytes: u64, records: u64, acks: &'static str) -> Work {
    let (record_bytes, partitions, device) = (1024, 1, false);
    Work::Produce(Produce { record_bytes, batch_bytes, partitions, records, acks, device })
}

const fn bytes128(records: u64, acks: &'static str) -> Work {
    let (record_bytes, batch_bytes, partitions, device) = (128, 1_000_000, 6, false);
    Work::Produce(Produce { record_bytes, batch_bytes, partitions, records, acks, device })
}

/// The same, and each round also runs what the device alone reaches.
const fn beside_the_device(work: Work) -> Work {
    match work {
        Work::Produce(shape) => Work::Produce(Produce { device: true, ..shape }),
        other => other,
    }
}

/// One record a request.
pub const PACED_5K: Paced = Paced {
    rate: 5_000,
    seconds: 10,
    acks: "1",
    linger_ms: 0,
    read: false,
    floor: false,
    beside: Beside::Nothing,
};

/// A hundred MiB a second in batches of what comes in 5 ms.
const PACED_100K: Paced =
    Paced { rate: 100_000, seconds: 15, acks: "all", linger_ms: 5, ..PACED_5K };

/// With a consumer that waits at the end.
const READ_5K: Paced = Paced { read: true, ..PACED_5K };

const LATENCY_100K: &[Bar] = &[
    bar("cpu_s_per_gb", CPU_PER_GB, Limit::Shown),
    bar("p50_ms", "p50, ms", Limit::Shown),
    bar("p99_ms", "p99, ms", Limit::AtMost(6.5)),
    bar("p999_ms", "p99.9, ms", Limit::AtMost(7.5)),
];

/// All rows, in the order in which they run: fixed costs after the load, so that memory shows it.
pub const ROWS: &[Row] = &[
    Row {
        name: "native-16k",
        title: "librdkafka, 1 KiB records, 16 KiB batches, acks=1",
        work: kib1(16_384, 1_000_000, "1"),
        brokers: 1,
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
        brokers: 1,
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
        brokers: 1,
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
        brokers: 1,
        class: Class::PageCache,
        bars: &[
            bar("cpu_s_per_gb", CPU_PER_GB, Limit::AtMost(1.8)),
            bar("mib_per_s", MIB_PER_S, Limit::TimesReference(1.25)),
        ],
    },
    Row {
        name: "single-5k",
        title: "librdkafka, linger 0, 1 KiB, 5,000 records/s, acks=1",
        work: Work::Paced(PACED_5K),
        brokers: 1,
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
        work: Work::Paced(Paced { rate: 20_000, seconds: 8, ..PACED_5K }),
        brokers: 1,
        class: Class::PageCache,
        bars: &[
            bar("cpu_us_per_request", CPU_PER_REQUEST, Limit::Shown),
            bar("records_per_request", "records per request", Limit::Shown),
            bar("p99_ms", "p99, ms", Limit::AtMost(3.0)),
        ],
    },
    Row {
        name: "single-5k-read",
        title: "as single-5k, with a consumer at the end",
        work: Work::Paced(READ_5K),
        brokers: 1,
        class: Class::PageCache,
        bars: &[
            bar("cpu_us_per_request", CPU_PER_REQUEST, Limit::Shown),
            bar("read_p50_ms", "end to end p50, ms", Limit::Shown),
            bar("read_p99_ms", "end to end p99, ms", Limit::Shown),
        ],
    },
    Row {
        name: "fetch-native",
        title: "librdkafka fetch, its defaults, from the page cache",
        work: Work::Fetch { records: 3_000_000 },
        brokers: 1,
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
        brokers: 1,
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
        brokers: 1,
        class: Class::PageCache,
        bars: &[
            bar("cpu_us_per_request", CPU_PER_REQUEST, Limit::Shown),
            bar(
                "cpu_times_one_in_flight",
                "CPU per request against one connection's with one in flight",
                Limit::AtMost(1.5),
            ),
            bar(
                "cpu_times_one_connection",
                "CPU per request against one connection's with all that is due",
                Limit::Shown,
            ),
            bar("p99_ms", "p99, ms", Limit::AtMost(5.0)),
        ],
    },
    Row {
        name: "flood-16k",
        title: "raw, one connection, 16 KiB batches, 5 in flight, acks=1",
        work: Work::Flood { batch_bytes: 16_384, records: 1_000_000 },
        brokers: 1,
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
        brokers: 1,
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
        brokers: 1,
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
        brokers: 1,
        class: Class::Fsync,
        bars: &[
            bar("cpu_s_per_gb", CPU_PER_GB, Limit::Shown),
            bar("mib_per_s", MIB_PER_S, Limit::TimesReference(1.0)),
        ],
    },
    Row {
        name: "default-5k",
        title: "librdkafka, linger 0, 1 KiB, 5,000 records/s, acks=1, default durability",
        work: Work::Paced(PACED_5K),
        brokers: 1,
        class: Class::Fsync,
        bars: &[
            bar("cpu_us_per_request", CPU_PER_REQUEST, Limit::TimesRow("single-5k", 1.3)),
            bar("p50_ms", "p50, ms", Limit::Shown),
            bar("p99_ms", "p99, ms", Limit::AtMost(1.0)),
            bar("p999_ms", "p99.9, ms", Limit::AtMost(3.0)),
        ],
    },
    Row {
        name: "default-5k-read",
        title: "as default-5k, with a consumer at the end",
        work: Work::Paced(READ_5K),
        brokers: 1,
        class: Class::Fsync,
        bars: &[
            bar("cpu_us_per_request", CPU_PER_REQUEST, Limit::TimesRow("single-5k-read", 2.2)),
            bar("read_p50_ms", "end to end p50, ms", Limit::Shown),
            bar("read_p99_ms", "end to end p99, ms", Limit::AtMost(2.0)),
        ],
    },
    Row {
        name: "durable-16k",
        title: "librdkafka, 1 KiB records, 16 KiB batches, acks=all",
        work: kib1(16_384, 1_000_000, "all"),
        brokers: 1,
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
        brokers: 1,
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
        brokers: 1,
        class: Class::Fsync,
        bars: &[
            bar("cpu_s_per_million_records", CPU_PER_MILLION, Limit::Shown),
            bar("records_per_s", RECORDS_PER_S, Limit::TimesReference(1.0)),
        ],
    },
    Row {
        name: "durable-5k",
        title: "librdkafka, linger 0, 1 KiB, 5,000 records/s, acks=all",
        work: Work::Paced(Paced { acks: "all", floor: true, ..PACED_5K }),
        brokers: 1,
        class: Class::Fsync,
        bars: &[
            bar("cpu_us_per_request", CPU_PER_REQUEST, Limit::AtMostOrFloor(55.0)),
            bar("p50_ms", "p50, ms", Limit::AtMostOrFloor(0.25)),
            bar("p99_ms", "p99, ms", Limit::AtMostOrFloor(0.6)),
            bar("p999_ms", "p99.9, ms", Limit::AtMostOrFloor(1.5)),
        ],
    },
    Row {
        name: "durable-100k",
        title: "librdkafka, 1 KiB, 100,000 records/s, acks=all, linger 5 ms",
        work: Work::Paced(PACED_100K),
        brokers: 1,
        class: Class::Fsync,
        bars: LATENCY_100K,
    },
    Row {
        name: "durable-100k-deleting",
        title: "as durable-100k, while a topic of 5 GB is deleted",
        work: Work::Paced(Paced { beside: Beside::Deletion(5_000_000_000), ..PACED_100K }),
        brokers: 1,
        class: Class::Fsync,
        bars: LATENCY_100K,
    },
    Row {
        name: "durable-100k-rolling",
        title: "as durable-100k, in segments of 64 MiB",
        work: Work::Paced(Paced { beside: Beside::Rolling(64 << 20), ..PACED_100K }),
        brokers: 1,
        class: Class::Fsync,
        bars: LATENCY_100K,
    },
    Row {
        name: "fixed",
        title: "fixed costs",
        work: Work::FixedCosts,
        brokers: 1,
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
        brokers: 1,
        class: Class::PageCache,
        bars: &[
            bar("create_s", "creating them, s", Limit::Shown),
            bar("clean_start_s", "start after a clean stop, s", Limit::AtMost(2.0)),
            bar("resident_mib", "memory, MiB", Limit::AtMost(300.0)),
            bar("recovery_start_s", "start after kill −9 with 5 GB of log, s", Limit::AtMost(3.0)),
        ],
    },
    Row {
        name: "partitions-100k",
        title: "100,000 partitions on one broker, made by one request, 20,000 descriptors",
        work: Work::FullBroker { topics: 10, partitions: 10_000, log_bytes: 1_000_000_000 },
        brokers: 1,
        class: Class::Fsync,
        bars: &[
            bar("create_s", "creating them, s", Limit::Shown),
            bar("written_mib", "memory after each was written once, MiB", Limit::AtMost(250.0)),
            bar("idle_cpu_percent", "idle CPU, % of a core", Limit::AtMost(1.0)),
            bar("delete_p99_ms", "DeleteRecords of one partition, p99, ms", Limit::AtMost(5.0)),
            bar("stop_s", "clean stop, s", Limit::AtMost(10.0)),
            bar("clean_start_s", "start after a clean stop, s", Limit::AtMost(3.0)),
            bar("recovery_start_s", "start after kill −9 with 1 GB of log, s", Limit::AtMost(5.0)),
        ],
    },
    Row {
        name: "cluster-16k",
        title: "three brokers, RF 3: librdkafka, 1 KiB records, 16 KiB batches, acks=all",
        work: kib1(16_384, 600_000, "all"),
        brokers: 3,
        class: Class::PageCache,
        bars: &[
            bar("cpu_s_per_gb", CPU_OF_ALL_PER_GB, Limit::AtMost(8.0)),
            bar("mib_per_s", MIB_PER_S, Limit::TimesReference(4.0)),
        ],
    },
    Row {
        name: "cluster-1m",
        title: "three brokers, RF 3: librdkafka, 1 KiB records, 1 MB batches, acks=all",
        work: kib1(1_000_000, 2_000_000, "all"),
        brokers: 3,
        class: Class::PageCache,
        bars: &[
            bar("cpu_s_per_gb", CPU_OF_ALL_PER_GB, Limit::AtMost(3.0)),
            bar("mib_per_s", MIB_PER_S, Limit::TimesReference(1.6)),
        ],
    },
    Row {
        name: "cluster-durable-16k",
        title: "as cluster-16k, synced by every replica",
        work: kib1(16_384, 600_000, "all"),
        brokers: 3,
        class: Class::Fsync,
        bars: &[
            bar("cpu_s_per_gb", CPU_OF_ALL_PER_GB, Limit::AtMost(12.0)),
            bar("mib_per_s", MIB_PER_S, Limit::TimesReference(2.5)),
        ],
    },
    Row {
        name: "cluster-durable-1m",
        title: "as cluster-1m, synced by every replica",
        work: beside_the_device(kib1(1_000_000, 2_000_000, "all")),
        brokers: 3,
        class: Class::Fsync,
        bars: &[
            bar("cpu_s_per_gb", CPU_OF_ALL_PER_GB, Limit::Shown),
            bar("mib_per_s", MIB_PER_S, Limit::TimesReferenceOrDevice(1.2, 0.8)),
        ],
    },
    Row {
        name: "cluster-durable-128b",
        title: "three brokers, RF 3, synced: librdkafka, 128 B records, 1 MB batches, 6 partitions, acks=all",
        work: beside_the_device(bytes128(12_000_000, "all")),
        brokers: 3,
        class: Class::Fsync,
        bars: &[
            bar("cpu_s_per_million_records", CPU_OF_ALL_PER_MILLION, Limit::AtMost(0.5)),
            bar("records_per_s", RECORDS_PER_S, Limit::TimesReferenceOrDevice(1.5, 0.8)),
        ],
    },
    Row {
        name: "cluster-durable-5k",
        title: "three brokers, RF 3, synced: librdkafka, linger 0, 1 KiB, 5,000 records/s, acks=all",
        work: Work::Paced(Paced { acks: "all", ..PACED_5K }),
        brokers: 3,
        class: Class::Fsync,
        bars: &[
            bar("cpu_us_per_request", "CPU of all brokers per request, µs", Limit::AtMost(150.0)),
            bar("records_per_s", RECORDS_PER_S, Limit::Shown),
            bar("context_switches_per_record", "context switches a record", Limit::Shown),
            bar("p50_ms", "p50, ms", Limit::Shown),
            bar("p99_ms", "p99, ms", Limit::AtMost(5.0)),
        ],
    },
    Row {
        name: "cluster-idle",
        title: "three brokers, fresh and idle",
        work: Work::Idle,
        brokers: 3,
        class: Class::Fsync,
        bars: &[
            bar("idle_mib", "memory of all, MiB", Limit::AtMost(60.0)),
            bar("idle_cpu_percent", "CPU of all, % of a core", Limit::AtMost(1.0)),
        ],
    },
    Row {
        name: "cluster-nine-128b",
        title: "as cluster-durable-128b, nine brokers",
        work: bytes128(12_000_000, "all"),
        brokers: 9,
        class: Class::Fsync,
        bars: &[
            bar(
                "cpu_s_per_million_records",
                CPU_OF_ALL_PER_MILLION,
                Limit::TimesRow("cluster-durable-128b", 1.25),
            ),
            bar("records_per_s", RECORDS_PER_S, Limit::Shown),
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
            Work::Paced(paced) => Work::Paced(Paced {
                seconds: paced.seconds.min(seconds_max),
                beside: paced.beside.scaled(divisor),
                ..paced
            }),
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
            Work::FixedCosts | Work::Idle => self,
            Work::ManyPartitions { topics, partitions, log_bytes } => Work::ManyPartitions {
                topics,
                partitions: partitions / divisor,
                log_bytes: log_bytes / divisor,
            },
            Work::FullBroker { topics, partitions, log_bytes } => Work::FullBroker {
                topics,
                partitions: partitions / divisor,
                log_bytes: log_bytes / divisor,
            },
        }
    }

    /// What is measured in the same rounds as the two seats, if anything is.
    pub fn floor(self) -> Option<Floor> {
        match self {
            Work::Produce(shape) => shape.device.then_some(Floor::Device(shape)),
            Work::Paced(shape) => shape.floor.then_some(Floor::Sink(shape)),
            _ => None,
        }
    }

    /// Whether librdkafka is needed.
    pub fn needs_native(self) -> bool {
        matches!(self, Work::Produce(_) | Work::Paced(_) | Work::Fetch { .. })
    }

    /// Whether one round says it all: it takes long, or starts brokers afresh by itself.
    pub fn single_round(self) -> bool {
        matches!(self, Work::ManyPartitions { .. } | Work::FullBroker { .. })
    }

    /// Whether it uses the seats' running brokers, and so needs them warm.
    pub fn uses_running_broker(self) -> bool {
        let own = matches!(self, Work::FixedCosts | Work::Idle | Work::ManyPartitions { .. });
        !own && !matches!(self, Work::FullBroker { .. })
    }
}

impl Beside {
    fn scaled(self, divisor: u64) -> Beside {
        match self {
            Beside::Deletion(bytes) => Beside::Deletion(bytes / divisor),
            Beside::Nothing | Beside::Rolling(_) => self,
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
        let paced = Work::Paced(PACED_5K).discarded();
        assert!(matches!(paced, Work::Paced(Paced { rate: 5_000, seconds: 4, .. })));
        let beside = Paced { beside: Beside::Deletion(90), ..PACED_5K };
        let Work::Paced(beside) = Work::Paced(beside).discarded() else { panic!("paced") };
        assert_eq!(beside.beside, Beside::Deletion(30));
        let fetch = Work::Fetch { records: 300 }.discarded();
        assert!(matches!(fetch, Work::Fetch { records: 100 }));
    }
}
