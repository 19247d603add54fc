//! A power failure or the death of the process at every operation of the disk: the journal opens,
//! holds all that was durable, and nothing that was never written.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use model::{BrokerEpoch, Offset, Timestamp};
use storage::disk::{GatedDisk, SimDisk};
use storage::journal::{Entry, Fact, Journal, State};

use crate::fixture::{created, dir, key, random_entry};

/// How long anything may take on a machine that is busy with much else.
const PATIENCE: Duration = Duration::from_secs(40);

/// A state that the journal had, and when: it was reached by operation `from` of the disk at the
/// latest, and durable before operation `durable`, if ever.
struct Past {
    state: State,
    reached: u64,
    durable: Option<u64>,
}

struct Run {
    disk: SimDisk,
    journal: Journal,
    past: Vec<Past>,
}

impl Run {
    fn new() -> Run {
        let disk = SimDisk::new();
        disk.keep_history();
        let journal = created(&disk);
        let (state, durable) = (journal.with_state(State::clone), disk.operation_count());
        let past = vec![Past { state, reached: 0, durable: Some(durable) }];
        Run { disk, journal, past }
    }

    fn step(&mut self, act: impl FnOnce(&Journal), durable: bool) {
        let reached = self.disk.operation_count();
        act(&self.journal);
        let state = self.journal.with_state(State::clone);
        let durable = durable.then(|| self.disk.operation_count());
        self.past.push(Past { state, reached, durable });
    }

    fn random_step(&mut self, rng: &mut Rng) {
        match rng.u8(..12) {
            0 => self.step(|journal| journal.rewrite().unwrap(), true),
            1 => self.step(|journal| journal.maintain().unwrap(), true),
            2 => {
                let stop = |journal: &Journal| {
                    journal.close(&[], BrokerEpoch(1), Timestamp(2)).unwrap();
                };
                self.step(stop, true);
                let started = [Entry::Started(Timestamp(3))];
                self.step(|journal| journal.commit(&started).unwrap(), true);
            }
            3..6 => {
                let note = (key(rng.u8(..9)), Offset(rng.i64(0..1000)));
                self.step(|journal| journal.note_synced([note]).unwrap(), false);
            }
            6 => {
                // The process dies and starts again: nothing else is lost.
                let disk = Arc::new(self.disk.clone());
                self.journal = Journal::open(disk, dir(), true).unwrap().unwrap();
            }
            _ => {
                let entries = [random_entry(rng), random_entry(rng)];
                let durable = rng.bool();
                let act = |journal: &Journal| match durable {
                    true => journal.commit(&entries).unwrap(),
                    false => drop(journal.append(&entries).unwrap()),
                };
                self.step(act, durable);
            }
        }
    }

    /// The states that may be found if the machine stops before operation `at`.
    fn allowed(&self, at: u64) -> impl Iterator<Item = &State> {
        let durable = |past: &Past| past.durable.is_some_and(|durable| durable <= at);
        let first = self.past.iter().rposition(durable).unwrap_or(0);
        let reached = self.past.iter().skip(first).filter(move |past| past.reached <= at);
        reached.map(|past| &past.state)
    }
}

/// The state, without what an unsynced note may have moved: it stands in a frame that is written
/// again and again, so a crash may find any of its contents.
fn opened(disk: SimDisk, what: &str) -> State {
    match Journal::open(Arc::new(disk), dir(), true) {
        Ok(journal) => journal.expect(what).with_state(State::clone),
        Err(error) => panic!("{what}: {error}"),
    }
}

#[test]
fn a_crash_at_every_operation() {
    for seed in 0..25 {
        let mut rng = Rng::with_seed(seed);
        let mut run = Run::new();
        for _ in 0..30 {
            run.random_step(&mut rng);
        }
        let created = run.past[0].durable.unwrap();
        for (at, disk) in run.disk.history().into_iter().enumerate().skip(created as usize) {
            let at = at as u64;
            for crash in 0..4 {
                let what = format!("seed {seed}, before operation {at}, crash {crash}");
                let disk = if crash == 0 { disk.snapshot() } else { disk.after_crash(crash) };
                let found = opened(disk.clone(), &what);
                assert!(run.allowed(at).any(|state| *state == found), "{what}");
                // A second start finds the same.
                assert_eq!(opened(disk, &what), found, "{what}");
            }
        }
    }
}

