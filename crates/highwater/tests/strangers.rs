//! Strangers against the program as it is started by users: connections that drip, storm, lie and
//! repeat themselves, beside honest clients that must not notice. What each attack is about has tests
//! of its own nearer to the code; here all happen at once.

mod stranger {
    pub mod attacks;
    pub mod client;
    pub mod pace;
    mod refused;
    pub mod server;
}

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use model::ErrorCode;
use stranger::attacks;
use stranger::client::{Conn, batch, fetch_from, fetch_of, produce, produce_to};
use stranger::pace::Pace;
use stranger::server::Server;
use wire::produce::PartitionProduceData;

/// How long anything may take on a machine that is busy with much else, its disk above all.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long the attack lasts; `HOSTILE_SECONDS` says otherwise.
const ATTACK_SECONDS: u64 = 20;
/// Records a second of the honest producer, in requests of ten.
const RECORDS_A_SECOND: u64 = 5000;
const MIB: u64 = 1 << 20;

fn attack_duration() -> Duration {
    let seconds = std::env::var("HOSTILE_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(ATTACK_SECONDS))
}

/// Produces at a fixed rate until told to stop; every request must be answered on one connection. Tells
/// `alone` when a quarter of the attack's time is full of answered records: enough to compare with.
/// Returns how many records there are, and when each request was sent and how long its answer took.
fn produce_honestly(
    server: &Server,
    stop: &AtomicBool,
    alone: mpsc::Sender<()>,
) -> (i64, Vec<(Instant, Duration)>) {
    let records_alone = attack_duration().as_secs() * RECORDS_A_SECOND / 4;
    let mut alone = Some(alone);
    let mut conn = Conn::open(server.address);
    let (began, mut sent, mut took) = (Instant::now(), 0u64, Vec::new());
    while !stop.load(Ordering::Relaxed) {
        let due = began + Duration::from_micros(sent * 1_000_000 / RECORDS_A_SECOND);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let asked = Instant::now();
        let answer = conn.call(&produce("honest", batch(10, 100)), 9);
        let found = answer.responses[0].partition_responses[0].error();
        assert_eq!(found, ErrorCode::None, "an honest request was refused");
        took.push((asked, asked.elapsed()));
        sent += 10;
        if let Some(alone) = alone.take_if(|_| sent >= records_alone) {
            alone.send(()).expect("the test waits for it");
        }
    }
    (sent as i64, took)
}

/// Reads all of `honest` by long polls until it has `until` records.
fn consume_honestly(server: &Server, until: &std::sync::Mutex<Option<i64>>) -> i64 {
    let mut conn = Conn::open(server.address);
    let mut offset = 0;
    loop {
        let answer = conn.call(&fetch_from("honest", offset, 200), 12);
        let partition = &answer.responses[0].partitions[0];
        assert_eq!(partition.error(), ErrorCode::None, "an honest fetch was refused");
        let bytes = partition.records.clone().unwrap_or_default();
        for found in model::batch::Batches::new(&bytes) {
            offset = found.expect("whole batches").0.next_offset().0;
        }
        if until.lock().unwrap().is_some_and(|until| offset >= until) {
            return offset;
        }
    }
}

/// A large request every second: it needs the memory that strangers would like to have.
fn produce_large(server: &Server, stop: &AtomicBool) -> Vec<Duration> {
    let mut conn = Conn::open(server.address);
    let mut took = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let asked = Instant::now();
        let answer = conn.call(&produce("large", batch(1, 300_000)), 9);
        assert_eq!(answer.responses[0].partition_responses[0].error(), ErrorCode::None);
        took.push(asked.elapsed());
        thread::sleep(Duration::from_secs(1).saturating_sub(asked.elapsed()));
    }
    took
}

/// Batches of 1 MB through a line of 1 Mbit/s: eight seconds each and more on a machine that holds the line up, and
/// never closed.
fn produce_slowly(server: &Server, stop: &AtomicBool) -> usize {
    let mut conn = Conn::open(server.address);
    let mut count = 0;
    while !stop.load(Ordering::Relaxed) {
        conn.send_slowly(&produce("slow", batch(1, 1_000_000)), 9, 125_000);
        let answer = conn.receive::<wire::ProduceRequest>(9);
        assert_eq!(answer.responses[0].partition_responses[0].error(), ErrorCode::None);
        count += 1;
    }
    count
}

fn percentile(took: &mut [Duration], part: f64) -> Duration {
    took.sort_unstable();
    took[((took.len() - 1) as f64 * part) as usize]
}

