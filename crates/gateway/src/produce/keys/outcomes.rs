//! Outcomes of the records of a request, as they are kept for its key: the partition of each record run-length coded, and
//! the offsets of each partition as runs. Ten thousand records of one batch take some twenty bytes.

use std::collections::HashMap;
use std::sync::Arc;

use model::varint::{read_i64, read_u64, write_i64, write_u64};
use serving::choice::Choice;
use serving::error::ApiError;

use crate::produce::sending::{Landed, Outcome};

/// Memory beside the code and the errors, in bytes.
const AROUND_BYTES: usize = 96;
/// Memory of an error beside its words.
const ERROR_BYTES: usize = 48;
/// Bytes for each record at most, where each one has another partition, offset, time and error.
const RECORD_BYTES_MAX: usize = 112;
/// Bytes set aside for words of errors.
const WORDS_BYTES: usize = 512;

const HAS_CHOICE: u64 = 1;
const HAS_BROKER: u64 = 2;
const IS_ERROR: u64 = 4;

/// Outcomes of all records of one request, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::produce) struct KeptOutcomes {
    code: Arc<[u8]>,
    errors: Option<Arc<[ApiError]>>,
}

/// Records of one partition, or with one error.
#[derive(Debug, Default)]
struct Place {
    choice: Option<Choice>,
    /// Number of the error.
    error: Option<usize>,
    /// Offset and count of each run.
    offsets: Vec<(i64, u64)>,
    /// Time and count of each run.
    times: Vec<(Option<i64>, u64)>,
}

impl Place {
    fn add(&mut self, landed: Landed) {
        match self.offsets.last_mut() {
            Some((first, count)) if first.wrapping_add(*count as i64) == landed.offset => {
                *count += 1;
            }
            _ => self.offsets.push((landed.offset, 1)),
        }
        match self.times.last_mut() {
            Some((time, count)) if *time == landed.appended_ms => *count += 1,
            _ => self.times.push((landed.appended_ms, 1)),
        }
    }
}

impl KeptOutcomes {
    /// Bytes that the outcomes of so many records take at most, if the words of all errors are few.
    pub(in crate::produce) fn bytes_max(records: usize) -> usize {
        AROUND_BYTES + WORDS_BYTES + RECORD_BYTES_MAX * records
    }

    /// Codes the outcomes. `received_ms`: timestamp of the records that have none in their request.
    pub(in crate::produce) fn of(outcomes: &[Outcome], received_ms: i64) -> KeptOutcomes {
        let (mut errors, mut numbers) = (Vec::new(), HashMap::new());
        let mut places: Vec<Place> = Vec::new();
        let mut known = HashMap::new();
        let mut runs: Vec<(usize, u64)> = Vec::new();
        for outcome in outcomes {
            let error = outcome.result.as_ref().err().map(|error: &ApiError| {
                *numbers.entry(error).or_insert_with(|| {
                    errors.push(error.clone());
                    errors.len() - 1
                })
            });
            let choice = outcome.choice;
            let name = (choice.map(|choice| (choice.partition, choice.broker)), error);
            let at = *known.entry(name).or_insert_with(|| {
                places.push(Place { choice, error, ..Place::default() });
                places.len() - 1
            });
            if let Ok(landed) = outcome.result {
                places[at].add(landed);
            }
            match runs.last_mut() {
                Some((last, count)) if *last == at => *count += 1,
                _ => runs.push((at, 1)),
            }
        }
        let mut code = Vec::new();
        write_i64(&mut code, received_ms);
        write_u64(&mut code, places.len() as u64);
        places.iter().for_each(|place| put_place(&mut code, place));
        write_u64(&mut code, runs.len() as u64);
        for (at, count) in runs {
            write_u64(&mut code, at as u64);
            write_u64(&mut code, count);
        }
        let errors = (!errors.is_empty()).then(|| errors.into());
        KeptOutcomes { code: code.into(), errors }
    }

    /// Memory that they take, in bytes.
    pub(in crate::produce) fn size_bytes(&self) -> usize {
        let errors = self.errors.iter().flat_map(|errors| errors.iter());
        let of_errors: usize = errors.map(|error| ERROR_BYTES + error.message.len()).sum();
        AROUND_BYTES + self.code.len() + of_errors
    }

    /// The timestamp and the outcomes again.
    pub(in crate::produce) fn outcomes(&self) -> (i64, Vec<Outcome>) {
        let mut rest = &self.code[..];
        let received_ms = take_signed(&mut rest);
        let count = take(&mut rest);
        let mut places: Vec<Records> =
            (0..count).map(|_| Records::new(take_place(&mut rest))).collect();
        let mut outcomes = Vec::new();
        for _ in 0..take(&mut rest) {
            let (at, count) = (take(&mut rest) as usize, take(&mut rest));
            let errors = self.errors.as_deref().unwrap_or_default();
            outcomes.extend((0..count).map(|_| places[at].next_outcome(errors)));
        }
        (received_ms, outcomes)
    }
}

/// Records of a place, one after the other.
struct Records {
    place: Place,
    offsets_at: usize,
    offsets_passed: u64,
    times_at: usize,
    times_passed: u64,
}

impl Records {
    fn new(place: Place) -> Records {
        Records { place, offsets_at: 0, offsets_passed: 0, times_at: 0, times_passed: 0 }
    }

