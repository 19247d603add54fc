//! The order of the runs within a round.
//!
//! What ran before leaves its mark: behind the writers of the floor, whose files are gone by then, brokers used a quarter
//! more CPU for the same work. So every round begins with another one, and over as many rounds as there are
//! turns each has had every place once.

use super::floor::Floor;

/// One run of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// The load, into the broker of this seat.
    Seat(usize),
    /// What the machine allows at best.
    Floor(Floor),
}

/// The runs of this round, in their order.
pub fn turns(round: u32, floor: Option<Floor>) -> Vec<Turn> {
    let mut turns = vec![Turn::Seat(0), Turn::Seat(1)];
    turns.extend(floor.map(Turn::Floor));
    let first = round as usize % turns.len();
    turns.rotate_left(first);
    turns
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::*;

    #[test]
    fn over_as_many_rounds_as_there_are_turns_each_has_every_place_once() {
        let floors = ROWS.iter().map(|row| row.work.floor());
        let with_floor = floors.clone().find(Option::is_some).expect("rows have floors");
        for floor in [None, with_floor] {
            let count = turns(0, floor).len();
            assert_eq!(count, 2 + usize::from(floor.is_some()));
            for place in 0..count {
                let first = turns(1, floor)[place];
                let others = (2..=count as u32).map(|round| turns(round, floor)[place]);
                assert!(others.into_iter().all(|turn| turn != first), "{floor:?}, place {place}");
            }
        }
    }
}
