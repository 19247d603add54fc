//! What is known of one configuration key: its type, its default, what it accepts, and whether
//! Highwater honours it. The keys themselves stand in `table`; values are in `configuration`.

use std::fmt;

/// The type of a key's values, as DescribeConfigs names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// Text.
    String,
    /// A number of 32 bits.
    Int,
    /// A number of 16 bits.
    Short,
    /// A number of 64 bits.
    Long,
    /// A number with a fraction.
    Double,
    /// Texts separated by commas.
    List,
    /// The name of a Java class.
    Class,
    /// Text that is never shown.
    Password,
}

impl Kind {
    /// The number in a DescribeConfigs answer (KIP-569).
    pub const fn code(self) -> i8 {
        match self {
            Kind::Boolean => 1,
            Kind::String => 2,
            Kind::Int => 3,
            Kind::Short => 4,
            Kind::Long => 5,
            Kind::Double => 6,
            Kind::List => 7,
            Kind::Class => 8,
            Kind::Password => 9,
        }
    }

    /// The name in Kafka's documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Boolean => "boolean",
            Kind::String => "string",
            Kind::Int => "int",
            Kind::Short => "short",
            Kind::Long => "long",
            Kind::Double => "double",
            Kind::List => "list",
            Kind::Class => "class",
            Kind::Password => "password",
        }
    }
}

/// Which values of its type a key accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Accepts {
    /// All of them.
    Any,
    /// Numbers from this one up.
    AtLeast(i64),
    /// Numbers from the first to the second, both included.
    Between(i64, i64),
    /// The same, and one number outside.
    BetweenOr(i64, i64, i64),
    /// Fractions from the first to the second, both included.
    Within(f64, f64),
    /// One of these texts; for a list, only these items.
    OneOf(&'static [&'static str]),
    /// One of these texts, in whatever case.
    OneOfAnyCase(&'static [&'static str]),
    /// `*`, or a list of `partition:broker`.
    ThrottledReplicas,
}

/// A broker's key whose value a topic has that has none of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The broker's key.
    pub name: &'static str,
    /// What its value is multiplied by: hours and minutes become milliseconds.
    pub multiplier: i64,
}

impl Fallback {
    /// A value of the broker's key in the unit of the topic's: -1 stays "no limit" in every unit.
    pub fn in_topic_units(&self, text: &str) -> String {
        match text.trim().parse::<i64>() {
            Ok(number) if self.multiplier != 1 && number >= 0 => {
                number.saturating_mul(self.multiplier).to_string()
            }
            _ => text.to_owned(),
        }
    }
}

/// When and where a key's value can be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Update {
    /// Only by a restart.
    ReadOnly,
    /// At run time, for one broker.
    PerBroker,
    /// At run time, for one broker or for all of them.
    ClusterWide,
}

impl Update {
    /// The name in Kafka's documentation.
    pub const fn name(self) -> &'static str {
        match self {
            Update::ReadOnly => "read-only",
            Update::PerBroker => "per-broker",
            Update::ClusterWide => "cluster-wide",
        }
    }
}

/// What Highwater does with a key of Kafka's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It works as documented.
    Honoured,
    /// A value is checked and shown, and has no effect; the text says why.
    Ignored(&'static str),
    /// Any value but the default is refused; the text says why.
    Refused(&'static str),
}

impl Status {
    /// One word.
    pub const fn name(self) -> &'static str {
        match self {
            Status::Honoured => "honoured",
            Status::Ignored(_) => "ignored",
            Status::Refused(_) => "refused",
        }
    }

    /// Why it is not honoured.
    pub const fn why(self) -> Option<&'static str> {
        match self {
            Status::Honoured => None,
            Status::Ignored(why) | Status::Refused(why) => Some(why),
        }
    }
}

/// One key of the configuration of brokers or of topics.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Its name, in Kafka's dotted lower case.
    pub name: &'static str,
    /// The type of its values.
    pub kind: Kind,
    /// Its value when nothing else says one; `None` is Kafka's null.
    pub default: Option<&'static str>,
    /// Which values of that type are good.
    pub accepts: Accepts,
    /// Whether an empty text or list is refused.
    pub not_empty: bool,
    /// Whether an item may stand in a list more than once.
    pub repeatable: bool,
    /// Whether it can change while the broker runs.
    pub update: Update,
    /// What Highwater does with it.
    pub status: Status,
    /// Whether DescribeConfigs leaves it out, as Kafka does with what is meant for tests only.
    pub internal: bool,
    /// Of a topic's key: the broker's keys that it takes its value from, the first that is set
    /// winning. Empty for a broker's key.
    pub fallbacks: &'static [Fallback],
    /// What it means, in one or two sentences.
    pub doc: &'static str,
}

impl Key {
    const fn new(name: &'static str, kind: Kind, default: Option<&'static str>) -> Key {
        Key {
            name,
            kind,
            default,
            accepts: Accepts::Any,
            not_empty: false,
            repeatable: false,
            update: Update::ReadOnly,
            status: Status::Honoured,
            internal: false,
            fallbacks: &[],
            doc: "",
        }
    }

    /// A key of type boolean.
    pub const fn boolean(name: &'static str, default: &'static str) -> Key {
        Key::new(name, Kind::Boolean, Some(default))
    }

    /// A key of type int.
    pub const fn int(name: &'static str, default: &'static str) -> Key {
        Key::new(name, Kind::Int, Some(default))
    }

    /// A key of type short.
    pub const fn short(name: &'static str, default: &'static str) -> Key {
        Key::new(name, Kind::Short, Some(default))
    }

