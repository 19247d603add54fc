//! The table of idempotency keys, step by step and against a model that keeps everything in a list.

use std::time::Duration;

use model::Moment;
use proptest::prelude::*;
use serving::idempotency::{Begin, Fingerprint, Limits, Name, Seal, Table, Ticket};

type Outcomes = Table<&'static str, u32, u32>;

fn name(key: u8) -> Name {
    Name { principal: "ann".to_owned(), path: "/topics/t".to_owned(), key: key.to_string() }
}

fn sealed(name: &Name) -> Fingerprint {
    name.sealed(&Seal::new([1, 2]))
}

fn begin(table: &mut Outcomes, now: Moment, key: u8, body: u128, waiter: u32) -> Begin<u32> {
    table.begin(now, sealed(&name(key)), "ann", Fingerprint(body), 100, || waiter)
}

fn sent(begin: Begin<u32>) -> Ticket {
    match begin {
        Begin::Send(ticket) => ticket,
        other => panic!("{other:?}"),
    }
}

const NOW: Moment = Moment(1_000_000);

#[test]
fn a_request_is_carried_out_once_and_answered_as_often_as_it_comes() {
    let mut table = Outcomes::new(Limits::default());
    let ticket = sent(begin(&mut table, NOW, 1, 7, 0));
    assert_eq!(begin(&mut table, NOW, 1, 7, 10), Begin::Wait);
    assert_eq!(begin(&mut table, NOW, 1, 7, 11), Begin::Wait);
    assert_eq!(table.finish(ticket, NOW, 42, 50), [10, 11]);
    assert_eq!(begin(&mut table, NOW, 1, 7, 12), Begin::Replay(42));
    let until = NOW.plus(Limits::default().kept);
    assert_eq!(begin(&mut table, Moment(until.0 - 1), 1, 7, 12), Begin::Replay(42));
    let ticket = sent(begin(&mut table, until, 1, 7, 12));
    assert!(table.abandon(ticket).is_empty());
    assert_eq!((table.len(), table.bytes()), (0, 0));
}

#[test]
fn another_request_with_the_key_is_refused_before_and_after_the_first_is_decided() {
    let mut table = Outcomes::new(Limits::default());
    let ticket = sent(begin(&mut table, NOW, 1, 7, 0));
    assert_eq!(begin(&mut table, NOW, 1, 8, 0), Begin::OtherRequest);
    assert!(table.finish(ticket, NOW, 42, 50).is_empty());
    assert_eq!(begin(&mut table, NOW, 1, 8, 0), Begin::OtherRequest);
}

#[test]
fn a_key_of_another_user_or_path_is_another_key() {
    let mut table = Outcomes::new(Limits::default());
    let mut names = vec![name(1), name(1), name(1), name(2)];
    names[1].principal = "bob".to_owned();
    names[2].path = "/topics/u".to_owned();
    for name in names {
        assert!(matches!(
            table.begin(NOW, sealed(&name), "ann", Fingerprint(0), 0, || 0),
            Begin::Send(_)
        ));
    }
}

#[test]
fn a_request_of_which_nothing_was_carried_out_may_come_again() {
    let mut table = Outcomes::new(Limits::default());
    let ticket = sent(begin(&mut table, NOW, 1, 7, 0));
    assert_eq!(begin(&mut table, NOW, 1, 7, 10), Begin::Wait);
    assert_eq!(table.abandon(ticket), [10]);
    let _ticket = sent(begin(&mut table, NOW, 1, 8, 0));
}

#[test]
fn what_is_undecided_is_waited_for_however_long_it_takes() {
    let mut table = Outcomes::new(Limits::default());
    let ticket = sent(begin(&mut table, NOW, 1, 7, 0));
    let later = NOW.plus(Duration::from_secs(86_400));
    table.expire(later);
    assert_eq!(begin(&mut table, later, 1, 7, 10), Begin::Wait);
    assert_eq!(table.finish(ticket, later, 504, 4), [10]);
    assert_eq!(begin(&mut table, later, 1, 7, 10), Begin::Replay(504));
}

