//! Decisions that are too large for one entry: cut into parts by who decides, gathered by who applies.
//!
//! A message between members carries entries whole, and an entry that makes ten thousand partitions would
//! hold up heartbeats behind it.

use crate::raft::LogId;
use ledger::Part;
use std::sync::Arc;

/// The parts of a decision whose records are these lines; `None` if one entry holds them.
pub(crate) fn cut(lines: &[u8], bytes_max: usize) -> Option<Vec<Part>> {
    if lines.len() <= bytes_max {
        return None;
    }
    let mut parts = Vec::new();
    let mut rest = lines;
    while !rest.is_empty() {
        let (text, more) = rest.split_at(boundary(rest, bytes_max));
        let number = u32::try_from(parts.len()).expect("nobody decides so much at once");
        parts.push(Part { number, is_last: more.is_empty(), text: Arc::from(text) });
        rest = more;
    }
    Some(parts)
}

/// Where the first so many bytes of a text end, between two characters.
fn boundary(text: &[u8], bytes_max: usize) -> usize {
    if text.len() <= bytes_max {
        return text.len();
    }
    let is_inside = |at: &usize| text[*at] & 0xc0 == 0x80;
    let at = (1..=bytes_max).rev().find(|at| !is_inside(at));
    at.unwrap_or(bytes_max)
}

/// The first parts of a decision.
#[derive(Clone)]
pub(crate) struct Gathered {
    /// The entry before the first of them.
    before: Option<LogId>,
    /// The entry of the newest.
    last: LogId,
    /// How many there are.
    count: u32,
    text: Vec<u8>,
}

impl Gathered {
    /// With one more, whose entry is `at`, behind the entry `before`. `None` if it does not go on with them:
    /// then something of the decision is missing, and none of it happens.
    pub(crate) fn add(
        earlier: Option<Gathered>,
        before: Option<LogId>,
        at: LogId,
        part: &Part,
    ) -> Option<Gathered> {
        let mut gathered = match earlier {
            _ if part.number == 0 => Gathered { before, last: at, count: 0, text: Vec::new() },
            Some(earlier) => earlier,
            None => return None,
        };
        let follows = part.number == 0
            || (gathered.last.leader_id == at.leader_id && gathered.last.index + 1 == at.index);
        if !follows || gathered.count != part.number {
            return None;
        }
        gathered.last = at;
        gathered.count += 1;
        gathered.text.extend_from_slice(&part.text);
        Some(gathered)
    }

    /// The entry before the first part.
    pub(crate) fn before(&self) -> Option<LogId> {
        self.before
    }

    /// What the parts say together.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::LeaderId;

    fn at(term: u64, index: u64) -> LogId {
        LogId::new(LeaderId { term, node_id: 1 }, index)
    }

    fn gather(parts: &[Part], entries: &[LogId]) -> Option<Gathered> {
        let mut gathered = None;
        for (part, entry) in parts.iter().zip(entries) {
            gathered = Some(Gathered::add(gathered.take(), Some(at(1, 4)), *entry, part)?);
        }
        gathered
    }

    #[test]
    fn parts_are_cut_between_characters_and_come_together_again() {
        let lines = "{\"name\":\"Zürich €\"}\n".repeat(20);
        assert_eq!(cut(lines.as_bytes(), lines.len()), None);
        for bytes_max in [4, 5, 7, 64, lines.len() - 1] {
            let parts = cut(lines.as_bytes(), bytes_max).unwrap();
            assert!(parts.iter().all(|part| std::str::from_utf8(&part.text).is_ok()));
            assert!(parts.iter().all(|part| part.text.len() <= bytes_max));
            assert_eq!(parts.iter().filter(|part| part.is_last).count(), 1);
            let entries: Vec<LogId> = (5..).take(parts.len()).map(|index| at(1, index)).collect();
            let gathered = gather(&parts, &entries).unwrap();
            assert_eq!((gathered.text(), gathered.before()), (lines.as_bytes(), Some(at(1, 4))));
        }
    }

    #[test]
    fn a_part_that_is_missing_or_of_another_leader_spoils_all() {
        let parts = cut(b"abcdef", 2).unwrap();
        assert!(gather(&parts[1..], &[at(1, 5), at(1, 6)]).is_none(), "the first is missing");
        assert!(gather(&parts, &[at(1, 5), at(1, 7), at(1, 8)]).is_none(), "something between");
        assert!(gather(&parts, &[at(1, 5), at(1, 6), at(2, 7)]).is_none(), "another leader");
        let [first, _, third] = &parts[..] else { panic!() };
        let skipped = [first.clone(), third.clone()];
        assert!(gather(&skipped, &[at(1, 5), at(1, 6)]).is_none(), "one is missing");
        // A decision that begins anew leaves the one before behind.
        let again = [first.clone(), first.clone()];
        assert_eq!(gather(&again, &[at(1, 5), at(1, 6)]).unwrap().text(), b"ab");
    }
}
