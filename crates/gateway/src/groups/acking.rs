//! Acknowledgements by HTTP: `POST /groups/{group}/ack` with the id of an event stream.

use std::sync::Arc;

use hyper::body::Incoming;
use serving::error::{ApiError, Kind};
use serving::events::ResumeId;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::AckById;
use crate::answer::{Answer, nothing};
use crate::produce::{LOOKUP_MAX, unavailable};
use crate::request::body::collect;
use crate::request::instances::check_name;
use crate::state::Shared;

/// Acknowledges all before the id in the body, for whichever members of the group in this process have its partitions.
///
/// # Errors
/// The body is not an id, or no member here has a partition of it.
pub(crate) async fn acknowledge(
    shared: &Arc<Shared>,
    group: &str,
    body: &mut Incoming,
) -> Result<Answer, ApiError> {
    check_name("group", group)?;
    let body = collect(body, shared).await?;
    let malformed = |words: String| ApiError::new(Kind::Malformed, words);
    let text = std::str::from_utf8(&body.bytes)
        .map_err(|_| malformed("the body is not the id of an event".to_owned()))?;
    let id = ResumeId::read(text.trim()).map_err(|error| malformed(error.to_string()))?;
    let id = Arc::new(id);
    let asking = async {
        let mut count = 0;
        for member in shared.groups.members(group) {
            let (tell, told) = oneshot::channel();
            // A member that has gone has no partitions.
            if member.send(AckById { id: Arc::clone(&id), tell }).await.is_ok() {
                count += told.await.unwrap_or(0);
            }
        }
        count
    };
    let Ok(count) = timeout(LOOKUP_MAX, asking).await else {
        return Err(unavailable(
            &"a member of the group is busy with its client: acknowledge again",
        ));
    };
    if count == 0 {
        let words = format!(
            "no event stream of group {group:?} in this process has a partition of this id now: acknowledge where the stream \
             is, or come again with the id as Last-Event-ID and the same instance="
        );
        return Err(ApiError::new(Kind::Exclusive, words));
    }
    Ok(nothing())
}
