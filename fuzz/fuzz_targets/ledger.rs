//! Messages of the metadata quorum, decoded from arbitrary bytes: no input causes a panic or allocates much more than its size, and a
//! message that was decoded and encoded again decodes to the same message. The first byte says what the other bytes are.

#![no_main]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use ledger::message::{Append, Head, Reply, Request};
use ledger::{Entry, Payload, Vote, entry};
use libfuzzer_sys::fuzz_target;
use model::batch::{BatchHeader, HEADER_BYTES};
use model::record::BatchBuilder;
use model::{LeaderEpoch, Offset, Timestamp};

/// Counts what reading takes: a number in a message must not make room for what is not there.
struct Counted;

/// Bytes that are taken now, and the most that were at once in [`bounded`].
static TAKEN: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        MOST.fetch_max(TAKEN.fetch_add(layout.size(), Relaxed) + layout.size(), Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, taken: *mut u8, layout: Layout) {
        TAKEN.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(taken, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

/// The shortest list of a record is two bytes of text and twenty-four in memory, and a vector that grows has twice the room it
/// needs, beside the half it grew from.
const TIMES_MAX: usize = 96;
/// A metadata record is large in memory, whatever it says.
const BESIDE_BYTES_MAX: usize = 16 << 10;

/// Reads within the memory that so many bytes may take.
fn bounded<'a, T>(bytes: &'a [u8], read: impl FnOnce(&'a [u8]) -> T) -> T {
    let before = TAKEN.load(Relaxed);
    MOST.store(before, Relaxed);
    let found = read(bytes);
    let most = MOST.load(Relaxed) - before;
    assert!(most <= BESIDE_BYTES_MAX + TIMES_MAX * bytes.len(), "{most} of {}", bytes.len());
    found
}

const HEAD: Head<'static> = Head { cluster_id: "c", from: 1, to: 2 };
const VOTE: Vote = Vote { term: 1, node: 1, committed: true };

fn message(bytes: &[u8]) {
    let request = bounded(bytes, |bytes| Request::decode(bytes).ok());
    let reply = bounded(bytes, |bytes| Reply::decode(bytes).ok());
    assert!(request.is_none() || reply.is_none(), "a request is not an answer");
    if let Some((head, reply)) = reply {
        assert_eq!(reply.encode(head), bytes);
    }
    let Some((head, request)) = request else { return };
    let written = request.encode(head);
    let Request::Append(append) = &request else {
        assert_eq!(written, bytes);
        return;
    };
    // An entry has been written by an older release, or says when that was: its bytes may be others, what it says may not.
    let again = Request::decode(&written).expect("what was written can be read");
    assert_eq!(again, (head, request.clone()));
    follow_each_other(append);
}

/// Who replicates takes for granted that entries do, and that one more can follow.
fn follow_each_other(append: &Append) {
    let mut next = append.before.map(|before| before.index + 1);
    for Entry { place, payload } in &append.entries {
        assert!(next.is_none_or(|next| next == place.index) && place.index < i64::MAX as u64);
        next = Some(place.index + 1);
        // Of no voters any set of members is a majority.
        let Payload::Members(members) = payload else { continue };
        assert!(!members.voters.is_empty() && members.voters.iter().all(|some| !some.is_empty()));
    }
}

/// The bytes of an append of these batches.
fn append(batches: &[Vec<u8>]) -> Vec<u8> {
    let append = Append { vote: VOTE, before: None, committed: None, entries: Vec::new() };
    let mut bytes = Request::Append(append).encode(HEAD);
    bytes.truncate(bytes.len() - 4);
    bytes.extend((batches.len() as u32).to_be_bytes());
    for batch in batches {
        bytes.extend((batch.len() as u32).to_be_bytes());
        bytes.extend(batch);
    }
    bytes
}

/// A batch of one record with this text.
fn batch(index: i64, text: &[u8]) -> Vec<u8> {
    let mut batch = BatchBuilder::new().placed(Offset(index), LeaderEpoch(1));
    batch.add(Timestamp(0), None, Some(text));
    batch.finish()
}

/// What the log has on disk is read by the same code, and its place without its records.
fn logged(bytes: &[u8]) {
    let Ok(header) = BatchHeader::decode_checked(bytes) else { return };
    let bytes = &bytes[..header.size_bytes as usize];
    let stamp = bounded(bytes, |bytes| entry::stamp(&header, bytes));
    let Ok(found) = bounded(bytes, |bytes| entry::decode(&header, bytes)) else { return };
    let stamp = stamp.expect("what can be read whole has a place");
    assert_eq!(stamp.place, found.place);
    let written = entry::encode(&found, stamp.synced, Timestamp(0));
    let header = BatchHeader::decode_checked(&written).expect("what was written can be read");
    let again = entry::stamp(&header, &written).expect("as before");
    assert_eq!(
        (again.place, again.synced, again.members),
        (stamp.place, stamp.synced, stamp.members)
    );
    assert_eq!(entry::decode(&header, &written).expect("as before"), found);
}

/// These bytes as a batch that is what its checksum says.
fn sealed(mut batch: Vec<u8>) -> Vec<u8> {
    if batch.len() >= HEADER_BYTES {
        let length = batch.len() as u32 - 12;
        batch[8..12].copy_from_slice(&length.to_be_bytes());
        batch[16] = 2;
        let checksum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &batch[21..]) as u32;
        batch[17..21].copy_from_slice(&checksum.to_be_bytes());
    }
    batch
}

fuzz_target!(|input: &[u8]| {
    match input {
        // A message as it is.
        [0, bytes @ ..] => message(bytes),
        // Behind a head that a search would seldom find.
        [1, kind, fields @ ..] => {
            let mut bytes = Request::Introduce.encode(HEAD);
            bytes[1] = *kind;
            bytes.extend(fields);
            message(&bytes);
        }
        // Entries with these texts, which have no such byte.
        [2, texts @ ..] => {
            let texts = texts.split(|byte| *byte == 0xff);
            let batches: Vec<_> = (7..).zip(texts).map(|(at, text)| batch(at, text)).collect();
            batches.iter().for_each(|batch| logged(batch));
            message(&append(&batches));
        }
        // One with an index near either end, and these records, or voters, or anything else.
        [which @ 3..6, at, text @ ..] => {
            let (front, back): (&[u8], &[u8]) = match which {
                3 => (b"{\"v\":2,\"term\":1,\"leader\":1,\"entry\":{\"records\":{\"decided_at\":1}}}\n", b""),
                4 => (b"{\"v\":1,\"term\":1,\"leader\":1,\"entry\":{\"members\":{\"voters\":[", b"],\"learners\":[]}}}"),
                _ => (b"{\"v\":1,\"term\":1,\"leader\":1,\"entry\":", b""),
            };
            let at = i64::from(*at);
            let index = if at < 0x80 { at } else { i64::MAX - (at - 0x80) };
            let batch = batch(index, &[front, text, back].concat());
            logged(&batch);
            message(&append(&[batch]));
        }
        // A batch whose head is like none that is written.
        [_, bytes @ ..] => {
            let batch = sealed(bytes.to_vec());
            logged(&batch);
            message(&append(&[batch]));
        }
        [] => {}
    }
});
