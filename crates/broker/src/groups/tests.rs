//! Where groups live, and what their disk holds up.

pub(super) mod fixture;

use std::path::Path;
use std::sync::mpsc;

use coordinator::request::{JoinGroup, Lent, Protocol};
use model::{Durability, Uuid};
use storage::disk::{GatedDisk, SimDisk};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use self::fixture::{partition_on, partition_with, store};
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
    let memory = memory.group_pools();
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

/// A first join with so many bytes of metadata, whose session lasts for half an hour.
fn first_join(pool: &Arc<SharedPool>, group: &str, metadata_bytes: usize) -> Request {
    let metadata = vec![0; metadata_bytes].into();
    let mut join = JoinGroup {
        group: group.into(),
        member: "".into(),
        uuid: Uuid::from_random([3; 16]),
        client_id: "".into(),
        client_host: "/127.0.0.1".into(),
        instance: None,
        session_timeout_ms: 1_800_000,
        rebalance_timeout_ms: 1_800_000,
        protocol_type: "consumer".into(),
        protocols: vec![Protocol { name: "range".into(), metadata }],
        reason: None,
        require_known_member_id: false,
        supports_skip_assignment: false,
        lent_identity: Lent::default(),
        lent: Lent::default(),
    };
    let lend = |bytes| Lent::new(pool.hold(None, bytes, 0).expect("there is room"));
    join.lent_identity = lend(join.kept_identity_bytes());
    join.lent = lend(join.kept_protocol_bytes());
    Request::JoinGroup(join)
}

/// Members whose clients ask for a long session and leave keep a quarter of the memory.
#[test]
fn silent_members_go_until_a_quarter_of_the_memory_is_used() {
    const POOL_BYTES: usize = 1 << 20;
    let memory =
        RequestMemory::new(1 << 20, 1 << 20).with_groups(POOL_BYTES, POOL_BYTES).group_pools();
    let pool = Arc::clone(&memory.members);
    let (data, control) = (data_runtime(), Control::start());
    let (partition, handle) = (partition_with(Durability::PageCache), data.handle().clone());
    let config = GroupConfig { initial_rebalance_delay_ms: 0, ..GroupConfig::default() };
    let groups = control.run(move || {
        let groups = Groups::new(config, Clock::default(), memory, handle);
        groups.load(partition, LeaderEpoch(0));
        groups
    });
    let groups = groups.expect("loading is not waited for");
    let deadline = std::time::Instant::now() + PATIENCE;
    for number in 0..8 {
        let group = format!("group-{number}");
        loop {
            let joined = groups.ask(0, first_join(&pool, &group, 100_000));
            match data.block_on(joined) {
                Err(ErrorCode::CoordinatorLoadInProgress) => {
                    assert!(std::time::Instant::now() < deadline, "the shard is loaded");
                }
                joined => break assert!(joined.is_ok(), "{joined:?}"),
            }
        }
    }
    assert!(pool.used_bytes() > POOL_BYTES / 4 * 3);
    groups.release_silent(Duration::from_secs(3_600));
    assert!(pool.used_bytes() > POOL_BYTES / 4 * 3, "none was silent for so long");
    groups.release_silent(Duration::ZERO);
    let left = pool.used_bytes();
    assert!(left <= POOL_BYTES / 4 && left > POOL_BYTES / 16, "{left} bytes are left");
    groups.unload_all();
    control.end();
}
