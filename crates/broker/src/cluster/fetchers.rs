//! Which fetcher copies which partition: one for each leader, log directory and slot, each with a connection and a thread of its
//! own. A directory whose disk hangs holds up the copies of its own partitions only.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, OnceLock, Weak};
use std::thread::JoinHandle;

use metadata::decide::BrokerRef;
use model::BrokerId;
use node::{Event, Key};
use parking_lot::Mutex;
use partition::Partition;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tracing::error;

use super::fetcher;
use super::links::ClusterLinks;
use crate::server::Server;
use crate::vital;

/// A leader, and which of the fetchers that copy from it.
type Place = (BrokerId, u16);

/// The fetchers of this broker.
#[derive(Default)]
pub struct Fetchers {
    state: Mutex<State>,
    setting: OnceLock<Setting>,
}

struct Setting {
    server: Weak<Server>,
    links: Arc<ClusterLinks>,
    who: BrokerRef,
}

#[derive(Default)]
struct State {
    running: BTreeMap<Place, Running>,
    /// Where each partition that is followed is copied.
    places: BTreeMap<Key, Place>,
    /// Threads that have nothing to copy any more and are about to end.
    ending: Vec<JoinHandle<()>>,
    stopped: bool,
}

struct Running {
    events: UnboundedSender<Event>,
    thread: JoinHandle<()>,
    /// How many partitions it copies.
    copied: usize,
}

impl Fetchers {
    /// Copies over these links from now on. Partitions that are to be followed before this call are not copied.
    pub fn begin(&self, server: &Arc<Server>, links: &Arc<ClusterLinks>, who: BrokerRef) {
        let setting = Setting { server: Arc::downgrade(server), links: Arc::clone(links), who };
        assert!(self.setting.set(setting).is_ok(), "fetchers begin once");
    }

    /// Copies a partition from this leader from now on, in its present leader epoch, and from no other.
    pub fn follow(
        &self,
        key: Key,
        partition: &Arc<Partition>,
        leader: BrokerId,
        (directory, slots): (usize, u16),
    ) {
        let Some(setting) = self.setting.get() else { return };
        let place = (leader, slot_of(&key, directory, slots));
        let mut state = self.state.lock();
        if state.stopped {
            return;
        }
        state.ending.retain(|thread| !thread.is_finished());
        if state.places.get(&key) != Some(&place) {
            state.leave(&key);
            state.places.insert(key, place);
            let running = state.running.entry(place).or_insert_with(|| start(setting, place));
            running.copied += 1;
        }
        let running = &state.running[&place];
        let _ = running.events.send(Event::Follow(key, Arc::clone(partition)));
    }

    /// Copies a partition no more.
    pub fn leave(&self, key: &Key) {
        self.state.lock().leave(key);
    }

    /// Ends all threads.
    pub fn stop(&self) {
        let (running, mut threads) = {
            let mut state = self.state.lock();
            state.stopped = true;
            state.places.clear();
            (std::mem::take(&mut state.running), std::mem::take(&mut state.ending))
        };
        // Each thread ends when its channel is closed.
        threads.extend(running.into_values().map(|running| running.thread));
        for thread in threads {
            if thread.join().is_err() {
                error!("a fetcher's thread had panicked");
            }
        }
    }
}

impl State {
    fn leave(&mut self, key: &Key) {
        let Some(place) = self.places.remove(key) else { return };
        let Some(running) = self.running.get_mut(&place) else { return };
        let _ = running.events.send(Event::Leave(*key));
        running.copied -= 1;
        if running.copied == 0 {
            // The thread ends by itself: its channel is closed now.
            self.ending.extend(self.running.remove(&place).map(|running| running.thread));
        }
    }
}

/// One of `slots` fetchers for a log directory; those of the first directory have the first numbers.
fn slot_of(key: &Key, directory: usize, slots: u16) -> u16 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    let slots = slots.max(1);
    let within = (hasher.finish() % u64::from(slots)) as u16;
    (directory as u16).saturating_mul(slots).saturating_add(within)
}

fn start(setting: &Setting, (leader, slot): Place) -> Running {
    let (events, queue) = unbounded_channel();
    let (server, links, who) =
        (Weak::clone(&setting.server), Arc::clone(&setting.links), setting.who);
    let run = move || {
        vital::thread("fetcher", || fetcher::run(server, links, who, (leader, slot), queue));
    };
    let name = format!("fetch-{leader}-{slot}");
    let thread = std::thread::Builder::new().name(name).spawn(run);
    // Without it this broker's replicas would fall behind in silence.
    let thread = thread.expect("a thread for a fetcher can be started");
    Running { events, thread, copied: 0 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use model::{PartitionIndex, Uuid};

    use super::*;

    #[test]
    fn no_fetcher_copies_to_two_log_directories() {
        let slots = |directory| -> BTreeSet<u16> {
            let key = |index| Key { topic_id: Uuid([7; 16]), partition: PartitionIndex(index) };
            (0..100).map(|index| slot_of(&key(index), directory, 3)).collect()
        };
        assert_eq!(slots(0), BTreeSet::from([0, 1, 2]));
        assert_eq!(slots(1), BTreeSet::from([3, 4, 5]));
    }
}