#[test]
fn a_crash_while_the_journal_is_made() {
    let run = Run::new();
    for (at, disk) in run.disk.history().into_iter().enumerate() {
        for crash in 0..20 {
            let disk = Arc::new(disk.after_crash(crash));
            match Journal::open(disk, dir(), false) {
                Ok(None) => {}
                Ok(Some(journal)) => {
                    assert_eq!(journal.with_state(State::clone), run.past[0].state)
                }
                Err(error) => panic!("before operation {at}, crash {crash}: {error}"),
            }
        }
    }
}

#[test]
fn what_was_cut_off_never_comes_back() {
    // Two frames that were not durable; the first is lost, the second is not. What is written in
    // their place has their sizes, so the second one would follow it, were it still there.
    for crash in 0..200 {
        let disk = SimDisk::new();
        let journal = created(&disk);
        let of = |offset| [Entry::Of(key(0), Fact::Start(Offset(offset)))];
        journal.commit(&[Entry::Of(key(0), crate::fixture::opened("t"))]).unwrap();
        journal.append(&of(1)).unwrap();
        journal.append(&of(2)).unwrap();
        let disk = disk.after_crash(crash);
        let journal = Journal::open(Arc::new(disk.clone()), dir(), true).unwrap().unwrap();
        let before = journal.partition(&key(0)).unwrap().log_start;
        journal.append(&[Entry::Of(key(0), Fact::Closed(Offset(9)))]).unwrap();
        for again in 0..5 {
            let disk = Arc::new(disk.after_crash(again));
            let journal = Journal::open(disk, dir(), true).unwrap().unwrap();
            assert_eq!(journal.partition(&key(0)).unwrap().log_start, before, "crash {crash}");
        }
    }
}

#[test]
fn what_is_committed_while_a_snapshot_is_written_waits_for_it_nowhere_and_survives_every_crash() {
    let disk = SimDisk::new();
    disk.keep_history();
    drop(created(&disk));
    let gated = GatedDisk::new(Arc::new(disk.clone()));
    let journal = Journal::open(Arc::new(gated.clone()), dir(), true).unwrap().unwrap();
    journal.commit(&[Entry::Of(key(0), crate::fixture::opened("t"))]).unwrap();
    // A frame that may be written over as long as it is not in a snapshot.
    journal.note_synced([(key(0), Offset(1))]).unwrap();
    gated.close(&dir().join("highwater-partitions.tmp"));
    let mut promises = vec![(disk.operation_count(), Offset(0), Offset(0))];
    let (sender, committed) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| journal.rewrite());
        let begun = gated.wait_for(1, PATIENCE);
        scope.spawn(|| {
            for (start, synced) in [(5, 2), (6, 3)] {
                journal.note_synced([(key(0), Offset(synced))]).unwrap();
                journal.commit(&[Entry::Of(key(0), Fact::Start(Offset(start)))]).unwrap();
                sender.send((disk.operation_count(), Offset(start), Offset(synced))).unwrap();
            }
        });
        promises.extend((0..2).map_while(|_| committed.recv_timeout(PATIENCE).ok()));
        gated.open_gate();
        assert!(begun, "the snapshot waits for the device");
        assert_eq!(promises.len(), 3, "nobody waits for the snapshot");
        writing.join().unwrap().unwrap();
    });
    journal.commit(&[Entry::Of(key(0), Fact::Start(Offset(9)))]).unwrap();
    promises.push((disk.operation_count(), Offset(9), Offset(3)));
    let first = promises[0].0 as usize;
    for (at, disk) in disk.history().into_iter().enumerate().skip(first) {
        let held = promises.iter().rev().find(|(since, _, _)| *since <= at as u64);
        let (_, start, synced) = *held.expect("the first one holds from here on");
        for crash in 0..6 {
            let what = format!("before operation {at}, crash {crash}");
            let disk = if crash == 0 { disk.snapshot() } else { disk.after_crash(crash) };
            let found = opened(disk, &what).partitions[&key(0)].clone();
            assert!(found.log_start >= start && found.synced >= synced, "{what}: {found:?}");
        }
    }
}
