//! The machine, programs and settings of a run as text: a stable hash of them, and what differs between two.
//! Capturing them is not done here (`lab`).

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// First parts of the keys whose values change from minute to minute on the same machine: they are shown, and
/// count neither for [`Environment::hash`] nor as a difference that [`Environment::diff`] calls lasting.
pub const VOLATILE: &[&str] = &["load", "now", "pressure", "probe", "seed", "uptime"];

/// What a run ran on: keys such as `cpu.model`, `kernel.version`, `client.linger.ms`, with their values as text.
/// Sorted by key, so that two captures of one machine are equal whatever the order of capturing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Environment {
    values: BTreeMap<String, String>,
}

/// One key that two environments do not agree on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// The key.
    pub key: String,
    /// Its value in the first, if it has one.
    pub base: Option<String>,
    /// Its value in the second, if it has one.
    pub new: Option<String>,
    /// Whether it is expected to change from minute to minute: see [`VOLATILE`].
    pub volatile: bool,
}

impl Environment {
    /// Nothing known yet.
    pub fn new() -> Environment {
        Environment::default()
    }

    /// Sets a key. The value's outer white space is dropped.
    pub fn set(&mut self, key: impl Into<String>, value: impl ToString) {
        self.values.insert(key.into(), value.to_string().trim().to_owned());
    }

    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.values.get(key).map(String::as_str)
    }

    /// All keys and values, sorted by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Whether a key's first part (up to the first dot) is one of [`VOLATILE`].
    pub fn is_volatile(key: &str) -> bool {
        let first = key.split('.').next().unwrap_or(key);
        VOLATILE.contains(&first)
    }

    /// 16 hexadecimal digits that are the same wherever and whenever the lasting keys and values are: FNV-1a, 64
    /// bits, over each key and value with its length before it.
    pub fn hash(&self) -> String {
        let mut hash = Fnv::default();
        for (key, value) in self.iter().filter(|(key, _)| !Environment::is_volatile(key)) {
            hash.text(key);
            hash.text(value);
        }
        format!("{:016x}", hash.0)
    }

    /// What differs from `self` to `new`: lasting keys first, each part sorted by key.
    pub fn diff(&self, new: &Environment) -> Vec<Difference> {
        let keys: BTreeSet<&String> = self.values.keys().chain(new.values.keys()).collect();
        let mut differences: Vec<Difference> = keys
            .into_iter()
            .filter(|key| self.values.get(*key) != new.values.get(*key))
            .map(|key| Difference {
                key: key.clone(),
                base: self.values.get(key).cloned(),
                new: new.values.get(key).cloned(),
                volatile: Environment::is_volatile(key),
            })
            .collect();
        differences.sort_by_key(|difference| difference.volatile);
        differences
    }
}

impl FromIterator<(String, String)> for Environment {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Environment {
        let mut environment = Environment::new();
        for (key, value) in pairs {
            environment.set(key, value);
        }
        environment
    }
}

/// FNV-1a, 64 bits (Fowler, Noll, Vo). Written here because the standard library's hashers may change between
/// releases, and a report's hash is compared with one of years ago.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// The length goes first, so that `ab`, `c` is not `a`, `bc`.
    fn text(&mut self, text: &str) {
        self.bytes(&(text.len() as u64).to_le_bytes());
        self.bytes(text.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Environment {
        [("cpu.model", "X5670"), ("load.average", "0.3"), ("kernel.version", "6.1")]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    #[test]
    fn fnv_of_published_vectors() {
        let of = |text: &str| {
            let mut hash = Fnv::default();
            hash.bytes(text.as_bytes());
            hash.0
        };
        assert_eq!(of(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(of("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(of("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn hash_ignores_what_changes_by_the_minute_and_nothing_else() {
        let base = machine();
        let mut busy = base.clone();
        busy.set("load.average", 17);
        busy.set("probe.fsync_us", 912);
        assert_eq!(base.hash(), busy.hash());
        let mut other = base.clone();
        other.set("kernel.version", "6.2");
        assert_ne!(base.hash(), other.hash());
        assert_eq!(base.hash().len(), 16);
    }

    #[test]
    fn hash_tells_where_a_key_ends() {
        let one: Environment = [("ab".to_owned(), "c".to_owned())].into_iter().collect();
        let other: Environment = [("a".to_owned(), "bc".to_owned())].into_iter().collect();
        assert_ne!(one.hash(), other.hash());
    }

    #[test]
    fn diff_shows_changed_added_and_removed_keys_lasting_ones_first() {
        let base = machine();
        let mut new = base.clone();
        new.set("load.average", 17);
        new.set("thp", "always");
        let diff = base.diff(&new);
        let keys: Vec<(&str, bool)> = diff.iter().map(|d| (d.key.as_str(), d.volatile)).collect();
        assert_eq!(keys, [("thp", false), ("load.average", true)]);
        assert_eq!(diff[0].base, None);
        assert_eq!(diff[1].base.as_deref(), Some("0.3"));
        assert!(base.diff(&base).is_empty());
    }

    #[test]
    fn survives_json() {
        let text = serde_json::to_string(&machine()).expect("a map of texts");
        assert!(text.starts_with(r#"{"cpu.model":"X5670""#));
        let back: Environment = serde_json::from_str(&text).expect("what was written");
        assert_eq!(back, machine());
    }
}
