//! The example in `docs/log_format.md` is what we write.

use model::record::BatchBuilder;
use model::{LeaderEpoch, Offset, Timestamp};

/// The hex digits of the lines between `first` and the end of the code block. A line begins with
/// groups of digits; two spaces or more end them.
fn hex_lines(document: &str, first: &str) -> Vec<u8> {
    let start = document.find(first).expect("the example is there");
    let mut digits = String::new();
    for line in document[start..].lines().take_while(|line| !line.starts_with("```")) {
        let groups = line.split("  ").next().expect("a line has a first part");
        digits.extend(groups.chars().filter(|c| *c != ' '));
    }
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex digits");
    (0..digits.len()).step_by(2).map(pair).collect()
}

#[test]
fn the_documented_batch_is_the_one_we_write() {
    let document = include_str!("../../../../docs/log_format.md");
    let mut builder = BatchBuilder::new().placed(Offset(0), LeaderEpoch(0));
    builder.add(Timestamp(1_700_000_000_000), Some(b"k"), Some(b"v"));
    assert_eq!(hex_lines(document, "00000000 00000000   base offset 0"), builder.finish());
}
