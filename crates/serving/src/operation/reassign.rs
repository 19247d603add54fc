//! Which replicas of a topic go where: an even share for each broker, with as few copies as that takes; and the text in which
//! Kafka's own tool takes it.

use std::collections::BTreeMap;

use super::fields::Invalid;
use serde_json::{Value, json};

/// Partitions of one reassignment.
const MOVES_MAX: usize = 100_000;

/// A partition and the brokers that shall hold it; the first is preferred to lead.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// The topic.
    pub topic: String,
    /// The partition.
    pub partition: i32,
    /// Invariant: not empty, each broker once.
    pub replicas: Vec<i32>,
}

/// A broker that may hold copies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Its id.
    pub id: i32,
    /// Where it stands, if that is known.
    pub rack: Option<String>,
}

/// A proposal for partitions 0 and up of which these are the replicas now: `copies` of each on `brokers`, evenly; `None` if
/// there are fewer brokers than copies. What can stay stays; copies of a partition stand in several racks where that costs nothing.
pub fn propose(now: &[Vec<i32>], brokers: &[Candidate], copies: usize) -> Option<Vec<Vec<i32>>> {
    if copies == 0 || brokers.len() < copies {
        return None;
    }
    let mut load: BTreeMap<i32, usize> = brokers.iter().map(|broker| (broker.id, 0)).collect();
    let mut plan: Vec<Vec<i32>> =
        now.iter().map(|replicas| kept(replicas, &load, copies)).collect();
    for broker in plan.iter().flatten() {
        *load.get_mut(broker).expect("only candidates are kept") += 1;
    }
    for replicas in &mut plan {
        while replicas.len() < copies {
            let next = emptiest(replicas, brokers, &load);
            replicas.push(next);
            *load.get_mut(&next).expect("a candidate") += 1;
        }
    }
    level(&mut plan, &mut load);
    lead_evenly(&mut plan, &load);
    Some(plan)
}

fn kept(replicas: &[i32], load: &BTreeMap<i32, usize>, copies: usize) -> Vec<i32> {
    let mut kept: Vec<i32> = Vec::with_capacity(copies);
    for broker in replicas {
        if kept.len() < copies && load.contains_key(broker) && !kept.contains(broker) {
            kept.push(*broker);
        }
    }
    kept
}

/// The broker for one more copy: in a rack that has none yet, if there is one; then the one with the fewest copies.
fn emptiest(replicas: &[i32], brokers: &[Candidate], load: &BTreeMap<i32, usize>) -> i32 {
    let rack = |id: i32| brokers.iter().find(|b| b.id == id).and_then(|b| b.rack.as_deref());
    let taken: Vec<&str> = replicas.iter().filter_map(|id| rack(*id)).collect();
    let free = brokers.iter().filter(|broker| !replicas.contains(&broker.id));
    let next = free.min_by_key(|broker| {
        let is_doubled = broker.rack.as_deref().is_some_and(|rack| taken.contains(&rack));
        (is_doubled, load[&broker.id], broker.id)
    });
    next.expect("there are as many brokers as copies").id
}

/// Moves single copies from the fullest broker to the emptiest until they differ by one at most, or no partition can move.
fn level(plan: &mut [Vec<i32>], load: &mut BTreeMap<i32, usize>) {
    loop {
        let mut by_load: Vec<i32> = load.keys().copied().collect();
        by_load.sort_by_key(|id| (load[id], *id));
        let pairs = by_load.iter().rev().flat_map(|from| {
            let emptier = by_load.iter().filter(|to| load[to] + 1 < load[from]);
            emptier.map(|to| (*from, *to))
        });
        let found = pairs.into_iter().find_map(|(from, to)| {
            let movable = |replicas: &Vec<i32>| replicas.contains(&from) && !replicas.contains(&to);
            plan.iter().position(movable).map(|partition| (partition, from, to))
        });
        let Some((partition, from, to)) = found else { return };
        let replicas = &mut plan[partition];
        let place = replicas.iter().position(|id| *id == from).expect("it was found there");
        replicas[place] = to;
        *load.get_mut(&from).expect("a candidate") -= 1;
        *load.get_mut(&to).expect("a candidate") += 1;
        // Each move lessens the sum of the squares of the loads, so this ends.
    }
}

/// Orders replicas so that each broker is preferred to lead about as many partitions as any other.
fn lead_evenly(plan: &mut [Vec<i32>], load: &BTreeMap<i32, usize>) {
    let mut leads: BTreeMap<i32, usize> = load.keys().map(|id| (*id, 0)).collect();
    for replicas in plan.iter() {
        *leads.get_mut(&replicas[0]).expect("a candidate") += 1;
    }
    loop {
        let step = plan.iter_mut().find_map(|replicas| {
            let first = replicas[0];
            let better =
                (1..replicas.len()).find(|at| leads[&replicas[*at]] + 1 < leads[&first])?;
            replicas.swap(0, better);
            Some((first, replicas[0]))
        });
        let Some((from, to)) = step else { return };
        *leads.get_mut(&from).expect("a candidate") -= 1;
        *leads.get_mut(&to).expect("a candidate") += 1;
    }
}

/// Moves in the form of `kafka-reassign-partitions.sh`.
pub fn text_of(moves: &[Move]) -> String {
    let partition = |step: &Move| json!({ "topic": step.topic, "partition": step.partition, "replicas": step.replicas });
    let partitions: Vec<Value> = moves.iter().map(partition).collect();
    json!({ "version": 1, "partitions": partitions }).to_string()
}

