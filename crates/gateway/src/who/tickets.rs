//! Tickets: leave to read the streams of certain topics for an hour, as a piece of an address. `EventSource` and `WebSocket` in a
//! browser send no headers. A ticket is not used up: a browser comes again with the same address.

use hyper::body::Incoming;
use hyper::http::request::Parts;
use serde::Deserialize;
use serving::claims::{Claims, TICKET_S, TOPICS_MAX, Use, is_list};
use serving::error::{ApiError, Kind};
use serving::rights::Deed;

use super::Visitor;
use super::signing::now_s;
use super::tokens::random;
use crate::answer::{Answer, text};
use crate::instances::check_type;
use crate::request::body::collect_small;
use crate::state::Shared;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    topics: Vec<String>,
}

/// Makes a ticket for the topics in the body.
pub(crate) async fn issue(
    shared: &Shared,
    parts: &Parts,
    body: &mut Incoming,
) -> Result<Answer, ApiError> {
    let visitor = Visitor::of(parts);
    let body = collect_small(body, shared).await?;
    check_type(&parts.headers, &body.bytes)?;
    let wanted: Wanted = crate::request::instances::object(&body.bytes)?;
    if !is_list(&wanted.topics) {
        let words = format!("topics: expected 1 to {TOPICS_MAX} names of topics");
        return Err(ApiError::new(Kind::Unprocessable, words));
    }
    for topic in &wanted.topics {
        shared.allow(visitor, Deed::Read(topic))?;
    }
    let expires_s = now_s() + TICKET_S;
    let claims = Claims {
        good_for: Use::Ticket(wanted.topics),
        expires_s,
        id: u128::from_be_bytes(random()),
        stamp: shared.who.stamp(visitor).await,
        user: visitor.name.to_string(),
    };
    if !claims.is_readable() {
        let words = "topics: their names are too long for one ticket: make several";
        return Err(ApiError::new(Kind::Unprocessable, words));
    }
    let ticket = text(&shared.who.sign(&claims));
    Ok(Answer::json(format!("{{\"ticket\":{ticket},\"expires_ms\":{}}}", expires_s * 1000))
        .unstored())
}
