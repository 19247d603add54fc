//! Signals that end the program, blocked for a thread and for threads that it spawns.
//!
//! A signal that arrives while its handler is being registered is lost: the registry of tokio installs the handler before it
//! stores the action. A blocked signal stays pending until a thread accepts it. The kernel delivers a signal to any thread
//! that accepts it, so threads that run before the registration are spawned while signals are blocked.

use nix::sys::signal::{SigSet, SigmaskHow, Signal};

/// Blocks SIGTERM, SIGINT and SIGHUP for the calling thread until it is dropped.
#[derive(Debug)]
#[must_use = "signals are blocked until the guard is dropped"]
pub struct BlockedSignals {
    /// The mask before. `None`: the system refused to change it.
    mask_before: Option<SigSet>,
}

impl BlockedSignals {
    /// Blocks the signals from now on.
    pub fn begin() -> BlockedSignals {
        let signals: SigSet =
            [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP].into_iter().collect();
        BlockedSignals { mask_before: signals.thread_swap_mask(SigmaskHow::SIG_BLOCK).ok() }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        if let Some(mask) = self.mask_before.take() {
            // The mask was valid before.
            let _ = mask.thread_set_mask();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spawned_thread_inherits_the_mask_that_its_parent_gives_up() {
        let is_blocked = || SigSet::thread_get_mask().expect("a mask").contains(Signal::SIGTERM);
        assert!(!is_blocked());
        let blocked = BlockedSignals::begin();
        assert!(is_blocked());
        let spawned = std::thread::spawn(is_blocked);
        drop(blocked);
        assert!(!is_blocked());
        assert!(spawned.join().expect("the thread ends"));
    }
}
