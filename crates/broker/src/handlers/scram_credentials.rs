//! DescribeUserScramCredentials (key 50) and AlterUserScramCredentials (key 51), version 0 (KIP-554).
//!
//! - This broker keeps no passwords: no user is listed, and a user that is named has none
//!   (RESOURCE_NOT_FOUND).
//! - A credential could not be used to log in, so setting one is refused with UNSUPPORTED_SASL_MECHANISM and
//!   a sentence, where Kafka stores it.

use std::collections::BTreeMap;
use std::sync::Arc;

use model::ErrorCode;
use wire::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult, ScramCredentialUpsertion,
};
use wire::describe_user_scram_credentials::{
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
};

use super::Call;

/// SCRAM-SHA-256 and SCRAM-SHA-512.
const MECHANISMS: [i8; 2] = [1, 2];
/// How often a password may be hashed, in Kafka.
const ITERATIONS_MIN: i32 = 4096;
const ITERATIONS_MAX: i32 = 16_384;

/// Answers DescribeUserScramCredentials.
pub async fn describe(
    _: Arc<Call>,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse {
    // How often each user is named, in the order of the names.
    let mut named = BTreeMap::<String, usize>::new();
    for user in request.users.unwrap_or_default() {
        *named.entry(user.name).or_default() += 1;
    }
    let absent = |(user, times): (String, usize)| {
        let (code, message) = match times {
            1 => (
                ErrorCode::ResourceNotFound,
                format!("Attempt to describe a user credential that does not exist: {user}"),
            ),
            _ => (
                ErrorCode::DuplicateResource,
                format!(
                    "Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
                ),
            ),
        };
        DescribeUserScramCredentialsResult {
            user,
            error_code: code.code(),
            error_message: Some(message),
            credential_infos: Vec::new(),
        }
    };
    DescribeUserScramCredentialsResponse {
        results: named.into_iter().map(absent).collect(),
        ..Default::default()
    }
}

/// Answers AlterUserScramCredentials: one answer a user, the first thing that is wrong.
pub async fn alter(
    _: Arc<Call>,
    request: AlterUserScramCredentialsRequest,
) -> AlterUserScramCredentialsResponse {
    let mut refusals = BTreeMap::<String, (ErrorCode, &'static str)>::new();
    for deletion in request.deletions {
        let refusal = check(&deletion.name, deletion.mechanism).unwrap_or((
            ErrorCode::ResourceNotFound,
            "Attempt to delete a user credential that does not exist",
        ));
        refusals.entry(deletion.name).or_insert(refusal);
    }
    for upsertion in request.upsertions {
        let refusal = check(&upsertion.name, upsertion.mechanism)
            .or_else(|| check_iterations(&upsertion))
            .unwrap_or((
                ErrorCode::UnsupportedSaslMechanism,
                "This broker has no listener with SASL: it does not store SCRAM credentials.",
            ));
        refusals.entry(upsertion.name).or_insert(refusal);
    }
    let answer =
        |(user, (code, message)): (String, (ErrorCode, &str))| AlterUserScramCredentialsResult {
            user,
            error_code: code.code(),
            error_message: Some(message.to_owned()),
        };
    AlterUserScramCredentialsResponse {
        throttle_time_ms: 0,
        results: refusals.into_iter().map(answer).collect(),
    }
}

fn check(user: &str, mechanism: i8) -> Option<(ErrorCode, &'static str)> {
    if user.is_empty() {
        return Some((ErrorCode::UnacceptableCredential, "Username must not be empty"));
    }
    let known = MECHANISMS.contains(&mechanism);
    (!known).then_some((ErrorCode::UnsupportedSaslMechanism, "Unknown SCRAM mechanism"))
}

fn check_iterations(upsertion: &ScramCredentialUpsertion) -> Option<(ErrorCode, &'static str)> {
    let wrong = match upsertion.iterations {
        ..ITERATIONS_MIN => "Too few iterations",
        ITERATIONS_MIN..=ITERATIONS_MAX => return None,
        _ => "Too many iterations",
    };
    Some((ErrorCode::UnacceptableCredential, wrong))
}
