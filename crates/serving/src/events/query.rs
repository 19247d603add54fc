//! What a reader asks for, in the parameters of its target. A parameter that is not known is refused: a misspelt
//! filter would send everything.

use super::encoding::{Form, Projection};
use super::filter::{Filter, FilterError};
use super::id::{IdStyle, PARTITIONS_MAX};
use super::pace::Slow;

/// Topics of one stream.
pub const TOPICS_MAX: usize = 64;

/// Where a stream without an id begins.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Start {
    /// At the first record.
    Earliest,
    /// Behind the last.
    #[default]
    Latest,
    /// At this offset in each partition.
    Offset(i64),
    /// At these offsets: partition, offset.
    Offsets(Vec<(i32, i64)>),
    /// At these offsets, partition and offset, and at the first record of all other partitions.
    Behind(Vec<(i32, i64)>),
    /// At the first record that is not older, in milliseconds since 1970.
    Time(i64),
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// Where to begin.
    pub start: Start,
    /// Which partitions, ascending; `None` for all.
    pub partitions: Option<Vec<i32>>,
    /// Whether to end where the logs end now.
    pub until_end: bool,
    /// After how many events to end.
    pub limit: Option<u64>,
    /// What events look like; [`Projection::ids`] is for who knows how many partitions there are.
    pub projection: Projection,
    /// How ids are written.
    pub id_style: IdStyle,
    /// Whether each event has an id, even if there are several partitions.
    pub id_every: bool,
    /// What becomes of a reader that is too slow.
    pub slow: Slow,
    /// By how many offsets a reader may fall behind.
    pub lag_max: Option<u64>,
    /// The id to go on from, for clients that cannot send a header.
    pub last_event_id: Option<String>,
    /// The group that the reader is a member of, if it is to be.
    pub group: Option<GroupQuery>,
}

/// What a member of a group asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GroupQuery {
    /// The group.
    pub group: String,
    /// The name under which the member comes again.
    pub instance: Option<String>,
    /// Whether what was written counts as acknowledged.
    pub acks_sent: bool,
    /// Whether a group without an offset begins at the first record, and not behind the last.
    pub from_earliest: bool,
}

