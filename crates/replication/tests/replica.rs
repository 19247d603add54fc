//! What moves the high watermark, and what does not.

use model::{BrokerId, Durability, LeaderEpoch, Offset};
use replication::{Effects, Event, Replica, Role};

const ME: BrokerId = BrokerId(1);

fn leader(durability: Durability, isr: &[i32]) -> Replica {
    let zero = Offset(0);
    let mut replica = Replica::opened(ME, durability, zero, zero, zero, zero);
    let isr = isr.iter().copied().map(BrokerId).collect();
    replica.step(Event::Lead { epoch: LeaderEpoch(3), isr });
    replica
}

fn moved(to: i64) -> Effects {
    Effects { high_watermark: Some(Offset(to)), role_ended: false }
}

#[test]
fn page_cache_commits_what_is_written() {
    let mut replica = leader(Durability::PageCache, &[1]);
    assert_eq!(replica.step(Event::Appended { log_end: Offset(5) }), moved(5));
    assert_eq!(replica.step(Event::Synced { synced: Offset(5) }), Effects::default());
}

#[test]
fn fsync_commits_only_what_is_synced() {
    let mut replica = leader(Durability::Fsync, &[1]);
    assert_eq!(replica.step(Event::Appended { log_end: Offset(5) }), Effects::default());
    assert_eq!(replica.step(Event::Synced { synced: Offset(3) }), moved(3));
    assert_eq!(replica.step(Event::Synced { synced: Offset(5) }), moved(5));
}

#[test]
fn the_slowest_in_sync_replica_holds_the_high_watermark() {
    let mut replica = leader(Durability::PageCache, &[2, 1, 3]);
    replica.step(Event::Appended { log_end: Offset(10) });
    let fetched = |follower, position| Event::FollowerFetched {
        follower: BrokerId(follower),
        position: Offset(position),
    };
    assert_eq!(replica.step(fetched(2, 8)), Effects::default());
    assert_eq!(replica.step(fetched(9, 10)), Effects::default(), "not in sync: no vote");
    assert_eq!(replica.step(fetched(3, 4)), moved(4));
    assert_eq!(replica.step(fetched(3, 2)), Effects::default(), "positions do not fall");
    assert_eq!(replica.step(fetched(3, 99)), moved(8));
}

#[test]
fn a_weaker_durability_releases_what_was_written() {
    let mut replica = leader(Durability::Fsync, &[1]);
    replica.step(Event::Appended { log_end: Offset(7) });
    assert_eq!(replica.step(Event::DurabilityChanged(Durability::PageCache)), moved(7));
    let back = replica.step(Event::DurabilityChanged(Durability::Fsync));
    assert_eq!(back, Effects::default(), "the high watermark never falls within a term");
    assert_eq!(replica.high_watermark(), Offset(7));
}

#[test]
fn a_lost_leadership_is_told_and_commits_nothing_more() {
    let mut replica = leader(Durability::PageCache, &[1]);
    replica.step(Event::Appended { log_end: Offset(2) });
    let effects = replica.step(Event::Follow { leader: BrokerId(2), epoch: LeaderEpoch(4) });
    assert!(effects.role_ended);
    assert_eq!(replica.step(Event::Appended { log_end: Offset(9) }), Effects::default());
    replica.step(Event::Truncated { log_end: Offset(1) });
    assert_eq!(replica.high_watermark(), Offset(1));
}

#[test]
fn a_failed_log_ends_the_role_for_good() {
    let mut replica = leader(Durability::PageCache, &[1]);
    assert!(replica.step(Event::Failed).role_ended);
    let again = replica.step(Event::Lead { epoch: LeaderEpoch(9), isr: vec![ME] });
    assert_eq!(again, Effects::default());
    assert_eq!(*replica.role(), Role::Offline);
}

#[test]
fn what_was_checkpointed_but_cut_off_by_recovery_is_not_committed() {
    let replica =
        Replica::opened(ME, Durability::Fsync, Offset(2), Offset(5), Offset(5), Offset(9));
    assert_eq!(replica.high_watermark(), Offset(5));
    let replica =
        Replica::opened(ME, Durability::Fsync, Offset(2), Offset(5), Offset(5), Offset(0));
    assert_eq!(replica.high_watermark(), Offset(2));
}
