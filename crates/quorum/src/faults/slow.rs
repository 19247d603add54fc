//! A disk that takes its time: in a simulation the writer is a task, and syncs by the simulated clock.

use crate::store::writer::{Loop, Write};
use fastrand::Rng;
use std::cell::RefCell;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

thread_local! {
    /// Set on the thread that runs a simulation.
    static LOTS: RefCell<Option<Rng>> = const { RefCell::new(None) };
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
            tokio::time::sleep(latency()).await;
            work.write(writes.drain(..));
        }
    });
    requests
}