    /// A key of type long.
    pub const fn long(name: &'static str, default: &'static str) -> Key {
        Key::new(name, Kind::Long, Some(default))
    }

    /// A key of type double.
    pub const fn double(name: &'static str, default: &'static str) -> Key {
        Key::new(name, Kind::Double, Some(default))
    }

    /// A key of type string.
    pub const fn string(name: &'static str, default: &'static str) -> Key {
        Key::new(name, Kind::String, Some(default))
    }

    /// A key of type list.
    pub const fn list(name: &'static str, default: &'static str) -> Key {
        Key::new(name, Kind::List, Some(default))
    }

    /// A key of type class.
    pub const fn class(name: &'static str, default: &'static str) -> Key {
        Key::new(name, Kind::Class, Some(default))
    }

    /// A key whose default is null.
    pub const fn null(name: &'static str, kind: Kind) -> Key {
        Key::new(name, kind, None)
    }

    /// Accepts numbers from `least` up.
    pub const fn at_least(self, least: i64) -> Key {
        Key { accepts: Accepts::AtLeast(least), ..self }
    }

    /// Accepts numbers from `least` to `most`.
    pub const fn between(self, least: i64, most: i64) -> Key {
        Key { accepts: Accepts::Between(least, most), ..self }
    }

    /// Accepts numbers from `least` to `most`, and `other`.
    pub const fn between_or(self, least: i64, most: i64, other: i64) -> Key {
        Key { accepts: Accepts::BetweenOr(least, most, other), ..self }
    }

    /// Accepts fractions from `least` to `most`.
    pub const fn within(self, least: f64, most: f64) -> Key {
        Key { accepts: Accepts::Within(least, most), ..self }
    }

    /// Accepts these texts, or lists of them.
    pub const fn one_of(self, values: &'static [&'static str]) -> Key {
        Key { accepts: Accepts::OneOf(values), ..self }
    }

    /// Accepts these texts in whatever case.
    pub const fn one_of_any_case(self, values: &'static [&'static str]) -> Key {
        Key { accepts: Accepts::OneOfAnyCase(values), ..self }
    }

    /// Refuses an empty text or list.
    pub const fn not_empty(self) -> Key {
        Key { not_empty: true, ..self }
    }

    /// Accepts `*`, or a list of `partition:broker`.
    pub const fn throttled_replicas(self) -> Key {
        Key { accepts: Accepts::ThrottledReplicas, ..self }
    }

    /// Accepts a list in which an item stands more than once.
    pub const fn repeatable(self) -> Key {
        Key { repeatable: true, ..self }
    }

    /// Takes its value from the broker's keys if the topic has none.
    pub const fn falls_back_to(self, fallbacks: &'static [Fallback]) -> Key {
        Key { fallbacks, ..self }
    }

    /// Can be changed at run time for one broker.
    pub const fn per_broker(self) -> Key {
        Key { update: Update::PerBroker, ..self }
    }

    /// Can be changed at run time for one broker or all.
    pub const fn cluster_wide(self) -> Key {
        Key { update: Update::ClusterWide, ..self }
    }

    /// Has no effect.
    pub const fn ignored(self, why: &'static str) -> Key {
        Key { status: Status::Ignored(why), ..self }
    }

    /// May not be set to anything but its default.
    pub const fn refused(self, why: &'static str) -> Key {
        Key { status: Status::Refused(why), ..self }
    }

    /// Is not shown to clients.
    pub const fn internal(self) -> Key {
        Key { internal: true, ..self }
    }

    /// What it means.
    pub const fn doc(self, doc: &'static str) -> Key {
        Key { doc, ..self }
    }

    /// Whether its value may never be shown.
    pub const fn is_sensitive(&self) -> bool {
        matches!(self.kind, Kind::Password)
    }

    /// What it accepts, in words: the end of the sentence "expected …".
    pub fn accepted(&self) -> String {
        let wanted = match (self.accepts, self.kind) {
            (Accepts::Any, Kind::List) if self.repeatable => "items separated by commas".to_owned(),
            (Accepts::Any, kind) => of_kind(kind).to_owned(),
            (Accepts::OneOf(values), Kind::List) => format!("a list of {}", values.join(", ")),
            (accepts, _) => accepts.to_string(),
        };
        if self.not_empty { format!("{wanted}, not empty") } else { wanted }
    }
}

const fn of_kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Boolean => "true or false",
        Kind::Short => "a 16-bit integer",
        Kind::Int => "a 32-bit integer",
        Kind::Long => "a 64-bit integer",
        Kind::Double => "a number",
        Kind::List => "items separated by commas, each at most once",
        Kind::Class => "the name of a Java class",
        Kind::String | Kind::Password => "text",
    }
}

/// The texts as a choice: `a`, `a or b`, `a, b or c`.
fn choice(texts: &[&str]) -> String {
    match texts {
        [] => String::new(),
        [only] => (*only).to_owned(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
    }
}

impl fmt::Display for Accepts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Accepts::Any => f.write_str("any value of the key's type"),
            Accepts::AtLeast(least) => write!(f, "an integer of at least {least}"),
            Accepts::Between(least, most) => write!(f, "an integer from {least} to {most}"),
            Accepts::BetweenOr(least, most, other) => {
                write!(f, "{other}, or an integer from {least} to {most}")
            }
            Accepts::Within(least, most) => write!(f, "a number from {least} to {most}"),
            Accepts::OneOf(values) => f.write_str(&choice(values)),
            Accepts::OneOfAnyCase(values) => write!(f, "{} (in any case)", choice(values)),
            Accepts::ThrottledReplicas => f.write_str("* or a list of partition:broker"),
        }
    }
}