#[test]
fn a_full_table_takes_no_key_and_forgets_none() {
    let limits = Limits { entries_max: 2, ..Limits::default() };
    let mut table = Outcomes::new(limits);
    let first = sent(begin(&mut table, NOW, 1, 7, 0));
    let second = sent(begin(&mut table, NOW, 2, 7, 0));
    assert_eq!(begin(&mut table, NOW, 3, 7, 0), Begin::Full);
    table.finish(first, NOW, 1, 10);
    assert_eq!(begin(&mut table, NOW, 3, 7, 0), Begin::Full);
    assert_eq!(begin(&mut table, NOW, 1, 7, 0), Begin::Replay(1));
    assert_eq!(begin(&mut table, NOW, 2, 7, 5), Begin::Wait);
    assert_eq!(table.finish(second, NOW, 2, 10), [5]);
    let _ticket = sent(begin(&mut table, NOW.plus(limits.kept), 3, 7, 0));
}

#[test]
fn room_for_the_outcome_is_set_aside_at_the_beginning() {
    let limits = Limits { bytes_max: 4000, ..Limits::default() };
    let mut table = Outcomes::new(limits);
    let begin = |table: &mut Outcomes, key, bytes| {
        table.begin(NOW, sealed(&name(key)), "ann", Fingerprint(0), bytes, || 0)
    };
    assert_eq!(begin(&mut table, 1, 4000), Begin::Full);
    let ticket = sent(begin(&mut table, 1, 2600));
    assert_eq!(begin(&mut table, 2, 2600), Begin::Full);
    let waiting = std::iter::from_fn(|| (begin(&mut table, 1, 0) == Begin::Wait).then_some(()));
    assert!((1..20).contains(&waiting.count()), "requests that wait are charged");
    assert_eq!(begin(&mut table, 1, 0), Begin::Full);
    table.finish(ticket, NOW, 1, 10);
    let _ticket = sent(begin(&mut table, 2, 2000));
}

/// Begins and finishes a request; false if there is no room.
fn complete(table: &mut Table<usize, u32, u32>, owner: usize, key: u64) -> bool {
    let name = Fingerprint(u128::from(key) << 64 | (owner as u128) << 32 | u128::from(key));
    match table.begin(NOW, name, owner, Fingerprint(0), 100, || 0) {
        Begin::Send(ticket) => drop(table.finish(ticket, NOW, 1, 40)),
        Begin::Full => return false,
        other => panic!("{other:?}"),
    }
    true
}

#[test]
fn each_of_several_owners_gets_its_part_of_a_full_table() {
    for owners in [2, 4, 8] {
        let limits = Limits { bytes_max: 1 << 20, ..Limits::default() };
        let mut table = Table::new(limits);
        // One after the other: the first one alone has all, and each further one takes its part of those before it.
        let fill = |table: &mut Table<usize, u32, u32>, owner: usize| {
            (0..).take_while(|key| complete(table, owner, *key)).count()
        };
        let alone = fill(&mut table, 0);
        assert!(alone > 2_000, "{alone}");
        for owner in 1..owners {
            let count = fill(&mut table, owner);
            let part = alone / (owner + 1);
            assert!(count * 10 >= part * 6, "owner {owner} has {count} keys of {part}");
        }
        assert!(table.bytes() <= limits.bytes_max);
        table.expire(NOW.plus(limits.kept));
        assert_eq!((table.len(), table.bytes()), (0, 0), "nothing stays behind");
    }
}

#[test]
fn a_key_whose_outcome_is_forgotten_is_never_carried_out_again() {
    let limits = Limits { bytes_max: 1 << 20, ..Limits::default() };
    let mut table = Table::new(limits);
    let of_hog = (0..).take_while(|key| complete(&mut table, 0, *key)).count() as u64;
    let of_other = (0..).take_while(|key| complete(&mut table, 1, *key)).count() as u64;
    let mut begin = |owner: usize, key: u64| {
        let name = Fingerprint(u128::from(key) << 64 | (owner as u128) << 32 | u128::from(key));
        table.begin(NOW, name, owner, Fingerprint(0), 100, || 0)
    };
    let hog: Vec<_> = (0..of_hog).map(|key| begin(0, key)).collect();
    let forgotten = hog.iter().take_while(|begun| **begun == Begin::Forgotten).count();
    assert!(forgotten > 0 && forgotten < hog.len(), "{forgotten} of {}", hog.len());
    assert!(hog[forgotten..].iter().all(|begun| *begun == Begin::Replay(1)), "the oldest ones go");
    assert!((0..of_other).all(|key| begin(1, key) == Begin::Replay(1)), "the other has its part");
    // Behind its time a forgotten key is free, as any other.
    let later = NOW.plus(limits.kept);
    let begun = table.begin(later, Fingerprint(0), 0, Fingerprint(0), 100, || 0);
    assert!(matches!(begun, Begin::Send(_)), "{begun:?}");
}

