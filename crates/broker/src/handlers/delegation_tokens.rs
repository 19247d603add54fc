//! CreateDelegationToken (key 38, versions 1 to 3), RenewDelegationToken (39, 1 to 2),
//! ExpireDelegationToken (40, 1 to 2) and DescribeDelegationToken (41, 1 to 3); KIP-48.
//!
//! Kafka hands out tokens only to clients that have proved who they are. No listener of this broker
//! asks for a proof, so each answers DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, as Kafka does on PLAINTEXT.

use std::sync::Arc;

use model::ErrorCode;
use wire::create_delegation_token::{CreateDelegationTokenRequest, CreateDelegationTokenResponse};
use wire::describe_delegation_token::{
    DescribeDelegationTokenRequest, DescribeDelegationTokenResponse,
};
use wire::expire_delegation_token::{ExpireDelegationTokenRequest, ExpireDelegationTokenResponse};
use wire::renew_delegation_token::{RenewDelegationTokenRequest, RenewDelegationTokenResponse};

use super::Call;

/// The name of a client that did not authenticate, as Kafka has it.
const PRINCIPAL_TYPE: &str = "User";
const PRINCIPAL_NAME: &str = "ANONYMOUS";
/// From this version on the answer says who asked, besides who owns the token (KIP-373).
const REQUESTER_FROM_VERSION: i16 = 3;
/// A time that there is not.
const NO_TIME_MS: i64 = -1;

const REFUSED: ErrorCode = ErrorCode::DelegationTokenRequestNotAllowed;

/// Answers CreateDelegationToken.
pub async fn create(
    call: Arc<Call>,
    _: CreateDelegationTokenRequest,
) -> CreateDelegationTokenResponse {
    let mut response = CreateDelegationTokenResponse {
        error_code: REFUSED.code(),
        principal_type: PRINCIPAL_TYPE.to_owned(),
        principal_name: PRINCIPAL_NAME.to_owned(),
        issue_timestamp_ms: NO_TIME_MS,
        expiry_timestamp_ms: NO_TIME_MS,
        max_timestamp_ms: NO_TIME_MS,
        ..Default::default()
    };
    if call.version >= REQUESTER_FROM_VERSION {
        response.token_requester_principal_type = PRINCIPAL_TYPE.to_owned();
        response.token_requester_principal_name = PRINCIPAL_NAME.to_owned();
    }
    response
}

/// Answers RenewDelegationToken.
pub async fn renew(_: Arc<Call>, _: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse {
    RenewDelegationTokenResponse {
        error_code: REFUSED.code(),
        expiry_timestamp_ms: NO_TIME_MS,
        throttle_time_ms: 0,
    }
}

/// Answers ExpireDelegationToken.
pub async fn expire(
    _: Arc<Call>,
    _: ExpireDelegationTokenRequest,
) -> ExpireDelegationTokenResponse {
    ExpireDelegationTokenResponse {
        error_code: REFUSED.code(),
        expiry_timestamp_ms: NO_TIME_MS,
        throttle_time_ms: 0,
    }
}

/// Answers DescribeDelegationToken.
pub async fn describe(
    _: Arc<Call>,
    _: DescribeDelegationTokenRequest,
) -> DescribeDelegationTokenResponse {
    DescribeDelegationTokenResponse { error_code: REFUSED.code(), ..Default::default() }
}
