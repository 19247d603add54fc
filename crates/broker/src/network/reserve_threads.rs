//! Data threads in reserve: they serve while a device that hangs holds the others in a write.
//!
//! A write to a file system that hangs does not return, and a thread within it cannot be interrupted. The runtime has as many threads
//! again as serve ordinarily. Each of them waits in a task of this module until writes hang.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use tokio::runtime::Handle;

/// The threads in reserve of one runtime. They serve for good once this is dropped.
#[derive(Debug)]
pub struct ReserveThreads {
    data: Handle,
    count: usize,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GateState {
    /// Counts changes. Odd: threads are in reserve. A task of an earlier number waits no more.
    turn: u64,
}

impl Gate {
    fn wait(&self, turn: u64) {
        let mut state = self.state.lock();
        self.changed.wait_while(&mut state, |state| state.turn == turn);
    }
}

impl ReserveThreads {
    /// Takes `count` threads of a runtime with more threads than that into reserve.
    pub fn new(data: Handle, count: usize) -> ReserveThreads {
        let mut reserve = ReserveThreads { data, count, gate: Arc::default() };
        reserve.keep();
        reserve
    }

    /// Has the threads serve.
    pub fn release(&mut self) {
        self.change(false);
    }

    /// Takes as many threads back into reserve, as soon as they are idle.
    pub fn keep(&mut self) {
        let Some(turn) = self.change(true) else { return };
        for _ in 0..self.count {
            let gate = Arc::clone(&self.gate);
            self.data.spawn(async move {
                free_next_place();
                gate.wait(turn);
            });
        }
    }

    /// The number of the turn that begins, if this changes anything.
    fn change(&mut self, keeps: bool) -> Option<u64> {
        let mut state = self.gate.state.lock();
        if (state.turn % 2 == 1) == keeps {
            return None;
        }
        state.turn += 1;
        self.gate.changed.notify_all();
        Some(state.turn)
    }
}

/// Moves the task that this thread woke last to where other threads take it. It is in a place of this thread alone, and the thread
/// waits: tokio runs a new task ahead of that place now and then. An empty task takes the place.
fn free_next_place() {
    tokio::spawn(async {});
}

impl Drop for ReserveThreads {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    /// Limit of anything on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(40);
    const SERVING: usize = 2;

    #[test]
    fn threads_in_reserve_serve_while_all_others_are_held() {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2 * SERVING).build().unwrap();
        let mut reserve = ReserveThreads::new(runtime.handle().clone(), SERVING);
        for _ in 0..3 {
            let (entered, enters) = mpsc::channel();
            let (ends, ended) = mpsc::channel::<()>();
            let ended = Arc::new(Mutex::new(ended));
            let held: Vec<_> = (0..SERVING)
                .map(|_| {
                    let (entered, ended) = (entered.clone(), Arc::clone(&ended));
                    runtime.spawn(async move {
                        entered.send(()).unwrap();
                        let _ = ended.lock().recv();
                    })
                })
                .collect();
            // As many threads serve as before: none is in reserve that should not be.
            (0..SERVING).for_each(|_| enters.recv_timeout(PATIENCE).unwrap());
            let (served, serves) = mpsc::channel();
            runtime.spawn(async move { served.send(()).unwrap() });
            assert!(serves.try_recv().is_err(), "all threads are held or in reserve");
            reserve.release();
            serves.recv_timeout(PATIENCE).unwrap();
            drop(ends);
            held.into_iter().for_each(|task| runtime.block_on(task).unwrap());
            reserve.keep();
        }
    }

    #[test]
    fn a_thread_in_reserve_keeps_no_task_that_it_woke() {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        // Each thread takes a new task ahead of the one that it woke last.
        builder.worker_threads(2).global_queue_interval(1).enable_time();
        let runtime = builder.build().unwrap();
        let mut reserve = ReserveThreads::new(runtime.handle().clone(), 1);
        // The thread that waits for timers wakes one of these tasks in the moment in which it takes the task of the reserve.
        for round in 0..500 {
            reserve.release();
            let (woken, ran) = mpsc::channel();
            runtime.spawn(async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                woken.send(()).unwrap();
            });
            std::thread::sleep(Duration::from_micros(900 + 4 * (round % 200)));
            reserve.keep();
            ran.recv_timeout(PATIENCE).expect("each woken task runs");
        }
    }
}
