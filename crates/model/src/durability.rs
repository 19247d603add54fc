//! What counts as stored: the one distinction on which `acks=all`, the high watermark and the
//! configuration key `durability` agree.

/// Which positions count for the high watermark, and so when `acks=all` is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Durability {
    /// Synced to the device of every in-sync replica: survives the loss of power.
    #[default]
    Fsync,
    /// Written to the page cache of every in-sync replica: survives the loss of the process.
    /// Kafka's own contract.
    PageCache,
}

impl Durability {
    /// Every name, in the order in which it is documented.
    pub const NAMES: &'static [&'static str] = &["fsync", "page-cache"];

    /// The name in configurations.
    pub const fn name(self) -> &'static str {
        match self {
            Durability::Fsync => "fsync",
            Durability::PageCache => "page-cache",
        }
    }

    /// The durability of this name; `None` for any other text.
    pub fn from_name(name: &str) -> Option<Durability> {
        match name {
            "fsync" => Some(Durability::Fsync),
            "page-cache" => Some(Durability::PageCache),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_leads_to_a_durability_and_back() {
        for name in Durability::NAMES {
            assert_eq!(Durability::from_name(name).map(Durability::name), Some(*name));
        }
        assert_eq!(Durability::from_name("FSYNC"), None);
    }
}
