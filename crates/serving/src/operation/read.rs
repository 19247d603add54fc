//! From the fields of a form to an operation.

use super::fields::{Fields, Invalid};
use super::reassign::moves_of;
use super::reset::{rows_of, target_of};
use super::{Kind, Operation, Produce};
use crate::choice::{BrokerStrategy, Pair, Rule, Strategy};
use model::topic_name;

/// Records of one request.
pub const RECORDS_MAX: u32 = 1000;
/// Bytes of a key or value.
const TEXT_BYTES_MAX: usize = 256 * 1024;
/// Partitions of a topic.
const PARTITIONS_MAX: i32 = 100_000;
/// Lines of a field that has many.
const LINES_MAX: usize = 200;
/// Bytes of the name of a group.
const GROUP_BYTES_MAX: usize = 32_000;

/// The operation that a form asks for.
///
/// # Errors
/// A field is missing or cannot be used.
pub fn operation(kind: Kind, fields: &Fields) -> Result<Operation, Invalid> {
    Ok(match kind {
        Kind::Produce => Operation::Produce(produce(fields)?),
        Kind::CreateTopic => {
            let topic = topic(fields)?;
            topic_name::validate(&topic).map_err(|why| Invalid::new("topic", why.to_string()))?;
            Operation::CreateTopic {
                topic,
                partitions: fields.number("partitions", 1, PARTITIONS_MAX)?,
                replicas: fields.number("replicas", 1, i16::MAX)?,
                settings: pairs(fields, "settings")?,
            }
        }
        Kind::AddPartitions => {
            let total = fields.number("total", 1, PARTITIONS_MAX)?;
            let missing = || Invalid::new("total", "expected how many there are afterwards");
            Operation::AddPartitions { topic: topic(fields)?, total: total.ok_or_else(missing)? }
        }
        Kind::AlterTopic => alter(fields)?,
        Kind::DeleteTopic => Operation::DeleteTopic { topic: topic(fields)? },
        Kind::MoveGroup => Operation::MoveGroup {
            group: group(fields)?,
            topic: fields.get("topic").map(str::to_owned),
            target: target_of(fields)?,
            rows: rows_of(fields.raw("rows").unwrap_or_default())?,
        },
        Kind::DeleteGroup => Operation::DeleteGroup { group: group(fields)? },
        Kind::ElectLeaders => {
            Operation::ElectLeaders { topic: fields.get("topic").map(str::to_owned) }
        }
        Kind::Reassign => Operation::Reassign {
            moves: moves_of(fields.raw("moves").unwrap_or_default())?,
            throttle: fields.number("throttle", 1, u64::MAX)?,
        },
        Kind::CancelMoves => {
            Operation::CancelMoves { topic: fields.get("topic").map(str::to_owned) }
        }
        Kind::LiftThrottle => Operation::LiftThrottle,
    })
}

fn topic(fields: &Fields) -> Result<String, Invalid> {
    let name = fields.get("topic").ok_or_else(|| Invalid::new("topic", "expected a name"))?;
    Ok(name.to_owned())
}

/// Any text is a group's name, with space around it too.
fn group(fields: &Fields) -> Result<String, Invalid> {
    match fields.raw("group") {
        Some(name) if name.len() <= GROUP_BYTES_MAX => Ok(name.to_owned()),
        Some(_) => Err(Invalid::new("group", "expected a shorter name")),
        None => Err(Invalid::new("group", "expected a name")),
    }
}

fn produce(fields: &Fields) -> Result<Produce, Invalid> {
    let text = |name: &'static str, null: &str| match fields.raw(name) {
        _ if fields.is(null) => Ok(None),
        Some(text) if text.len() > TEXT_BYTES_MAX => {
            Err(Invalid::new(name, format!("expected at most {TEXT_BYTES_MAX} bytes")))
        }
        text => Ok(Some(text.unwrap_or_default().to_owned())),
    };
    // A field left empty is a record without a key, which is what most records without a key mean.
    let key = text("key", "no-key")?.filter(|key| !key.is_empty());
    let partition = fields.number("partition", 0, i32::MAX)?;
    let pair = pair(fields)?;
    let rule = if partition.is_some() { Rule::Given } else { Rule::Chosen(pair) };
    if key.is_none() && partition.is_none() && pair.needs_key() {
        return Err(Invalid::new("key", "expected one: this partitioner needs it"));
    }
    Ok(Produce {
        topic: topic(fields)?,
        key,
        value: text("value", "no-value")?,
        headers: pairs(fields, "headers")?,
        count: fields.number("count", 1, RECORDS_MAX)?.unwrap_or(1),
        rule,
        partition,
    })
}

fn pair(fields: &Fields) -> Result<Pair, Invalid> {
    let broker = match fields.get("broker") {
        None | Some("none") => None,
        Some(name) => Some(
            BrokerStrategy::from_name(name)
                .ok_or_else(|| Invalid::new("broker", format!("unknown strategy {name:?}")))?,
        ),
    };
    let partition = match fields.get("partitioner") {
        None => Strategy::default(),
        Some(name) => Strategy::from_name(name)
            .ok_or_else(|| Invalid::new("partitioner", format!("unknown partitioner {name:?}")))?,
    };
    Ok(Pair { broker, partition })
}

