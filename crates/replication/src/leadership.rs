//! What a leader knows of its term: the in-sync replicas and how far each of them has come.

use model::{BrokerId, LeaderEpoch, Offset};

/// A leader's book about one term of its partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leadership {
    /// The term. Invariant: fixed for the life of this value; a new term makes a new one.
    epoch: LeaderEpoch,
    /// Log end when the term began: what stands below was written in earlier terms.
    epoch_start: Offset,
    /// In-sync replicas as the controller has committed them, this broker first.
    /// Invariant: never empty, contains this broker, no duplicates.
    isr: Vec<BrokerId>,
    /// Acknowledged positions of the other in-sync replicas, in the order of `isr[1..]`.
    /// Moved by their fetches. Invariant: each rises within a term.
    positions: Vec<Offset>,
}

impl Leadership {
    /// A term that begins at `epoch_start`; followers count from `log_start` until they fetch.
    pub fn begin(
        me: BrokerId,
        epoch: LeaderEpoch,
        epoch_start: Offset,
        isr: &[BrokerId],
        log_start: Offset,
    ) -> Leadership {
        assert!(isr.contains(&me), "a leader is one of its in-sync replicas");
        let mut ordered = vec![me];
        ordered.extend(isr.iter().copied().filter(|broker| *broker != me));
        assert_eq!(ordered.len(), isr.len(), "in-sync replicas have no duplicates");
        let positions = vec![log_start; ordered.len() - 1];
        Leadership { epoch, epoch_start, isr: ordered, positions }
    }

    /// The term.
    pub fn epoch(&self) -> LeaderEpoch {
        self.epoch
    }

    /// Where the term began.
    pub fn epoch_start(&self) -> Offset {
        self.epoch_start
    }

    /// The in-sync replicas, this broker first.
    pub fn isr(&self) -> &[BrokerId] {
        &self.isr
    }

    /// An in-sync follower has everything below `position`. A replica outside the ISR is ignored
    /// here: it does not hold the high watermark back, nor does it carry it.
    pub fn acknowledge(&mut self, follower: BrokerId, position: Offset) {
        let place = self.isr[1..].iter().position(|broker| *broker == follower);
        if let Some(place) = place {
            self.positions[place] = self.positions[place].max(position);
        }
    }

    /// Everything below is on every in-sync replica; `own` is this broker's position.
    pub fn committed(&self, own: Offset) -> Offset {
        self.positions.iter().copied().fold(own, Offset::min)
    }
}
