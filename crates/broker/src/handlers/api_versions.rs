//! ApiVersions (key 18), versions 0 to 5. Lists exactly what is served.
//!
//! - A version that is not served is answered in version 0 with UNSUPPORTED_VERSION (KIP-511);
//!   `dispatch` does that.
//! - v3 software name and version, whose characters are checked; features (KIP-584): those that this
//!   version supports, and the levels that the cluster has finalized, with the offset in the metadata
//!   log as their epoch. Clients change their behaviour by them, so no feature of transactions or of
//!   the new group protocols is there.
//! - v5 the cluster and node that the client means to reach (KIP-1242).

use std::sync::Arc;

use ::metadata::decide::all_features;
use model::ErrorCode;
use wire::api_versions::{
    ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};

use super::{Call, table};

/// From this version on the client says what it is.
const SOFTWARE_FROM_VERSION: i16 = 3;
/// From this version on the answer has features.
const FEATURES_FROM_VERSION: i16 = 3;
/// Begin of the name of the supported feature that names the broker's release.
const RELEASE_FEATURE: &str = "highwater.release.";
/// The epoch of features before any was finalized.
const NO_EPOCH: i64 = -1;

/// Answers.
pub async fn handle(call: Arc<Call>, request: ApiVersionsRequest) -> ApiVersionsResponse {
    let names = [&request.client_software_name, &request.client_software_version];
    if call.version >= SOFTWARE_FROM_VERSION
        && !names.into_iter().all(|name| is_software_name(name))
    {
        return table::api_versions(ErrorCode::InvalidRequest);
    }
    let other_cluster = request.cluster_id.is_some_and(|id| *id != *call.server.cluster_id);
    let other_node = request.node_id >= 0 && request.node_id != call.server.node_id.0;
    if other_cluster || other_node {
        return table::api_versions(ErrorCode::RebootstrapRequired);
    }
    with_features(&call, table::api_versions(ErrorCode::None))
}

/// Adds what is supported and what is finalized; before version 3 there is no room for it.
fn with_features(call: &Call, mut response: ApiVersionsResponse) -> ApiVersionsResponse {
    if call.version < FEATURES_FROM_VERSION {
        return response;
    }
    let features = all_features();
    let supported = features.map(|feature| SupportedFeatureKey {
        name: feature.name.to_owned(),
        min_version: feature.level_min,
        max_version: feature.level_max,
    });
    // The protocol has no field for a broker's release: `highwater cluster versions` reads this name.
    let release = SupportedFeatureKey {
        name: format!("{RELEASE_FEATURE}{}", env!("CARGO_PKG_VERSION")),
        min_version: 1,
        max_version: 1,
    };
    response.supported_features = supported.chain([release]).collect();
    let image = call.server.image();
    let finalized = image.features().iter().map(|(name, level)| FinalizedFeatureKey {
        name: name.clone(),
        max_version_level: *level,
        min_version_level: *level,
    });
    response.finalized_features = finalized.collect();
    let epoch = call.server.quorum.changed_at();
    response.finalized_features_epoch = epoch.map_or(NO_EPOCH, |index| index as i64);
    response
}

/// Letters and digits at both ends, dots and dashes between (KIP-511).
fn is_software_name(name: &str) -> bool {
    let inner = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let ends = [name.chars().next(), name.chars().last()];
    ends.into_iter().all(|end| end.is_some_and(|c| c.is_ascii_alphanumeric()))
        && name.chars().all(inner)
}

#[cfg(test)]
mod tests {
    use super::is_software_name;

    #[test]
    fn software_names_are_checked() {
        for name in ["librdkafka", "apache-kafka-java", "1.2.3", "a"] {
            assert!(is_software_name(name), "{name:?}");
        }
        for name in ["", "-a", "a.", "a b", "ünï", "a\n"] {
            assert!(!is_software_name(name), "{name:?}");
        }
    }
}
