//! Numbers in sentences.

/// Three digits that say something, thousands apart: `4,663`, `29.5`, `0.104`.
pub(super) fn number(value: f64) -> String {
    let size = value.abs();
    if size >= 99.95 {
        return thousands(value);
    }
    let decimals = match size {
        _ if size >= 9.995 => 1,
        _ if size >= 0.9995 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

fn thousands(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

/// A rate of bits: `1 Mbit/s`, `2.5 Gbit/s`.
pub(super) fn bits(bits_per_s: f64) -> String {
    let (unit, scale) = match bits_per_s {
        _ if bits_per_s >= 0.9995e9 => ("Gbit/s", 1e9),
        _ if bits_per_s >= 0.9995e6 => ("Mbit/s", 1e6),
        _ if bits_per_s >= 0.9995e3 => ("kbit/s", 1e3),
        _ => ("bit/s", 1.0),
    };
    let text = number(bits_per_s / scale);
    let short =
        if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    format!("{short} {unit}")
}

/// A share in whole percent.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

/// `1 cell`, `3 cells`.
pub(super) fn cells(count: usize) -> String {
    if count == 1 { "1 cell".to_owned() } else { format!("{count} cells") }
}

/// The smallest and the largest of values, once if they read the same.
pub(super) fn range(values: &[f64], write: fn(f64) -> String) -> String {
    let low = write(values.iter().copied().fold(f64::INFINITY, f64::min));
    let high = write(values.iter().copied().fold(f64::NEG_INFINITY, f64::max));
    if low == high { low } else { format!("{low} to {high}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_or_thousands() {
        let written = [4663.2, 1_234_567.0, 999.0, 29.49, 9.999, 1.5, 0.1035, -4000.0].map(number);
        assert_eq!(
            written,
            ["4,663", "1,234,567", "999", "29.5", "10.0", "1.50", "0.103", "-4,000"]
        );
    }

    #[test]
    fn rates_have_the_unit_that_fits() {
        let written = [1e6, 2.5e9, 2.5e8, 9.99e8, 64e3].map(bits);
        assert_eq!(written, ["1 Mbit/s", "2.5 Gbit/s", "250 Mbit/s", "999 Mbit/s", "64 kbit/s"]);
    }

    #[test]
    fn ranges_of_one_value_are_one_value() {
        assert_eq!(range(&[0.914, 0.911], percent), "91 %");
        assert_eq!(range(&[0.914, 0.97], percent), "91 % to 97 %");
    }
}