/// MiB that may be resident more than at the start, when strangers have gone.
const KEPT_MIB: u64 = 32;
/// How long that may take. Unused memory goes back within half a minute where the chores have their turns.
const GOES_BACK_WITHIN: Duration = Duration::from_secs(240);

#[test]
fn strangers_cost_honest_clients_nothing() {
    let server = Server::start(&["--set", "http.listener=127.0.0.1:0"], None);
    let mut admin = Conn::open(server.address);
    for topic in ["honest", "large", "slow", "strangers"] {
        admin.create_topic(topic);
    }
    admin.find_coordinator("strangers");
    let before = server.resident_bytes();
    let (stop_honest, stop_hostile) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
    let until = std::sync::Mutex::new(None);
    let mut peak = 0;
    let (sent, took, mut large, slow, read, attacked) = thread::scope(|scope| {
        let (alone, was_alone) = mpsc::channel();
        let producer = scope.spawn(|| produce_honestly(&server, &stop_honest, alone));
        let large = scope.spawn(|| produce_large(&server, &stop_honest));
        let slow = scope.spawn(|| produce_slowly(&server, &stop_honest));
        let consumer = scope.spawn(|| consume_honestly(&server, &until));
        // The same load alone, to compare with. Where the producer fails it says so when it is joined.
        let _failed = was_alone.recv();
        let attacked = Instant::now();
        let hostile: Vec<_> = attacks::all(&server)
            .into_iter()
            .map(|attack| {
                let stop = Arc::clone(&stop_hostile);
                // Twenty of them, a hundredth of a core each.
                scope.spawn(move || attack(&stop, &mut Pace::of(0.01)))
            })
            .collect();
        assert_eq!(hostile.len(), 20);
        let end = Instant::now() + attack_duration();
        while Instant::now() < end {
            peak = peak.max(server.anonymous_bytes());
            thread::sleep(Duration::from_millis(20));
        }
        stop_honest.store(true, Ordering::Relaxed);
        let produced = producer.join();
        // All end, also where one has failed: what failed is told then.
        *until.lock().unwrap() = Some(produced.as_ref().map_or(0, |(sent, _)| *sent));
        let (large, slow, read) = (large.join(), slow.join(), consumer.join());
        stop_hostile.store(true, Ordering::Relaxed);
        let (sent, took) = produced.expect("the producer was served");
        let (large, slow) = (large.expect("served"), slow.expect("served"));
        let read = read.expect("the consumer was served");
        hostile.into_iter().for_each(|attack| attack.join().expect("an attack is no test"));
        (sent, took, large, slow, read, attacked)
    });
    assert_eq!(read, sent, "all was read");
    assert!(slow > 0 && large.len() > 2, "{slow} slow requests, {} large ones", large.len());
    let (alone, beside): (Vec<_>, Vec<_>) = took.into_iter().partition(|(at, _)| *at < attacked);
    for (when, took) in [("alone", alone), ("beside strangers", beside)] {
        let mut took: Vec<Duration> = took.into_iter().map(|(_, took)| took).collect();
        let (p50, p99) = (percentile(&mut took, 0.5), percentile(&mut took, 0.99));
        let slowest = percentile(&mut took, 1.0);
        eprintln!("{when}: {} requests, p50 {p50:?}, p99 {p99:?}, slowest {slowest:?}", took.len());
    }
    let largest = percentile(&mut large, 1.0);
    eprintln!(
        "{sent} records; requests of 300 kB: {} answered, slowest {largest:?}; {slow} slow ones; \
         memory {} MiB before, {} at most without the program",
        large.len(),
        before / MIB,
        peak / MIB,
    );
    // With the pages of the program as it is released, less than 256 MiB.
    assert!(peak < 240 * MIB, "{} MiB at most", peak / MIB);
    // What is kept of strangers on purpose is bounded and stays a while: producers for a quarter of an hour, groups until their
    // offsets expire. The rest goes back to the system.
    let gone = Instant::now();
    while server.resident_bytes() > before + KEPT_MIB * MIB {
        let (now, own) = (server.resident_bytes() / MIB, server.anonymous_bytes() / MIB);
        let before = before / MIB;
        assert!(
            gone.elapsed() < GOES_BACK_WITHIN,
            "{before} MiB before, {now} minutes later, {own} of them without the program"
        );
        thread::sleep(Duration::from_millis(100));
    }
    eprintln!("memory {} MiB {:?} afterwards", server.resident_bytes() / MIB, gone.elapsed());
}