/// Why nothing can be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// A value has another form.
    #[error("{name}: invalid value {value:?}: expected {expected}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// What was sent.
        value: String,
        /// What would do.
        expected: &'static str,
    },
    /// The filter has another form.
    #[error("filter: {0}")]
    Filter(#[from] FilterError),
    /// The parameter is not known.
    #[error("unknown parameter {0:?}")]
    Unknown(String),
    /// A parameter is there twice.
    #[error("{0} is there twice")]
    Twice(&'static str),
    /// The parameter makes no sense for a member of a group.
    #[error(
        "{0}: a group says which partitions a member reads, and where it goes on: leave it out"
    )]
    InGroup(&'static str),
    /// The parameter is for members of groups alone.
    #[error("{0}: only with group=")]
    WithoutGroup(&'static str),
}

/// What members of groups may ask for.
const OF_MEMBERS: [&str; 9] =
    ["from", "filter", "id", "encoding", "data", "lastEventId", "group", "instance", "ack"];

const NAMES: [&str; 14] = [
    "from",
    "partitions",
    "until",
    "limit",
    "filter",
    "slow",
    "maxLag",
    "id",
    "encoding",
    "data",
    "lastEventId",
    "group",
    "instance",
    "ack",
];

impl Query {
    /// Reads the parameters: names and values, decoded.
    ///
    /// # Errors
    /// One of them makes no sense.
    pub fn read<'a>(
        parameters: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Query, QueryError> {
        let mut query = Query::default();
        let mut seen = [false; NAMES.len()];
        for (name, value) in parameters {
            let at = NAMES.iter().position(|known| *known == name);
            let at = at.ok_or_else(|| QueryError::Unknown(name.to_owned()))?;
            if std::mem::replace(&mut seen[at], true) {
                return Err(QueryError::Twice(NAMES[at]));
            }
            query.take(NAMES[at], value)?;
        }
        query.check_group(&seen)?;
        if let (Start::Offsets(offsets), None) = (&query.start, &query.partitions) {
            query.partitions = Some(offsets.iter().map(|(partition, _)| *partition).collect());
        }
        Ok(query)
    }

    fn member(&mut self) -> &mut GroupQuery {
        self.group.get_or_insert_with(GroupQuery::default)
    }

    /// Checks that members of groups ask for what they may, and others not for what is theirs.
    fn check_group(&mut self, seen: &[bool; NAMES.len()]) -> Result<(), QueryError> {
        let seen = || NAMES.iter().zip(seen).filter(|(_, seen)| **seen).map(|(name, _)| *name);
        let is_member = seen().any(|name| name == "group");
        if let Some(name) = seen().find(|name| matches!(*name, "instance" | "ack") && !is_member) {
            return Err(QueryError::WithoutGroup(name));
        }
        let Some(group) = &mut self.group else { return Ok(()) };
        if let Some(name) = seen().find(|name| !OF_MEMBERS.contains(name)) {
            return Err(QueryError::InGroup(name));
        }
        match self.start {
            Start::Earliest => group.from_earliest = true,
            Start::Latest => {}
            _ => return Err(QueryError::InGroup("from")),
        }
        match self.id_every {
            true => Err(QueryError::InGroup("id")),
            false => Ok(()),
        }
    }

    fn take(&mut self, name: &'static str, value: &str) -> Result<(), QueryError> {
        let invalid = |expected| QueryError::Value { name, value: value.to_owned(), expected };
        match name {
            "from" => self.start = start(value).ok_or_else(|| invalid(FROM))?,
            "partitions" => {
                let list =
                    partitions(value).ok_or_else(|| invalid("0,1,…, each once, at most 256"))?;
                self.partitions = list;
            }
            "until" if value == "end" => self.until_end = true,
            "until" => return Err(invalid("end")),
            "limit" => {
                let limit = number(value).filter(|limit| *limit > 0);
                self.limit = Some(limit.ok_or_else(|| invalid("a number from 1 on"))? as u64);
            }
            "filter" => self.projection.filter = Filter::read(value)?,
            "slow" => {
                self.slow = match value {
                    "close" => Slow::Close,
                    "skip" => Slow::Skip,
                    _ => return Err(invalid("close or skip")),
                }
            }
            "maxLag" => {
                let lag = number(value).filter(|lag| *lag > 0);
                self.lag_max = Some(lag.ok_or_else(|| invalid("a number from 1 on"))? as u64);
            }
            "id" => match value {
                "short" => self.id_style = IdStyle::Short,
                "json" => self.id_style = IdStyle::Json,
                "every" => self.id_every = true,
                _ => return Err(invalid("short, json or every")),
            },
            "encoding" => match value {
                "base64" => self.projection.base64 = true,
                _ => return Err(invalid("base64")),
            },
            "data" => match value {
                "value" => self.projection.form = Form::Value,
                "record" => self.projection.form = Form::Record,
                _ => return Err(invalid("value or record")),
            },
            "lastEventId" => self.last_event_id = Some(value.to_owned()),
            "group" => self.member().group = value.to_owned(),
            "instance" => self.member().instance = Some(value.to_owned()),
            "ack" if value == "sent" => self.member().acks_sent = true,
            "ack" => return Err(invalid("sent")),
            _ => return Err(QueryError::Unknown(name.to_owned())),
        }
        Ok(())
    }
}

const FROM: &str = "earliest, latest, an offset, PARTITION:OFFSET,…, or ts:MILLISECONDS";

fn start(value: &str) -> Option<Start> {
    Some(match value {
        "earliest" => Start::Earliest,
        "latest" => Start::Latest,
        _ => match value.split_once(':') {
            Some(("ts", time)) => Start::Time(number(time)?),
            Some(_) => Start::Offsets(offsets(value)?),
            None => Start::Offset(number(value)?),
        },
    })
}

/// `p:N,p:N`, each partition once; ascending, whatever their order was.
fn offsets(value: &str) -> Option<Vec<(i32, i64)>> {
    let mut list = Vec::new();
    for one in value.split(',') {
        let (partition, offset) = one.split_once(':')?;
        list.push((i32::try_from(number(partition)?).ok()?, number(offset)?));
    }
    list.sort_unstable();
    is_set(list.iter().map(|(partition, _)| *partition)).then_some(list)
}

fn partitions(value: &str) -> Option<Option<Vec<i32>>> {
    if value.is_empty() {
        return Some(None);
    }
    let list: Option<Vec<i32>> =
        value.split(',').map(|one| i32::try_from(number(one)?).ok()).collect();
    let mut list = list?;
    list.sort_unstable();
    is_set(list.iter().copied()).then_some(Some(list))
}

/// Whether sorted numbers are different from each other, and not too many.
fn is_set(sorted: impl ExactSizeIterator<Item = i32> + Clone) -> bool {
    sorted.len() <= PARTITIONS_MAX
        && sorted.clone().zip(sorted.skip(1)).all(|(one, next)| one < next)
}

/// A number from 0 on, below the largest that there is: what follows it must be one, too.
fn number(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number < i64::MAX)
}
