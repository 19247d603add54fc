//! The parameters of a target: what follows its question mark.

use std::borrow::Cow;

use serving::error::{ApiError, Kind};

/// Names and values, decoded. Of a name that is there several times the first counts.
#[derive(Debug, Clone, Default)]
pub struct Parameters<'a>(Vec<(Cow<'a, str>, Cow<'a, str>)>);

impl<'a> Parameters<'a> {
    /// Those of a query; of none if there is no query.
    pub fn of(query: Option<&'a str>) -> Parameters<'a> {
        let Some(query) = query else { return Parameters::default() };
        Parameters(form_urlencoded::parse(query.as_bytes()).collect())
    }

    /// All names and values, in their order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// All others.
    pub fn without(mut self, name: &str) -> Parameters<'a> {
        self.0.retain(|(known, _)| known != name);
        self
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| &**value)
    }

    /// Whether a parameter says yes: `true`, `1`, or its name alone. It says no if it is not there.
    ///
    /// # Errors
    /// It says neither yes nor no.
    pub fn is_set(&self, name: &str) -> Result<bool, ApiError> {
        let Some(value) = self.get(name) else { return Ok(false) };
        let is = |words: &[&str]| words.iter().any(|word| value.eq_ignore_ascii_case(word));
        match (is(&["true", "1", ""]), is(&["false", "0"])) {
            (true, _) => Ok(true),
            (_, true) => Ok(false),
            _ => {
                let words = format!("{name}: expected true or false");
                Err(ApiError::new(Kind::Unprocessable, words))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_found_by_name() {
        let parameters = Parameters::of(Some("broker=cs6-mod&key=a%20b+c&async&timing=0&key=d"));
        assert_eq!(parameters.get("broker"), Some("cs6-mod"));
        assert_eq!(parameters.get("key"), Some("a b c"));
        assert_eq!(parameters.get("partitioner"), None);
        let others = parameters.without("key");
        let names: Vec<_> = others.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["broker", "async", "timing"]);
    }

    #[test]
    fn a_flag_says_yes_or_no() {
        let async_of = |query| Parameters::of(Some(query)).is_set("async");
        for yes in ["async", "async=", "async=true", "async=1", "async=True"] {
            assert_eq!(async_of(yes), Ok(true), "{yes}");
        }
        for no in ["", "timing", "async=false", "async=0", "async=FALSE"] {
            assert_eq!(async_of(no), Ok(false), "{no}");
        }
        for neither in ["async=yes", "async=2", "async=%00", "async=true,false"] {
            let error = async_of(neither).unwrap_err();
            assert_eq!(error.kind, Kind::Unprocessable, "{neither}");
            assert!(error.message.contains("true or false"), "{neither}");
        }
    }
}
