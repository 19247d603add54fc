//! Finds the key that somebody probably meant. Only for messages.

/// The nearest of `names` to `wanted`, if it is near enough to be a slip of the finger: at most
/// two edits, or a fifth of the length for long names.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = (wanted.len() / 5).max(2);
    names
        .map(|name| (distance(wanted, name), name))
        .filter(|(edits, _)| *edits <= most)
        .min()
        .map(|(_, name)| name)
}

/// Edits from one text to the other: insert, delete, replace, or swap two neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    for (j, cell) in rows[0].iter_mut().enumerate() {
        *cell = j;
    }
    for i in 1..=a.len() {
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = least;
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    fn near(wanted: &str) -> Option<&'static str> {
        nearest(wanted, table::all().map(|key| key.name))
    }

    #[test]
    fn slips_are_recognised() {
        assert_eq!(near("num.partition"), Some("num.partitions"));
        assert_eq!(near("log.retention.hour"), Some("log.retention.hours"));
        assert_eq!(near("log.retnetion.ms"), Some("log.retention.ms"));
        assert_eq!(near("advertised.listener"), Some("advertised.listeners"));
        assert_eq!(near("auto.create.topic.enabled"), Some("auto.create.topics.enable"));
    }

    #[test]
    fn what_is_far_from_every_key_gets_no_guess() {
        assert_eq!(near("my.own.setting"), None);
        assert_eq!(near("x"), None);
    }
}
