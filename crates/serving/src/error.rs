//! What a failure is called over HTTP: a code, whether anything was written, and whether the same request may succeed
//! later. The codes are those of Confluent's REST proxy where one fits; 41601, 50302 and 50401 are ours.
//!
//! Every error says whether records were written, because that decides whether the request may be sent again: *no*,
//! or *unknown* where a broker may have the records although no acknowledgement came.

use std::borrow::Cow;

/// Whether the records of a request that failed are in the topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Written {
    /// They are not, and will not be.
    No,
    /// No broker has told: they may be, now or in a moment.
    Unknown,
}

impl Written {
    /// The word in an answer.
    pub const fn name(self) -> &'static str {
        match self {
            Written::No => "no",
            Written::Unknown => "unknown",
        }
    }
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The request cannot be read.
    Malformed,
    /// Nobody has said who asks, or not truly.
    Unidentified,
    /// The request is not allowed.
    Forbidden,
    /// The cluster does not allow it.
    Unauthorized,
    /// There is nothing under this path.
    NotFound,
    /// The topic does not exist.
    NoTopic,
    /// The topic has no such partition.
    NoPartition,
    /// There is no consumer instance of this name.
    NoInstance,
    /// The path exists, with other methods.
    Method,
    /// What is there cannot be had in a form that the client takes.
    NotAcceptable,
    /// The body did not arrive in time.
    Slow,
    /// A consumer instance has this name already.
    NameTaken,
    /// A topic has this name already.
    TopicTaken,
    /// A consumer instance has a subscription where an assignment is asked for, or the other way round.
    Exclusive,
    /// The request, or a record of it, is larger than allowed.
    TooLarge,
    /// The body has a form that is not known.
    MediaType,
    /// The partition has no records at this offset, and will have none there next.
    OutOfRange,
    /// The request can be read, and makes no sense.
    Unprocessable,
    /// The gateway's buffer is full.
    Full,
    /// Kafka refused for good.
    Kafka,
    /// Kafka refused, and may not do so later.
    KafkaForNow,
    /// No broker can be reached, or the gateway stops.
    Unavailable,
    /// The partition has no leader.
    NoLeader,
    /// No acknowledgement came in time, and the records may have been written.
    Undecided,
}

/// A row of the table of errors.
struct Row {
    kind: Kind,
    status: u16,
    error_code: u32,
    retriable: bool,
}

const fn row(kind: Kind, status: u16, error_code: u32, retriable: bool) -> Row {
    Row { kind, status, error_code, retriable }
}

/// Every kind, in the order of [`Kind`].
const TABLE: [Row; 24] = [
    row(Kind::Malformed, 400, 400, false),
    row(Kind::Unidentified, 401, 401, false),
    row(Kind::Forbidden, 403, 403, false),
    row(Kind::Unauthorized, 403, 40301, false),
    row(Kind::NotFound, 404, 404, false),
    row(Kind::NoTopic, 404, 40401, true),
    row(Kind::NoPartition, 404, 40402, false),
    row(Kind::NoInstance, 404, 40403, false),
    row(Kind::Method, 405, 405, false),
    row(Kind::NotAcceptable, 406, 406, false),
    row(Kind::Slow, 408, 408, true),
    row(Kind::NameTaken, 409, 40902, false),
    row(Kind::TopicTaken, 409, 40904, false),
    row(Kind::Exclusive, 409, 40903, false),
    row(Kind::TooLarge, 413, 413, false),
    row(Kind::MediaType, 415, 415, false),
    row(Kind::OutOfRange, 416, 41601, false),
    row(Kind::Unprocessable, 422, 422, false),
    row(Kind::Full, 429, 429, true),
    row(Kind::Kafka, 500, 50002, false),
    row(Kind::KafkaForNow, 503, 50003, true),
    row(Kind::Unavailable, 503, 503, true),
    row(Kind::NoLeader, 503, 50302, true),
    row(Kind::Undecided, 504, 50401, true),
];

impl Kind {
    fn row(self) -> &'static Row {
        let row = &TABLE[self as usize];
        assert_eq!(row.kind, self, "the table is in the order of the kinds");
        row
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Kind> {
        TABLE.iter().map(|row| row.kind)
    }

    /// The status of an answer that says nothing else.
    pub fn status(self) -> u16 {
        self.row().status
    }

    /// `error_code`.
    pub fn error_code(self) -> u32 {
        self.row().error_code
    }

    /// Whether the same request may succeed later.
    pub fn retriable(self) -> bool {
        self.row().retriable
    }

    /// Whether anything was written.
    pub const fn written(self) -> Written {
        match self {
            Kind::Undecided => Written::Unknown,
            _ => Written::No,
        }
    }
}

/// An error as a client is told it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ApiError {
    /// What went wrong.
    pub kind: Kind,
    /// What, and what to do, in words.
    pub message: Cow<'static, str>,
}

impl ApiError {
    /// An error of this kind.
    pub fn new(kind: Kind, message: impl Into<Cow<'static, str>>) -> ApiError {
        ApiError { kind, message: message.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_row_and_a_code_of_its_own() {
        let mut codes = std::collections::BTreeSet::new();
        for row in &TABLE {
            assert_eq!(row.kind.error_code(), row.error_code, "{:?}", row.kind);
            assert!(codes.insert(row.error_code), "{:?}", row.kind);
            // Only Confluent's code for what may succeed later belongs to another status.
            let of_code = if row.error_code < 1000 { row.error_code } else { row.error_code / 100 };
            assert!(of_code == u32::from(row.status) || row.kind == Kind::KafkaForNow);
        }
        assert_eq!(TABLE.last().unwrap().kind as usize + 1, TABLE.len());
    }

    #[test]
    fn what_may_have_been_written_has_one_status() {
        for row in &TABLE {
            let unknown = row.kind.written() == Written::Unknown;
            assert_eq!(unknown, row.status == 504, "{:?}", row.kind);
        }
    }
}