#[test]
fn without_descriptors_connections_are_refused_and_the_log_goes_on() {
    let often = ["log.initial.task.delay.ms=50", "log.flush.offset.checkpoint.interval.ms=200"];
    // A segment holds few batches: files are opened all the time.
    let small = ["--set", "log.segment.bytes=1048576", "--set", often[0], "--set", often[1]];
    let server = Server::start(&small, Some(96));
    let mut conn = Conn::open(server.address);
    conn.create_topic("crowded");
    let mut produce_one = || {
        let answer = conn.call(&produce("crowded", batch(1, 60_000)), 9);
        answer.responses[0].partition_responses[0].error()
    };
    assert_eq!(produce_one(), ErrorCode::None);
    let crowded = Instant::now();
    let crowd: Vec<_> =
        (0..200).filter_map(|_| std::net::TcpStream::connect(server.address).ok()).collect();
    let end = Instant::now() + Duration::from_secs(3);
    let mut served = 0;
    while Instant::now() < end {
        // Segments may be made faster than their files are closed: then a request waits.
        assert_eq!(produce_one(), ErrorCode::None, "after {served} requests");
        served += 1;
    }
    drop(crowd);
    assert_eq!(produce_one(), ErrorCode::None, "without the crowd");
    let refusals = || server.output().matches("refused a connection").count();
    // They are written by a thread that may not have had its turn.
    while refusals() == 0 {
        assert!(crowded.elapsed() < PATIENCE, "{}", server.output());
        thread::sleep(Duration::from_millis(10));
    }
    // Two hundred were refused, and ten a second are told of.
    let (told, seconds) = (refusals(), crowded.elapsed().as_secs() as usize);
    assert!(told <= 10 * (seconds + 2), "{told} lines in {seconds} s");
    assert!(!server.output().contains("offline"), "{}", server.output());
}

/// How many batches a partition of `many` hands out.
fn count_batches(conn: &mut Conn, index: i32) -> usize {
    // Where there are none that is answered at once; otherwise a file may have to be closed before another is
    // opened.
    let mut fetch = fetch_of("many", index, 0, 30_000);
    fetch.min_bytes = 0;
    let answer = conn.call(&fetch, 12);
    let partition = &answer.responses[0].partitions[0];
    assert_eq!(partition.error(), ErrorCode::None, "{index}");
    let bytes = partition.records.clone().unwrap_or_default();
    model::batch::Batches::new(&bytes).count()
}

#[test]
fn more_partitions_than_descriptors_take_the_records_of_many_producers_at_once() {
    const PARTITIONS: i32 = 400;
    const PRODUCERS: i32 = 8;
    let server = Server::start(&[], Some(256));
    let mut conn = Conn::open(server.address);
    conn.create_partitions("many", PARTITIONS);
    conn.create_topic("calm");
    std::thread::scope(|scope| {
        let produce_to_all = |producer: i32| {
            let address = server.address;
            scope.spawn(move || {
                let mut conn = Conn::open(address);
                for index in 0..PARTITIONS {
                    // Each begins elsewhere: they want different files.
                    let index = (index + producer * PARTITIONS / PRODUCERS) % PARTITIONS;
                    let mut request = produce_to("many", index, batch(1, 100));
                    request.acks = if producer % 2 == 0 { -1 } else { 1 };
                    let errors = written(&mut conn, request);
                    assert_eq!(errors, [ErrorCode::None], "partition {index}");
                }
            })
        };
        let crowd: Vec<_> = (0..PRODUCERS).map(produce_to_all).collect();
        // A connection that wants one file again and again is served beside those that want all.
        while crowd.iter().any(|producer| !producer.is_finished()) {
            assert_eq!(written(&mut conn, produce("calm", batch(1, 100))), [ErrorCode::None]);
        }
    });
    // More partitions in one request than files may be open.
    let mut all = produce_to("many", 0, batch(1, 100));
    let one = all.topic_data[0].partition_data.pop().unwrap();
    let of = |index| PartitionProduceData { index, ..one.clone() };
    all.topic_data[0].partition_data = (0..PARTITIONS).map(of).collect();
    assert_eq!(written(&mut conn, all), vec![ErrorCode::None; PARTITIONS as usize]);
    for index in 0..PARTITIONS {
        assert_eq!(count_batches(&mut conn, index), PRODUCERS as usize + 1, "partition {index}");
    }
}

/// What became of each partition of a request.
fn written(conn: &mut Conn, request: wire::ProduceRequest) -> Vec<ErrorCode> {
    let answer = conn.call(&request, 9);
    answer.responses[0].partition_responses.iter().map(|partition| partition.error()).collect()
}

