//! ListTransactions (key 66), versions 0 to 2, and DescribeTransactions (key 65), version 0 (KIP-664).
//! v1 filters by duration (KIP-994); v2 by a pattern for transactional ids (KIP-1152).
//!
//! This broker coordinates no transactions: no filter finds one, and who is named is not found. Known
//! difference: a pattern that is no regular expression finds none too, where Kafka refuses it.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::ErrorCode;
use wire::describe_transactions::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, TransactionState,
};
use wire::list_transactions::{ListTransactionsRequest, ListTransactionsResponse};

use super::{Call, unique};

/// The states that a transaction may be in; the filter minds the case.
const STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

/// Answers ListTransactions.
pub async fn list(_: Arc<Call>, request: ListTransactionsRequest) -> ListTransactionsResponse {
    let asked: BTreeSet<String> = request.state_filters.into_iter().collect();
    let unknown = asked.into_iter().filter(|state| !STATES.contains(&state.as_str()));
    ListTransactionsResponse { unknown_state_filters: unknown.collect(), ..Default::default() }
}

/// Answers DescribeTransactions.
pub async fn describe(
    _: Arc<Call>,
    request: DescribeTransactionsRequest,
) -> DescribeTransactionsResponse {
    let mut ids = request.transactional_ids;
    unique::keep_first(&mut ids, String::clone);
    let absent = |transactional_id: String| {
        let code = match transactional_id.is_empty() {
            true => ErrorCode::InvalidRequest,
            false => ErrorCode::TransactionalIdNotFound,
        };
        TransactionState { error_code: code.code(), transactional_id, ..Default::default() }
    };
    DescribeTransactionsResponse {
        throttle_time_ms: 0,
        transaction_states: ids.into_iter().map(absent).collect(),
    }
}
