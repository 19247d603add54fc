//! The metadata log's quorum: a small raft without I/O, with a clock and randomness handed in.
//!
//! It is a model, and simpler than what real brokers run: what a node stores it has at once and for good (its log lies
//! on a disk that never fails, whatever happens to the partitions'), there are no snapshots, the voters never change, and
//! every other broker is an observer, which is sent the same appends and counts for nothing. What matters here is as it
//! should be: terms, votes by last entry, commitment by a majority in the own term, leaders that do not know yet that they
//! are deposed, and that resign when they hear no majority. No committed entry is ever lost. What they say to each other goes as
//! the product's bytes (`bytes.rs`).

pub(super) mod bytes;

use std::collections::BTreeSet;
use std::sync::Arc;

use fastrand::Rng;
use metadata::MetadataRecord;
use model::Timestamp;

/// How often a leader says that it is there.
const HEARTBEAT_MS: i64 = 40;
/// The shortest time without a leader before an election, and as much again at most.
const ELECTION_MS: i64 = 160;

/// An entry, and the term in which a leader wrote it.
#[derive(Clone, Debug)]
pub(super) struct Logged {
    pub(super) term: u64,
    /// Who led in that term.
    pub(super) leader: usize,
    pub(super) records: Arc<[MetadataRecord]>,
}

/// Where a log ends. The longer one of two is that with the larger term, or of one term that with more entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct End {
    /// In which its last entry was written.
    term: u64,
    /// Who led in that term: one node.
    leader: usize,
    /// How many entries there are.
    count: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Message {
    AskVote {
        term: u64,
        end: End,
    },
    Vote {
        term: u64,
        granted: bool,
    },
    Append {
        term: u64,
        before: End,
        entries: Vec<Logged>,
        committed: End,
    },
    /// So many entries are the leader's.
    Appended {
        term: u64,
        has: usize,
    },
    /// What was sent does not follow.
    Conflict {
        term: u64,
    },
    /// The sender leads no more.
    Deposed {
        term: u64,
    },
}

#[derive(Debug)]
enum Role {
    Follower,
    /// And who has voted for it.
    Candidate(BTreeSet<usize>),
    Leader {
        /// For every node: so many entries it was sent, or may have.
        sent: Vec<usize>,
        /// So many it has.
        has: Vec<usize>,
        heard: Vec<Timestamp>,
    },
}

/// One broker's part. Nodes below `voters` vote.
#[derive(Debug)]
pub(super) struct Node {
    me: usize,
    voters: usize,
    nodes: usize,
    /// Durable. Invariant: never falls.
    term: u64,
    /// Durable: for whom it voted in this term.
    voted_for: Option<usize>,
    /// Durable.
    log: Vec<Logged>,
    /// So many entries are committed. Invariant: never falls.
    committed: usize,
    role: Role,
    /// Who leads this term, if it has heard.
    leader: Option<usize>,
    /// When it stands for election, or sends its next heartbeat.
    due: Timestamp,
    outgoing: Vec<(usize, Message)>,
}

impl Node {
    /// One with a log that is all committed.
    pub(super) fn new(me: usize, voters: usize, nodes: usize, founding: &[Logged]) -> Node {
        Node {
            me,
            voters,
            nodes,
            term: 0,
            voted_for: None,
            log: founding.to_vec(),
            committed: founding.len(),
            role: Role::Follower,
            leader: None,
            due: Timestamp(0),
            outgoing: Vec::new(),
        }
    }

    /// A new process: it knows what was stored.
    pub(super) fn restart(&mut self, now: Timestamp, random: &mut Rng) {
        self.outgoing.clear();
        self.follow(now, random);
        self.leader = None;
    }

    pub(super) fn term(&self) -> u64 {
        self.term
    }

    pub(super) fn leads(&self) -> bool {
        matches!(self.role, Role::Leader { .. })
    }

    /// Whom it believes to lead.
    pub(super) fn leader(&self) -> Option<usize> {
        self.leader
    }

    pub(super) fn committed(&self) -> usize {
        self.committed
    }

    pub(super) fn log(&self) -> &[Logged] {
        &self.log
    }

    /// What is to be sent to whom.
    pub(super) fn take_outgoing(&mut self) -> Vec<(usize, Message)> {
        std::mem::take(&mut self.outgoing)
    }

    fn end(&self) -> End {
        self.end_at(self.log.len())
    }

    fn end_at(&self, count: usize) -> End {
        let last = count.checked_sub(1).map(|last| &self.log[last]);
        last.map_or(End::default(), |last| End { term: last.term, leader: last.leader, count })
    }

    fn follow(&mut self, now: Timestamp, random: &mut Rng) {
        self.role = Role::Follower;
        self.due = now.plus_ms(ELECTION_MS + random.i64(0..ELECTION_MS));
    }

    /// Writes an entry, if it leads; says how many there are then.
    pub(super) fn propose(&mut self, records: Arc<[MetadataRecord]>) -> Option<usize> {
        let Role::Leader { has, .. } = &mut self.role else { return None };
        self.log.push(Logged { term: self.term, leader: self.me, records });
        has[self.me] = self.log.len();
        self.send_appends();
        self.commit();
        Some(self.log.len())
    }

