//! How many messages a client takes before it says something: as many as are not acknowledged, or, in pull mode, as many as
//! it gave permits for.

/// Messages without an acknowledgement where a client does not say how many.
pub const QUEUE_DEFAULT: usize = 1000;
/// The most of them: each takes some bytes of the gateway's memory.
pub const QUEUE_MAX: usize = 10_000;
/// Permits that are kept; more are not counted.
const PERMITS_MAX: u64 = 1_000_000_000;

/// What a client takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Credit {
    queue: usize,
    /// In pull mode.
    permits: Option<u64>,
}

impl Credit {
    /// Of a client that takes messages until `queue` are not acknowledged.
    pub fn pushed(queue: usize) -> Credit {
        Credit { queue, permits: None }
    }

    /// Of a client that takes messages when it says so, and without an acknowledgement no more than [`QUEUE_MAX`].
    pub fn pulled() -> Credit {
        Credit { queue: QUEUE_MAX, permits: Some(0) }
    }

    /// How many may be sent while so many are not acknowledged.
    pub fn left(&self, open: usize) -> usize {
        let room = self.queue.saturating_sub(open);
        self.permits.map_or(room, |permits| room.min(usize::try_from(permits).unwrap_or(room)))
    }

    /// Notes that one was sent.
    pub fn send(&mut self) {
        self.permits = self.permits.map(|permits| permits.saturating_sub(1));
    }

    /// Takes permits; a client that is not in pull mode has no use for them.
    pub fn permit(&mut self, more: u64) {
        self.permits = self.permits.map(|permits| permits.saturating_add(more).min(PERMITS_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_takes_until_its_queue_is_full() {
        let credit = Credit::pushed(3);
        assert_eq!([0, 2, 3, 9].map(|open| credit.left(open)), [3, 1, 0, 0]);
        let mut same = credit;
        same.permit(5);
        same.send();
        assert_eq!(same, credit, "permits are for pull mode");
    }

    #[test]
    fn in_pull_mode_it_takes_what_it_asked_for() {
        let mut credit = Credit::pulled();
        assert_eq!(credit.left(0), 0);
        credit.permit(2);
        credit.permit(u64::MAX);
        assert_eq!(credit.left(0), QUEUE_MAX, "no more without acknowledgements");
        let mut credit = Credit::pulled();
        credit.permit(2);
        credit.send();
        assert_eq!((credit.left(0), credit.left(QUEUE_MAX)), (1, 0));
        credit.send();
        credit.send();
        assert_eq!(credit.left(0), 0);
    }
}
