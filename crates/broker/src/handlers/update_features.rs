//! UpdateFeatures (key 57), versions 0 to 2 (KIP-584). v1 kinds of downgrade and validation only
//! (KIP-778); v2 no result for each feature any more.
//!
//! The controller decides, all or nothing: what refuses one feature is the answer to the request.

use std::sync::Arc;

use ::metadata::decide::{FeatureChange, FeatureUpdate, UpdateFeatures};
use ::metadata::{Request, Response};
use model::ErrorCode;
use wire::update_features::{
    FeatureUpdateKey, UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse,
};

use super::Call;

/// From this version on the kind of the change is said, and not only whether it may be a downgrade.
const KIND_FROM_VERSION: i16 = 1;
/// The last version whose answer has a result for each feature.
const RESULTS_UP_TO_VERSION: i16 = 1;

/// Answers.
pub async fn handle(call: Arc<Call>, request: UpdateFeaturesRequest) -> UpdateFeaturesResponse {
    let names: Vec<String> =
        request.feature_updates.iter().map(|update| update.feature.clone()).collect();
    let update = |update: FeatureUpdateKey| FeatureUpdate {
        change: change(&update, call.version),
        name: update.feature,
        level: update.max_version_level,
    };
    let updates = UpdateFeatures {
        updates: request.feature_updates.into_iter().map(update).collect(),
        validate_only: request.validate_only,
    };
    let (code, error_message) = match call.decide(Request::UpdateFeatures(updates)).await {
        Ok(Response::UpdateFeatures(Ok(()))) => (ErrorCode::None, None),
        Ok(Response::UpdateFeatures(Err(refusal))) => (refusal.error, Some(refusal.message)),
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(code) => (code, Some(code.name().to_owned())),
    };
    let each = code.is_none() && call.version <= RESULTS_UP_TO_VERSION;
    let updated = |feature| UpdatableFeatureResult { feature, ..Default::default() };
    UpdateFeaturesResponse {
        throttle_time_ms: 0,
        error_code: code.code(),
        error_message,
        results: names.into_iter().filter(|_| each).map(updated).collect(),
    }
}

fn change(update: &FeatureUpdateKey, version: i16) -> FeatureChange {
    match update.upgrade_type {
        _ if version < KIND_FROM_VERSION => match update.allow_downgrade {
            true => FeatureChange::Downgrade,
            false => FeatureChange::Upgrade,
        },
        1 => FeatureChange::Upgrade,
        2 | 3 => FeatureChange::Downgrade,
        other => FeatureChange::Unknown(other),
    }
}
