//! Amounts in words: 1 record, 2 records, 12.3 KiB.

/// So many of something, by its name in the singular.
pub fn counted(count: u64, noun: &str) -> String {
    let ending = match noun.ends_with("ch") {
        _ if count == 1 => "",
        true => "es",
        false => "s",
    };
    format!("{count} {noun}{ending}")
}

/// Bytes in the unit in which they are told shortly.
pub fn size(bytes: u64) -> String {
    let kib = bytes as f64 / 1024.0;
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{kib:.1} KiB"),
        _ => format!("{:.1} MiB", kib / 1024.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_told_from_many_and_bytes_have_a_unit_that_fits() {
        assert_eq!(counted(0, "record"), "0 records");
        assert_eq!(counted(1, "record"), "1 record");
        assert_eq!(
            (counted(1, "batch"), counted(2, "batch")),
            ("1 batch".into(), "2 batches".into())
        );
        let sizes = [0, 1023, 1024, 1 << 20, 5 << 29].map(size);
        assert_eq!(sizes, ["0 B", "1023 B", "1.0 KiB", "1.0 MiB", "2560.0 MiB"]);
    }
}
