//! What several things add to a value, each by itself: least squares with many columns.

use crate::summary::t_quantile;
use crate::{Interval, Refused, at_least, finite};

/// A linear model: the value is the sum of each column times its coefficient.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    /// One for each column, in the value's unit per unit of the column.
    pub coefficients: Vec<f64>,
    /// Their standard errors.
    pub errors: Vec<f64>,
    /// Rows less columns.
    pub freedom: f64,
    /// Standard deviation of what the columns leave unexplained, in the value's unit.
    pub residual: f64,
}

impl Model {
    /// A coefficient's interval at a level such as 0.95.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn interval(&self, column: usize, level: f64) -> Interval {
        let reach = t_quantile(self.freedom, level) * self.errors[column];
        let middle = self.coefficients[column];
        Interval { low: middle - reach, high: middle + reach }
    }

    /// The value that the model gives for a row.
    pub fn value(&self, row: &[f64]) -> f64 {
        self.coefficients.iter().zip(row).map(|(coefficient, x)| coefficient * x).sum()
    }
}

/// Least squares over rows of columns (Draper and Smith, "Applied Regression Analysis", chapter 5), by Gauss and
/// Jordan on the normal equations: right for columns of zeros and ones, as levels of factors are; columns of very
/// different sizes lose digits. Give a column of ones for a constant.
///
/// # Errors
/// If there are not more rows than columns, rows and values differ in number, a value is not finite, or a column is
/// a sum of others.
pub fn least_squares(rows: &[Vec<f64>], values: &[f64]) -> Result<Model, Refused> {
    const METHOD: &str = "least squares";
    if rows.len() != values.len() {
        return Err(Refused::NotPaired { method: METHOD, left: rows.len(), right: values.len() });
    }
    let columns = rows.first().map_or(0, Vec::len);
    at_least(METHOD, "columns", columns, 1)?;
    at_least(METHOD, "rows", rows.len(), columns + 1)?;
    finite(METHOD, values)?;
    rows.iter().try_for_each(|row| finite(METHOD, row))?;
    let dot = |a: usize, b: usize| rows.iter().map(|row| row[a] * row[b]).sum::<f64>();
    let squares: Vec<Vec<f64>> =
        (0..columns).map(|a| (0..columns).map(|b| dot(a, b)).collect()).collect();
    let inverse = inverse(squares).ok_or(Refused::NoSpread { method: METHOD })?;
    let right: Vec<f64> = (0..columns)
        .map(|column| rows.iter().zip(values).map(|(row, value)| row[column] * value).sum())
        .collect();
    let coefficients: Vec<f64> =
        inverse.iter().map(|row| row.iter().zip(&right).map(|(i, r)| i * r).sum()).collect();
    let freedom = (rows.len() - columns) as f64;
    let mut model = Model { coefficients, errors: Vec::new(), freedom, residual: 0.0 };
    let rest: f64 =
        rows.iter().zip(values).map(|(row, value)| (value - model.value(row)).powi(2)).sum();
    model.residual = (rest / freedom).sqrt();
    model.errors = (0..columns).map(|i| model.residual * inverse[i][i].max(0.0).sqrt()).collect();
    Ok(model)
}

/// The inverse by elimination with the largest pivot. None if there is none.
fn inverse(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let size = matrix.len();
    let largest = matrix.iter().flatten().fold(0.0_f64, |largest, value| largest.max(value.abs()));
    for (i, row) in matrix.iter_mut().enumerate() {
        row.extend((0..size).map(|j| if i == j { 1.0 } else { 0.0 }));
    }
    for i in 0..size {
        let pivot = (i..size).max_by(|a, b| matrix[*a][i].abs().total_cmp(&matrix[*b][i].abs()))?;
        matrix.swap(i, pivot);
        let scale = matrix[i][i];
        if scale.abs() <= 1e-10 * largest {
            return None;
        }
        matrix[i].iter_mut().for_each(|value| *value /= scale);
        let unit = matrix[i].clone();
        for (_, row) in matrix.iter_mut().enumerate().filter(|(j, _)| *j != i) {
            let times = row[i];
            row.iter_mut().zip(&unit).for_each(|(value, unit)| *value -= times * unit);
        }
    }
    Some(matrix.into_iter().map(|row| row[size..].to_vec()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::normal;

    fn near(a: f64, b: f64, by: f64) {
        assert!((a - b).abs() <= by, "{a} is not {b}");
    }

    #[test]
    fn one_column_and_a_constant_are_the_line() {
        let points = [(0.0, 1.1), (1.0, 1.9), (2.0, 3.2), (3.0, 3.8), (4.0, 5.3), (5.0, 5.9)];
        let rows: Vec<Vec<f64>> = points.iter().map(|(x, _)| vec![1.0, *x]).collect();
        let values: Vec<f64> = points.iter().map(|(_, y)| *y).collect();
        let model = least_squares(&rows, &values).expect("six rows");
        let line = crate::line::line(&points).expect("six points");
        near(model.coefficients[0], line.intercept, 1e-12);
        near(model.coefficients[1], line.slope, 1e-12);
        near(model.interval(1, 0.95).low, line.slope_interval.low, 1e-12);
    }

    #[test]
    fn effects_are_found_within_their_intervals_as_often_as_said() {
        let mut rng = fastrand::Rng::with_seed(13);
        let inside = (0..1000)
            .filter(|_| {
                let rows: Vec<Vec<f64>> = (0..16_u8)
                    .map(|i| {
                        vec![
                            1.0,
                            f64::from(i & 1),
                            f64::from((i >> 1) & 1),
                            f64::from((i >> 2) & 1),
                        ]
                    })
                    .collect();
                let values: Vec<f64> =
                    rows.iter().map(|row| 5.0 + 2.0 * row[1] - row[2] + normal(&mut rng)).collect();
                let model = least_squares(&rows, &values).expect("16 rows");
                model.interval(1, 0.95).contains(2.0)
            })
            .count();
        near(inside as f64 / 1000.0, 0.95, 0.02);
    }

    #[test]
    fn refuses_too_few_rows_and_columns_that_are_sums_of_others() {
        assert!(least_squares(&[vec![1.0, 2.0], vec![1.0, 3.0]], &[1.0, 2.0]).is_err());
        let sums: Vec<Vec<f64>> =
            (0..6).map(|i| vec![1.0, f64::from(i % 2), 1.0 - f64::from(i % 2)]).collect();
        assert_eq!(
            least_squares(&sums, &[1.0; 6]),
            Err(Refused::NoSpread { method: "least squares" })
        );
        assert!(least_squares(&[], &[]).is_err());
        let unknown = [vec![1.0], vec![f64::NAN], vec![1.0]];
        assert!(matches!(least_squares(&unknown, &[1.0; 3]), Err(Refused::NotFinite { .. })));
    }
}
