//! The table of APIs: number, name, versions, where flexible encoding begins, and which version of
//! the headers goes with a version of the API. What a broker advertises is the broker's decision.

pub use crate::generated::api_key::ApiKey;

impl ApiKey {
    /// Whether the code can read and write this version.
    pub const fn has_version(self, version: i16) -> bool {
        self.min_version() <= version && version <= self.max_version()
    }

    /// Whether this version has compact lengths and tagged fields (KIP-482).
    pub const fn is_flexible(self, version: i16) -> bool {
        match self.flexible_from() {
            Some(from) => version >= from,
            None => false,
        }
    }

    /// The version of the request header: 2 with flexible versions, 1 before.
    pub const fn request_header_version(self, version: i16) -> i16 {
        if self.is_flexible(version) { 2 } else { 1 }
    }

    /// The version of the response header: 1 with flexible versions, 0 before; always 0 for
    /// ApiVersions, whose answer must be readable before a version is agreed on (KIP-511).
    pub const fn response_header_version(self, version: i16) -> i16 {
        match self {
            ApiKey::ApiVersions => 0,
            _ if self.is_flexible(version) => 1,
            _ => 0,
        }
    }
}

impl std::fmt::Display for ApiKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
