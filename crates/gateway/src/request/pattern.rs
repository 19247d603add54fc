//! Patterns of topics' names: regular expressions that match a name as a whole, as in a subscription of Kafka's consumers.
//!
//! An expression comes from outside, so its bytes, its depth and what it compiles to are bounded, and to compare a name takes time
//! that grows with the name and with that, and no faster: there are no references back and no looking around, as in the patterns
//! that Kafka's brokers compare themselves (KIP-848). It is kept as text and compiled when names are to be compared, which is
//! seldom: what is compiled would be the larger part of a consumer at rest.

use regex::bytes::{Regex, RegexBuilder};
use serving::error::{ApiError, Kind};

/// Bytes of an expression.
pub const PATTERN_BYTES_MAX: usize = 1024;
/// Bytes that it may be compiled to, and that comparing may cache.
const COMPILED_BYTES_MAX: usize = 32 * 1024;
/// Groups and repetitions within each other.
const DEPTH_MAX: u32 = 32;

/// A pattern that can be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(String);

impl Pattern {
    /// The pattern of this expression.
    ///
    /// # Errors
    /// It is empty, no expression that is known, or too large.
    pub fn new(expression: String) -> Result<Pattern, ApiError> {
        let wrong = |reason: &str| {
            let words = format!("topic_pattern: invalid regular expression: {reason}");
            ApiError::new(Kind::Unprocessable, words)
        };
        if !(1..=PATTERN_BYTES_MAX).contains(&expression.len()) {
            return Err(wrong(&format!("expected 1 to {PATTERN_BYTES_MAX} bytes")));
        }
        // By itself before it stands in a group, so that no bracket of it closes that one.
        compile(&expression).map_err(|error| wrong(&reason(&error)))?;
        compile(&whole(&expression)).map_err(|error| wrong(&reason(&error)))?;
        Ok(Pattern(expression))
    }

    /// The expression.
    pub fn expression(&self) -> &str {
        &self.0
    }

    /// Those of these names that it matches from their first character to their last, in their order.
    pub fn matching<'a>(&self, names: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        let compiled = compile(&whole(&self.0)).expect("it was compiled when it was made");
        let names = names.into_iter().filter(|name| compiled.is_match(name.as_bytes()));
        names.map(str::to_owned).collect()
    }
}

fn whole(expression: &str) -> String {
    format!(r"\A(?:{expression})\z")
}

/// Names of topics are ASCII, and so are the classes of an expression, as in Java.
fn compile(expression: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(expression)
        .unicode(false)
        .nest_limit(DEPTH_MAX)
        .size_limit(COMPILED_BYTES_MAX)
        .dfa_size_limit(COMPILED_BYTES_MAX)
        .build()
}

/// Why not, in one line.
fn reason(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => {
            format!("more than {COMPILED_BYTES_MAX} bytes when it is compiled: repeat less in it")
        }
        other => {
            let text = other.to_string();
            // The last line of several says what is wrong, those before show where.
            let last = text.lines().last().unwrap_or_default().trim();
            last.strip_prefix("error: ").unwrap_or(last).to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(expression: &str) -> Pattern {
        Pattern::new(expression.to_owned())
            .unwrap_or_else(|error| panic!("{expression}: {error:?}"))
    }

    #[test]
    fn a_name_is_matched_from_its_first_character_to_its_last() {
        let names = ["orders", "orders.eu", "orders.us", "old-orders", "a", "ab", "Ab9", "a_b"];
        for (expression, matched) in [
            ("orders", &["orders"][..]),
            ("orders.*", &["orders", "orders.eu", "orders.us"]),
            (r"orders\.(eu|us)", &["orders.eu", "orders.us"]),
            (".*orders", &["orders", "old-orders"]),
            // The shorter alternative stands first, and the other one is found.
            ("a|ab", &["a", "ab"]),
            ("^ab$", &["ab"]),
            (r"\w+", &["orders", "a", "ab", "Ab9", "a_b"]),
            ("(?i)AB.?", &["ab", "Ab9"]),
            ("[^.-]{1,2}", &["a", "ab"]),
            ("(?x) a b # a comment\n", &["ab"]),
            ("()", &[]),
            ("é+", &[]),
            (".*", &names),
        ] {
            assert_eq!(pattern(expression).matching(names), matched, "{expression}");
        }
    }

    #[test]
    fn what_is_no_expression_or_too_large_a_one_is_refused_in_one_line() {
        let long = "a".repeat(PATTERN_BYTES_MAX + 1);
        let deep = format!("{}a{}", "(".repeat(40), ")".repeat(40));
        for (expression, words) in [
            ("", "1 to 1024 bytes"),
            (&*long, "1 to 1024 bytes"),
            ("(", "unclosed group"),
            // It would be whole within the group.
            ("a)|(?:b", "unopened group"),
            ("(?x)a # the rest", "unclosed group"),
            ("[b-a]", "class range"),
            ("a{2,1}", "repetition"),
            ("*", "repetition operator"),
            (r"(a)\1", "backreferences"),
            ("(?=a)b", "look-around"),
            ("(((a{100}){100}){100}){100}", "repeat less"),
            ("(?u:\\w{200})", "repeat less"),
            (&*deep, "nest"),
        ] {
            let error = Pattern::new(expression.to_owned()).unwrap_err();
            assert_eq!(error.kind, Kind::Unprocessable);
            let is_said = error.message.contains(words) && !error.message.contains('\n');
            assert!(is_said, "{expression:.40}: {error:?}");
        }
    }

    #[test]
    fn what_takes_others_for_ever_is_compared_at_once() {
        // 2^240 ways for whoever tries one after the other.
        let name = format!("{}!", "a".repeat(240));
        for expression in ["(a+)+", "(a|a)*", "(a*)*b", "(.*a){12}c"] {
            assert_eq!(
                pattern(expression).matching([&*name]),
                Vec::<String>::new(),
                "{expression}"
            );
        }
    }
}
