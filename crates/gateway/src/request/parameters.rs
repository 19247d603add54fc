//! The parameters of a target: what follows its question mark.

use std::borrow::Cow;

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

    /// Whether a parameter is there and does not say no.
    pub fn is_set(&self, name: &str) -> bool {
        self.get(name).is_some_and(|value| !matches!(value, "false" | "0"))
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
        assert!(parameters.is_set("async") && !parameters.is_set("timing"));
        assert!(!Parameters::of(None).is_set("async"));
        let others = parameters.without("key");
        let names: Vec<_> = others.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["broker", "async", "timing"]);
    }
}
