//! Which versions a broker serves, and which one to speak with it (KIP-35, KIP-511).

use std::collections::HashMap;
use wire::{ApiKey, ApiVersionsResponse};

/// What one broker serves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApiVersions {
    ranges: HashMap<i16, (i16, i16)>,
}

impl ApiVersions {
    /// Takes the ranges out of a broker's answer.
    pub fn of(response: &ApiVersionsResponse) -> ApiVersions {
        let row = response.api_keys.iter().map(|a| (a.api_key, (a.min_version, a.max_version)));
        ApiVersions { ranges: row.collect() }
    }

    /// The newest version that both sides know.
    pub fn newest(&self, api: ApiKey) -> Option<i16> {
        self.newest_up_to(api, i16::MAX)
    }

    /// The newest version that both sides know and that is not above `limit`.
    pub fn newest_up_to(&self, api: ApiKey, limit: i16) -> Option<i16> {
        let (low, high) = *self.ranges.get(&api.code())?;
        let high = high.min(api.max_version()).min(limit);
        (high >= low.max(api.min_version())).then_some(high)
    }

    /// What the broker serves of an API by number, whether or not this client knows the API.
    pub fn range(&self, api_code: i16) -> Option<(i16, i16)> {
        self.ranges.get(&api_code).copied()
    }

    /// The numbers of all APIs that the broker serves, in no order.
    pub fn codes(&self) -> impl Iterator<Item = i16> + '_ {
        self.ranges.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::api_versions::ApiVersion;

    fn serving(api: ApiKey, min_version: i16, max_version: i16) -> ApiVersions {
        let row = ApiVersion { api_key: api.code(), min_version, max_version };
        let api_keys = vec![row];
        ApiVersions::of(&ApiVersionsResponse { api_keys, ..Default::default() })
    }

    #[test]
    fn the_newest_version_of_both_is_spoken() {
        assert_eq!(serving(ApiKey::Fetch, 0, 11).newest(ApiKey::Fetch), Some(11));
        assert_eq!(serving(ApiKey::Fetch, 0, 99).newest(ApiKey::Fetch), Some(18));
        assert_eq!(serving(ApiKey::Fetch, 0, 99).newest_up_to(ApiKey::Fetch, 12), Some(12));
    }

    #[test]
    fn there_may_be_no_common_version() {
        assert_eq!(serving(ApiKey::Fetch, 0, 3).newest(ApiKey::Fetch), None);
        assert_eq!(serving(ApiKey::Fetch, 19, 20).newest(ApiKey::Fetch), None);
        assert_eq!(serving(ApiKey::Produce, 0, 3).newest(ApiKey::Fetch), None);
    }
}
