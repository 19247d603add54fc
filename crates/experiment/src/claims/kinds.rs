//! Each kind of predicate as numbers to be judged.

use super::judge::{Bounds, Check, Standing, digits, judge, outcome, ratio, shown, together};
use super::rows::{accepts, groups, number};
use super::{Direction, Estimate, Filter, Outcome, Row, Rows, Share, Test, Want};
use crate::definition::{Level, Levels};

type Judged = (Outcome, String);

/// Rows that do not lie together by luck.
const TOGETHER: usize = 5;

/// Tests a predicate on an experiment's rows.
pub(super) fn run(test: &Test, experiment: &str, all: &Rows) -> Judged {
    let rows = all.of(experiment);
    match test {
        Test::All { tests } => each(tests.iter().map(|test| run(test, experiment, all))),
        Test::Published { test } if all.published => run(test, experiment, all),
        Test::Published { .. } => not_testable("it is about the published numbers"),
        Test::Measured { test } if !all.published => run(test, experiment, all),
        Test::Measured { .. } => not_testable("the published runs were made otherwise"),
        Test::Untestable { why } => not_testable(why),
        _ if rows.is_empty() => not_testable(match all.published {
            true => "the report gives no numbers",
            false => "no row of this experiment was measured",
        }),
        Test::Counts { exact, filter } => counts(rows, exact, filter),
        Test::Even { sigmas, filter } => even(rows, *sigmas, filter),
        Test::Ratio { to_experiment, .. } => {
            let below = to_experiment.as_deref().map_or(rows, |other| all.of(other));
            ratio_of_rows(test, rows, below)
        }
        _ => of_metric(test, rows),
    }
}

fn not_testable(why: &str) -> Judged {
    (Outcome::NotTestable, why.to_owned())
}

/// The kinds that look at one metric of one experiment.
fn of_metric(test: &Test, rows: &[Row]) -> Judged {
    match test {
        Test::Monotone { metric, over, direction, tolerance, groups: by, filter } => {
            let series = groups(rows, filter, by);
            let steps = Steps { metric, over, direction: *direction, tolerance: *tolerance };
            each(series.values().map(|rows| steps.judge(rows, by)))
        }
        Test::Flat { metric, at_most, groups: by, filter } => {
            let what = format!("largest by smallest {metric}");
            let checks = groups(rows, filter, by);
            let checks = checks.values().filter_map(|rows| {
                Some(Check {
                    label: label(rows[0], by),
                    estimate: largest_by_smallest(rows, metric)?,
                    rounds: 0,
                })
            });
            judge(&what, &checks.collect::<Vec<_>>(), Bounds::at_most(*at_most), Share::Each)
        }
        Test::Bound { metric, at_least, at_most, share, filter } => {
            let checks = rows.iter().filter(|row| accepts(filter, row)).filter_map(|row| {
                Some(Check {
                    label: label_beside(row, filter),
                    estimate: *row.metrics.get(metric)?,
                    rounds: if row.noise.contains_key(metric) { row.rounds } else { 0 },
                })
            });
            let bounds = Bounds { at_least: *at_least, at_most: *at_most };
            judge(
                &format!("{metric}{}", where_label(filter)),
                &checks.collect::<Vec<_>>(),
                bounds,
                *share,
            )
        }
        Test::Worst { metric, at_most, trials, trials_min, filter } => {
            let rows: Vec<&Row> = rows.iter().filter(|row| accepts(filter, row)).collect();
            worst(&rows, metric, *at_most, (trials, *trials_min), filter)
        }
        Test::Separated { metric, low, high, at_least } => {
            separated(rows, metric, [low, high], *at_least)
        }
        Test::PowerLaw { metric, over, exponent, within, groups: by, filter } => {
            let checks = groups(rows, filter, by);
            let checks = checks.values().filter_map(|rows| {
                let estimate = slope(rows, metric, over)?;
                Some(Check { label: label(rows[0], by), estimate, rounds: 0 })
            });
            let bounds =
                Bounds { at_least: Some(exponent - within), at_most: Some(exponent + within) };
            let what = format!("power of {over} that {metric} goes with");
            judge(&what, &checks.collect::<Vec<_>>(), bounds, Share::Each)
        }
        Test::GapShrinks { metric, of, to, over, filter } => {
            gap_shrinks(rows, metric, [of, to, filter], over)
        }
        _ => not_testable("this kind is tested elsewhere"),
    }
}

