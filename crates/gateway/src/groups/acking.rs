//! Acknowledgements by HTTP: `POST /groups/{group}/ack` with the id of an event stream.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::http::request::Parts;
use serving::error::{ApiError, Kind};
use serving::events::ResumeId;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
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
    parts: &Parts,
    body: &mut Incoming,
) -> Result<Answer, ApiError> {
    check_name("group", group)?;
    let body = collect(body, parts, shared).await?;
    let malformed = |words: String| ApiError::new(Kind::Malformed, words);
    let text = std::str::from_utf8(&body.bytes)
        .map_err(|_| malformed("the body is not the id of an event".to_owned()))?;
    let id = ResumeId::read(text.trim()).map_err(|error| malformed(error.to_string()))?;
    let Ok(is_done) = timeout(LOOKUP_MAX, ask(&shared.groups.members(group), id)).await else {
        return Err(unavailable(
            &"a member of the group is busy with its client: acknowledge again",
        ));
    };
    if !is_done? {
        let words = format!(
            "no event stream of group {group:?} in this process has a partition of this id now: acknowledge where the stream \
             is, or come again with the id as Last-Event-ID and the same instance="
        );
        return Err(ApiError::new(Kind::Exclusive, words));
    }
    Ok(nothing())
}

/// Asks all members at once; true as soon as one of them has a partition of the id. What the others have is handed to them as
/// well: none waits for one whose client takes nothing.
///
/// # Errors
/// One of them has too many questions before this one.
async fn ask(members: &[mpsc::Sender<AckById>], id: ResumeId) -> Result<bool, ApiError> {
    let id = Arc::new(id);
    let (tell, mut told) = mpsc::channel(members.len().max(1));
    let mut busy = 0;
    for member in members {
        let asked = member.try_send(AckById { id: Arc::clone(&id), tell: tell.clone() });
        // A member that has gone has no partitions.
        busy += usize::from(matches!(asked, Err(TrySendError::Full(_))));
    }
    drop(tell);
    while let Some(count) = told.recv().await {
        if count > 0 {
            return Ok(true);
        }
    }
    match busy {
        0 => Ok(false),
        _ => Err(unavailable(&"a member of the group is busy with its client: acknowledge again")),
    }
}