#[test]
fn what_is_under_way_is_not_forgotten() {
    let limits = Limits { bytes_max: 64 << 10, ..Limits::default() };
    let mut table = Table::<usize, u32, u32>::new(limits);
    let tickets: Vec<_> = (0..)
        .map_while(|key| match table.begin(NOW, Fingerprint(key), 0, Fingerprint(0), 100, || 0) {
            Begin::Send(ticket) => Some(ticket),
            _ => None,
        })
        .collect();
    assert!(!complete(&mut table, 1, 1 << 40), "nothing is decided that could be forgotten");
    for ticket in tickets {
        assert!(table.finish(ticket, NOW, 1, 40).is_empty());
    }
    assert!(complete(&mut table, 1, 1 << 40));
}

/// A step of the model.
#[derive(Debug, Clone)]
enum Step {
    Begin { key: u8, body: u8 },
    Finish { at: usize, outcome: u32 },
    Abandon { at: usize },
    Pass { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u8, 0..2u8).prop_map(|(key, body)| Step::Begin { key, body }),
        2 => (any::<usize>(), any::<u32>()).prop_map(|(at, outcome)| Step::Finish { at, outcome }),
        1 => any::<usize>().prop_map(|at| Step::Abandon { at }),
        1 => (0..400u64).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

/// What the model knows of a key.
struct Known {
    key: u8,
    body: u8,
    waiting: Vec<u32>,
    decided: Option<(Moment, u32)>,
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_table_does_what_a_list_of_everything_would(steps in prop::collection::vec(step(), 1..80)) {
        let limits = Limits { entries_max: 4, ..Limits::default() };
        let mut table = Outcomes::new(limits);
        let (mut model, mut tickets): (Vec<Known>, Vec<(u8, Ticket)>) = (Vec::new(), Vec::new());
        let (mut now, mut waiter) = (NOW, 0);
        for step in steps {
            match step {
                Step::Pass { seconds } => now = now.plus(Duration::from_secs(seconds)),
                Step::Begin { key, body } => {
                    model.retain(|k| k.decided.is_none_or(|(at, _)| now.since(at) < limits.kept));
                    waiter += 1;
                    let begun = begin(&mut table, now, key, u128::from(body), waiter);
                    let room = model.len() < limits.entries_max;
                    match (model.iter_mut().find(|known| known.key == key), begun) {
                        (None, Begin::Send(ticket)) if room => {
                            tickets.push((key, ticket));
                            model.push(Known { key, body, waiting: Vec::new(), decided: None });
                        }
                        (None, Begin::Full) => prop_assert!(!room),
                        (Some(known), Begin::OtherRequest) => prop_assert_ne!(known.body, body),
                        (Some(known), Begin::Replay(outcome)) => {
                            prop_assert_eq!(known.body, body);
                            prop_assert_eq!(known.decided.map(|(_, outcome)| outcome), Some(outcome));
                        }
                        (Some(known), Begin::Wait) => {
                            prop_assert!(known.body == body && known.decided.is_none());
                            known.waiting.push(waiter);
                        }
                        (_, other) => prop_assert!(false, "{:?}", other),
                    }
                }
                Step::Finish { at, outcome } if !tickets.is_empty() => {
                    let (key, ticket) = tickets.swap_remove(at % tickets.len());
                    let known = model.iter_mut().find(|known| known.key == key).unwrap();
                    known.decided = Some((now, outcome));
                    let woken = table.finish(ticket, now, outcome, 10);
                    prop_assert_eq!(woken, std::mem::take(&mut known.waiting));
                }
                Step::Abandon { at } if !tickets.is_empty() => {
                    let (key, ticket) = tickets.swap_remove(at % tickets.len());
                    let place = model.iter().position(|known| known.key == key).unwrap();
                    prop_assert_eq!(table.abandon(ticket), model.remove(place).waiting);
                }
                Step::Finish { .. } | Step::Abandon { .. } => {}
            }
        }
        for (_, ticket) in tickets {
            table.abandon(ticket);
        }
        table.expire(now.plus(limits.kept));
        prop_assert_eq!((table.len(), table.bytes()), (0, 0));
    }
}
