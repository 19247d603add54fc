//! Rules and requests for tests.

use super::facts::{NamedPartition, RequestFacts};
use super::rule::{CountBy, FaultAction, FaultRule, Occurrence};
use wire::ApiKey;

/// A rule with this action that matches every request, and all of the same kind.
pub fn rule(action: FaultAction) -> FaultRule {
    FaultRule {
        name: "rule".to_owned(),
        api: None,
        topic: None,
        partition: None,
        client_id: None,
        occurrence: Occurrence::Always,
        count_by: CountBy::ClientPartition,
        limit: None,
        action,
    }
}

/// A produce request of a client to partitions.
pub fn produce(client_id: &str, partitions: &[(&str, i32)]) -> RequestFacts {
    let named = |(topic, partition): &(&str, i32)| NamedPartition {
        topic: Some((*topic).to_owned()),
        partition: Some(*partition),
    };
    RequestFacts {
        api: ApiKey::Produce,
        client_id: client_id.to_owned(),
        partitions: partitions.iter().map(named).collect(),
    }
}