/// Whether a metric of any round is above a bound.
fn worst(
    rows: &[&Row],
    metric: &str,
    at_most: f64,
    (trials, trials_min): (&str, f64),
    filter: &Filter,
) -> Judged {
    let worst = rows.iter().filter_map(|row| Some((*row.worst.get(metric)?, *row)));
    let mut all: Vec<(f64, &Row)> = worst.collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let Some((most, of)) = all.last().copied() else {
        return not_testable(&format!("{metric} was not measured{}", where_label(filter)));
    };
    let tried =
        |row: &Row| row.metrics.get(trials).map_or(0.0, |mean| mean.value * row.rounds as f64);
    let fewest = all.iter().map(|(_, row)| tried(row)).min_by(f64::total_cmp).unwrap_or(0.0);
    let text = format!(
        "{metric}{}: {} at worst ({}), after {} {trials} or more; claimed at most {}",
        where_label(filter),
        digits(most),
        label_beside(of, filter),
        digits(fewest),
        digits(at_most)
    );
    match (most <= at_most, fewest >= trials_min) {
        (false, _) => (Outcome::Contradicted, text),
        (true, true) => (Outcome::Reproduced, text),
        (true, false) => {
            (Outcome::WithinNoise, format!("{text}; it takes {} {trials}", digits(trials_min)))
        }
    }
}

fn each(judged: impl Iterator<Item = Judged>) -> Judged {
    let judged: Vec<Judged> = judged.collect();
    if judged.is_empty() {
        return not_testable("no rows are as the claim wants them");
    }
    let mut texts: Vec<&str> = judged.iter().map(|(_, text)| text.as_str()).collect();
    texts.dedup();
    (together(judged.iter().map(|(outcome, _)| *outcome)), texts.join(". "))
}

/// A row's metric, and how far it may be off beside another row's.
#[derive(Debug, Clone, Copy)]
struct Point {
    estimate: Estimate,
    noise: f64,
}

impl Point {
    fn of(row: &Row, metric: &str) -> Option<Point> {
        Some(Point { estimate: *row.metrics.get(metric)?, noise: row.noise(metric) })
    }

    fn value(&self) -> f64 {
        self.estimate.value
    }
}

/// One row's metric by another's.
fn ratio_of(above: Point, below: Point) -> Estimate {
    ratio(above.estimate, below.estimate, above.noise.hypot(below.noise))
}

/// A metric along a factor.
struct Steps<'a> {
    metric: &'a str,
    over: &'a str,
    direction: Direction,
    tolerance: f64,
}

impl Steps<'_> {
    /// The ends decide, and a step that clearly goes back contradicts.
    fn judge(&self, rows: &[&Row], by: &[String]) -> Judged {
        let points = points(rows, self.metric, self.over);
        let (Some(first), Some(last)) = (points.first(), points.last()) else {
            return not_testable(&format!("no {} along {}", self.metric, self.over));
        };
        if first.0 == last.0 {
            return not_testable(&format!("only one level of {} was measured", self.over));
        }
        let ends = ratio_of(last.1, first.1);
        let standing = match self.bounds(0.0).standing(ends) {
            Standing::Holds if self.goes_back(&points).is_some() => Standing::Fails,
            standing => standing,
        };
        let back = self.goes_back(&points).map(|at| format!(", but goes back at {}", digits(at)));
        let of = Some(label(rows[0], by)).filter(|label| !label.is_empty());
        let text = format!(
            "{}{} from {}={} to {}: {} to {}, a ratio of {}{}",
            self.metric,
            of.map(|label| format!(" ({label})")).unwrap_or_default(),
            self.over,
            digits(first.0),
            digits(last.0),
            digits(first.1.value()),
            digits(last.1.value()),
            shown(ends),
            back.unwrap_or_default(),
        );
        (outcome(standing), text)
    }

    fn bounds(&self, tolerance: f64) -> Bounds {
        match self.direction {
            Direction::Rises => Bounds::at_least(1.0 - tolerance),
            Direction::Falls => Bounds::at_most(1.0 + tolerance),
        }
    }

    fn goes_back(&self, points: &[(f64, Point)]) -> Option<f64> {
        let back = |pair: &&[(f64, Point)]| {
            let step = ratio_of(pair[1].1, pair[0].1);
            self.bounds(self.tolerance).standing(step) == Standing::Fails
        };
        points.windows(2).find(back).map(|pair| pair[1].0)
    }
}

