//! What stands behind `?`, and in forms.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serving::operation::Fields;

/// The parameters of a request. Of two with one name the first counts; text that is not UTF-8 is mended.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub(crate) fn of(query: Option<&str>) -> Query {
        Query(form_urlencoded::parse(query.unwrap_or_default().as_bytes()).into_owned().collect())
    }

    /// A parameter that is there and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str()).filter(|value| !value.is_empty())
    }

    /// As the fields of a form.
    pub(crate) fn fields(&self) -> Fields {
        Fields::new(self.0.iter().cloned())
    }

    /// The same parameters under another path.
    pub(crate) fn under(&self, path: &str) -> String {
        let parameters: Vec<_> = self.0.iter().map(|(name, value)| (&**name, &**value)).collect();
        link(path, &parameters)
    }

    /// A parameter that is a number.
    pub(crate) fn number(&self, name: &str) -> Option<i64> {
        self.get(name)?.trim().parse().ok()
    }

    /// Whether a parameter says yes.
    pub(crate) fn is(&self, name: &str) -> bool {
        matches!(self.get(name), Some("1" | "true" | "yes" | "on"))
    }
}

/// A path with these parameters, each written so that nothing in it is taken for anything else.
pub(crate) fn link(path: &str, parameters: &[(&str, &str)]) -> String {
    let given = parameters.iter().filter(|(_, value)| !value.is_empty());
    let query = form_urlencoded::Serializer::new(String::new()).extend_pairs(given).finish();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") }
}

/// A text of a form as it was typed: browsers send every line break as two characters. A time becomes milliseconds since 1970.
pub(crate) fn as_typed(name: &str, text: &str) -> String {
    let text = text.replace("\r\n", "\n");
    match name {
        "time" => time(&text).map_or(text, |ms| ms.to_string()),
        _ => text,
    }
}

/// A time as people and programs write it, in milliseconds since 1970; without a zone it is UTC.
pub(crate) fn time(text: &str) -> Option<i64> {
    let text = text.trim();
    let zoned = || text.parse::<Timestamp>().ok();
    let civil =
        || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp());
    let found = text.parse().ok().or_else(|| zoned().or_else(civil).map(Timestamp::as_millisecond));
    found.filter(|ms| *ms >= 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_first_of_a_name_counts_and_nothing_is_nothing() {
        let query = Query::of(Some("a=1&a=2&b=&c=x+y%2f&d=on"));
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!((query.get("b"), query.get("z")), (None, None));
        assert_eq!(query.get("c"), Some("x y/"));
        assert_eq!((query.number("a"), query.number("c")), (Some(1), None));
        assert!(query.is("d") && !query.is("a-b"));
    }

    proptest! {
        #[test]
        fn a_name_comes_back_as_it_was(name: String, other: String) {
            prop_assume!(!name.is_empty());
            let link = link("/console/group", &[("id", &name), ("q", &other)]);
            let query = Query::of(link.split_once('?').map(|(_, query)| query));
            prop_assert_eq!(query.get("id"), Some(&*name));
            prop_assert_eq!(query.get("q").unwrap_or_default(), other);
        }
    }
}