    fn next_outcome(&mut self, errors: &[ApiError]) -> Outcome {
        let choice = self.place.choice;
        if let Some(error) = self.place.error {
            return Outcome { choice, result: Err(errors[error].clone()) };
        }
        let (first, count) = self.place.offsets[self.offsets_at];
        let offset = first.wrapping_add(self.offsets_passed as i64);
        step(&mut self.offsets_at, &mut self.offsets_passed, count);
        let (appended_ms, count) = self.place.times[self.times_at];
        step(&mut self.times_at, &mut self.times_passed, count);
        Outcome { choice, result: Ok(Landed { offset, appended_ms }) }
    }
}

fn step(at: &mut usize, passed: &mut u64, count: u64) {
    *passed += 1;
    if *passed == count {
        (*at, *passed) = (*at + 1, 0);
    }
}

fn put_place(code: &mut Vec<u8>, place: &Place) {
    let broker = place.choice.and_then(|choice| choice.broker);
    let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
    write_u64(
        code,
        flag(place.choice.is_some(), HAS_CHOICE)
            | flag(broker.is_some(), HAS_BROKER)
            | flag(place.error.is_some(), IS_ERROR),
    );
    if let Some(choice) = place.choice {
        write_i64(code, choice.partition.into());
    }
    if let Some(broker) = broker {
        write_i64(code, broker.into());
    }
    if let Some(error) = place.error {
        return write_u64(code, error as u64);
    }
    let mut behind = 0_i64;
    write_u64(code, place.offsets.len() as u64);
    for (first, count) in &place.offsets {
        write_i64(code, first.wrapping_sub(behind));
        write_u64(code, *count);
        behind = first.wrapping_add(*count as i64);
    }
    let mut before = 0_i64;
    write_u64(code, place.times.len() as u64);
    for (time, count) in &place.times {
        write_u64(code, u64::from(time.is_some()));
        if let Some(time) = time {
            write_i64(code, time.wrapping_sub(before));
            before = *time;
        }
        write_u64(code, *count);
    }
}

fn take_place(rest: &mut &[u8]) -> Place {
    let flags = take(rest);
    let partition = (flags & HAS_CHOICE != 0).then(|| take_signed(rest) as i32);
    let broker = (flags & HAS_BROKER != 0).then(|| take_signed(rest) as i32);
    let choice = partition.map(|partition| Choice { partition, broker });
    if flags & IS_ERROR != 0 {
        return Place { choice, error: Some(take(rest) as usize), ..Place::default() };
    }
    let mut behind = 0_i64;
    let offsets = (0..take(rest)).map(|_| {
        let first = behind.wrapping_add(take_signed(rest));
        let count = take(rest);
        behind = first.wrapping_add(count as i64);
        (first, count)
    });
    let offsets = offsets.collect();
    let mut before = 0_i64;
    let times = (0..take(rest)).map(|_| {
        let time = (take(rest) != 0).then(|| {
            before = before.wrapping_add(take_signed(rest));
            before
        });
        (time, take(rest))
    });
    let times = times.collect();
    Place { choice, error: None, offsets, times }
}

fn take(rest: &mut &[u8]) -> u64 {
    let (number, length) = read_u64(rest).expect("the code is whole");
    *rest = &rest[length..];
    number
}

fn take_signed(rest: &mut &[u8]) -> i64 {
    let (number, length) = read_i64(rest).expect("the code is whole");
    *rest = &rest[length..];
    number
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serving::error::Kind;

    use super::*;

    fn written(partition: i32, offset: i64) -> Outcome {
        let choice = Some(Choice { partition, broker: None });
        Outcome { choice, result: Ok(Landed { offset, appended_ms: None }) }
    }

    fn outcome() -> impl Strategy<Value = Outcome> {
        let choice = prop::option::of((0..4_i32, prop::option::of(-1..3_i32)));
        let number = prop_oneof![3 => 0..20_i64, 1 => any::<i64>()];
        let landed = (number.clone(), prop::option::of(number));
        let result = prop_oneof![
            3 => landed.prop_map(|(offset, appended_ms)| Ok(Landed { offset, appended_ms })),
            1 => (0..3_usize).prop_map(|at| {
                let kinds = [Kind::Full, Kind::Undecided, Kind::NoLeader];
                Err(ApiError::new(kinds[at], format!("words {at}")))
            }),
        ];
        (choice, result).prop_map(|(choice, result)| Outcome {
            choice: choice.map(|(partition, broker)| Choice { partition, broker }),
            result,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn outcomes_come_back_as_they_were_within_their_room(
            outcomes in prop::collection::vec(outcome(), 0..200),
            received_ms: i64,
        ) {
            let kept = KeptOutcomes::of(&outcomes, received_ms);
            prop_assert!(kept.size_bytes() <= KeptOutcomes::bytes_max(outcomes.len()));
            let (received_again, again) = kept.outcomes();
            prop_assert_eq!(received_again, received_ms);
            prop_assert_eq!(again.len(), outcomes.len());
            for (again, outcome) in again.iter().zip(&outcomes) {
                prop_assert_eq!((again.choice, &again.result), (outcome.choice, &outcome.result));
            }
        }
    }

    #[test]
    fn records_of_one_batch_take_a_few_bytes_and_scattered_ones_two_each() {
        let batch: Vec<Outcome> = (0..10_000).map(|at| written(3, 1 << 40 | at)).collect();
        assert!(KeptOutcomes::of(&batch, 1 << 41).size_bytes() < AROUND_BYTES + 32);
        let scattered: Vec<Outcome> =
            (0..12_000_i64).map(|at| written((at % 12) as i32, 700 + at / 12)).collect();
        assert!(KeptOutcomes::of(&scattered, 1 << 41).size_bytes() < 2 * scattered.len() + 500);
    }
}
