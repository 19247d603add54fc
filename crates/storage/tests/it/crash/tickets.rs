//! What happens to the log between the beginning and the end of a checkpoint.

use model::Compression;
use storage::LogConfig;
use storage::disk::SimDisk;

use super::load::{self, Action, Load};
use super::recovered::check;

const APPEND: Action =
    Action::Append { records: 2, value_bytes: 50, producer: 1, codec: Compression::None };

#[test]
fn a_roll_during_a_checkpoint_leaves_the_closing_entry_of_the_time_index_unsynced() {
    // One segment whose time index has no entry but the one that closes it.
    let config = LogConfig {
        segment_bytes: 1 << 20,
        index_interval_bytes: 1 << 20,
        segment_ms: 3_600_000,
        ..load::config()
    };
    for seed in 0..30 {
        let mut load = Load::on(SimDisk::new(), config.clone());
        (0..4).for_each(|_| load.run(APPEND).unwrap());
        let ticket = load.log.begin_checkpoint().unwrap().unwrap();
        let result = ticket.run();
        assert!(load.log.roll_if_due(load.now().plus_ms(8_000_000)).unwrap());
        load.log.finish_checkpoint(ticket, result).unwrap();
        load.run(APPEND).unwrap();
        load.run(Action::Checkpoint).unwrap();
        assert_eq!(load.log.segment_count(), 2);
        let crashed = load.disk.after_crash(seed);
        let log = load::open(&crashed, load.config(), load.now()).unwrap();
        assert_eq!(check(&log, &load.timeline, load.timeline.synced), Ok(()), "seed {seed}");
    }
}
