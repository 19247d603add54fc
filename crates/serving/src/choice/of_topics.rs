//! Which strategy counts where a request names none: a topic's own, or that of all topics whose names begin alike.

use super::Strategy;

/// Why a text says of no topic how its records are shared out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// It has another form.
    #[error(
        "invalid row {0:?}: expected TOPIC=PARTITIONER, with * at the end of TOPIC for any rest"
    )]
    Form(String),
    /// The partitioner has no such name.
    #[error("invalid partitioner {0:?}: expected one of {names}", names = Strategy::names().collect::<Vec<_>>().join(", "))]
    Strategy(String),
    /// The topic has a row already.
    #[error("{0} is there twice")]
    Twice(String),
}

/// Topics, and how their records are shared out; the others' are by [`Strategy::default`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OfTopics {
    /// A name or its beginning, whether it is a whole one, and the strategy. Names come first, then the longest beginning.
    rows: Vec<(String, bool, Strategy)>,
}

impl OfTopics {
    /// Reads rows `TOPIC=PARTITIONER`; a TOPIC that ends with a star stands for all names that begin so.
    ///
    /// # Errors
    /// A row has another form, an unknown partitioner, or the topic of another row.
    pub fn read<'a>(texts: impl IntoIterator<Item = &'a str>) -> Result<OfTopics, RowError> {
        let mut rows: Vec<(String, bool, Strategy)> = Vec::new();
        for text in texts {
            let form = || RowError::Form(text.to_owned());
            let (topic, strategy) = text.split_once('=').ok_or_else(form)?;
            let (topic, strategy) = (topic.trim(), strategy.trim());
            let strategy = Strategy::from_name(strategy)
                .ok_or_else(|| RowError::Strategy(strategy.to_owned()))?;
            let begin = topic.strip_suffix('*');
            let (name, is_whole) = (begin.unwrap_or(topic), begin.is_none());
            if name.contains('*') || (is_whole && name.is_empty()) {
                return Err(form());
            }
            if rows.iter().any(|row| (&*row.0, row.1) == (name, is_whole)) {
                return Err(RowError::Twice(topic.to_owned()));
            }
            rows.push((name.to_owned(), is_whole, strategy));
        }
        rows.sort_by_key(|(name, is_whole, _)| (!is_whole, usize::MAX - name.len()));
        Ok(OfTopics { rows })
    }

    /// How records of a topic are shared out.
    pub fn of(&self, topic: &str) -> Strategy {
        let fits = |(name, is_whole, _): &&(String, bool, Strategy)| match is_whole {
            true => name == topic,
            false => topic.starts_with(&**name),
        };
        self.rows.iter().find(fits).map_or(Strategy::default(), |(_, _, strategy)| *strategy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topics_own_row_counts_before_the_longest_beginning() {
        let rows = ["*=sticky", "a*=random", "ab*=crc32", "ab=hash-mod", " c = cs6-mod "];
        let mut turned = rows;
        turned.reverse();
        for rows in [rows, turned] {
            let of_topics = OfTopics::read(rows).unwrap();
            for (topic, strategy) in [
                ("ab", Strategy::HashMod),
                ("abc", Strategy::Crc32),
                ("ax", Strategy::Random),
                ("a", Strategy::Random),
                ("x", Strategy::Sticky),
                ("c", Strategy::Cs6Mod),
                ("", Strategy::Sticky),
            ] {
                assert_eq!(of_topics.of(topic), strategy, "{topic}");
            }
        }
        assert_eq!(OfTopics::default().of("ab"), Strategy::Murmur2);
        assert_eq!(OfTopics::read([]), Ok(OfTopics::default()));
    }

    #[test]
    fn rows_that_make_no_sense_are_refused_with_the_reason() {
        for (rows, words) in [
            (&["a"][..], "TOPIC=PARTITIONER"),
            (&["=random"], "TOPIC=PARTITIONER"),
            (&["a*b=random"], "TOPIC=PARTITIONER"),
            (&["a**=random"], "TOPIC=PARTITIONER"),
            (&["a=Random"], "murmur2, random, round-robin"),
            (&["a="], "expected one of"),
            (&["a=random=x"], "expected one of"),
            (&["a=random", "a=crc32"], "a is there twice"),
            (&["a*=random", "a*=random"], "a* is there twice"),
        ] {
            let error = OfTopics::read(rows.iter().copied()).unwrap_err();
            assert!(error.to_string().contains(words), "{rows:?}: {error}");
        }
        assert!(OfTopics::read(["a=random", "a*=random"]).is_ok());
    }
}
