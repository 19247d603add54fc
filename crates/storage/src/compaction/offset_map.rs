//! For every key, the offset of its last record: the memory of a compaction, with a bound.
//!
//! Keys are kept as keyed 128-bit hashes, 24 bytes an entry whatever their length. The key of the
//! hash is the caller's, so that no client can make two keys of records collide.

use std::hash::Hasher;

use model::Offset;
use siphasher::sip128::{Hasher128, SipHasher13};

/// What marks a slot without an entry.
const VACANT: i64 = -1;
const LEAST_SLOTS: usize = 1024;

#[derive(Clone, Copy)]
struct Slot {
    hash: [u64; 2],
    offset: i64,
}

const VACANT_SLOT: Slot = Slot { hash: [0; 2], offset: VACANT };

/// The memory is full: the key was not taken in.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Full;

/// From a key's hash to the last offset. Open addressing, linear probing.
pub(super) struct OffsetMap {
    slots: Vec<Slot>,
    count: usize,
    slots_max: usize,
    hash_key: [u64; 2],
}

impl OffsetMap {
    /// A map that never takes more than `memory_bytes`, not even while it grows.
    pub(super) fn new(memory_bytes: usize, hash_key: [u64; 2]) -> OffsetMap {
        // While it grows, the old slots are there beside twice as many new ones.
        let slots_max = (memory_bytes / size_of::<Slot>() * 2 / 3).max(2);
        let slots = vec![VACANT_SLOT; LEAST_SLOTS.min(slots_max)];
        OffsetMap { slots, count: 0, slots_max, hash_key }
    }

    fn hash(&self, key: &[u8]) -> [u64; 2] {
        let mut hasher = SipHasher13::new_with_keys(self.hash_key[0], self.hash_key[1]);
        hasher.write(key);
        let hash = hasher.finish128();
        [hash.h1, hash.h2]
    }

    /// The slot of a hash: its own, or the vacant one where it belongs.
    fn find(slots: &[Slot], hash: [u64; 2]) -> usize {
        let mut at = (hash[0] % slots.len() as u64) as usize;
        while slots[at].offset != VACANT && slots[at].hash != hash {
            at = if at + 1 == slots.len() { 0 } else { at + 1 };
        }
        at
    }

    /// Notes the last offset of a key; offsets rise from call to call.
    pub(super) fn put(&mut self, key: &[u8], offset: Offset) -> Result<(), Full> {
        let hash = self.hash(key);
        let mut at = OffsetMap::find(&self.slots, hash);
        if self.slots[at].offset == VACANT {
            if self.count * 10 >= self.slots.len() * 9 || self.count + 1 == self.slots.len() {
                self.grow()?;
                at = OffsetMap::find(&self.slots, hash);
            }
            self.count += 1;
        }
        self.slots[at] = Slot { hash, offset: offset.0 };
        Ok(())
    }

    fn grow(&mut self) -> Result<(), Full> {
        if self.slots.len() >= self.slots_max {
            return Err(Full);
        }
        let mut larger = vec![VACANT_SLOT; (self.slots.len() * 2).min(self.slots_max)];
        for slot in self.slots.iter().filter(|slot| slot.offset != VACANT) {
            let at = OffsetMap::find(&larger, slot.hash);
            larger[at] = *slot;
        }
        self.slots = larger;
        Ok(())
    }

    /// The last offset of a key, if it was noted.
    pub(super) fn get(&self, key: &[u8]) -> Option<Offset> {
        let slot = &self.slots[OffsetMap::find(&self.slots, self.hash(key))];
        (slot.offset != VACANT).then_some(Offset(slot.offset))
    }

    /// How many keys there are.
    pub(super) fn len(&self) -> usize {
        self.count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_offset_of_each_key_is_known() {
        let mut map = OffsetMap::new(1 << 20, [1, 2]);
        for n in 0..20_000i64 {
            map.put(&(n % 5000).to_le_bytes(), Offset(n)).unwrap();
        }
        assert_eq!(map.len(), 5000);
        for n in 0..5000i64 {
            assert_eq!(map.get(&n.to_le_bytes()), Some(Offset(15_000 + n)));
        }
        assert_eq!(map.get(b"never seen"), None);
    }

    #[test]
    fn it_keeps_to_its_memory() {
        for memory_bytes in [0, 100, 24 * 1024 * 3] {
            let mut map = OffsetMap::new(memory_bytes, [0, 0]);
            let mut taken = 0i64;
            while map.put(&taken.to_le_bytes(), Offset(taken)) == Ok(()) {
                taken += 1;
            }
            assert!(taken > 0 && map.slots.len() <= (memory_bytes / 24).max(2));
            map.put(&0i64.to_le_bytes(), Offset(taken)).expect("a known key needs no room");
            assert_eq!(map.get(&0i64.to_le_bytes()), Some(Offset(taken)));
        }
    }
}
