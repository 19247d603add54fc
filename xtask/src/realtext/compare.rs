//! The check itself: what came back is what went in, line for line; if not, what happened.

use std::fmt;

/// How many lines after a difference must agree before it is given a name.
const SURE: usize = 8;

/// The first thing that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub enum Fault {
    /// Lines of the text did not come back from this line on (counted from 1).
    Missing(usize),
    /// This line came again.
    Twice(usize),
    /// This line came at another place.
    Moved(usize),
    /// This line came back with other bytes.
    Changed(usize),
    /// More came back than the text has.
    Extra(usize),
}

impl fmt::Display for Fault {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(line) => write!(formatter, "line {line} is missing"),
            Self::Twice(line) => write!(formatter, "line {line} came twice"),
            Self::Moved(line) => write!(formatter, "line {line} is not in its place"),
            Self::Changed(line) => write!(formatter, "line {line} came back changed"),
            Self::Extra(line) => write!(formatter, "after line {line} comes what was never sent"),
        }
    }
}

/// Compares byte for byte, every line with its line feed; names the first fault.
pub fn same_lines(sent: &[u8], received: &[u8]) -> Result<(), Fault> {
    if sent == received {
        return Ok(());
    }
    let sent: Vec<&[u8]> = sent.split_inclusive(|byte| *byte == b'\n').collect();
    let received: Vec<&[u8]> = received.split_inclusive(|byte| *byte == b'\n').collect();
    let at = sent.iter().zip(&received).take_while(|(a, b)| a == b).count();
    Err(name(&sent, &received, at))
}

/// Names the fault at line index `at`, the first that differs.
fn name(sent: &[&[u8]], received: &[&[u8]], at: usize) -> Fault {
    let goes_on = |from: usize, to: usize| {
        let agree = sent[from..].iter().zip(&received[to..]).take(SURE).all(|(a, b)| a == b);
        agree && sent.len() - from == received.len() - to
            || agree && from + SURE <= sent.len() && to + SURE <= received.len()
    };
    if at >= received.len() {
        return Fault::Missing(at + 1);
    }
    if at >= sent.len() {
        let again = sent.contains(&received[at]);
        return if again { Fault::Twice(at) } else { Fault::Extra(at) };
    }
    if let Some(before) = (1..=at.min(100_000)).find(|before| goes_on(at - before, at)) {
        return Fault::Twice(at - before + 1);
    }
    let elsewhere = sent.len() == received.len() && received[at..].contains(&sent[at]);
    let gap = (1..sent.len() - at).any(|gap| goes_on(at + gap, at));
    match (elsewhere, gap) {
        (true, _) => Fault::Moved(at + 1),
        (false, true) => Fault::Missing(at + 1),
        (false, false) => Fault::Changed(at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: usize = 5000;

    /// Different lines, every fifth one empty, as in the real text.
    fn text() -> Vec<String> {
        let line = |i| if i % 5 == 0 { "\n".to_owned() } else { format!("line number {i}\n") };
        (0..LINES).map(line).collect()
    }

    fn check(received: &[String]) -> Result<(), Fault> {
        same_lines(text().concat().as_bytes(), received.concat().as_bytes())
    }

    #[test]
    fn the_same_lines_pass() {
        check(&text()).unwrap();
    }

    #[test]
    fn one_dropped_line_fails_wherever_it_was() {
        for at in [0, 1, 5, 1234, LINES - 2, LINES - 1] {
            let mut lines = text();
            lines.remove(at);
            assert_eq!(check(&lines), Err(Fault::Missing(at + 1)), "line index {at}");
        }
    }

    #[test]
    fn a_lost_batch_fails() {
        let mut lines = text();
        lines.drain(1001..1501);
        assert_eq!(check(&lines), Err(Fault::Missing(1002)));
    }

    #[test]
    fn a_lost_end_fails() {
        let mut lines = text();
        lines.truncate(4000);
        assert_eq!(check(&lines), Err(Fault::Missing(4001)));
    }

    #[test]
    fn one_line_twice_fails() {
        for at in [1, 1234, LINES - 1] {
            let mut lines = text();
            lines.insert(at, lines[at].clone());
            assert_eq!(check(&lines), Err(Fault::Twice(at + 1)), "line index {at}");
        }
    }

    #[test]
    fn a_batch_twice_fails() {
        let mut lines = text();
        let batch: Vec<String> = lines[2001..2101].to_vec();
        lines.splice(2101..2101, batch);
        assert_eq!(check(&lines), Err(Fault::Twice(2002)));
    }

    #[test]
    fn two_lines_swapped_fail() {
        let mut lines = text();
        lines.swap(1001, 1002);
        assert_eq!(check(&lines), Err(Fault::Moved(1002)));
    }

    #[test]
    fn two_batches_swapped_fail() {
        let mut lines = text();
        lines[1001..1201].rotate_left(100);
        assert_eq!(check(&lines), Err(Fault::Moved(1002)));
    }

    #[test]
    fn one_flipped_bit_fails() {
        let mut lines = text();
        lines[777] = "line mumber 777\n".to_owned();
        assert_eq!(check(&lines), Err(Fault::Changed(778)));
    }

    #[test]
    fn what_was_never_sent_fails() {
        let mut lines = text();
        lines.push("a stranger\n".to_owned());
        assert_eq!(check(&lines), Err(Fault::Extra(LINES)));
    }
}
