//! One list of values: where it is, how wide it is, and how sure one may be of its mean.

use crate::{Interval, Refused, at_least, finite};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// Arithmetic mean, in the values' unit. None for no values.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Middle value, or the mean of the two middle ones, in the values' unit. None for no values.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some((sorted[middle - 1] + sorted[middle]) / 2.0),
    }
}

/// Median of the distances from the median (MAD), in the values' unit, not scaled to a standard deviation: times
/// 1.4826 it estimates one for normal values. None for no values.
pub fn median_absolute_deviation(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    median(&values.iter().map(|value| (value - centre).abs()).collect::<Vec<_>>())
}

/// Variance with n − 1 below, in the unit's square. None for fewer than two values.
pub fn variance(values: &[f64]) -> Option<f64> {
    let centre = mean(values)?;
    let squares: f64 = values.iter().map(|value| (value - centre).powi(2)).sum();
    (values.len() > 1).then(|| squares / (values.len() - 1) as f64)
}

/// Standard deviation with n − 1 below, in the values' unit. None for fewer than two values.
pub fn standard_deviation(values: &[f64]) -> Option<f64> {
    variance(values).map(f64::sqrt)
}

/// The value that Student's t with so many degrees of freedom stays within, on both sides, at a level: 2.776 for
/// 4 and 0.95. `freedom` above 0; `level` above 0 and below 1.
///
/// # Panics
/// For arguments outside these ranges.
pub fn t_quantile(freedom: f64, level: f64) -> f64 {
    assert!(level > 0.0 && level < 1.0, "a level is a share");
    let t = StudentsT::new(0.0, 1.0, freedom).expect("degrees of freedom are above 0");
    t.inverse_cdf(0.5 + level / 2.0)
}

/// The chance of a t at least as far from 0, on both sides. `freedom` above 0.
///
/// # Panics
/// If `freedom` is not above 0.
pub fn t_two_sided_p(t: f64, freedom: f64) -> f64 {
    let distribution = StudentsT::new(0.0, 1.0, freedom).expect("degrees of freedom are above 0");
    2.0 * distribution.cdf(-t.abs())
}

/// Confidence interval of the mean by Student's t (Student 1908), in the values' unit; `level` such as 0.95. Right
/// for values that are roughly normal or many; rounds' means usually are.
///
/// # Errors
/// For fewer than two values, or one that is not finite.
pub fn mean_interval(values: &[f64], level: f64) -> Result<Interval, Refused> {
    const METHOD: &str = "an interval of a mean";
    at_least(METHOD, "values", values.len(), 2)?;
    finite(METHOD, values)?;
    let centre = mean(values).expect("there are two values");
    let error =
        standard_deviation(values).expect("there are two values") / (values.len() as f64).sqrt();
    let reach = t_quantile((values.len() - 1) as f64, level) * error;
    Ok(Interval { low: centre - reach, high: centre + reach })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::normal;

    fn near(a: f64, b: f64, by: f64) {
        assert!((a - b).abs() <= by, "{a} is not {b}");
    }

    #[test]
    fn median_of_odd_even_and_none() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn deviation_from_median_of_a_textbook_row() {
        // 1 1 2 2 4 6 9: median 2, distances 1 1 0 0 2 4 7, their median 1.
        assert_eq!(median_absolute_deviation(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), Some(1.0));
    }

    #[test]
    fn t_quantiles_of_the_printed_table() {
        near(t_quantile(1.0, 0.95), 12.706, 1e-3);
        near(t_quantile(4.0, 0.95), 2.776, 1e-3);
        near(t_quantile(29.0, 0.99), 2.756, 1e-3);
        // As far out as gates over many cells look.
        near(t_quantile(4.0, 0.999), 8.610, 1e-3);
        near(t_quantile(9.0, 0.9998), 6.010, 2e-3);
    }

    #[test]
    fn p_of_t_undoes_the_quantile() {
        for freedom in [1.0, 2.5, 4.0, 30.0, 400.0] {
            near(t_two_sided_p(t_quantile(freedom, 0.95), freedom), 0.05, 1e-9);
        }
    }

    #[test]
    fn interval_of_a_mean_equals_scipy() {
        // scipy.stats.t.interval(0.95, 4, loc=mean, scale=sem) of SciPy 1.17.
        let interval = mean_interval(&[9.8, 10.2, 10.4, 9.9, 10.1], 0.95).expect("five values");
        near(interval.low, 9.783_556_78, 1e-7);
        near(interval.high, 10.376_443_22, 1e-7);
    }

    #[test]
    fn interval_holds_the_true_mean_as_often_as_it_says() {
        let mut rng = fastrand::Rng::with_seed(7);
        let inside = (0..4000)
            .filter(|_| {
                let values: Vec<f64> = (0..5).map(|_| normal(&mut rng)).collect();
                mean_interval(&values, 0.95).expect("five values").contains(0.0)
            })
            .count();
        near(inside as f64 / 4000.0, 0.95, 0.012);
    }

    #[test]
    fn interval_refuses_one_value_and_infinity() {
        assert!(matches!(mean_interval(&[1.0], 0.95), Err(Refused::TooFew { given: 1, .. })));
        assert!(matches!(
            mean_interval(&[1.0, f64::INFINITY], 0.95),
            Err(Refused::NotFinite { .. })
        ));
    }
}
