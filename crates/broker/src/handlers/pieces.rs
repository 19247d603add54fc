//! Long lists of a request, decided piece by piece: the memory of decisions is held for one piece at a time.

use std::cmp::Ordering;
use std::vec::IntoIter;

/// Items of one decision.
const PIECE_ITEMS_MAX: usize = 1000;

/// The items of a request. A list that fits into one piece keeps its order; a longer one is sorted by key, so that items of
/// one key are in one piece. Of equal keys two items are kept: enough for the controller to refuse them.
pub struct Pieces<T> {
    items: IntoIter<T>,
    compare: fn(&T, &T) -> Ordering,
    keys: usize,
}

impl<T> Pieces<T> {
    /// `compare`: the order of the items' keys.
    pub fn new(mut items: Vec<T>, compare: fn(&T, &T) -> Ordering) -> Pieces<T> {
        let keys = if items.len() > PIECE_ITEMS_MAX {
            items.sort_by(compare);
            let mut repeats = 0;
            items.dedup_by(|next, kept| {
                repeats = if compare(next, kept).is_eq() { repeats + 1 } else { 0 };
                repeats > 1
            });
            count_keys(items.iter(), compare)
        } else {
            let mut sorted: Vec<&T> = items.iter().collect();
            sorted.sort_by(|one, other| compare(one, other));
            count_keys(sorted.into_iter(), compare)
        };
        Pieces { items: items.into_iter(), compare, keys }
    }

    /// Count of different keys in all pieces.
    pub fn keys(&self) -> usize {
        self.keys
    }
}

impl<T> Iterator for Pieces<T> {
    type Item = Vec<T>;

    fn next(&mut self) -> Option<Vec<T>> {
        let left = self.items.as_slice();
        let mut count = left.len().min(PIECE_ITEMS_MAX);
        while count > 0
            && count < left.len()
            && (self.compare)(&left[count - 1], &left[count]).is_eq()
        {
            count += 1;
        }
        (count > 0).then(|| self.items.by_ref().take(count).collect())
    }
}

/// Count of different keys of sorted items.
fn count_keys<'a, T: 'a>(
    sorted: impl Iterator<Item = &'a T>,
    compare: fn(&T, &T) -> Ordering,
) -> usize {
    let mut before: Option<&T> = None;
    let is_new = |item: &&'a T| {
        let is_new = before.is_none_or(|before| compare(before, item).is_ne());
        before = Some(*item);
        is_new
    };
    sorted.filter(is_new).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(items: Vec<u32>) -> Pieces<u32> {
        Pieces::new(items, Ord::cmp)
    }

    #[test]
    fn a_short_list_is_one_piece_in_its_order() {
        let mut short = pieces(vec![3, 1, 3, 2]);
        assert_eq!(short.keys(), 3);
        assert_eq!(short.next(), Some(vec![3, 1, 3, 2]));
        assert_eq!(short.next(), None);
        assert_eq!(pieces(Vec::new()).next(), None);
    }

    #[test]
    fn equal_keys_of_a_long_list_are_in_one_piece() {
        let mut items: Vec<u32> = (0..2_500).rev().collect();
        items.extend([7; 5_000]);
        // The end of the first piece, because 7 is there twice.
        items.push(998);
        let long = pieces(items);
        assert_eq!(long.keys(), 2_500);
        let all: Vec<Vec<u32>> = long.collect();
        assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [1_001, 1_000, 501]);
        assert_eq!(all[0][7..9], [7, 7]);
        assert_eq!(all[0][999..], [998, 998]);
        assert!(all.concat().is_sorted());
    }
}
