//! Records of a body that is there as a whole: all of them can be read, or none is sent.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::http::request::Parts;
use serving::error::ApiError;

use super::super::handler::Asked;
use super::super::job::{Job, Style};
use super::report::{About, Reports};
use super::{Target, check_type, cluster_id, now_ms, stamp};
use crate::answer::Answer;
use crate::request::body::collect_expanded;
use crate::request::v3::records;
use crate::request::wanted::wanted;
use crate::request::{Parameters, Trace};
use crate::state::Shared;

/// Produces what the body has, and answers when it is acknowledged.
pub(crate) async fn produce(
    shared: &Arc<Shared>,
    target: Target<'_>,
    parameters: &Parameters<'_>,
    parts: &Parts,
    body: &mut Incoming,
) -> Result<Answer, ApiError> {
    check_type(&parts.headers)?;
    let by_default = shared.settings.partitioners.of(target.topic);
    let asked = Asked::new(parts, wanted(parameters, &parts.headers, by_default)?)?;
    let body = collect_expanded(body, parts, shared).await?;
    let cluster_id = cluster_id(shared, target.cluster).await?;
    let received_ms = now_ms();
    let reports = Arc::new(Reports::new(About::new(&cluster_id, target.topic), received_ms));
    let job = Arc::new(Job::new(None, asked.wanted, Style::Reports(Arc::clone(&reports))));
    let sent = {
        let trace = Trace::of(&parts.headers);
        let read = || {
            let mut records = records(&body.bytes)?;
            records.iter_mut().for_each(|record| trace.add_to(&mut record.draft));
            reports.describe(records.iter().map(|record| record.described));
            records.iter_mut().for_each(|record| stamp(record, received_ms));
            Ok(records.into_iter().map(|record| record.draft).collect())
        };
        asked.send(shared, target.topic, &job, &body.bytes, &read).await?
    };
    // The records are in the producer's memory now.
    drop(body);
    sent.answer(shared, &job).await
}
