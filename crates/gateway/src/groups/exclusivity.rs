//! Exclusive subscriptions among several gateways. The group protocol admits every member, so each member of the
//! gateways reads the list of members behind each rebalance, before its client is sent a record, and leaves if an
//! exclusive member goes before it.

use client::consumer::user_data_of;
use client::{Admin, ClientError, Cluster, Consumer};
use serving::error::ApiError;

use super::taken;

/// User data of exclusive members.
pub(super) const EXCLUSIVE: &[u8] = b"highwater/exclusive";

/// Why this member must leave, if it must: another exclusive member is in the group, and this one is not exclusive, or
/// has the larger id. A member of another program is never the reason.
///
/// # Errors
/// No broker returned the members, and may later.
pub(super) async fn displaced(
    cluster: Cluster,
    consumer: &Consumer,
    group: &str,
    is_exclusive: bool,
) -> Result<Option<ApiError>, ClientError> {
    let own = consumer.member_id().unwrap_or_default();
    let described = match Admin::new(cluster).describe_group(group).await {
        Ok(described) => described,
        Err(error) if error.is_retriable() => return Err(error),
        // Without the right to describe the group its members are unknown.
        Err(_) => return Ok(None),
    };
    // Metadata is empty while the group rebalances: the members are read again behind that.
    let mut others = described.members.iter().filter(|member| member.member_id != own);
    let is_first = |other: &str| !is_exclusive || *other < *own;
    let is_displaced = others.any(|member| {
        is_first(&member.member_id) && user_data_of(&member.member_metadata) == EXCLUSIVE
    });
    Ok(is_displaced.then(|| taken(group)))
}
