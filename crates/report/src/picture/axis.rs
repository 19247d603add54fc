//! Axes: where they begin and end, and where their ticks are. All drawing is linear in an axis's own
//! coordinate, which is the logarithm where it is logarithmic and the place in the row where it has categories.

use crate::number;

/// How values become coordinates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scale {
    Linear,
    /// To the base of ten.
    Logarithmic,
    /// 0, 1, 2 …
    Category,
}

/// One axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Axis {
    /// With its unit.
    pub(crate) title: String,
    pub(crate) scale: Scale,
    /// First and last coordinate.
    pub(crate) bounds: (f64, f64),
    /// Coordinates and their labels.
    pub(crate) ticks: Vec<(f64, String)>,
}

impl Axis {
    /// Categories with half a place at both ends.
    pub(crate) fn categories(title: String, labels: Vec<String>) -> Axis {
        let bounds = (-0.5, labels.len() as f64 - 0.5);
        let ticks = labels.into_iter().enumerate().map(|(i, l)| (i as f64, l)).collect();
        Axis { title, scale: Scale::Category, bounds, ticks }
    }

    /// An axis for values: from zero, or over decades.
    pub(crate) fn values(title: String, values: &[f64], logarithmic: bool) -> Axis {
        let positive: Vec<f64> = values.iter().copied().filter(|v| *v > 0.0).collect();
        if logarithmic && !positive.is_empty() {
            return Axis::decades(title, &positive);
        }
        let high = values.iter().copied().fold(0.0, f64::max);
        let low = values.iter().copied().fold(0.0, f64::min);
        Axis::linear(title, low, if high > low { high } else { low + 1.0 })
    }

    /// Between bounds that somebody else chose, further where values lie outside: drawn on the edge they would be
    /// other values. Where it begins has a label, so that one sees what is cut off.
    pub(crate) fn between(title: String, (low, high): (f64, f64), values: &[f64]) -> Axis {
        const ROOM_FOR_LABEL: f64 = 0.06;
        let step = nice_step((high - low) / 5.0);
        let (least, most) =
            values.iter().fold((low, high), |(l, h), v| (f64::min(l, *v), f64::max(h, *v)));
        let low = if least < low { (least / step).floor() * step } else { low };
        let high = if most > high { (most / step).ceil() * step } else { high };
        let first = (low / step - 1e-9).ceil() as i64;
        let last = (high / step + 1e-9).floor() as i64;
        let digits = number::digits_for(step, 1).max(fraction_digits(step));
        let label =
            |v: f64| if v.abs() < 1e4 { number::fixed(v, digits) } else { number::fixed(v, 0) };
        let round = (first..=last).map(|i| i as f64 * step);
        let start =
            Some(low).filter(|low| first as f64 * step - low > (high - low) * ROOM_FOR_LABEL);
        let ticks = start.into_iter().chain(round).map(|v| (v, label(v))).collect();
        Axis { title, scale: Scale::Linear, bounds: (low, high), ticks }
    }

    fn linear(title: String, low: f64, high: f64) -> Axis {
        let step = nice_step((high - low) / 5.0);
        let first = (low / step).floor() as i64;
        let last = (high / step - 1e-9).ceil() as i64;
        let ticks =
            (first..=last).map(|i| (i as f64 * step, number::tick(i as f64 * step))).collect();
        Axis {
            title,
            scale: Scale::Linear,
            bounds: (first as f64 * step, last as f64 * step),
            ticks,
        }
    }

    /// Whole decades where there are several; else 1, 2 and 5 of each.
    fn decades(title: String, positive: &[f64]) -> Axis {
        let low = positive.iter().copied().fold(f64::INFINITY, f64::min).log10();
        let high = positive.iter().copied().fold(0.0, f64::max).log10();
        let (first, last) = ((low + 1e-9).floor(), (high - 1e-9).ceil());
        let fine = last - first <= 2.0;
        let mut marks: Vec<f64> = Vec::new();
        for decade in first as i32..=last as i32 {
            let steps: &[f64] = if fine { &[1.0, 2.0, 5.0] } else { &[1.0] };
            marks.extend(steps.iter().map(|step| step * 10f64.powi(decade)));
        }
        let below = |mark: &&f64| mark.log10() <= low + 1e-9;
        let above = |mark: &&f64| mark.log10() >= high - 1e-9;
        let start = marks.iter().rfind(below).map_or(first, |mark| mark.log10());
        let end = marks.iter().find(above).map_or(last, |mark| mark.log10());
        let end = if end > start { end } else { start + 1.0 };
        let inside = |at: &f64| (start - 1e-9..=end + 1e-9).contains(at);
        let places = marks.iter().map(|mark| (mark.log10(), number::tick(*mark)));
        let ticks = places.filter(|(at, _)| inside(at)).collect();
        Axis { title, scale: Scale::Logarithmic, bounds: (start, end), ticks }
    }

