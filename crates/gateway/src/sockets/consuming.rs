//! Records for a member of a group, in Pulsar's words: messages, and what becomes of each.

use std::sync::Arc;

use client::Admin;
use serving::error::ApiError;
use serving::events::{Form, Projection};
use serving::push::{ConsumerQuery, Credit, Dialect, MessageId, Subscription, frame};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::socket::{End, Socket, Turn};
use crate::charge::Charge;
use crate::groups::{
    Acking, CHARGED_BYTES, Session, Wanted, check_empty, event_bytes_max, existing,
};
use crate::lifetime::told_to_stop;
use crate::produce::of_refusal;
use crate::request::frames::{Said, said};
use crate::request::instances::check_name;
use crate::share_owner::ShareOwner;
use crate::state::Shared;
use crate::who::{Login, VOID_LOGIN};

/// A consumer that can begin.
pub(super) struct Consuming {
    topic: String,
    session: Session,
    credit: Credit,
    nack_delay_ms: u64,
}

impl std::fmt::Debug for Consuming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Consuming({:?})", self.topic)
    }
}

/// Opens a consumer of a subscription, which is a group of this name.
///
/// # Errors
/// There is no such topic, or the subscription has its only consumer already.
pub(super) async fn open(
    shared: &Arc<Shared>,
    owner: ShareOwner,
    topic: &str,
    subscription: &str,
    query: &ConsumerQuery,
) -> Result<Consuming, ApiError> {
    check_name("subscription", subscription)?;
    existing(shared, topic).await?;
    let mut charge = Charge::new(&shared.reading.of(owner.clone()));
    charge.add(CHARGED_BYTES)?;
    let is_exclusive = query.subscription == Subscription::Exclusive;
    let entry = shared.groups.enter(owner, subscription, is_exclusive)?;
    let cluster = shared.topics.cluster();
    if is_exclusive {
        check_empty(&Admin::new(cluster.clone()), subscription).await?;
    }
    let wanted = Wanted {
        group: subscription.to_owned(),
        topics: vec![topic.to_owned()],
        is_exclusive,
        instance: None,
        from_earliest: query.from_earliest,
        acking: Acking::Each,
        projection: Projection { form: Form::Frame(Dialect::Pulsar), ..Projection::default() },
        id: None,
        event_bytes_max: event_bytes_max(&shared.reading),
    };
    let session = Session::new(cluster, &shared.groups, wanted, entry, charge);
    Ok(Consuming {
        topic: topic.to_owned(),
        session: session.map_err(|error| of_refusal(&error))?,
        credit: if query.pulls { Credit::pulled() } else { Credit::pushed(query.queue) },
        nack_delay_ms: query.nack_delay_ms,
    })
}

/// Serves a consumer to its end. Returns the session, which is to leave its group.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut Socket<S>,
    mut consuming: Consuming,
    shared: &Shared,
    login: Option<&Login>,
    stopped: &mut watch::Receiver<bool>,
) -> (End, Session) {
    let end = tokio::select! {
        end = run(socket, &mut consuming, shared, stopped) => end.unwrap_or_else(|end| end),
        () = shared.who.until_void(login) => End::policy(VOID_LOGIN),
    };
    (end, consuming.session)
}

async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut Socket<S>,
    consuming: &mut Consuming,
    shared: &Shared,
    stopped: &mut watch::Receiver<bool>,
) -> Result<End, End> {
    loop {
        tokio::task::coop::consume_budget().await;
        if shared.is_stopping() {
            return Ok(End::away("the gateway stops"));
        }
        let Consuming { session, credit, .. } = consuming;
        while socket.has_room() {
            let open = session.open_count();
            // Of a message that comes again, the client has room already.
            let (takes, again) = (credit.left(open) > 0, credit.left(open.saturating_sub(1)) > 0);
            let Some((out, charge)) = session.take(takes, again) else { break };
            if out.is_message() {
                credit.send();
            }
            // The socket charges it from here on.
            drop(charge);
            socket.put(out.text())?;
        }
        let wants = credit.left(session.open_count()) > 0;
        let rereads = credit.left(session.open_count().saturating_sub(1)) > 0;
        let has_room = socket.has_room();
        let wake_at = socket.look_at();
        tokio::select! {
            turn = socket.turn(true) => {
                if let Turn::Heard(text) = turn? {
                    consuming.hear(socket, &text)?;
                }
            }
            gone_on = session.next(wants && has_room, rereads && has_room) => {
                gone_on.map_err(|failure| match failure.is_for_now {
                    true => End::later(failure.words),
                    false => End::failed(failure.words),
                })?;
            }
            () = told_to_stop(stopped) => {}
            () = sleep_until(wake_at) => {}
        }
        if Instant::now() >= socket.look_at() {
            socket.look()?;
        }
    }
}

impl Consuming {
    fn hear<S: AsyncRead + AsyncWrite + Unpin>(
        &mut self,
        socket: &mut Socket<S>,
        text: &str,
    ) -> Result<(), End> {
        match said(text).map_err(|error| End::policy(error.message))? {
            Said::Ack(id) => {
                self.check(&id)?;
                self.session.advance();
                // Of a partition that another member has by now, that one acknowledges.
                if let Some(tracker) = self.session.tracker(&id.topic, id.partition) {
                    tracker.ack(id.offset);
                }
            }
            Said::AckTo(id) => {
                self.check(&id)?;
                self.session.advance();
                if let Some(tracker) = self.session.tracker(&id.topic, id.partition) {
                    tracker.ack_to(id.offset);
                }
            }
            Said::Nack(id) => {
                self.check(&id)?;
                self.session.advance();
                self.session.nack(&id.topic, id.partition, id.offset, self.nack_delay_ms);
            }
            Said::Permit(more) => self.credit.permit(more),
            Said::IsEndOfTopic if !socket.has_room() => {
                return Err(End::policy("answers are not taken"));
            }
            Said::IsEndOfTopic => socket.put(frame::end_of_topic().as_bytes())?,
        }
        Ok(())
    }

    fn check(&self, id: &MessageId) -> Result<(), End> {
        match id.topic == self.topic {
            true => Ok(()),
            false => Err(End::policy("messageId: of another topic")),
        }
    }
}
