//! What several rooms' tests share: addresses by a rule, and an answer that `wire` has no message
//! for. Only tests see it.

use crate::rewrite::Addresses;
use std::io;
use wire::Writer;

const FITS: &str = "it is short enough";

/// Gives every broker port 1000 more than its id, at host `proxy`.
pub struct ById;

impl Addresses for ById {
    fn of(&self, node_id: i32, _host: &str, _port: i32) -> io::Result<(String, i32)> {
        Ok(("proxy".to_owned(), 1000 + node_id))
    }
}

/// A ShareFetch answer of version 1 with one partition, from behind its frame's length.
pub fn share_fetch(records: &[u8], endpoints: usize) -> Vec<u8> {
    let mut w = Writer::new();
    w.i32(7);
    w.uvarint(0);
    w.i32(0);
    w.i16(0);
    w.nullable_string(None, true).expect(FITS);
    w.i32(30_000);
    w.count(1, true).expect(FITS);
    w.uuid(model::Uuid([9; 16]));
    w.count(1, true).expect(FITS);
    w.i32(0);
    w.i16(6);
    w.nullable_string(Some("moved"), true).expect(FITS);
    w.i16(0);
    w.nullable_string(None, true).expect(FITS);
    w.i32(1);
    w.i32(5);
    w.uvarint(0);
    w.byte_slice(records, true).expect(FITS);
    w.count(2, true).expect(FITS);
    for _ in 0..2 {
        w.i64(0);
        w.i64(4);
        w.i16(1);
        w.uvarint(0);
    }
    w.uvarint(0);
    w.uvarint(0);
    w.count(endpoints, true).expect(FITS);
    for node in 0..endpoints as i32 {
        w.i32(node);
        w.string("broker.example", true).expect(FITS);
        w.i32(9092);
        w.nullable_string(Some("rack"), true).expect(FITS);
        w.uvarint(0);
    }
    w.uvarint(0);
    w.into_bytes()
}
