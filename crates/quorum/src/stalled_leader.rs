//! A leader whose disk hangs transfers its leadership to a voter that still stores.
//!
//! The leader of a hung disk still commits: openraft counts the other voters. But it can neither vote nor store, and a
//! restart would cost it everything since. It proposes an entry that changes nothing, and the voter that has stored
//! that entry leads next. If no voter stores the entry, the device is shared, or all devices hang, and the leader stays. A disk that hangs again and again does not move the leadership each time: each transfer waits
//! twice as long as the transfer before, until the disk was healthy for [`HEALTHY_AFTER`].

use crate::raft::{Proposal, TypeConfig, broker_id};
use crate::state_machine::StateMachine;
use crate::store::backlog::BacklogState;
use openraft::Raft;
use openraft::async_runtime::watch::WatchReceiver;
use openraft::type_config::TypeConfigExt;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// Age of the oldest unfinished write at which a leader first transfers its leadership.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// The longest age that is waited for, however often the disk has hung.
const PATIENCE_MAX: Duration = Duration::from_secs(3600);
/// Time without a write older than [`PATIENCE_MIN`] after which the next transfer waits for that age again.
const HEALTHY_AFTER: Duration = Duration::from_secs(300);
/// Pause between two looks for a voter while a write hangs.
const RETRY: Duration = Duration::from_millis(250);

/// How long a write may hang before the next transfer.
#[derive(Clone, Copy, Debug)]
struct TransferPatience {
    patience: Duration,
    /// When a write was last seen to be older than [`PATIENCE_MIN`].
    hung_at: Option<Instant>,
}

impl TransferPatience {
    fn new() -> TransferPatience {
        TransferPatience { patience: PATIENCE_MIN, hung_at: None }
    }

    /// When the leadership is to be transferred because of a write that was queued at `oldest`.
    fn due(&mut self, oldest: Instant) -> Instant {
        if self
            .hung_at
            .is_some_and(|hung_at| oldest.saturating_duration_since(hung_at) >= HEALTHY_AFTER)
        {
            *self = TransferPatience::new();
        }
        oldest + self.patience
    }

    /// Notes that a write hangs at `now`.
    fn note_hung(&mut self, now: Instant) {
        self.hung_at = Some(now);
    }

    /// Notes that the leadership was transferred.
    fn note_transfer(&mut self) {
        self.patience = (self.patience * 2).min(PATIENCE_MAX);
    }
}

/// The voter other than `me` that has stored most, if it has stored the entry `probe`. `stored` holds the voters and
/// the newest entry that each has stored.
fn successor(me: u64, probe: u64, stored: impl Iterator<Item = (u64, Option<u64>)>) -> Option<u64> {
    let others = stored.filter(|(id, newest)| *id != me && *newest >= Some(probe));
    others.max_by_key(|(_, newest)| *newest).map(|(id, _)| id)
}

/// Watches the writer's backlog of the member `me` until the raft stops.
pub(crate) async fn watch(
    raft: Raft<TypeConfig, StateMachine>,
    me: u64,
    mut backlog: watch::Receiver<BacklogState>,
) {
    let mut patience = TransferPatience::new();
    let mut metrics = raft.metrics();
    let mut retry_at = None;
    // The write that hangs, and the index of the entry that a voter has to store in the meantime.
    let mut probe: Option<(Instant, u64)> = None;
    loop {
        let oldest = backlog.borrow_and_update().oldest;
        probe = probe.filter(|(hung, _)| Some(*hung) == oldest);
        let due =
            oldest.map(|oldest| patience.due(oldest)).max(retry_at.filter(|_| oldest.is_some()));
        let waited = async {
            match due {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            changed = backlog.changed() => if changed.is_err() { return } else { continue },
            () = waited => {}
            ended = metrics.wait_until(|metrics| metrics.running_state.is_err()) => { drop(ended); return }
        }
        let now = Instant::now();
        patience.note_hung(now);
        retry_at = Some(now + RETRY);
        let Some(hung) = oldest else { continue };
        let Some((_, probe)) = probe else {
            probe = propose_probe(&raft, me).map(|index| (hung, index));
            continue;
        };
        if let Some(to) = find_successor(&raft, me, probe) {
            tracing::warn!(
                to = %broker_id(to),
                age_ms = (now - hung).as_millis() as u64,
                "the disk of the metadata log hangs: transferring the leadership of the metadata quorum"
            );
            patience.note_transfer();
            if raft.trigger().transfer_leader(to).await.is_err() {
                return;
            }
        }
    }
}

/// Proposes an entry that changes nothing; returns an index that only later entries have. `None` unless `me` leads.
fn propose_probe(raft: &Raft<TypeConfig, StateMachine>, me: u64) -> Option<u64> {
    let last = {
        let metrics = raft.metrics();
        let metrics = metrics.borrow_watched();
        (metrics.current_leader == Some(me)).then(|| metrics.last_log_index)?
    };
    // Every member refuses it when it is applied: it rests on no image.
    let blank = Proposal { decided_at: None, applied: None, records: [].into(), part: None };
    let raft = raft.clone();
    TypeConfig::spawn(async move {
        // A leader that has lost the leadership meanwhile needs no probe.
        let _ = raft.client_write(blank).await;
    });
    Some(last.map_or(0, |last| last + 1))
}

/// The voter that should lead in the place of `me`; `None` unless `me` leads.
fn find_successor(raft: &Raft<TypeConfig, StateMachine>, me: u64, probe: u64) -> Option<u64> {
    #[cfg(test)]
    if crate::faults::is_mutant(crate::faults::Mutant::HungLeaderStays) {
        return None;
    }
    #[cfg(test)]
    let probe = match crate::faults::is_mutant(crate::faults::Mutant::SharedDiskMoves) {
        true => 0,
        false => probe,
    };
    let metrics = raft.metrics();
    let metrics = metrics.borrow_watched();
    let replication =
        metrics.replication.as_ref().filter(|_| metrics.current_leader == Some(me))?;
    let voters: Vec<u64> = metrics.membership_config.voter_ids().collect();
    let stored = replication.iter().filter(|(id, _)| voters.contains(id));
    successor(me, probe, stored.map(|(id, matched)| (*id, matched.map(|id| id.index))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_voter_that_stored_most_succeeds_and_only_if_it_stored_the_probe() {
        let stored = [(1, Some(5)), (2, Some(7)), (3, Some(8)), (4, None)];
        assert_eq!(successor(1, 7, stored.into_iter()), Some(3));
        assert_eq!(successor(3, 7, stored.into_iter()), Some(2));
        assert_eq!(successor(1, 9, stored.into_iter()), None);
    }

    #[test]
    fn each_transfer_waits_twice_as_long_until_the_disk_was_healthy() {
        let mut patience = TransferPatience::new();
        let start = Instant::now();
        let second = |n| start + Duration::from_secs(n);
        assert_eq!(patience.due(start), second(1));
        patience.note_hung(second(1));
        patience.note_transfer();
        assert_eq!(patience.due(second(10)), second(12));
        patience.note_hung(second(12));
        patience.note_transfer();
        assert_eq!(patience.due(second(300)), second(304), "hung 288 s before");
        assert_eq!(patience.due(second(312)), second(313), "healthy for 300 s");
    }
}
