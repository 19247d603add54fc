//! An ordered map whose copies share what they have in common.
//!
//! Two levels: a list of sorted chunks behind an `Arc`, each chunk behind an `Arc`. Copying is one
//! count; the first change after a copy copies the list of chunks and one chunk. With 10,000
//! entries that is some 150 pointers and at most 128 entries, where a `BTreeMap` would copy all.
//! It is not a general map: only what the image needs.

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

const CHUNK_ENTRIES_MAX: usize = 128;

type Chunk<K, V> = Arc<Vec<(K, V)>>;

/// See the module. Copies are cheap and independent.
#[derive(Clone)]
pub struct SharedMap<K, V> {
    /// Invariant: no chunk is empty; keys rise strictly within and across chunks.
    chunks: Arc<Vec<Chunk<K, V>>>,
    /// Invariant: the sum of the chunks' lengths.
    count: usize,
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> SharedMap<K, V> {
        SharedMap { chunks: Arc::new(Vec::new()), count: 0 }
    }
}

impl<K, V> SharedMap<K, V> {
    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All entries in the order of their keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.chunks.iter().flat_map(|chunk| chunk.iter().map(|(key, value)| (key, value)))
    }

    /// All values in the order of their keys.
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// The chunk where a key is or would be: the last one that begins at or before it.
    fn chunk_of<Q: Ord + ?Sized>(&self, key: &Q) -> usize
    where
        K: Borrow<Q>,
    {
        self.chunks.partition_point(|chunk| chunk[0].0.borrow() <= key).saturating_sub(1)
    }

    /// The value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let chunk = self.chunks.get(self.chunk_of(key))?;
        let at = chunk.binary_search_by(|(other, _)| other.borrow().cmp(key)).ok()?;
        Some(&chunk[at].1)
    }

    /// Whether a key has a value.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }

    /// The value of a key, to change in place; copies what other copies of the map share.
    pub fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let which = self.chunk_of(key);
        let at = self.chunks.get(which)?.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
        let chunk = &mut Arc::make_mut(&mut self.chunks)[which];
        Some(&mut Arc::make_mut(chunk)[at].1)
    }

    /// Sets the value of a key; returns the one before.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        let which = self.chunk_of(&key);
        let chunks = Arc::make_mut(&mut self.chunks);
        if chunks.is_empty() {
            chunks.push(Arc::new(Vec::new()));
        }
        let chunk = Arc::make_mut(&mut chunks[which]);
        match chunk.binary_search_by(|(other, _)| other.cmp(&key)) {
            Ok(at) => return Some(std::mem::replace(&mut chunk[at].1, value)),
            Err(at) => chunk.insert(at, (key, value)),
        }
        if chunk.len() > CHUNK_ENTRIES_MAX {
            let upper = chunk.split_off(CHUNK_ENTRIES_MAX / 2);
            chunks.insert(which + 1, Arc::new(upper));
        }
        self.count += 1;
        None
    }

    /// Removes a key; returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let which = self.chunk_of(key);
        let at = self.chunks.get(which)?.binary_search_by(|(k, _)| k.borrow().cmp(key)).ok()?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let (_, value) = Arc::make_mut(&mut chunks[which]).remove(at);
        if chunks[which].is_empty() {
            chunks.remove(which);
        }
        self.count -= 1;
        Some(value)
    }
}

impl<K: PartialEq, V: PartialEq> PartialEq for SharedMap<K, V> {
    fn eq(&self, other: &SharedMap<K, V>) -> bool {
        Arc::ptr_eq(&self.chunks, &other.chunks)
            || self.count == other.count && self.iter().eq(other.iter())
    }
}

impl<K: Eq, V: Eq> Eq for SharedMap<K, V> {}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn behaves_as_a_btree_map(operations in prop::collection::vec((0u8..4, 0u16..400), 0..1500)) {
            let mut map = SharedMap::default();
            let mut model = BTreeMap::new();
            for (step, (operation, key)) in operations.into_iter().enumerate() {
                match operation {
                    0 | 1 => prop_assert_eq!(map.insert(key, step), model.insert(key, step)),
                    2 => prop_assert_eq!(map.remove(&key), model.remove(&key)),
                    _ => prop_assert_eq!(map.get_mut(&key), model.get_mut(&key)),
                }
                prop_assert_eq!(map.get(&key), model.get(&key));
                prop_assert_eq!(map.len(), model.len());
            }
            prop_assert!(map.iter().eq(model.iter()));
        }
    }

    #[test]
    fn a_copy_does_not_see_later_changes() {
        let mut map: SharedMap<u32, u32> = SharedMap::default();
        for key in 0..1000 {
            map.insert(key, key);
        }
        let copy = map.clone();
        map.insert(5, 500);
        map.remove(&900);
        assert_eq!((copy.get(&5), copy.get(&900)), (Some(&5), Some(&900)));
        assert_eq!((map.get(&5), map.get(&900)), (Some(&500), None));
    }

    #[test]
    fn a_change_after_a_copy_copies_one_chunk() {
        let mut map: SharedMap<u32, u32> = SharedMap::default();
        for key in 0..10_000 {
            map.insert(key, key);
        }
        let copy = map.clone();
        map.insert(5, 500);
        let shared = map.chunks.iter().zip(copy.chunks.iter()).filter(|(a, b)| Arc::ptr_eq(a, b));
        assert_eq!(shared.count(), copy.chunks.len() - 1);
    }
}