fn alter(fields: &Fields) -> Result<Operation, Invalid> {
    let set = pairs(fields, "set")?;
    let delete: Vec<String> = lines(fields, "delete")?.map(str::to_owned).collect();
    if set.is_empty() && delete.is_empty() {
        return Err(Invalid::new("set", "expected a key to set, or one to take back"));
    }
    if let Some((name, _)) = set.iter().find(|(name, _)| delete.contains(name)) {
        return Err(Invalid::new("delete", format!("{name} is set as well")));
    }
    Ok(Operation::AlterTopic { topic: topic(fields)?, set, delete })
}

fn lines<'a>(
    fields: &'a Fields,
    name: &'static str,
) -> Result<impl Iterator<Item = &'a str>, Invalid> {
    let text = fields.raw(name).unwrap_or_default();
    if text.lines().nth(LINES_MAX).is_some() {
        return Err(Invalid::new(name, format!("expected at most {LINES_MAX} lines")));
    }
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()))
}

/// A pair on each line: `name=text`.
fn pairs(fields: &Fields, name: &'static str) -> Result<Vec<(String, String)>, Invalid> {
    let pair = |line: &str| {
        let split = line.split_once('=').filter(|(key, _)| !key.trim().is_empty());
        let words = || format!("expected name=value on each line, not {line:?}");
        let (key, value) = split.ok_or_else(|| Invalid::new(name, words()))?;
        Ok((key.trim().to_owned(), value.trim().to_owned()))
    };
    lines(fields, name)?.map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: Kind, fields: &[(&str, &str)]) -> Result<Operation, Invalid> {
        let owned = fields.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        operation(kind, &Fields::new(owned))
    }

    #[test]
    fn a_topic_is_made_with_the_brokers_defaults_where_nothing_is_said() {
        let made = read(Kind::CreateTopic, &[("topic", " orders "), ("partitions", "")]).unwrap();
        assert_eq!(
            made,
            Operation::CreateTopic {
                topic: "orders".to_owned(),
                partitions: None,
                replicas: None,
                settings: Vec::new()
            }
        );
        let settings = "retention.ms=1000\r\n\r\n cleanup.policy = compact,delete\n";
        let made = read(
            Kind::CreateTopic,
            &[("topic", "t"), ("partitions", "3"), ("replicas", "2"), ("settings", settings)],
        );
        let Ok(Operation::CreateTopic { partitions: Some(3), replicas: Some(2), settings, .. }) =
            made
        else {
            panic!("{made:?}")
        };
        assert_eq!(settings[1], ("cleanup.policy".to_owned(), "compact,delete".to_owned()));
    }

    #[test]
    fn what_cannot_be_meant_is_told_with_its_field() {
        for (kind, fields, field) in [
            (Kind::CreateTopic, &[("topic", "a b")][..], "topic"),
            (Kind::CreateTopic, &[("topic", "t"), ("partitions", "0")], "partitions"),
            (Kind::CreateTopic, &[("topic", "t"), ("replicas", "x")], "replicas"),
            (Kind::CreateTopic, &[("topic", "t"), ("settings", "=1")], "settings"),
            (Kind::AddPartitions, &[("topic", "t")], "total"),
            (Kind::AddPartitions, &[("total", "3")], "topic"),
            (Kind::AlterTopic, &[("topic", "t")], "set"),
            (Kind::AlterTopic, &[("topic", "t"), ("set", "a=1"), ("delete", "a")], "delete"),
            (Kind::DeleteGroup, &[], "group"),
            (Kind::MoveGroup, &[("group", "g"), ("to", "elsewhere")], "to"),
            (Kind::MoveGroup, &[("group", "g"), ("to", "offset"), ("offset", "x")], "offset"),
            (Kind::Produce, &[("topic", "t"), ("count", "1001")], "count"),
            (Kind::Produce, &[("topic", "t"), ("partitioner", "best")], "partitioner"),
            (Kind::Produce, &[("topic", "t"), ("broker", "sticky")], "broker"),
            (Kind::Produce, &[("topic", "t"), ("partitioner", "crc32")], "key"),
            (Kind::Reassign, &[("moves", "")], "moves"),
            (Kind::Reassign, &[("moves", "{}")], "moves"),
        ] {
            assert_eq!(read(kind, fields).unwrap_err().field, field, "{kind:?} {fields:?}");
        }
    }

    #[test]
    fn records_are_numbered_and_null_is_not_empty() {
        let fields = [("topic", "t"), ("key", "k{n}"), ("value", "{n}{n}"), ("count", "3")];
        let Ok(Operation::Produce(produce)) = read(Kind::Produce, &fields) else { panic!() };
        assert_eq!(produce.record(2), (Some("k2".to_owned()), Some("22".to_owned())));
        let fields = [("topic", "t"), ("key", ""), ("value", "x"), ("no-value", "1")];
        let Ok(Operation::Produce(produce)) = read(Kind::Produce, &fields) else { panic!() };
        assert_eq!(produce.record(0), (None, None));
        let Ok(Operation::Produce(produce)) = read(Kind::Produce, &[("topic", "t")]) else {
            panic!()
        };
        assert_eq!(produce.record(0), (None, Some(String::new())));
    }
}
