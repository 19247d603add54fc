//! How far a group was behind over time: two charts, of an hour or of a day.

use maud::{Markup, html};
use serving::lag::history::{COARSE_MS, FINE_MS, Lag};

use crate::Visit;
use crate::parts::chart::{self, Line, Point};
use crate::parts::number::{about, behind, duration, maybe};
use crate::query::link;
use crate::snapshot::GroupView;

/// A value holds until the next look, which is a minute away while no page is asked for, and some seconds more.
const HELD_MS: i64 = 90_000;

/// What the charts show.
struct Span {
    points: Vec<(i64, Option<Lag>)>,
    /// Of one point.
    step_ms: i64,
    /// Of the chart.
    span_ms: i64,
    /// Where the axis begins, in words.
    begin: &'static str,
}

pub(super) fn charts(visit: &Visit<'_>, group: &GroupView) -> Markup {
    let is_day = visit.query.get("range") == Some("day");
    let history = group.history();
    let span = if is_day {
        Span {
            points: history.day().collect(),
            step_ms: COARSE_MS,
            span_ms: 24 * 3_600_000,
            begin: "24 h ago",
        }
    } else {
        Span {
            points: history.hour().collect(),
            step_ms: FINE_MS,
            span_ms: 3_600_000,
            begin: "1 h ago",
        }
    };
    let to_ms = visit.snapshot.taken_ms;
    let records = span.values(to_ms, |lag| lag.records as f64);
    let ages = span.values(to_ms, |lag| lag.ms as f64);
    html! {
        nav.choices aria-label="Span of the charts" {
            a href=(link("/console/group", &[("id", &group.id)])) aria-current=[(!is_day).then_some("true")] { "Hour" }
            a href=(link("/console/group", &[("id", &group.id), ("range", "day")])) aria-current=[is_day.then_some("true")] { "Day" }
        }
        div.charts {
            (chart::line(&span.line("Records not read", &maybe(group.lag()), &records, to_ms, |records| about(records as u64))))
            (chart::line(&span.line("Behind", &behind(group.behind()), &ages, to_ms, |ms| duration(ms as i64))))
        }
        p.quiet {
            "Measured since the first page of this console was asked for, at most a day; "
            @if is_day { "each minute shows its worst value." } @else { "a value each 15 s while a page is open, one a minute otherwise." }
        }
    }
}

impl Span {
    /// The values that are drawn, oldest first.
    fn values(&self, to_ms: i64, value: fn(&Lag) -> f64) -> Vec<Point> {
        let from_ms = to_ms - self.span_ms;
        let mut held: Option<(i64, f64)> = None;
        let drawn =
            self.points.iter().filter(|(at_ms, _)| *at_ms >= from_ms).map(|(at_ms, lag)| {
                if let Some(lag) = lag {
                    held = Some((*at_ms, value(lag)));
                }
                let is_held = |(since_ms, _): &(i64, f64)| at_ms - since_ms < HELD_MS;
                (*at_ms, held.filter(is_held).map(|(_, value)| value))
            });
        drawn.collect()
    }

    fn line<'a>(
        &self,
        title: &'a str,
        now: &'a str,
        points: &'a [Point],
        to_ms: i64,
        words: fn(f64) -> String,
    ) -> Line<'a> {
        let (from_ms, step_ms, ends) = (to_ms - self.span_ms, self.step_ms, (self.begin, "now"));
        Line { title, now, points, from_ms, to_ms, step_ms, words, ends }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_holds_until_the_next_look_and_not_longer() {
        let lag = |records| Some(Lag { records, ms: 0 });
        let mut points: Vec<_> = (0..10).map(|slot| (slot * FINE_MS, None)).collect();
        (points[0].1, points[4].1) = (lag(7), lag(9));
        let span = Span { points, step_ms: FINE_MS, span_ms: 3_600_000, begin: "" };
        let values: Vec<_> =
            span.values(0, |lag| lag.records as f64).into_iter().map(|(_, value)| value).collect();
        let expected = [Some(7.0); 4].into_iter().chain([Some(9.0); 6]).collect::<Vec<_>>();
        assert_eq!(values, expected);
        let mut longer: Vec<_> = (0..20).map(|slot| (slot * FINE_MS, None)).collect();
        longer[0].1 = lag(7);
        let span = Span { points: longer, ..span };
        assert_eq!(
            span.values(0, |lag| lag.records as f64)
                .iter()
                .filter(|(_, value)| value.is_some())
                .count(),
            6
        );
    }
}
