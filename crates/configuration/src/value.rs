//! Checks a text against a key and gives it the form in which Kafka shows it. Rules that join
//! several keys are in `broker_config`.

use super::key::{Accepts, Key, Kind};

/// The value as it is kept and shown: trimmed, lists without blanks, numbers without ornaments.
/// The error says what would have been accepted.
pub fn check(key: &Key, text: &str) -> Result<String, String> {
    let canonical = of_kind(key, text).ok_or_else(|| key.accepted())?;
    if accepts(key, &canonical) { Ok(canonical) } else { Err(key.accepted()) }
}

fn of_kind(key: &Key, text: &str) -> Option<String> {
    let trimmed = text.trim();
    match key.kind {
        Kind::Boolean => boolean(trimmed).map(|value| value.to_string()),
        Kind::Short => trimmed.parse().ok().map(|value: i16| value.to_string()),
        Kind::Int => trimmed.parse().ok().map(|value: i32| value.to_string()),
        Kind::Long => trimmed.parse().ok().map(|value: i64| value.to_string()),
        Kind::Double => trimmed.parse().ok().map(java_double),
        Kind::List => list(trimmed, key.repeatable),
        // Kafka takes a cluster id from a command line, byte for byte.
        Kind::String if key.name == "cluster.id" => Some(text.to_owned()),
        Kind::String | Kind::Class => Some(trimmed.to_owned()),
        Kind::Password => Some(text.to_owned()),
    }
}

fn boolean(text: &str) -> Option<bool> {
    if text.eq_ignore_ascii_case("true") {
        Some(true)
    } else {
        text.eq_ignore_ascii_case("false").then_some(false)
    }
}

/// As Java prints a double: always with a point, and `E` for the exponent.
fn java_double(value: f64) -> String {
    let text = format!("{value:?}");
    match text.split_once('e') {
        Some((digits, exponent)) if digits.contains('.') => format!("{digits}E{exponent}"),
        Some((digits, exponent)) => format!("{digits}.0E{exponent}"),
        None => text,
    }
}

/// Items without blanks; `None` if an item is there twice and may not be.
fn list(text: &str, repeatable: bool) -> Option<String> {
    let items: Vec<&str> = items(text).collect();
    let twice = items.iter().enumerate().any(|(at, item)| items[..at].contains(item));
    (repeatable || !twice).then(|| items.join(","))
}

/// The items of a list: an empty text has none.
pub fn items(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(move |_| !text.trim().is_empty())
}

fn accepts(key: &Key, canonical: &str) -> bool {
    if key.not_empty && canonical.is_empty() {
        return false;
    }
    let number = || canonical.parse::<i64>();
    match key.accepts {
        Accepts::Any => true,
        Accepts::AtLeast(least) => number().is_ok_and(|n| n >= least),
        Accepts::Between(least, most) => number().is_ok_and(|n| (least..=most).contains(&n)),
        Accepts::BetweenOr(least, most, other) => {
            number().is_ok_and(|n| n == other || (least..=most).contains(&n))
        }
        Accepts::Within(least, most) => {
            canonical.parse().is_ok_and(|n: f64| (least..=most).contains(&n))
        }
        Accepts::OneOf(values) if key.kind == Kind::List => {
            items(canonical).all(|item| values.contains(&item))
        }
        Accepts::OneOf(values) => values.contains(&canonical),
        Accepts::OneOfAnyCase(values) => values.iter().any(|v| v.eq_ignore_ascii_case(canonical)),
        Accepts::ThrottledReplicas => {
            canonical == "*" || items(canonical).all(is_partition_and_broker)
        }
    }
}

fn is_partition_and_broker(item: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    item.split_once(':').is_some_and(|(partition, broker)| number(partition) && number(broker))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;

    fn checked(name: &str, text: &str) -> Result<String, String> {
        check(table::find(name).unwrap(), text)
    }

    #[test]
    fn values_get_the_form_in_which_kafka_shows_them() {
        for (name, text, shown) in [
            ("num.partitions", " 12 ", "12"),
            ("num.partitions", "+3", "3"),
            ("auto.create.topics.enable", " TRUE ", "true"),
            ("log.cleanup.policy", " compact , delete ", "compact,delete"),
            ("log.cleanup.policy", "", ""),
            ("log.cleaner.io.buffer.load.factor", "1", "1.0"),
            ("log.cleaner.io.max.bytes.per.second", "1e300", "1.0E300"),
            ("group.consumer.migration.policy", "UPGRADE", "UPGRADE"),
            ("ssl.key.password", " blank kept ", " blank kept "),
        ] {
            assert_eq!(checked(name, text).as_deref(), Ok(shown), "{name}={text:?}");
        }
    }

    #[test]
    fn what_does_not_fit_says_what_would() {
        for (name, text, accepted) in [
            ("num.partitions", "0", "an integer of at least 1"),
            ("num.partitions", "many", "an integer of at least 1"),
            ("num.partitions", "3000000000", "an integer of at least 1"),
            ("message.max.bytes", "-5", "an integer of at least 0"),
            ("auto.create.topics.enable", "yes", "true or false"),
            ("compression.gzip.level", "0", "-1, or an integer from 1 to 9"),
            ("log.cleanup.policy", "shrink", "a list of compact, delete"),
            ("log.cleanup.policy", "delete,delete", "a list of compact, delete"),
            ("log.message.timestamp.type", "createtime", "CreateTime or LogAppendTime"),
            ("log.cleaner.min.cleanable.ratio", "1.5", "a number from 0 to 1"),
            ("log.cleaner.min.cleanable.ratio", "NaN", "a number from 0 to 1"),
            ("listeners", " ", "items separated by commas, each at most once, not empty"),
            ("durability", "none", "fsync or page-cache"),
        ] {
            assert_eq!(checked(name, text), Err(accepted.to_owned()), "{name}={text:?}");
        }
    }
}
