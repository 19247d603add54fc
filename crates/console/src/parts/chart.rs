//! A line over time as SVG, made here: the picture is part of the page, needs no script, and is told in words as well.

use std::fmt::Write;

use maud::{Markup, html};

/// The width of the picture in its own units.
const WIDTH: f64 = 720.0;
/// Its height.
const HEIGHT: f64 = 120.0;

/// A time in milliseconds since 1970, and what was measured then.
pub(crate) type Point = (i64, Option<f64>);

/// What is drawn: values at times, oldest first, from `from_ms` to `to_ms`. `None` where nothing was measured.
pub(crate) struct Line<'a> {
    pub(crate) title: &'a str,
    /// The newest value, in words.
    pub(crate) now: &'a str,
    pub(crate) points: &'a [Point],
    pub(crate) from_ms: i64,
    pub(crate) to_ms: i64,
    /// The time that one point stands for.
    pub(crate) step_ms: i64,
    /// A value in words.
    pub(crate) words: fn(f64) -> String,
    /// The ends of the axis.
    pub(crate) ends: (&'a str, &'a str),
}

/// The picture, its title and its axis.
pub(crate) fn line(line: &Line<'_>) -> Markup {
    let measured = || line.points.iter().filter_map(|(_, value)| *value);
    let top = measured().fold(0.0, f64::max);
    let words = match measured().next() {
        Some(_) => format!("now {}, at most {}", line.now, (line.words)(top)),
        None => "nothing was measured yet".to_owned(),
    };
    html! {
        figure.chart {
            figcaption { span.chart-title { (line.title) } " " span.quiet { (words) } }
            svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img"
                aria-label={ (line.title) ": " (words) } {
                path.chart-grid d={ "M0 0.5H" (WIDTH) "M0 " (HEIGHT / 2.0) "H" (WIDTH) "M0 " (HEIGHT - 0.5) "H" (WIDTH) } {}
                @for run in runs(line) {
                    path.chart-area d=(area(line, run, top)) {}
                    path.chart-line d=(path(line, run, top)) {}
                }
            }
            div.chart-axis aria-hidden="true" { span { (line.ends.0) } span { (line.ends.1) } }
        }
    }
}

/// The points without gaps: each run is drawn for itself.
fn runs<'a>(line: &Line<'a>) -> impl Iterator<Item = &'a [Point]> {
    line.points.split(|(_, value)| value.is_none()).filter(|run| !run.is_empty())
}

fn x(line: &Line<'_>, at_ms: i64) -> f64 {
    let share = (at_ms - line.from_ms) as f64 / ((line.to_ms - line.from_ms).max(1)) as f64;
    (share * WIDTH).clamp(0.0, WIDTH)
}

/// The axis begins at zero.
fn y(value: f64, top: f64) -> f64 {
    let share = if top > 0.0 { value / top } else { 0.0 };
    HEIGHT - 1.0 - share * (HEIGHT - 8.0)
}

/// A step for each point: a value holds for its whole slot.
fn path(line: &Line<'_>, run: &[Point], top: f64) -> String {
    let mut out = String::with_capacity(run.len() * 16);
    for (at, (at_ms, value)) in run.iter().enumerate() {
        let y = y(value.unwrap_or(0.0), top);
        let (begins, ends) = (x(line, *at_ms), x(line, at_ms + line.step_ms));
        let verb = if at == 0 { 'M' } else { 'L' };
        write!(out, "{verb}{begins:.1} {y:.1}H{ends:.1}").expect("a String takes every write");
    }
    out
}

fn area(line: &Line<'_>, run: &[Point], top: f64) -> String {
    format!("{}V{HEIGHT}H{:.1}Z", path(line, run, top), x(line, run[0].0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawn(points: &[Point]) -> String {
        let words = |value: f64| format!("{value}");
        let ends = ("then", "now");
        let (from_ms, to_ms, step_ms) = (0, 100, 10);
        line(&Line { title: "lag", now: "2", points, from_ms, to_ms, step_ms, words, ends })
            .into_string()
    }

    #[test]
    fn a_gap_is_not_bridged() {
        let one = (0, Some(1.0));
        assert_eq!(drawn(&[one, (10, Some(2.0))]).matches("chart-line").count(), 1);
        assert_eq!(drawn(&[one, (10, None), (20, Some(2.0))]).matches("chart-line").count(), 2);
    }

    #[test]
    fn the_picture_is_told_in_words() {
        assert!(
            drawn(&[(0, Some(9.0)), (10, Some(2.0))])
                .contains("aria-label=\"lag: now 2, at most 9\"")
        );
        assert!(drawn(&[]).contains("nothing was measured yet"));
        assert!(drawn(&[(0, Some(0.0))]).contains("d=\"M0.0 119.0H72.0\""));
    }
}
