//! Finds the key that somebody probably meant. Only for messages.

use strsim::osa_distance;

/// The nearest of `names` to `wanted`, if it is near enough to be a slip of the finger: at most
/// two edits (insert, delete, replace, or swap two neighbours), or a fifth of the length for long names.
pub fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = (wanted.len() / 5).max(2);
    names
        .map(|name| (osa_distance(wanted, name), name))
        .filter(|(edits, _)| *edits <= most)
        .min()
        .map(|(_, name)| name)
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