    /// Time has gone by.
    pub(super) fn tick(&mut self, now: Timestamp, random: &mut Rng) {
        if let Role::Leader { heard, .. } = &self.role {
            let late = |id: &usize| *id != self.me && now.ms_since(heard[*id]) > 2 * ELECTION_MS;
            if 2 * (0..self.voters).filter(late).count() > self.voters {
                // It hears no majority: another one may lead by now.
                self.follow(now, random);
                self.leader = None;
                return;
            }
        }
        if now < self.due {
            return;
        }
        if self.leads() {
            self.due = now.plus_ms(HEARTBEAT_MS);
            return self.send_appends();
        }
        if self.me < self.voters {
            self.stand(now, random);
        }
    }

    fn stand(&mut self, now: Timestamp, random: &mut Rng) {
        self.follow(now, random);
        self.term += 1;
        (self.voted_for, self.leader) = (Some(self.me), None);
        self.role = Role::Candidate(BTreeSet::from([self.me]));
        let (term, end) = (self.term, self.end());
        let others = (0..self.voters).filter(|id| *id != self.me);
        self.outgoing.extend(others.map(|id| (id, Message::AskVote { term, end })));
    }

    fn send_appends(&mut self) {
        let Role::Leader { sent, .. } = &mut self.role else { return };
        let firsts = sent.clone();
        // What is under way is not sent again before the next heartbeat, when nothing may have been answered.
        *sent = vec![self.log.len(); self.nodes];
        for (id, first) in firsts.into_iter().enumerate().filter(|(id, _)| *id != self.me) {
            let append = Message::Append {
                term: self.term,
                before: self.end_at(first),
                entries: self.log[first..].to_vec(),
                committed: self.end_at(self.committed),
            };
            self.outgoing.push((id, append));
        }
    }

    pub(super) fn receive(
        &mut self,
        now: Timestamp,
        random: &mut Rng,
        from: usize,
        message: Message,
    ) {
        let (Message::AskVote { term, .. }
        | Message::Vote { term, .. }
        | Message::Append { term, .. }
        | Message::Appended { term, .. }
        | Message::Conflict { term }
        | Message::Deposed { term }) = message;
        if term > self.term {
            (self.term, self.voted_for, self.leader) = (term, None, None);
            self.follow(now, random);
        }
        match message {
            Message::AskVote { term, end } => self.asked_to_vote(now, random, from, term, end),
            Message::Vote { granted, .. } if term == self.term && granted => {
                self.voted(now, from);
            }
            Message::Append { before, entries, committed, .. } => {
                if term == self.term {
                    self.leader = Some(from);
                    self.follow(now, random);
                    self.append(from, before, entries, committed);
                } else {
                    self.outgoing.push((from, Message::Deposed { term: self.term }));
                }
            }
            Message::Appended { has, .. } if term == self.term => {
                self.appended(now, from, Some(has));
            }
            Message::Conflict { .. } | Message::Deposed { .. } if term == self.term => {
                self.appended(now, from, None);
            }
            _ => {}
        }
    }

    fn asked_to_vote(
        &mut self,
        now: Timestamp,
        random: &mut Rng,
        from: usize,
        term: u64,
        end: End,
    ) {
        let is_free = self.voted_for.is_none_or(|other| other == from);
        let granted = term == self.term && is_free && end >= self.end() && !self.leads();
        if granted {
            self.voted_for = Some(from);
            self.follow(now, random);
        }
        self.outgoing.push((from, Message::Vote { term: self.term, granted }));
    }

    fn voted(&mut self, now: Timestamp, from: usize) {
        let Role::Candidate(votes) = &mut self.role else { return };
        votes.insert(from);
        if 2 * votes.len() > self.voters {
            let (count, nodes) = (self.log.len(), self.nodes);
            let mut has = vec![0; nodes];
            has[self.me] = count;
            self.role = Role::Leader { sent: vec![count; nodes], has, heard: vec![now; nodes] };
            (self.leader, self.due) = (Some(self.me), now);
        }
    }

    fn append(&mut self, from: usize, before: End, entries: Vec<Logged>, committed: End) {
        let count = before.count;
        let fits = count <= self.log.len() && self.end_at(count) == before;
        let (term, has) = (self.term, count + entries.len());
        if fits {
            for (at, logged) in (count..).zip(entries) {
                if self.log.get(at).is_some_and(|known| known.term != logged.term) {
                    assert!(at >= self.committed, "what is committed stays");
                    self.log.truncate(at);
                }
                if at == self.log.len() {
                    self.log.push(logged);
                }
            }
            self.committed = self.committed.max(committed.count.min(has));
        }
        let answer =
            if fits { Message::Appended { term, has } } else { Message::Conflict { term } };
        self.outgoing.push((from, answer));
    }

    /// `count`: so many entries it has now; `None`: what was sent did not follow.
    fn appended(&mut self, now: Timestamp, from: usize, count: Option<usize>) {
        let Role::Leader { sent, has, heard } = &mut self.role else { return };
        heard[from] = now;
        has[from] = has[from].max(count.unwrap_or(0));
        // What it lacks is sent with the next heartbeat, or the next entry.
        sent[from] = has[from];
        self.commit();
    }

    /// An entry of the own term that a majority has is committed, and all before it.
    fn commit(&mut self) {
        let Role::Leader { has, .. } = &self.role else { return };
        let mut counts = has[..self.voters].to_vec();
        counts.sort_unstable();
        let count = counts[(self.voters - 1) / 2];
        if count > self.committed && self.log[count - 1].term == self.term {
            self.committed = count;
        }
    }
}
