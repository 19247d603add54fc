//! Removes repeated items of a request before the broker serves it.
//!
//! An item costs the client a few bytes, its answer up to hundreds of kilobytes. A request that repeats one
//! item gets at most the answer of that item, so that the size of a request bounds the size of its answer.
//! Kafka answers repeats one by one or refuses them; its clients never send any.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// Keeps the first item of each key, in order.
pub fn keep_first<T, K: Hash + Eq>(items: &mut Vec<T>, key: impl Fn(&T) -> K) {
    let mut seen = HashSet::with_capacity(items.len());
    items.retain(|item| seen.insert(key(item)));
}

/// Keeps the first mention of each partition of each topic, in order. Drops a topic that repeats an earlier one
/// and adds no partition to it.
pub fn keep_first_partitions<T, K: Hash + Eq, P>(
    topics: &mut Vec<T>,
    key: impl Fn(&T) -> K,
    partitions: impl Fn(&mut T) -> &mut Vec<P>,
    index: impl Fn(&P) -> i32,
) {
    let mut seen: HashMap<K, HashSet<i32>> = HashMap::with_capacity(topics.len());
    topics.retain_mut(|topic| {
        let key = key(topic);
        let is_repeated = seen.contains_key(&key);
        let known = seen.entry(key).or_default();
        let partitions = partitions(topic);
        partitions.retain(|partition| known.insert(index(partition)));
        !(is_repeated && partitions.is_empty())
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_mention_of_each_partition_stays_in_its_topic() {
        let mut topics = vec![
            ("a", vec![1, 1, 2]),
            ("b", vec![]),
            ("a", vec![2, 3]),
            ("a", vec![1]),
            ("b", vec![]),
        ];
        keep_first_partitions(&mut topics, |topic| topic.0, |topic| &mut topic.1, |index| *index);
        assert_eq!(topics, [("a", vec![1, 2]), ("b", vec![]), ("a", vec![3])]);
    }

    #[test]
    fn the_first_item_of_each_key_stays() {
        let mut items = vec![(1, 'a'), (2, 'b'), (1, 'c')];
        keep_first(&mut items, |item| item.0);
        assert_eq!(items, [(1, 'a'), (2, 'b')]);
    }
}
