//! DescribeClientQuotas (key 48) and AlterClientQuotas (key 49), versions 0 and 1 (KIP-546).
//!
//! - This broker has no quotas, so every filter that Kafka accepts finds none.
//! - A quota that is set would not be obeyed: it is refused with INVALID_REQUEST and a sentence, where
//!   Kafka stores it. Taking away a quota that is not there succeeds, as in Kafka.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::ErrorCode;
use wire::alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasResponse, RequestEntityData, RequestEntryData,
    ResponseEntityData, ResponseEntryData,
};
use wire::describe_client_quotas::{
    ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse,
};

use super::{Call, unique};

const USER: &str = "user";
const CLIENT_ID: &str = "client-id";
const IP: &str = "ip";

const MATCH_EXACT: i8 = 0;
const MATCH_DEFAULT: i8 = 1;
const MATCH_ANY: i8 = 2;

/// The quotas of Kafka, by what they apply to.
const KEYS_OF_CLIENTS: [&str; 4] =
    ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"];
const KEYS_OF_ADDRESSES: [&str; 1] = ["connection_creation_rate"];

type Checked = Result<(), (ErrorCode, String)>;

fn invalid(message: impl Into<String>) -> Checked {
    Err((ErrorCode::InvalidRequest, message.into()))
}

/// Answers DescribeClientQuotas.
pub async fn describe(
    _: Arc<Call>,
    request: DescribeClientQuotasRequest,
) -> DescribeClientQuotasResponse {
    match check_filter(&request.components) {
        Ok(()) => DescribeClientQuotasResponse { entries: Some(Vec::new()), ..Default::default() },
        Err((code, message)) => DescribeClientQuotasResponse {
            error_code: code.code(),
            error_message: Some(message),
            entries: None,
            ..Default::default()
        },
    }
}

fn check_filter(components: &[ComponentData]) -> Checked {
    let mut kinds = BTreeSet::new();
    for component in components {
        let kind = component.entity_type.as_str();
        match (component.match_type, &component.match_) {
            _ if kind.is_empty() => return invalid("Invalid empty entity type."),
            _ if !kinds.insert(kind) => {
                let message =
                    format!("Entity type {kind} cannot appear more than once in the filter.");
                return invalid(message);
            }
            _ if ![USER, CLIENT_ID, IP].contains(&kind) => {
                let message = format!("Unsupported entity type {kind}");
                return Err((ErrorCode::UnsupportedVersion, message));
            }
            (MATCH_EXACT, None) => {
                return invalid(
                    "Request specified MATCH_TYPE_EXACT, but set match string to null.",
                );
            }
            (MATCH_DEFAULT, Some(_)) => {
                let message =
                    "Request specified MATCH_TYPE_DEFAULT, but also specified a match string.";
                return invalid(message);
            }
            (MATCH_ANY, Some(_)) => {
                let message =
                    "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string.";
                return invalid(message);
            }
            (MATCH_EXACT | MATCH_DEFAULT | MATCH_ANY, _) => {}
            (other, _) => return invalid(format!("Unknown match type {other}")),
        }
    }
    if kinds.contains(IP) && kinds.len() > 1 {
        let message = "Invalid entity filter component combination. IP filter component should \
                       not be used with user or clientId filter component.";
        return invalid(message);
    }
    Ok(())
}

/// Answers AlterClientQuotas.
pub async fn alter(_: Arc<Call>, request: AlterClientQuotasRequest) -> AlterClientQuotasResponse {
    let answer = |entry: RequestEntryData| {
        let (code, error_message) = match check_change(&entry) {
            Ok(()) => (ErrorCode::None, None),
            Err((code, message)) => (code, Some(message)),
        };
        ResponseEntryData {
            error_code: code.code(),
            error_message,
            entity: entry.entity.into_iter().map(echo).collect(),
        }
    };
    let mut entries = request.entries;
    unique::keep_first(&mut entries, |entry| {
        let parts = entry.entity.iter();
        parts.map(|part| (part.entity_type.clone(), part.entity_name.clone())).collect::<Vec<_>>()
    });
    AlterClientQuotasResponse {
        throttle_time_ms: 0,
        entries: entries.into_iter().map(answer).collect(),
    }
}

fn echo(entity: RequestEntityData) -> ResponseEntityData {
    ResponseEntityData { entity_type: entity.entity_type, entity_name: entity.entity_name }
}

fn check_change(entry: &RequestEntryData) -> Checked {
    let keys = check_entity(&entry.entity)?;
    let Some(set) = entry.ops.iter().find(|op| !op.remove) else { return Ok(()) };
    let key = set.key.as_str();
    if !keys.contains(&key) {
        return invalid(format!("Invalid configuration key {key}"));
    }
    invalid(format!("This broker enforces no client quotas: it does not store {key}."))
}

/// The keys that the entity may have.
fn check_entity(
    entity: &[RequestEntityData],
) -> Result<&'static [&'static str], (ErrorCode, String)> {
    let refuse = |message: String| Err((ErrorCode::InvalidRequest, message));
    let mut kinds = BTreeSet::new();
    for part in entity {
        let kind = part.entity_type.as_str();
        if ![USER, CLIENT_ID, IP].contains(&kind) {
            return refuse(format!("Unhandled client quota entity type: {kind}"));
        }
        if part.entity_name.as_deref() == Some("") {
            return refuse(format!("Empty {kind} not supported"));
        }
        if !kinds.insert(kind) {
            return refuse(format!("Duplicate client quota entity type: {kind}"));
        }
    }
    match (kinds.contains(IP), kinds.len()) {
        (_, 0) => refuse("Invalid empty client quota entity".to_owned()),
        (true, 1) => Ok(&KEYS_OF_ADDRESSES),
        (true, _) => {
            refuse("A client quota of an address has no user and no client id.".to_owned())
        }
        (false, _) => Ok(&KEYS_OF_CLIENTS),
    }
}
