//! The fields of a form: names and texts, in their order.

use std::fmt;

/// What a form has. Of two fields with one name the first counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fields(Vec<(String, String)>);

/// A field that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invalid {
    /// Its name.
    pub field: &'static str,
    /// What was expected, for the person who filled it in.
    pub words: String,
}

impl Invalid {
    /// Of this field.
    pub fn new(field: &'static str, words: impl Into<String>) -> Invalid {
        Invalid { field, words: words.into() }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.words)
    }
}

impl Fields {
    /// These fields.
    pub fn new(fields: impl IntoIterator<Item = (String, String)>) -> Fields {
        Fields(fields.into_iter().collect())
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, text)| (&**name, &**text))
    }

    /// A field, as it is.
    pub fn raw(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, text)| text.as_str())
    }

    /// A field that is not empty, without space around it.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.raw(name).map(str::trim).filter(|text| !text.is_empty())
    }

    /// Whether a box is ticked.
    pub fn is(&self, name: &str) -> bool {
        matches!(self.get(name), Some("1" | "true" | "yes" | "on"))
    }

    /// A number, if there is one.
    ///
    /// # Errors
    /// The text is not a number, or one outside of `from..=to`.
    pub fn number<T>(&self, name: &'static str, from: T, to: T) -> Result<Option<T>, Invalid>
    where
        T: std::str::FromStr + PartialOrd + fmt::Display,
    {
        let Some(text) = self.get(name) else { return Ok(None) };
        let number = text.parse().ok().filter(|number| (&from..=&to).contains(&number));
        let words = || format!("expected a number from {from} to {to}, not {text:?}");
        number.map(Some).ok_or_else(|| Invalid::new(name, words()))
    }
}
