//! A straight line through points, and how sure its slope is: whether a backlog grows.

use crate::summary::{mean, t_quantile};
use crate::{Interval, Refused, at_least, finite};

/// A line by least squares.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Line {
    /// Units of y per unit of x.
    pub slope: f64,
    /// y where x is 0.
    pub intercept: f64,
    /// The 95 % interval of the slope by Student's t.
    pub slope_interval: Interval,
    /// Share of y's variance that the line explains, 0 to 1; 1 if y does not vary.
    pub explained: f64,
}

/// Least squares through points `(x, y)` (Draper and Smith, "Applied Regression Analysis", chapter 1). The interval
/// supposes that points err independently; a backlog's samples do not quite, so take them well apart.
///
/// # Errors
/// For fewer than three points, one that is not finite, or all at one x.
pub fn line(points: &[(f64, f64)]) -> Result<Line, Refused> {
    const METHOD: &str = "a line";
    at_least(METHOD, "points", points.len(), 3)?;
    let (xs, ys): (Vec<f64>, Vec<f64>) = points.iter().copied().unzip();
    finite(METHOD, &xs)?;
    finite(METHOD, &ys)?;
    let (x_mean, y_mean) = (mean(&xs).expect("three points"), mean(&ys).expect("three points"));
    let xx: f64 = xs.iter().map(|x| (x - x_mean).powi(2)).sum();
    if xx == 0.0 {
        return Err(Refused::NoSpread { method: METHOD });
    }
    let xy: f64 = points.iter().map(|(x, y)| (x - x_mean) * (y - y_mean)).sum();
    let slope = xy / xx;
    let intercept = y_mean - slope * x_mean;
    let yy: f64 = ys.iter().map(|y| (y - y_mean).powi(2)).sum();
    let rest: f64 = points.iter().map(|(x, y)| (y - intercept - slope * x).powi(2)).sum();
    let freedom = (points.len() - 2) as f64;
    let reach = t_quantile(freedom, 0.95) * (rest / freedom / xx).sqrt();
    Ok(Line {
        slope,
        intercept,
        slope_interval: Interval { low: slope - reach, high: slope + reach },
        explained: if yy == 0.0 { 1.0 } else { (1.0 - rest / yy).clamp(0.0, 1.0) },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::normal;

    fn near(a: f64, b: f64, by: f64) {
        assert!((a - b).abs() <= by, "{a} is not {b}");
    }

    #[test]
    fn line_equals_scipy() {
        // scipy.stats.linregress, and t.ppf(0.975, 4) times its stderr, SciPy 1.17.
        let points = [(0.0, 1.1), (1.0, 1.9), (2.0, 3.2), (3.0, 3.8), (4.0, 5.3), (5.0, 5.9)];
        let line = line(&points).expect("six points");
        near(line.slope, 0.994_285_714, 1e-8);
        near(line.intercept, 1.047_619_048, 1e-8);
        near(line.slope_interval.low, 0.848_588_692, 1e-8);
        near(line.slope_interval.high, 1.139_982_737, 1e-8);
        near(line.explained, 0.988_980_836, 1e-8);
    }

    #[test]
    fn slope_of_noise_includes_zero_as_often_as_said() {
        let mut rng = fastrand::Rng::with_seed(1);
        let included = (0..2000)
            .filter(|_| {
                let points: Vec<(f64, f64)> =
                    (0..10).map(|x| (f64::from(x), normal(&mut rng))).collect();
                line(&points).expect("ten points").slope_interval.contains(0.0)
            })
            .count();
        near(included as f64 / 2000.0, 0.95, 0.015);
    }

    #[test]
    fn level_points_have_slope_zero_for_sure() {
        let line = line(&[(0.0, 2.0), (1.0, 2.0), (2.0, 2.0)]).expect("three points");
        assert_eq!((line.slope, line.explained), (0.0, 1.0));
        assert_eq!(line.slope_interval, Interval { low: 0.0, high: 0.0 });
    }

    #[test]
    fn refuses_two_points_and_one_x() {
        assert!(line(&[(0.0, 1.0), (1.0, 2.0)]).is_err());
        assert_eq!(line(&[(1.0, 1.0); 4]), Err(Refused::NoSpread { method: "a line" }));
    }
}