/// A metric along a factor, in its order.
fn points(rows: &[&Row], metric: &str, over: &str) -> Vec<(f64, Point)> {
    let point = |row: &&Row| Some((number(row, over)?, Point::of(row, metric)?));
    let mut points: Vec<_> = rows.iter().filter_map(point).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    points
}

/// Noise makes the largest larger and the smallest smaller, so rows that lie together do so in spite of it: from
/// [`TOGETHER`] rows on it only widens the ratio downwards.
fn largest_by_smallest(rows: &[&Row], metric: &str) -> Option<Estimate> {
    let points: Vec<Point> = rows.iter().filter_map(|row| Point::of(row, metric)).collect();
    // One row alone is flat, but shows nothing.
    (points.len() > 1).then_some(())?;
    let by_value = |a: &&Point, b: &&Point| a.value().total_cmp(&b.value());
    let (least, most) = (points.iter().min_by(by_value)?, points.iter().max_by(by_value)?);
    let mut estimate = ratio_of(*most, *least);
    if points.len() >= TOGETHER {
        estimate.high = ratio(most.estimate, least.estimate, 0.0).high;
    }
    Some(estimate)
}

fn separated(rows: &[Row], metric: &str, [low, high]: [&Filter; 2], at_least: f64) -> Judged {
    let of = |filter: &Filter| -> Vec<Point> {
        let rows = rows.iter().filter(|row| accepts(filter, row));
        rows.filter_map(|row| Point::of(row, metric)).collect()
    };
    let by_value = |a: &Point, b: &Point| a.value().total_cmp(&b.value());
    let (Some(below), Some(above)) =
        (of(low).into_iter().max_by(by_value), of(high).into_iter().min_by(by_value))
    else {
        return not_testable(&format!("{metric} is missing on one side of the step"));
    };
    let what = format!(
        "smallest {metric} above the step ({}) by the largest below ({})",
        digits(above.value()),
        digits(below.value())
    );
    let check = Check { label: String::new(), estimate: ratio_of(above, below), rounds: 0 };
    judge(&what, &[check], Bounds::at_least(at_least), Share::Each)
}

/// The slope of logarithms by least squares. It may be off by what the points' intervals, taken as independent, make of
/// it. Single rounds have none: then by what the points' scatter about the line makes of it, or, of two points, their
/// noise.
fn slope(rows: &[&Row], metric: &str, over: &str) -> Option<Estimate> {
    let points = points(rows, metric, over);
    let points: Vec<_> = points.into_iter().filter(|(x, y)| *x > 0.0 && y.value() > 0.0).collect();
    let n = points.len() as f64;
    let mean = points.iter().map(|(x, _)| x.ln()).sum::<f64>() / n;
    let squares: f64 = points.iter().map(|(x, _)| (x.ln() - mean).powi(2)).sum();
    if points.len() < 2 || squares == 0.0 {
        return None;
    }
    let weight = |x: f64| (x.ln() - mean) / squares;
    let value: f64 = points.iter().map(|(x, y)| weight(*x) * y.value().ln()).sum();
    let is_single = |y: &Point| y.noise > 0.0 && y.estimate.low == y.estimate.high;
    let scatter = || {
        let points: Vec<_> = points.iter().map(|(x, y)| (x.ln(), y.value().ln())).collect();
        Some(stats::line::line(&points).ok()?.slope_interval.half_width())
    };
    let scatter = points.iter().any(|(_, y)| is_single(y)).then(scatter).flatten();
    let off = |y: &Point| match (is_single(y), scatter) {
        (true, None) => y.noise,
        _ => (y.estimate.high / y.estimate.low).ln() / 2.0,
    };
    // A point in the middle has no weight, however far it may be off.
    let part = |weight: f64, off: f64| if weight == 0.0 { 0.0 } else { (weight * off).powi(2) };
    let half = points.iter().map(|(x, y)| part(weight(*x), off(y))).sum::<f64>().sqrt();
    let half = scatter.map_or(half, |scatter| half.max(scatter));
    Some(Estimate { value, low: value - half, high: value + half })
}