    /// An axis whose ticks are the levels that were run: logarithmic where they span more than fifty times.
    pub(crate) fn levels(title: String, levels: &[f64], label: impl Fn(f64) -> String) -> Axis {
        let low = levels.iter().copied().fold(f64::INFINITY, f64::min);
        let high = levels.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let logarithmic = low > 0.0 && high / low > 50.0;
        let scale = if logarithmic { Scale::Logarithmic } else { Scale::Linear };
        let mut axis = Axis { title, scale, bounds: (0.0, 1.0), ticks: Vec::new() };
        let (first, last) = (axis.at(low), axis.at(high));
        let from_zero = !logarithmic && low > 0.0 && low <= (high - low) * 0.5;
        let room = if last > first { (last - first) * 0.04 } else { 0.5 };
        axis.bounds = (if from_zero { 0.0 } else { first - room }, last + room);
        axis.ticks = spread(&axis, levels, label);
        axis
    }

    /// The coordinate of a value.
    pub(crate) fn at(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Logarithmic => value.max(f64::MIN_POSITIVE).log10(),
            Scale::Linear | Scale::Category => value,
        }
    }

    /// The coordinate of a value, held within the axis.
    pub(crate) fn within(&self, value: f64) -> f64 {
        self.at(value).clamp(self.bounds.0, self.bounds.1)
    }
}

/// The levels as ticks, less those whose labels would touch: the first and the last stay.
fn spread(axis: &Axis, levels: &[f64], label: impl Fn(f64) -> String) -> Vec<(f64, String)> {
    const WIDTH_CHARACTERS: f64 = 70.0;
    let per_character = (axis.bounds.1 - axis.bounds.0) / WIDTH_CHARACTERS;
    let mut ticks: Vec<(f64, String)> = Vec::new();
    let half = |text: &str| (text.chars().count() as f64 + 1.5) / 2.0 * per_character;
    for level in levels.iter().rev() {
        let (at, text) = (axis.at(*level), label(*level));
        let touches = |(other, name): &(f64, String)| other - at < half(name) + half(&text);
        if !ticks.last().is_some_and(touches) {
            ticks.push((at, text));
        }
    }
    ticks.reverse();
    ticks
}

/// The smallest of 1, 2, 2.5, 5 times a power of ten that is not below `rough`.
fn nice_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let of = [1.0, 2.0, 2.5, 5.0, 10.0];
    let step = of.iter().find(|step| *step * power >= rough * (1.0 - 1e-9));
    step.unwrap_or(&10.0) * power
}

fn fraction_digits(step: f64) -> usize {
    let whole = |d: &i32| (step * 10f64.powi(*d)).fract().abs() < 1e-6;
    (0..6).find(whole).unwrap_or(6) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis) -> Vec<&str> {
        axis.ticks.iter().map(|(_, label)| label.as_str()).collect()
    }

    #[test]
    fn values_start_at_zero_and_end_on_a_tick() {
        let axis = Axis::values("t".into(), &[523_964.0, 1_500_954.0], false);
        assert_eq!(axis.bounds, (0.0, 2_000_000.0));
        assert_eq!(labels(&axis), ["0", "500 k", "1 M", "1.5 M", "2 M"]);
    }

    #[test]
    fn bounds_of_others_are_kept_unless_values_lie_outside() {
        let kept = Axis::between("t".into(), (30_000.0, 34_000.0), &[30_937.0, 33_322.0]);
        assert_eq!(kept.bounds, (30_000.0, 34_000.0));
        let wider = Axis::between("t".into(), (15_000.0, 70_000.0), &[16_102.0, 72_122.0]);
        assert_eq!(wider.bounds, (15_000.0, 80_000.0));
        assert_eq!(labels(&wider), ["15,000", "20,000", "40,000", "60,000", "80,000"]);
    }

    #[test]
    fn logarithmic_values_span_marks_around_them() {
        let axis = Axis::values("t".into(), &[4.0, 4_400.0], true);
        assert_eq!(labels(&axis), ["1", "10", "100", "1,000", "10 k"]);
        let narrow = Axis::values("t".into(), &[120.0, 430.0], true);
        assert_eq!(labels(&narrow), ["100", "200", "500"]);
    }

    #[test]
    fn levels_far_apart_make_the_axis_logarithmic() {
        let sizes = [1024.0, 10_240.0, 102_400.0, 512_000.0];
        let axis = Axis::levels("size".into(), &sizes, number::published);
        assert_eq!(axis.scale, Scale::Logarithmic);
        let few = Axis::levels("n".into(), &[1.0, 3.0, 5.0], number::published);
        assert_eq!((few.scale, few.bounds.0), (Scale::Linear, 0.0));
    }

    #[test]
    fn labels_never_touch_and_the_last_stays() {
        let close = [1000.0, 1001.0, 1002.0, 200_000.0];
        let axis = Axis::levels("n".into(), &close, number::published);
        assert_eq!(labels(&axis), ["1,002", "200,000"]);
    }
}
