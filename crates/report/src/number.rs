//! Numbers as people read them: thousands separators, few digits, units. It does not know metrics; see `wording`.

/// `1,234,567.8`: `digits` behind the point, a comma between thousands, a true minus.
pub(crate) fn fixed(number: f64, digits: usize) -> String {
    if !number.is_finite() {
        return "–".to_owned();
    }
    let plain = format!("{:.digits$}", number.abs());
    let (whole, rest) = plain.split_once('.').unwrap_or((plain.as_str(), ""));
    let mut text = String::new();
    if number < 0.0 && plain.bytes().any(|b| b.is_ascii_digit() && b != b'0') {
        text.push('−');
    }
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if !rest.is_empty() {
        text.push('.');
        text.push_str(rest);
    }
    text
}

/// How many digits behind the point show `significant` digits of `number`; 0 to 6.
pub(crate) fn digits_for(number: f64, significant: i32) -> usize {
    if number == 0.0 || !number.is_finite() {
        return 0;
    }
    let magnitude = number.abs().log10().floor() as i32;
    (significant - 1 - magnitude).clamp(0, 6) as usize
}

/// A measured value: three to four significant digits, whole above a hundred.
pub(crate) fn measured(number: f64) -> String {
    fixed(number, digits_for(number, 3))
}

/// A value as a report printed it: as many digits as it has, four behind the point at most.
pub(crate) fn published(number: f64) -> String {
    let digits = (0..4).find(|d| is_whole(number * 10f64.powi(*d))).unwrap_or(4);
    fixed(number, digits as usize)
}

fn is_whole(number: f64) -> bool {
    (number - number.round()).abs() < 1e-9 * number.abs().max(1.0)
}

/// A ratio: `1.32`, `0.998`, `14.2`, `0.00358`.
pub(crate) fn ratio(number: f64) -> String {
    let significant = if (0.9..1.1).contains(&number) { 4 } else { 3 };
    let digits = digits_for(number, significant);
    fixed(number, if number < 0.1 { digits } else { digits.min(3) })
}

/// A share in percent: `9.7 %`, `132 %`. No line ends within it.
pub(crate) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    format!("{}\u{a0}%", fixed(percent, if percent.abs() < 10.0 { 1 } else { 0 }))
}

/// A share in whole percent, with a digit below two: `44 %`, `1.2 %`.
pub(crate) fn percent_whole(share: f64) -> String {
    let percent = share * 100.0;
    format!("{}\u{a0}%", fixed(percent, if percent.abs() < 2.0 { 1 } else { 0 }))
}

/// Two or three digits that are read in passing: `1.1 million`, `93,200`, `410`, `8.2`, `0.041`.
pub(crate) fn short(number: f64) -> String {
    let size = number.abs();
    match size {
        _ if size >= 1e6 => format!("{} million", fixed(number / 1e6, digits_for(size / 1e6, 2))),
        _ if size >= 1000.0 => {
            let step = 10f64.powf(size.log10().floor() - 2.0);
            fixed((number / step).round() * step, 0)
        }
        _ if size >= 100.0 => fixed(number, 0),
        _ => fixed(number, digits_for(number, 2)),
    }
}

/// A ratio that is read in passing: `1.6×`, and below one a share in percent: `44 %`, `0.4 %`.
pub(crate) fn multiple(ratio: f64) -> String {
    if ratio < 0.995 { percent_whole(ratio) } else { format!("{}×", short(ratio)) }
}

/// A time that is read in passing: `40 ms`, `9.5 s`.
pub(crate) fn duration(ms: f64) -> String {
    if ms < 1000.0 { format!("{} ms", short(ms)) } else { format!("{} s", short(ms / 1000.0)) }
}

/// An axis label: `0`, `0.5`, `2,000`, `50 k`, `1.5 M`.
pub(crate) fn tick(number: f64) -> String {
    let size = number.abs();
    let (scaled, suffix) = match size {
        _ if size >= 1e9 => (number / 1e9, " G"),
        _ if size >= 1e6 => (number / 1e6, " M"),
        _ if size >= 1e4 => (number / 1e3, " k"),
        _ => (number, ""),
    };
    let digits = (0..6).find(|d| is_whole(scaled * 10f64.powi(*d))).unwrap_or(6);
    format!("{}{suffix}", fixed(scaled, digits as usize))
}

/// `512 B`, `16 KiB`, `32 MiB`: bytes, if they are whole in a binary unit; else with separators.
pub(crate) fn bytes(number: f64) -> String {
    const UNITS: [(f64, &str); 3] =
        [(1_073_741_824.0, "GiB"), (1_048_576.0, "MiB"), (1024.0, "KiB")];
    for (size, unit) in UNITS {
        if number >= size && is_whole(number / size) {
            return format!("{} {unit}", fixed(number / size, 0));
        }
    }
    format!("{} B", fixed(number, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_separated_and_small_values_keep_three_digits() {
        assert_eq!(measured(1_234_567.8), "1,234,568");
        assert_eq!(measured(12.345), "12.3");
        assert_eq!(measured(0.001234), "0.00123");
        assert_eq!(measured(0.0), "0");
        assert_eq!(measured(-1234.5), "−1,234");
        assert_eq!(measured(f64::NAN), "–");
    }

    #[test]
    fn published_values_keep_their_digits() {
        assert_eq!(published(523_964.0), "523,964");
        assert_eq!(published(183.7121), "183.7121");
        assert_eq!(published(99.998), "99.998");
        assert_eq!(published(0.1), "0.1");
    }

    #[test]
    fn ratios_near_one_show_more() {
        assert_eq!(ratio(1.0042), "1.004");
        assert_eq!(ratio(1.3249), "1.32");
        assert_eq!(ratio(14.25), "14.2");
        assert_eq!(ratio(0.003_58), "0.00358");
    }

    #[test]
    fn short_numbers_have_two_or_three_digits() {
        let shown = [1_094_000.0, 153_012.0, 9_322.0, 410.4, 77.46, 8.208, 0.0412, 0.0];
        let shown: Vec<String> = shown.into_iter().map(short).collect();
        assert_eq!(shown, ["1.1 million", "153,000", "9,320", "410", "77", "8.2", "0.041", "0"]);
        assert_eq!(percent_whole(0.4436), "44\u{a0}%");
        assert_eq!(percent_whole(0.0123), "1.2\u{a0}%");
    }

    #[test]
    fn multiples_below_one_are_shares() {
        let shown: Vec<String> =
            [1.64, 0.448, 0.0042, 0.998, 1.02].into_iter().map(multiple).collect();
        assert_eq!(shown, ["1.6×", "45\u{a0}%", "0.4\u{a0}%", "1.00×", "1.0×"]);
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(tick(2000.0), "2,000");
        assert_eq!(tick(50_000.0), "50 k");
        assert_eq!(tick(1_500_000.0), "1.5 M");
        assert_eq!(tick(0.25), "0.25");
        assert_eq!(bytes(33_554_432.0), "32 MiB");
        assert_eq!(bytes(512_000.0), "500 KiB");
        assert_eq!(bytes(100.0), "100 B");
    }
}
