//! The machine itself: role, positions, high watermark.

use model::{BrokerId, Durability, LeaderEpoch, Offset};

use crate::Leadership;

/// What this broker is to the partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Leader(Leadership),
    /// It copies from a leader.
    Follower {
        /// Whom it copies, or [`BrokerId::NONE`] while there is no leader.
        leader: BrokerId,
        /// The term it knows.
        epoch: LeaderEpoch,
    },
    /// Its log failed; it serves nothing until the broker starts again.
    Offline,
}

/// What can happen to a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The controller made this broker the leader.
    Lead {
        /// The new term.
        epoch: LeaderEpoch,
        /// In-sync replicas, this broker among them.
        isr: Vec<BrokerId>,
    },
    /// The controller made another broker the leader, or none.
    Follow {
        /// The leader, or [`BrokerId::NONE`].
        leader: BrokerId,
        /// The new term.
        epoch: LeaderEpoch,
    },
    /// The log was written up to here.
    Appended {
        /// The new log end.
        log_end: Offset,
    },
    /// The log was synced up to here.
    Synced {
        /// Everything below is on the device.
        synced: Offset,
    },
    /// A follower's fetch: it has everything below its fetch offset.
    FollowerFetched {
        /// Who fetched.
        follower: BrokerId,
        /// From where, which is what it acknowledges.
        position: Offset,
    },
    /// The log was cut back to here (a follower met a new leader's history).
    Truncated {
        /// The new log end.
        log_end: Offset,
    },
    /// Records below were deleted.
    LogStartMoved {
        /// The new log start.
        log_start: Offset,
    },
    /// The topic's durability was changed.
    DurabilityChanged(Durability),
    /// Reading or writing failed for good.
    Failed,
}

/// What a step changed; the host tells those who wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Effects {
    /// The high watermark rose to here.
    pub high_watermark: Option<Offset>,
    /// Those who wait for the old role must be told that it is over.
    pub role_ended: bool,
}

/// One replica of one partition, on this broker.
#[derive(Debug, Clone)]
pub struct Replica {
    me: BrokerId,
    durability: Durability,
    role: Role,
    /// First readable offset. Invariant: `log_start <= high_watermark`.
    log_start: Offset,
    /// Written up to here. Invariant: `synced <= written`.
    written: Offset,
    /// On the device up to here.
    synced: Offset,
    /// On every in-sync replica up to here. Invariant: never falls within a term;
    /// `high_watermark <= written`.
    high_watermark: Offset,
}

impl Replica {
    /// A replica that has just opened its log and knows no leader. `checkpointed` is the high
    /// watermark that was stored before the stop; what recovery cut off is not below it.
    pub fn opened(
        me: BrokerId,
        durability: Durability,
        log_start: Offset,
        synced: Offset,
        written: Offset,
        checkpointed: Offset,
    ) -> Replica {
        assert!(log_start <= written && synced <= written, "a log's positions are in order");
        let role = Role::Follower { leader: BrokerId::NONE, epoch: LeaderEpoch::NONE };
        let high_watermark = checkpointed.clamp(log_start, written);
        Replica { me, durability, role, log_start, written, synced, high_watermark }
    }

    /// What this broker is to the partition.
    pub fn role(&self) -> &Role {
        &self.role
    }

    /// The term, whatever the role.
    pub fn epoch(&self) -> LeaderEpoch {
        match &self.role {
            Role::Leader(leadership) => leadership.epoch(),
            Role::Follower { epoch, .. } => *epoch,
            Role::Offline => LeaderEpoch::NONE,
        }
    }

    /// The book of the term, if this broker leads.
    pub fn leadership(&self) -> Option<&Leadership> {
        match &self.role {
            Role::Leader(leadership) => Some(leadership),
            Role::Follower { .. } | Role::Offline => None,
        }
    }

    /// On every in-sync replica below here.
    pub fn high_watermark(&self) -> Offset {
        self.high_watermark
    }

    /// Which positions count.
    pub fn durability(&self) -> Durability {
        self.durability
    }

    /// Takes one event and says what it changed.
    pub fn step(&mut self, event: Event) -> Effects {
        if self.role == Role::Offline {
            return Effects::default();
        }
        let role_ended = self.apply(event);
        let high_watermark = self.advance();
        self.check();
        Effects { high_watermark, role_ended }
    }

    /// Changes what the event is about; returns whether the role it had is over.
    fn apply(&mut self, event: Event) -> bool {
        match event {
            Event::Lead { epoch, isr } => return self.lead(epoch, &isr),
            Event::Follow { leader, epoch } => return self.follow(leader, epoch),
            Event::Failed => {
                self.role = Role::Offline;
                return true;
            }
            Event::Appended { log_end } => {
                assert!(log_end >= self.written, "an append moves the log end on");
                self.written = log_end;
            }
            Event::Synced { synced } => self.synced = self.synced.max(synced.min(self.written)),
            Event::FollowerFetched { follower, position } => {
                if let Role::Leader(leadership) = &mut self.role {
                    leadership.acknowledge(follower, position.min(self.written));
                }
            }
            Event::Truncated { log_end } => {
                self.written = log_end;
                self.synced = self.synced.min(log_end);
                self.high_watermark = self.high_watermark.min(log_end);
            }
            Event::LogStartMoved { log_start } => {
                self.log_start = self.log_start.max(log_start);
                self.high_watermark = self.high_watermark.max(self.log_start);
                self.written = self.written.max(self.log_start);
            }
            Event::DurabilityChanged(durability) => self.durability = durability,
        }
        false
    }

    fn lead(&mut self, epoch: LeaderEpoch, isr: &[BrokerId]) -> bool {
        assert!(epoch >= self.epoch(), "terms only rise");
        let ended = epoch > self.epoch();
        self.role =
            Role::Leader(Leadership::begin(self.me, epoch, self.written, isr, self.high_watermark));
        ended
    }

    fn follow(&mut self, leader: BrokerId, epoch: LeaderEpoch) -> bool {
        assert!(epoch >= self.epoch(), "terms only rise");
        let ended = matches!(self.role, Role::Leader(_));
        self.role = Role::Follower { leader, epoch };
        ended
    }

    /// This broker's own position in the sense of the durability.
    fn own_position(&self) -> Offset {
        match self.durability {
            Durability::Fsync => self.synced,
            Durability::PageCache => self.written,
        }
    }

    fn advance(&mut self) -> Option<Offset> {
        let Role::Leader(leadership) = &self.role else { return None };
        let committed = leadership.committed(self.own_position());
        if committed <= self.high_watermark {
            return None;
        }
        self.high_watermark = committed;
        Some(committed)
    }

    fn check(&self) {
        assert!(self.synced <= self.written, "nothing is synced that is not written");
        assert!(self.high_watermark <= self.written, "the high watermark is within the log");
        assert!(self.log_start <= self.high_watermark, "the log starts below the high watermark");
    }
}
