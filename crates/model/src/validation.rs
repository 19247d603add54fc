//! How far the broker looks into what producers send (`records.validation`).

/// What is looked into before a batch is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Validation {
    /// All records, compressed or not, as in Kafka.
    #[default]
    Full,
    /// Of a compressed batch the header, unless a rule of the topic needs the records.
    Header,
}

impl Validation {
    /// Every name, in the order in which it is documented.
    pub const NAMES: &'static [&'static str] = &["full", "header"];

    /// The name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Validation::Full => "full",
            Validation::Header => "header",
        }
    }

    /// The validation of this name; `None` for any other text.
    pub fn from_name(name: &str) -> Option<Validation> {
        match name {
            "full" => Some(Validation::Full),
            "header" => Some(Validation::Header),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_to_a_validation_and_back() {
        for name in Validation::NAMES {
            assert_eq!(Validation::from_name(name).map(Validation::name), Some(*name));
        }
        assert_eq!(Validation::from_name("FULL"), None);
    }
}
