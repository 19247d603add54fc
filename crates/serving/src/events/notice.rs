//! What a stream says besides records: ids, pings, gaps, errors, its end.

use std::io::Write;

use super::gap::Gap;

const TAKES: &str = "a Vec takes every write";

/// Nothing but life.
pub const PING: &[u8] = b": ping\n\n";

/// When to come again, should the connection break.
pub fn write_retry(retry_ms: u64, out: &mut Vec<u8>) {
    writeln!(out, "retry: {retry_ms}\n").expect(TAKES);
}

/// Begins a block with an id, which must have no line break.
pub fn write_id_line(id: &str, out: &mut Vec<u8>) {
    writeln!(out, "id: {id}").expect(TAKES);
}

/// Sets the id; no event fires without data.
pub fn write_id(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    out.extend(b"id: ");
    write(out);
    out.extend(b"\n\n");
}

/// Says which offsets are missing.
pub fn write_gap(topic: &str, partition: i32, gap: &Gap, out: &mut Vec<u8>) {
    let Gap { reason, from, to } = gap;
    let reason = reason.name();
    writeln!(
        out,
        "event: gap\ndata: {{\"topic\":\"{topic}\",\"partition\":{partition},\"reason\":\"{reason}\",\"from\":{from},\"to\":{to}}}\n"
    )
    .expect(TAKES);
}

/// Says which records cannot be sent, and why. The message must have no quotes and no line breaks.
pub fn write_error(topic: &str, partition: i32, offset: i64, message: &str, out: &mut Vec<u8>) {
    let message: String =
        message.chars().filter(|c| !c.is_control() && !matches!(c, '"' | '\\')).collect();
    writeln!(
        out,
        "event: error\ndata: {{\"topic\":\"{topic}\",\"partition\":{partition},\"offset\":{offset},\"message\":\"{message}\"}}\n"
    )
    .expect(TAKES);
}

/// Partitions that one notice names at most.
const NAMED_MAX: usize = 16;

/// Says in a comment which partitions have no leader that answers. Their records come once one does.
pub fn write_waiting<'a>(
    mut partitions: impl ExactSizeIterator<Item = (&'a str, i32)>,
    out: &mut Vec<u8>,
) {
    let count = partitions.len();
    let noun = if count == 1 { "partition" } else { "partitions" };
    write!(out, ": no leader answers for {count} {noun}, whose records come later:").expect(TAKES);
    for (topic, partition) in partitions.by_ref().take(NAMED_MAX) {
        write!(out, " {topic}-{partition}").expect(TAKES);
    }
    if count > NAMED_MAX {
        out.extend(b" ...");
    }
    out.extend(b"\n\n");
}

/// Why a stream ends that was to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// `limit=` events were sent.
    Limit,
    /// The end of every log was reached, as it was when the stream began.
    Reached,
}

impl End {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            End::Limit => "limit",
            End::Reached => "end",
        }
    }
}

/// Says that a stream ends. A client that closes at it gets no more; one that does not comes again.
pub fn write_end(end: End, out: &mut Vec<u8>) {
    let reason = end.name();
    writeln!(out, "event: end\ndata: {{\"reason\":\"{reason}\"}}\n").expect(TAKES);
}
