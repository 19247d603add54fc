//! Where groups live, and what their disk holds up.

pub(super) mod fixture;

use std::path::Path;
use std::sync::mpsc;

use model::Durability;
use storage::disk::{GatedDisk, SimDisk};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::fixture::{partition_on, store};
use super::*;
use crate::network::memory::RequestMemory;

/// How long anything may take on a machine that is busy with much else.
const PATIENCE: Duration = Duration::from_secs(40);

type Work = Box<dyn FnOnce() + Send>;

/// The control thread of a broker: carries out what it is given, one after the other.
struct Control {
    given: UnboundedSender<Work>,
    thread: std::thread::JoinHandle<()>,
}

impl Control {
    fn start() -> Control {
        let (given, mut taken) = unbounded_channel::<Work>();
        let thread = std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                while let Some(work) = taken.recv().await {
                    work();
                }
            });
        });
        Control { given, thread }
    }

    /// Does this on the thread; `None` if it does not get to it.
    fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, result) = mpsc::channel();
        self.given.send(Box::new(move || drop(done.send(work())))).ok()?;
        result.recv_timeout(PATIENCE).ok()
    }

    fn end(self) {
        drop(self.given);
        self.thread.join().unwrap();
    }
}

fn data_runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

fn stored(groups: &Groups) -> usize {
    let mut count = 0;
    groups.each_durable(|durable| count += durable.group_ids().len());
    count
}

#[test]
fn a_timer_that_writes_to_a_disk_that_hangs_does_not_hold_up_the_control_thread() {
    let disk = GatedDisk::new(Arc::new(SimDisk::new()));
    let partition = partition_on(Arc::new(disk.clone()), Durability::PageCache);
    store(&partition, "long gone");
    // What was stored expires at the first look, which is a write.
    disk.close_to_writes(Path::new("data"));
    let config = GroupConfig {
        offsets_retention_ms: 1,
        offsets_retention_check_interval_ms: 1,
        ..GroupConfig::default()
    };
    let (data, control) = (data_runtime(), Control::start());
    let handle = data.handle().clone();
    let memory = RequestMemory::new(1 << 20, 1 << 20);
    let memory = GroupPools { members: memory.members, offsets: memory.offsets };
    let groups = control.run(move || {
        let groups = Groups::new(config, Clock::default(), memory, handle);
        groups.load(partition, LeaderEpoch(0));
        Arc::new(groups)
    });
    let groups = groups.expect("loading is not waited for");
    assert!(disk.wait_for(1, PATIENCE), "the timer gets to the device");
    assert_eq!(control.run(|| 7), Some(7), "the control thread waits for the disk");

    disk.open_gate();
    let deadline = std::time::Instant::now() + PATIENCE;
    while stored(&groups) > 0 {
        assert!(std::time::Instant::now() < deadline, "it goes on where it was");
        std::thread::yield_now();
    }
    groups.unload_all();
    control.end();
}
