//! What the manager of a cluster shows at one glance, as formulas: how evenly a topic lies on the brokers ([`topic`]), how
//! evenly the leaders and replicas of all topics do ([`broker`]), how fast a log grows ([`rate`]).
//!
//! The formulas of a topic are those of CMAK (`TopicIdentity` in its `ActorModel.scala`), so that numbers which operators
//! know mean the same here; percentages are rounded down, as there. Where one differs, it says so.
//!
//! Not here: how far consumers are behind; see [`crate::lag`].

pub mod broker;
pub mod rate;
pub mod topic;

/// One partition, as far as the formulas look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement<'a> {
    /// Who leads; `None` while no broker does.
    pub leader: Option<i32>,
    /// Where copies should be. The first is the preferred leader.
    pub replicas: &'a [i32],
    /// Which copies are in sync.
    pub isr: &'a [i32],
}

impl Placement<'_> {
    /// Whether no broker leads: the partition can neither be written nor read.
    pub fn is_offline(&self) -> bool {
        self.leader.is_none()
    }

    /// Whether the first replica leads.
    pub fn is_preferred(&self) -> bool {
        self.leader.is_some() && self.leader == self.replicas.first().copied()
    }

    /// Whether fewer copies are in sync than there should be.
    pub fn is_under_replicated(&self) -> bool {
        self.isr.len() < self.replicas.len()
    }
}

/// Per cent of `whole`, rounded down; `of_nothing` if the whole is nothing.
pub fn percent(part: usize, whole: usize, of_nothing: u32) -> u32 {
    match whole {
        0 => of_nothing,
        // A share is never larger than what it is a share of, but for brokers that are away: then it is more than 100.
        _ => u32::try_from(part.saturating_mul(100) / whole).unwrap_or(u32::MAX),
    }
}