/// The moves in such a text.
///
/// # Errors
/// It is none, names nothing, or names a partition twice.
pub fn moves_of(text: &str) -> Result<Vec<Move>, Invalid> {
    let invalid = |words: &str| Invalid::new("moves", words);
    let value: Value = serde_json::from_str(text).map_err(|why| invalid(&why.to_string()))?;
    let partitions = value["partitions"].as_array().filter(|list| !list.is_empty());
    let partitions = partitions.ok_or_else(|| invalid("expected a list \"partitions\""))?;
    if partitions.len() > MOVES_MAX {
        return Err(invalid("expected at most 100000 partitions"));
    }
    let mut moves = Vec::with_capacity(partitions.len());
    for partition in partitions {
        let step = step(partition).ok_or_else(|| {
            invalid("expected topic, partition and replicas, each broker once, of every partition")
        })?;
        moves.push(step);
    }
    let mut names: Vec<_> = moves.iter().map(|step| (&step.topic, step.partition)).collect();
    names.sort();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(invalid(&format!("partition {} of {} is named twice", twice[0].1, twice[0].0)));
    }
    Ok(moves)
}

fn step(value: &Value) -> Option<Move> {
    let id = |value: &Value| i32::try_from(value.as_i64()?).ok().filter(|id| *id >= 0);
    let replicas: Vec<i32> = value["replicas"].as_array()?.iter().map(id).collect::<Option<_>>()?;
    let mut sorted = replicas.clone();
    sorted.sort();
    let is_each_once = sorted.windows(2).all(|pair| pair[0] != pair[1]);
    (!replicas.is_empty() && is_each_once).then_some(Move {
        topic: value["topic"].as_str()?.to_owned(),
        partition: id(&value["partition"])?,
        replicas,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn brokers(ids: &[i32]) -> Vec<Candidate> {
        ids.iter().map(|id| Candidate { id: *id, rack: None }).collect()
    }

    #[test]
    fn what_is_even_stays() {
        let now = vec![vec![1, 2], vec![2, 3], vec![3, 1]];
        assert_eq!(propose(&now, &brokers(&[1, 2, 3]), 2), Some(now));
    }

    #[test]
    fn a_broker_that_leaves_hands_its_copies_to_the_others() {
        let now = vec![vec![1, 2], vec![2, 3], vec![3, 1]];
        let plan = propose(&now, &brokers(&[1, 2]), 2).unwrap();
        assert!(
            plan.iter().all(|replicas| replicas.len() == 2 && !replicas.contains(&3)),
            "{plan:?}"
        );
        assert_eq!(propose(&now, &brokers(&[1]), 2), None);
        assert_eq!(propose(&now, &brokers(&[1]), 0), None);
    }

    #[test]
    fn copies_go_to_racks_that_have_none() {
        let rack = |id, rack: &str| Candidate { id, rack: Some(rack.to_owned()) };
        let brokers = [rack(1, "a"), rack(2, "a"), rack(3, "b")];
        let plan = propose(&[vec![1]], &brokers, 2).unwrap();
        assert_eq!(plan, [[1, 3]]);
    }

    #[test]
    fn texts_that_are_no_plan_are_refused() {
        for text in [
            "",
            "[]",
            "{\"partitions\":[]}",
            "{\"partitions\":[{}]}",
            "{\"partitions\":[{\"topic\":\"t\",\"partition\":0,\"replicas\":[]}]}",
            "{\"partitions\":[{\"topic\":\"t\",\"partition\":0,\"replicas\":[1,1]}]}",
            "{\"partitions\":[{\"topic\":\"t\",\"partition\":-1,\"replicas\":[1]}]}",
            "{\"partitions\":[{\"topic\":\"t\",\"partition\":0,\"replicas\":[1]},{\"topic\":\"t\",\"partition\":0,\"replicas\":[2]}]}",
        ] {
            assert!(moves_of(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_proposal_is_even_and_whole(
            now in prop::collection::vec(prop::collection::vec(0i32..8, 1..4), 0..30),
            count in 1usize..7,
            copies in 1usize..4,
        ) {
            let ids: Vec<i32> = (0..count as i32).collect();
            let plan = propose(&now, &brokers(&ids), copies);
            prop_assert_eq!(plan.is_some(), copies <= count);
            let Some(plan) = plan else { return Ok(()) };
            prop_assert_eq!(plan.len(), now.len());
            let mut load = vec![0usize; count];
            for replicas in &plan {
                let mut sorted = replicas.clone();
                sorted.sort();
                sorted.dedup();
                prop_assert_eq!(sorted.len(), copies);
                for id in replicas {
                    load[*id as usize] += 1;
                }
            }
            prop_assert!(load.iter().max().unwrap() - load.iter().min().unwrap() <= 1, "{:?}", load);
            // What is even already is not touched.
            prop_assert_eq!(propose(&plan, &brokers(&ids), copies), Some(plan.clone()));
        }

        #[test]
        fn a_plan_comes_back(topic: String, partition in 0i32.., replicas in prop::collection::btree_set(0i32.., 1..5)) {
            let moves = vec![Move { topic, partition, replicas: replicas.into_iter().collect() }];
            prop_assert_eq!(moves_of(&text_of(&moves)), Ok(moves));
        }
    }
}
