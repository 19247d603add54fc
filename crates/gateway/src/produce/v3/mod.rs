//! Producing by version 3 of Confluent's REST proxy: an object for each record, and one for each answer. A body of
//! a known length is carried out as a whole ([`whole`]); one that comes in chunks is a [`stream`], whose records are
//! answered while more of them come. [`objects`] are what comes in, [`report`] is what goes out.

mod objects;
mod report;
mod stream;
mod whole;

pub(super) use report::Reports;
pub(crate) use stream::stream;
pub(crate) use whole::produce;

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::HeaderMap;
use hyper::header::CONTENT_TYPE;
use serving::error::{ApiError, Kind};

use crate::request::v3::Record;
use crate::state::Shared;

/// Where the records of a request go, by its path.
pub(crate) struct Target<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) topic: &'a str,
}

/// Refuses a body that says that it is something other than JSON.
fn check_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let Some(said) = headers.get(CONTENT_TYPE) else { return Ok(()) };
    let said = said.to_str().unwrap_or_default();
    let essence = said.split(';').next().unwrap_or_default().trim();
    match essence.eq_ignore_ascii_case("application/json") {
        true => Ok(()),
        false => {
            let words = format!("Content-Type is {said:?}: expected application/json");
            Err(ApiError::new(Kind::MediaType, words))
        }
    }
}

/// The cluster's id, if that is what the path says.
async fn cluster_id(shared: &Shared, said: &str) -> Result<String, ApiError> {
    let id = crate::read::cluster_id(shared).await?;
    match id == said {
        true => Ok(id),
        false => Err(crate::read::other_cluster(said, &id)),
    }
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.as_millis()).unwrap_or(i64::MAX)
}

/// Gives a record that has no time this one, so that its answer can tell it.
fn stamp(record: &mut Record<'_>, now_ms: i64) {
    let stamped = Some(record.draft.timestamp_ms.unwrap_or(now_ms));
    (record.draft.timestamp_ms, record.described.timestamp_ms) = (stamped, stamped);
}