fn ratio_of_rows(test: &Test, above: &[Row], below: &[Row]) -> Judged {
    let Test::Ratio { metric, of, to, to_experiment, matching, at_least, at_most, share, filter } =
        test
    else {
        return not_testable("no ratio");
    };
    let pairs = pairs(above, below, [of, to, filter], matching.as_deref());
    let checks = pairs.into_iter().filter_map(|(above, below)| {
        let estimate = ratio_of(Point::of(above, metric)?, Point::of(below, metric)?);
        let label = pair_label(above, of, filter, matching.as_deref());
        Some(Check { label, estimate, rounds: 0 })
    });
    let other = to_experiment.as_ref().map(|other| format!("{other} ")).unwrap_or_default();
    let what = format!("{metric}, {} by {other}{}", filter_label(of), filter_label(to));
    let bounds = Bounds { at_least: *at_least, at_most: *at_most };
    judge(&what, &checks.collect::<Vec<_>>(), bounds, *share)
}

/// Rows of one sort, each with the rows of the other sort that agree with it.
fn pairs<'a>(
    above: &'a [Row],
    below: &'a [Row],
    [of, to, filter]: [&Filter; 3],
    matching: Option<&[String]>,
) -> Vec<(&'a Row, &'a Row)> {
    let key = |row: &Row| -> Levels {
        let kept = |factor: &String| match matching {
            Some(matching) => matching.contains(factor),
            None => !of.contains_key(factor) && !to.contains_key(factor),
        };
        row.cell
            .iter()
            .filter(|(factor, _)| kept(factor))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    };
    let mut pairs = Vec::new();
    for one in above.iter().filter(|row| accepts(of, row) && accepts(filter, row)) {
        let own = key(one);
        let agrees = |row: &&Row| accepts(to, row) && accepts(filter, row) && key(row) == own;
        pairs.extend(below.iter().filter(agrees).map(|other| (one, other)));
    }
    pairs
}

fn gap_shrinks(rows: &[Row], metric: &str, [of, to, filter]: [&Filter; 3], over: &str) -> Judged {
    let mut gaps: Vec<(f64, Vec<Estimate>)> = Vec::new();
    for (above, below) in pairs(rows, rows, [of, to, filter], None) {
        let (Some(at), Some(a), Some(b)) =
            (number(above, over), Point::of(above, metric), Point::of(below, metric))
        else {
            continue;
        };
        let one = ratio_of(a, b);
        match gaps.iter_mut().find(|(level, _)| *level == at) {
            Some((_, ratios)) => ratios.push(one),
            None => gaps.push((at, vec![one])),
        }
    }
    gaps.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (Some(first), Some(last)) = (gaps.first(), gaps.last()) else {
        return not_testable(&format!("no pairs of {metric} along {over}"));
    };
    if first.0 == last.0 {
        return not_testable(&format!("only one level of {over} was measured"));
    }
    let (wide, narrow) = (gap(&first.1), gap(&last.1));
    let off = |e: Estimate| (e.high - e.low) / 2.0;
    let half = off(wide).hypot(off(narrow));
    let value = wide.value - narrow.value;
    let standing =
        Bounds::at_least(0.0).standing(Estimate { value, low: value - half, high: value + half });
    let percent = |gap: Estimate| format!("{} %", digits(gap.value.exp_m1() * 100.0));
    let text = format!(
        "gap of {metric}, {} to {}: {} at {over}={}, {} at {}",
        filter_label(of),
        filter_label(to),
        percent(wide),
        digits(first.0),
        percent(narrow),
        digits(last.0)
    );
    (outcome(standing), text)
}

/// How far apart, in logarithms, on average: the value is not negative.
fn gap(ratios: &[Estimate]) -> Estimate {
    let n = ratios.len() as f64;
    let value = ratios.iter().map(|one| one.value.ln().abs()).sum::<f64>() / n;
    let off = |one: &Estimate| (one.high / one.low).ln() / 2.0;
    let half = ratios.iter().map(|one| off(one).powi(2)).sum::<f64>().sqrt() / n;
    Estimate { value, low: value - half, high: value + half }
}

fn counts(rows: &[Row], exact: &[u64], filter: &Filter) -> Judged {
    let found: Vec<&Row> =
        rows.iter().filter(|row| accepts(filter, row) && !row.counts.is_empty()).collect();
    if found.is_empty() {
        return not_testable(&format!("no counts for {}", filter_label(filter)));
    }
    let total: u64 = exact.iter().sum();
    let times = found[0].counts.iter().sum::<u64>() / total.max(1);
    let same = |row: &&Row| {
        let sum: u64 = row.counts.iter().sum();
        let scaled = |(own, wanted): (&u64, &u64)| {
            u128::from(*own) * u128::from(total) == u128::from(*wanted) * u128::from(sum)
        };
        row.counts.len() == exact.len() && row.counts.iter().zip(exact).all(scaled)
    };
    let standing = if found.iter().all(same) { Standing::Holds } else { Standing::Fails };
    let counted = match times {
        0 | 1 => String::new(),
        times => format!(", {times} times over"),
    };
    let text = format!("{}; claimed {}{counted}", listed(&found[0].counts), listed(exact));
    (outcome(standing), text)
}

