//! Reads typed values out of a configuration and gathers what is wrong, so that the operator sees
//! all of it at once. It also notes which keys were read: exactly the honoured ones must be.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::layers::Configuration;
use super::problem::{InvalidConfiguration, Problem};
use super::{table, value};

/// A type that values can have.
pub(super) trait Setting: Default {
    /// The value of a text that the table accepted; `None` if this type is narrower and refuses it.
    fn of_text(text: &str) -> Option<Self>;

    /// What is accepted where [`Setting::of_text`] refuses.
    const ACCEPTED: &'static str;
}

macro_rules! number_settings {
    ($($type:ty, $accepted:literal;)*) => {
        $(impl Setting for $type {
            fn of_text(text: &str) -> Option<$type> {
                text.parse().ok()
            }

            const ACCEPTED: &'static str = $accepted;
        })*
    };
}

number_settings! {
    i16, "expected a 16-bit integer";
    i32, "expected a 32-bit integer";
    i64, "expected a 64-bit integer";
    u16, "expected an integer from 0 to 65535";
    u32, "expected an integer of at least 0";
    u64, "expected an integer of at least 0";
    usize, "expected an integer of at least 0";
    f64, "expected a number";
    bool, "expected true or false";
}

impl Setting for String {
    fn of_text(text: &str) -> Option<String> {
        Some(text.to_owned())
    }

    const ACCEPTED: &'static str = "expected text";
}

impl Setting for Vec<String> {
    fn of_text(text: &str) -> Option<Vec<String>> {
        Some(value::items(text).map(str::to_owned).collect())
    }

    const ACCEPTED: &'static str = "expected a list";
}

/// One pass over a configuration.
pub(super) struct Reading<'a> {
    pub(super) configuration: &'a Configuration,
    read: RefCell<BTreeSet<&'static str>>,
    problems: RefCell<Vec<Problem>>,
}

impl<'a> Reading<'a> {
    pub(super) fn new(configuration: &'a Configuration) -> Reading<'a> {
        Reading { configuration, read: RefCell::default(), problems: RefCell::default() }
    }

    fn note(&self, name: &'static str) {
        assert!(table::by_name().contains_key(name), "{name} is missing in the table");
        self.read.borrow_mut().insert(name);
    }

    /// The value of a key whose value is never null.
    pub(super) fn get<T: Setting>(&self, name: &'static str) -> T {
        self.optional(name).unwrap_or_default()
    }

    /// The value of a key; `None` for null.
    pub(super) fn optional<T: Setting>(&self, name: &'static str) -> Option<T> {
        self.note(name);
        self.typed(name, self.configuration.value(name)?)
    }

    /// The value that was said or changed; `None` where the default holds.
    pub(super) fn explicit<T: Setting>(&self, name: &'static str) -> Option<T> {
        self.note(name);
        self.typed(name, self.configuration.explicit(name)?)
    }

    fn typed<T: Setting>(&self, name: &'static str, text: &str) -> Option<T> {
        let value = T::of_text(text);
        if value.is_none() {
            self.refuse(name, T::ACCEPTED);
        }
        value
    }

    /// Notes that the value of `name` cannot be used.
    pub(super) fn refuse(&self, name: &str, reason: impl Into<String>) {
        self.problems.borrow_mut().push(self.configuration.problem(name, reason));
    }

    /// Notes it unless `holds`.
    pub(super) fn require(&self, holds: bool, name: &str, reason: impl FnOnce() -> String) {
        if !holds {
            self.refuse(name, reason());
        }
    }

    #[cfg(test)]
    pub(super) fn keys_read(&self) -> BTreeSet<&'static str> {
        self.read.borrow().clone()
    }

    /// Everything that was refused.
    pub(super) fn finish(self) -> Result<(), InvalidConfiguration> {
        let problems = self.problems.into_inner();
        if problems.is_empty() { Ok(()) } else { Err(InvalidConfiguration(problems)) }
    }
}

/// A struct whose fields are keys: `name: type = "key"`. A field's documentation is the key's.
macro_rules! settings {
    ($(#[$doc:meta])* pub struct $name:ident {
        $($(#[$field_doc:meta])* $field:ident: $type:ty = $key:literal,)*
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* #[doc = concat!("The key `", $key, "`.")] pub $field: $type,)*
        }

        impl $name {
            pub(super) fn read(reading: &$crate::settings::Reading<'_>) -> $name {
                $name { $($field: reading.get::<$type>($key),)* }
            }
        }
    };
}

pub(super) use settings;
