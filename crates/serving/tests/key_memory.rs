//! The table of idempotency keys keeps no more memory than it charges. A process of its own: the allocator's count is of
//! all threads.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::sync::Arc;

use model::Moment;
use serving::idempotency::{Begin, Fingerprint, Limits, Table};

/// Bytes of an outcome, and its charge: with the reference count and the allocator's part.
const OUTCOME_BYTES: usize = 30;
const CHARGED_BYTES: usize = OUTCOME_BYTES + 32;

/// Keys of one owner that others take memory from, and of owners with one key each, which are the dearest.
fn keys_without_outcomes_and_owners_take_at_most_the_memory_that_they_are_charged_with() {
    let before = heap::allocated_bytes();
    let mut table: Table<u64, Arc<[u8]>, u64> = Table::new(Limits::default());
    let mut number = 0_u64;
    let mut add = |table: &mut Table<u64, Arc<[u8]>, u64>, owner| {
        number += 1;
        let name = Fingerprint(u128::from(number.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
        match table.begin(Moment(number), name, owner, name, CHARGED_BYTES, || number) {
            Begin::Send(ticket) => {
                table.finish(ticket, Moment(number), Arc::from([7; OUTCOME_BYTES]), CHARGED_BYTES);
                true
            }
            Begin::Full => false,
            other => panic!("{number}: {other:?}"),
        }
    };
    while add(&mut table, 0) {}
    for owner in 1..50_000 {
        if !add(&mut table, owner) {
            assert!(owner > 10_000, "{owner}");
            break;
        }
        if owner % 64 == 0 {
            let kept = heap::allocated_bytes() - before;
            assert!(
                kept <= table.bytes(),
                "{owner} owners: {kept} bytes are kept, {} charged",
                table.bytes()
            );
        }
    }
}

#[test]
fn the_table_keeps_no_more_memory_than_it_charges() {
    keys_take_at_most_the_memory_that_they_are_charged_with();
    keys_without_outcomes_and_owners_take_at_most_the_memory_that_they_are_charged_with();
}

fn keys_take_at_most_the_memory_that_they_are_charged_with() {
    let before = heap::allocated_bytes();
    let mut table: Table<u64, Arc<[u8]>, u64> = Table::new(Limits::default());
    // Maps grow by doubling: they hold the most beside their content just behind a step.
    for key in 0..35_000_u64 {
        let fingerprint = Fingerprint(u128::from(key) << 64 | u128::from(key.wrapping_mul(0x9e37)));
        let begun =
            table.begin(Moment(key), fingerprint, key % 7, fingerprint, CHARGED_BYTES, || key);
        let Begin::Send(ticket) = begun else { panic!("{key}: {begun:?}") };
        let waits =
            table.begin(Moment(key), fingerprint, key % 7, fingerprint, CHARGED_BYTES, || key);
        assert_eq!(waits, Begin::Wait);
        if key % 64 == 0 {
            let kept = heap::allocated_bytes() - before;
            assert!(
                kept <= table.bytes(),
                "{key}: {kept} bytes are kept, {} charged",
                table.bytes()
            );
        }
        table.finish(ticket, Moment(key), Arc::from([7; OUTCOME_BYTES]), CHARGED_BYTES);
    }
    let kept = heap::allocated_bytes() - before;
    println!(
        "{} bytes kept, {} charged, for each key",
        kept / table.len(),
        table.bytes() / table.len()
    );
    assert!(kept <= table.bytes(), "{kept} bytes are kept, {} charged", table.bytes());
}