fn listed(counts: &[u64]) -> String {
    counts.iter().map(u64::to_string).collect::<Vec<_>>().join(" / ")
}

/// Half as many standard deviations again are open: chance does that too, though rarely.
fn even(rows: &[Row], sigmas: f64, filter: &Filter) -> Judged {
    let checks = rows.iter().filter(|row| accepts(filter, row) && row.counts.len() > 1);
    let checks: Vec<Check> = checks
        .map(|row| {
            let sum = row.counts.iter().sum::<u64>() as f64;
            let share = 1.0 / row.counts.len() as f64;
            let sigma = (sum * share * (1.0 - share)).sqrt();
            let off = row.counts.iter().map(|count| (*count as f64 - sum * share).abs());
            let value = off.fold(0.0, f64::max) / sigma;
            let low = if value > sigmas { value / 1.5 } else { value };
            let estimate = Estimate { value, low, high: value };
            Check { label: listed(&row.counts), estimate, rounds: 0 }
        })
        .collect();
    judge("standard deviations from even", &checks, Bounds::at_most(sigmas), Share::Each)
}

/// Some of a row's factors: `a=1, b=2`.
fn label(row: &Row, factors: &[String]) -> String {
    let one = |factor: &String| Some(equals(factor, row.cell.get(factor)?));
    factors.iter().filter_map(one).collect::<Vec<_>>().join(", ")
}

/// `a=1`. A broker's setting goes by its own name.
fn equals(factor: &str, level: &Level) -> String {
    let name = factor.strip_prefix("broker_settings.").unwrap_or(factor);
    match level.to_string() {
        none if none.is_empty() => format!("{name}=default"),
        some => format!("{name}={some}"),
    }
}

/// A row's factors but those that a filter fixes.
fn label_beside(row: &Row, filter: &Filter) -> String {
    let fixed = |factor: &str| matches!(filter.get(factor), Some(Want::One(_)));
    let factors: Vec<String> = row.cell.keys().filter(|factor| !fixed(factor)).cloned().collect();
    label(row, &factors)
}

/// Which of several pairs it is: in what it agrees, and what only its upper row is.
fn pair_label(row: &Row, of: &Filter, filter: &Filter, matching: Option<&[String]>) -> String {
    let told = |factor: &str| {
        let fixed = |filter: &Filter| matches!(filter.get(factor), Some(Want::One(_)));
        fixed(of) || fixed(filter)
    };
    let shown = |factor: &str| match matching {
        Some(matching) => matching.iter().any(|one| one == factor) || of.contains_key(factor),
        None => true,
    };
    let factors = row.cell.keys().filter(|factor| shown(factor) && !told(factor));
    label(row, &factors.cloned().collect::<Vec<_>>())
}

/// A filter in words, behind what it is of.
fn where_label(filter: &Filter) -> String {
    if filter.is_empty() { String::new() } else { format!(" where {}", filter_label(filter)) }
}

/// A filter in words.
fn filter_label(filter: &Filter) -> String {
    let one = |(factor, want): (&String, &Want)| match want {
        Want::One(level) => equals(factor, level),
        Want::Any(levels) => {
            let levels: Vec<String> = levels.iter().map(Level::to_string).collect();
            format!("{factor}={}", levels.join("|"))
        }
        Want::Between(between) => match (between.at_least, between.at_most) {
            (Some(least), Some(most)) => format!("{factor} {} to {}", digits(least), digits(most)),
            (Some(least), None) => format!("{factor} ≥ {}", digits(least)),
            (None, Some(most)) => format!("{factor} ≤ {}", digits(most)),
            (None, None) => factor.clone(),
        },
    };
    let words: Vec<String> = filter.iter().map(one).collect();
    if words.is_empty() { "these".to_owned() } else { words.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_go_by_their_own_names() {
        let setting = "broker_settings.num.io.threads";
        assert_eq!(equals(setting, &Level::Text("24".to_owned())), "num.io.threads=24");
        assert_eq!(equals(setting, &Level::Text(String::new())), "num.io.threads=default");
        assert_eq!(equals("brokers", &Level::Number(3.0)), "brokers=3");
    }
}
