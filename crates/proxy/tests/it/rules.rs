//! Fault rules for tests.

use std::sync::Arc;

use proxy::FaultInjector;
use proxy::fault_injection::{CountBy, FaultAction, FaultPlan, FaultRule, Occurrence};
use wire::ApiKey;

/// A rule that matches every request of an API.
pub fn rule(api: ApiKey, action: FaultAction) -> FaultRule {
    FaultRule {
        name: action.name().to_owned(),
        api: Some(api),
        topic: None,
        partition: None,
        client_id: None,
        occurrence: Occurrence::Always,
        count_by: CountBy::ClientPartition,
        limit: None,
        action,
    }
}

/// Fault injection by these rules.
pub fn injector(rules: &[FaultRule]) -> Arc<FaultInjector> {
    let plan = FaultPlan { seed: 7, rules: rules.to_vec() };
    Arc::new(FaultInjector::of_plan(plan).unwrap())
}

/// A fault in every so-manieth produce request of all clients, for each of these.
pub fn every(faults: &[(u64, FaultAction)]) -> Arc<FaultInjector> {
    let rules = faults.iter().map(|(every, action)| FaultRule {
        occurrence: Occurrence::Every(*every),
        count_by: CountBy::Rule,
        ..rule(ApiKey::Produce, *action)
    });
    injector(&rules.collect::<Vec<_>>())
}
