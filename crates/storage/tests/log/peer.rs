//! Apache Kafka's own tool reads what we write. Slow: it needs a JVM, so it runs with `SLOW=1` only.

use std::path::Path;
use std::process::Command;

use model::Offset;
use storage::CleanupPolicy;

use crate::fixture::*;

fn dump(place: &Place, suffix: &str, arguments: &[&str]) -> String {
    let mut files: Vec<String> = place
        .names()
        .into_iter()
        .filter(|name| name.ends_with(suffix))
        .map(|name| place.path(&name).display().to_string())
        .collect();
    files.sort();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(env!("CARGO"))
        .current_dir(root)
        .args(["run", "--quiet", "--package", "xtask", "--", "kafka", "tool", "--"])
        .args(["kafka-dump-log", "--files", &files.join(",")])
        .args(arguments)
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let (stdout, stderr) = (text(output.stdout), text(output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    for complaint in ["Mismatches", "isvalid: false", "Index timestamp", "corrupt", "Exception"] {
        assert!(!stdout.contains(complaint) && !stderr.contains(complaint), "{stdout}{stderr}");
    }
    stdout
}

#[test]
fn kafka_dump_log_finds_nothing_amiss() {
    if std::env::var_os("SLOW").is_none() {
        return;
    }
    let mut place = Place::small();
    place.config.cleanup = CleanupPolicy { delete: false, compact: true };
    place.config.min_cleanable_dirty_ratio = 0.0;
    let mut log = place.open_unclean(Offset(0));
    for n in 0..120i64 {
        let record = |i| {
            let key = format!("key{}", (n * 3 + i) % 17).into_bytes();
            (NOW.plus_ms(n * 10 - i), Some(key), (n % 7 != 0).then(|| vec![b'v'; 30]))
        };
        let batch = Batch::records((0..3).map(record).collect());
        let batch =
            if n % 2 == 0 { batch.producer(n % 3 * 2, 0, (n / 6 * 3) as i32) } else { batch };
        append(&mut log, &batch.epoch(n as i32 / 50));
    }
    sync(&mut log);
    let plan = log.plan_compaction(NOW, log.log_end_offset()).unwrap().unwrap();
    let compaction = plan.run(1 << 20, [1, 2], &mut |_| true).unwrap().unwrap();
    assert!(compaction.tally.records_kept < compaction.tally.records_read);
    let compacted = log.finish_compaction(compaction).unwrap();
    compacted.deleted.iter().for_each(|old| old.remove(&*place.disk()).unwrap());
    log.close().unwrap();
    let batches = dump(&place, ".log", &["--print-data-log", "--deep-iteration"]);
    assert!(batches.contains("key16") && batches.contains("isvalid: true"), "{batches}");
    dump(&place, ".index", &[]);
    dump(&place, "0.index", &["--index-sanity-check"]);
    dump(&place, ".timeindex", &["--verify-index-only"]);
    let producers = dump(&place, ".snapshot", &[]);
    assert!(producers.contains("producerId: 4"), "{producers}");
}
