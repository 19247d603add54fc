//! What a figure is to reach, and whether it does. Pure.

/// A figure that is shown.
pub struct Bar {
    /// Its name in [`super::figures::Figures`].
    pub figure: &'static str,
    /// For the table.
    pub title: &'static str,
    /// What is to be reached.
    pub limit: Limit,
}

/// What the candidate is to reach.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Limit {
    /// Its own figure is at most this.
    AtMost(f64),
    /// Its own figure is at most this; or, where the floor measured in the same rounds lies above it, a
    /// fifth more than the floor.
    AtMostOrFloor(f64),
    /// Its figure is at least so many times the reference's.
    TimesReference(f64),
    /// Its figure is at least so many times the reference's, or at least this share of what the device alone reaches in the
    /// same rounds.
    TimesReferenceOrDevice(f64, f64),
    /// Its figure is at most so many times its own in this other row of the same run.
    TimesRow(&'static str, f64),
    /// Nothing: shown only.
    Shown,
}

/// A bar of a row.
pub const fn bar(figure: &'static str, title: &'static str, limit: Limit) -> Bar {
    Bar { figure, title, limit }
}

/// How much more than the floor a figure may be that cannot be below it.
const ABOVE_FLOOR: f64 = 1.2;

/// The medians that a bar is held against.
#[derive(Clone, Copy, Debug)]
pub struct Medians {
    /// Of what is judged.
    pub candidate: f64,
    /// Of what it is compared with.
    pub reference: f64,
    /// Of the floor, where it was measured.
    pub floor: Option<f64>,
    /// Of what is judged, in the other row that the bar names.
    pub other_row: Option<f64>,
}

impl Limit {
    /// Whether the medians reach it; `None` where nothing is to be reached, or what it takes to say so
    /// was not measured.
    pub fn met(self, medians: Medians) -> Option<bool> {
        let Medians { candidate, reference, floor, other_row } = medians;
        match self {
            Limit::AtMost(most) => Some(candidate <= most),
            Limit::AtMostOrFloor(most) => Some(candidate <= Limit::above_floor(most, floor)),
            Limit::TimesReference(times) => Some(candidate >= times * reference),
            Limit::TimesReferenceOrDevice(times, share) => {
                let device = floor.is_some_and(|device| candidate >= share * device);
                Some(device || candidate >= times * reference)
            }
            Limit::TimesRow(_, times) => other_row.map(|other| candidate <= times * other),
            Limit::Shown => None,
        }
    }

    /// What is to be reached where the floor may lie above `most`.
    pub fn above_floor(most: f64, floor: Option<f64>) -> f64 {
        floor.filter(|floor| *floor > most).map_or(most, |floor| floor * ABOVE_FLOOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn medians(reference: f64, candidate: f64) -> Medians {
        Medians { candidate, reference, floor: None, other_row: None }
    }

    #[test]
    fn a_bar_is_missed_on_the_wrong_side_only() {
        assert_eq!(Limit::AtMost(2.0).met(medians(9.0, 2.0)), Some(true));
        assert_eq!(Limit::AtMost(2.0).met(medians(9.0, 2.1)), Some(false));
        assert_eq!(Limit::TimesReference(1.3).met(medians(100.0, 130.0)), Some(true));
        assert_eq!(Limit::TimesReference(1.3).met(medians(100.0, 129.0)), Some(false));
        assert_eq!(Limit::Shown.met(medians(1.0, 1.0)), None);
    }

    #[test]
    fn the_floor_counts_only_where_it_lies_above_the_bar() {
        let met = |candidate, floor| {
            Limit::AtMostOrFloor(50.0).met(Medians { floor, ..medians(1.0, candidate) })
        };
        assert_eq!(met(51.0, None), Some(false));
        assert_eq!(met(51.0, Some(49.0)), Some(false), "the floor is below the bar");
        assert_eq!(met(72.0, Some(60.0)), Some(true));
        assert_eq!(met(72.1, Some(60.0)), Some(false));
    }

    #[test]
    fn who_cannot_beat_the_reference_may_reach_the_device() {
        let met = |candidate, floor| {
            Limit::TimesReferenceOrDevice(1.2, 0.8)
                .met(Medians { floor, ..medians(100.0, candidate) })
        };
        assert_eq!(met(120.0, None), Some(true));
        assert_eq!(met(119.0, None), Some(false));
        assert_eq!(met(80.0, Some(100.0)), Some(true));
        assert_eq!(met(79.0, Some(100.0)), Some(false));
    }

    #[test]
    fn a_row_that_was_not_measured_decides_nothing() {
        let limit = Limit::TimesRow("other", 1.3);
        assert_eq!(limit.met(medians(1.0, 1.0)), None);
        let other_row = Some(10.0);
        assert_eq!(limit.met(Medians { other_row, ..medians(1.0, 13.0) }), Some(true));
        assert_eq!(limit.met(Medians { other_row, ..medians(1.0, 13.1) }), Some(false));
    }
}