#[test]
fn more_partitions_than_descriptors_are_made_written_and_served_again_after_a_kill() {
    const PARTITIONS: i32 = 500;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for start in 0..3 {
        let server = Server::start_in(&data, &[], Some(256));
        let mut conn = Conn::open(server.address);
        if start == 0 {
            conn.create_partitions("many", PARTITIONS);
        }
        for index in 0..PARTITIONS {
            let errors = written(&mut conn, produce_to("many", index, batch(1, 100)));
            assert_eq!(errors, [ErrorCode::None], "{index}: {}", server.output());
        }
        for index in 0..PARTITIONS {
            let found = count_batches(&mut conn, index);
            assert_eq!(found, start + 1, "partition {index} at start {start}");
        }
        assert!(!server.output().contains("offline"), "{}", server.output());
    }
}

/// Files of partitions whose names end so.
fn files_of_partitions(data: &std::path::Path, suffix: &str) -> usize {
    let folders = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    let folders = folders.filter(|path| {
        path.is_dir() && path.file_name().unwrap().to_string_lossy().starts_with("many-")
    });
    let names = folders.flat_map(|path| std::fs::read_dir(path).unwrap());
    names
        .filter(|name| name.as_ref().unwrap().file_name().to_string_lossy().ends_with(suffix))
        .count()
}

#[test]
fn more_partitions_than_descriptors_are_stopped_and_served_again() {
    const PARTITIONS: i32 = 1000;
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    for durability in ["fsync", "page-cache"] {
        let data = data.join(durability);
        let key = format!("durability={durability}");
        for start in 0..3 {
            let server = Server::start_in(&data, &["--set", &key], Some(256));
            let mut conn = Conn::open(server.address);
            if start == 0 {
                conn.create_partitions("many", PARTITIONS);
            }
            // Half of them are written to, and none any more before the last stop.
            for index in (0..PARTITIONS).filter(|index| start < 2 && index % 2 == 0) {
                let errors = written(&mut conn, produce_to("many", index, batch(1, 100)));
                assert_eq!(errors, [ErrorCode::None], "{index}: {}", server.output());
            }
            for index in 0..PARTITIONS {
                let found = count_batches(&mut conn, index);
                let written = if index % 2 == 0 { (start + 1).min(2) } else { 0 };
                assert_eq!(found, written, "partition {index} at start {start}");
            }
            drop(conn);
            server.stop(PATIENCE);
            let written = PARTITIONS as usize / 2;
            for (suffix, count) in
                [(".log", written), ("index", 0), (".snapshot", 0), ("epoch-checkpoint", written)]
            {
                assert_eq!(files_of_partitions(&data, suffix), count, "{suffix}");
            }
        }
    }
}

#[test]
fn a_full_disk_serves_reads_and_can_be_emptied() {
    let Some(disk) = stranger::server::SmallDisk::mount(24) else {
        eprintln!("not run: it takes the right to mount a file system");
        return;
    };
    let server = Server::start_in(&disk.path().join("data"), &[], None);
    let mut conn = Conn::open(server.address);
    conn.create_topic("filling");
    conn.create_topic("other");
    let append = |conn: &mut Conn, topic: &str| {
        let answer = conn.call(&produce(topic, batch(1, 200_000)), 9);
        answer.responses[0].partition_responses[0].error()
    };
    assert_eq!(append(&mut conn, "other"), ErrorCode::None);
    let mut appended = 0;
    while append(&mut conn, "filling") == ErrorCode::None {
        appended += 1;
        assert!(appended < 200, "24 MiB hold no more");
    }
    assert_eq!(append(&mut conn, "other"), ErrorCode::KafkaStorageError, "its directory is full");
    for topic in ["filling", "other"] {
        let answer = conn.call(&fetch_from(topic, 0, 0), 12);
        let partition = &answer.responses[0].partitions[0];
        assert_eq!(partition.error(), ErrorCode::None, "{topic} is read");
        assert!(!partition.records.clone().unwrap_or_default().is_empty());
    }
    let health = server.health();
    assert!(health.contains("503") && health.contains("\"log_directory_full\""), "{health}");
    conn.delete_topic("filling");
    // The files go after a moment, then the directory takes appends again.
    let deadline = Instant::now() + Duration::from_secs(100);
    while append(&mut conn, "other") != ErrorCode::None {
        assert!(Instant::now() < deadline, "it is never writable again: {}", server.output());
        thread::sleep(Duration::from_millis(100));
    }
    let answer = conn.call(&fetch_from("other", 0, 0), 12);
    assert!(
        answer.responses[0].partitions[0].high_watermark >= 2,
        "what was acknowledged is there"
    );
}
