//! A disk that takes its time: in a simulation the writer is a task, and syncs by the simulated clock.

use super::Mutant;
use crate::store::writer::{Loop, Write};
use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::time::sleep;

thread_local! {
    /// Set on the thread that runs a simulation.
    static LOTS: RefCell<Option<Rng>> = const { RefCell::new(None) };
}

thread_local! {
    /// The members whose disks hang.
    static HUNG: RefCell<BTreeSet<u64>> = const { RefCell::new(BTreeSet::new()) };
    /// The rule that this simulation breaks.
    static MUTANT: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// How often a hung writer checks whether its disk still hangs.
const HUNG_CHECK: Duration = Duration::from_millis(5);

/// Makes the disk of a member hang, or ends that.
pub(super) fn set_hung(node: u64, is_hung: bool) {
    HUNG.with_borrow_mut(|hung| match is_hung {
        true => drop(hung.insert(node)),
        false => drop(hung.remove(&node)),
    });
}

fn is_hung(node: u64) -> bool {
    HUNG.with_borrow(|hung| hung.contains(&node))
}

/// Makes this thread's simulation break a rule.
pub(crate) fn plant(mutant: Option<Mutant>) {
    MUTANT.set(mutant);
}

/// Whether this thread's simulation breaks this rule.
pub(crate) fn is_mutant(mutant: Mutant) -> bool {
    MUTANT.get() == Some(mutant)
}

/// Requests that are made durable together.
const TOGETHER_MAX: usize = 64;

/// Makes this thread one that simulates.
pub(super) fn simulate(seed: u64) {
    LOTS.with_borrow_mut(|lots| *lots = Some(Rng::with_seed(seed)));
}

/// Whether this thread simulates.
pub(crate) fn is_simulated() -> bool {
    LOTS.with_borrow(Option::is_some)
}

/// How long the device takes now: a millisecond mostly, sometimes very long.
fn latency() -> Duration {
    LOTS.with_borrow_mut(|lots| {
        let lots = lots.as_mut().expect("it is asked for in simulations only");
        let longest_us = if lots.u8(..) < 8 { 400_000 } else { 2_000 };
        Duration::from_micros(lots.u64(0..longest_us))
    })
}

/// Starts the writer of a simulated node.
pub(crate) fn spawn_writer(mut work: Loop) -> UnboundedSender<Write> {
    let (requests, mut queue) = unbounded_channel();
    tokio::spawn(async move {
        let mut writes = Vec::new();
        while queue.recv_many(&mut writes, TOGETHER_MAX).await > 0 {
            sleep(latency()).await;
            while is_hung(work.node()) {
                sleep(HUNG_CHECK).await;
            }
            work.write(writes.drain(..));
        }
    });
    requests
}
