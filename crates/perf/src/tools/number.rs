//! Numbers as Java writes them, which is what scripts that read the lines expect.

/// `%.Nf`: so many places; what is not a number is `NaN`, and `Infinity` has a name too.
pub fn fixed(value: f64, places: usize) -> String {
    match value {
        v if v.is_nan() => "NaN".to_owned(),
        v if v.is_infinite() && v > 0.0 => "Infinity".to_owned(),
        v if v.is_infinite() => "-Infinity".to_owned(),
        v => format!("{v:.places$}"),
    }
}

/// A `double` joined to a string: as many digits as it takes, at least one behind the point, and an
/// exponent for the very small and the very large.
pub fn shortest(value: f64) -> String {
    let size = value.abs();
    if value.is_finite() && size != 0.0 && !(1e-3..1e7).contains(&size) {
        let text = format!("{value:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let point = if digits.contains('.') { "" } else { ".0" };
        return format!("{digits}{point}E{exponent}");
    }
    if value.is_finite() { format!("{value:?}") } else { fixed(value, 0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_as_many_as_asked_for() {
        assert_eq!(fixed(1e9 / 3.0, 6), "333333333.333333");
        assert_eq!(fixed(1.0, 4), "1.0000");
    }

    #[test]
    fn what_no_number_can_be_has_javas_name() {
        assert_eq!(fixed(f64::NAN, 2), "NaN");
        assert_eq!(fixed(f64::INFINITY, 4), "Infinity");
        assert_eq!(fixed(f64::NEG_INFINITY, 4), "-Infinity");
    }

    #[test]
    fn doubles_are_joined_to_text_as_in_java() {
        let expected = [
            (45.027808, "45.027808"),
            (1.0, "1.0"),
            (1000.5, "1000.5"),
            (12345678.9, "1.23456789E7"),
            (0.000123, "1.23E-4"),
            (57.677800000000005, "57.677800000000005"),
            (0.001, "0.001"),
            (1e7, "1.0E7"),
            (0.0, "0.0"),
        ];
        for (value, text) in expected {
            assert_eq!(shortest(value), text);
        }
    }
}
