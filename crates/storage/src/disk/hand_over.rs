//! Long waits of threads that serve many connections: such a thread hands its other work over before it waits.
//!
//! The waits are those for a partition whose lock another thread holds while the device hangs. A thread without a registered
//! hand-over just waits.

use std::cell::Cell;

/// Runs the wait on this thread while another thread takes over its other work. Runs the wait exactly once.
pub type HandOver = fn(&mut dyn FnMut());

thread_local! {
    static HAND_OVER: Cell<Option<HandOver>> = const { Cell::new(None) };
}

/// Long waits of this thread are run by `hand_over` from now on.
pub fn register(hand_over: HandOver) {
    HAND_OVER.set(Some(hand_over));
}

/// Runs a wait that may be long.
pub fn wait<T>(work: impl FnOnce() -> T) -> T {
    let Some(hand_over) = HAND_OVER.get() else { return work() };
    let (mut work, mut result) = (Some(work), None);
    hand_over(&mut || result = work.take().map(|work| work()));
    result.expect("the hand-over runs the wait")
}

#[cfg(test)]
mod tests {
    use super::*;

    thread_local! {
        static HANDED_OVER: Cell<u32> = const { Cell::new(0) };
    }

    fn count(wait: &mut dyn FnMut()) {
        HANDED_OVER.set(HANDED_OVER.get() + 1);
        wait();
    }

    #[test]
    fn a_registered_thread_hands_its_work_over_and_another_one_waits() {
        assert_eq!((wait(|| 1), HANDED_OVER.get()), (1, 0));
        register(count);
        assert_eq!((wait(|| 2), HANDED_OVER.get()), (2, 1));
        let other = std::thread::spawn(|| (wait(|| 3), HANDED_OVER.get()));
        assert_eq!(other.join().unwrap(), (3, 0));
    }
}
