//! Faults that can be planted, so that the simulation proves that it would find them. In debug builds only, and only on
//! the thread that plants one; a release build has no trace of them.

/// A fault: something that is lost between the members of the quorum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// An entry of several metadata records loses the last one on its way to another member.
    DropsLastRecords,
    /// An append does not say what is committed.
    DropsCommitted,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 2] = [Mutant::DropsLastRecords, Mutant::DropsCommitted];
}

#[cfg(debug_assertions)]
mod planted {
    use super::Mutant;
    use std::cell::Cell;

    thread_local! {
        static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    /// Plants a fault on this thread, or none.
    pub fn plant(mutant: Option<Mutant>) {
        PLANTED.with(|planted| planted.set(mutant));
    }

    pub(crate) fn is_planted(mutant: Mutant) -> bool {
        PLANTED.with(|planted| planted.get() == Some(mutant))
    }
}

#[cfg(not(debug_assertions))]
mod planted {
    use super::Mutant;

    pub(crate) const fn is_planted(_: Mutant) -> bool {
        false
    }
}

pub(crate) use planted::is_planted;
#[cfg(debug_assertions)]
pub use planted::plant;
