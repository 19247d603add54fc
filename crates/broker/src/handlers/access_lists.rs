//! DescribeAcls (key 29), CreateAcls (key 30) and DeleteAcls (key 31), versions 1 to 3.
//!
//! There are no access rules on this broker yet, so each answers SECURITY_DISABLED, in the words of a
//! Kafka without `authorizer.class.name`: for the whole request, for each rule, for each filter.
//! Filters and rules are not looked at, as in Kafka.

use std::sync::Arc;

use model::ErrorCode;
use wire::create_acls::{AclCreationResult, CreateAclsRequest, CreateAclsResponse};
use wire::delete_acls::{DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse};
use wire::describe_acls::{DescribeAclsRequest, DescribeAclsResponse};

use super::Call;

/// Answers DescribeAcls.
pub async fn describe(_: Arc<Call>, _: DescribeAclsRequest) -> DescribeAclsResponse {
    DescribeAclsResponse {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: Some("No Authorizer is configured on the broker".to_owned()),
        ..Default::default()
    }
}

/// Answers CreateAcls.
pub async fn create(_: Arc<Call>, request: CreateAclsRequest) -> CreateAclsResponse {
    let refused = |(at, _)| AclCreationResult {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: no_authorizer(at),
    };
    CreateAclsResponse {
        throttle_time_ms: 0,
        results: request.creations.into_iter().enumerate().map(refused).collect(),
    }
}

/// Answers DeleteAcls.
pub async fn delete(_: Arc<Call>, request: DeleteAclsRequest) -> DeleteAclsResponse {
    let refused = |(at, _)| DeleteAclsFilterResult {
        error_code: ErrorCode::SecurityDisabled.code(),
        error_message: no_authorizer(at),
        matching_acls: Vec::new(),
    };
    DeleteAclsResponse {
        throttle_time_ms: 0,
        filter_results: request.filters.into_iter().enumerate().map(refused).collect(),
    }
}

/// The message of the result at this position. Results belong to rules by position, so the answer cannot leave
/// out repeats; only the first result carries the words, which are longer than the shortest rule.
fn no_authorizer(at: usize) -> Option<String> {
    (at == 0).then(|| "No Authorizer is configured.".to_owned())
}
