//! Rules that can be left out, so that the simulation proves that it would find that. In debug builds only, and only on the
//! thread that leaves one out; a release build has no trace of them.

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A partition forgets the sequences that it refused: a batch behind one of them is out of order, or is appended.
    ForgetsRefusals,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 1] = [Mutant::ForgetsRefusals];
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
