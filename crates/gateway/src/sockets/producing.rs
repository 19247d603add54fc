//! Records from a client, one a text, and where each went. They are sent as they come and answered in their order, when they
//! are acknowledged.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::pending;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serving::error::ApiError;
use serving::push::{frame, message_id};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::socket::{End, Socket, Turn};
use crate::charge::{Charge, Room};
use crate::lifetime::told_to_stop;
use crate::produce::{Landing, One, refused};
use crate::request::frames::{Produced, produced};
use crate::state::Shared;
use crate::who::{Login, VOID_LOGIN};

/// Records of one connection that are not answered.
const WAITING_MAX: usize = 1000;
/// What one of them takes, beside its context and its bytes, which are the producer's.
const WAITING_BYTES: usize = 512;

/// How long records of a client whose login is void are waited for.
const VOID_MAX: Duration = Duration::from_secs(1);

/// A record that was sent.
struct Waiting {
    /// What becomes of it: its partition and its offset.
    landing: Landing,
    context: Option<String>,
    /// `None` if there was no memory for it: then it is the last, and no more is heard before it is answered.
    charge: Option<Charge>,
}

/// Serves a producer to its end.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut Socket<S>,
    one: One,
    shared: &Arc<Shared>,
    room: &Room,
    login: Option<&Login>,
    stopped: &mut watch::Receiver<bool>,
) -> End {
    let mut waiting = VecDeque::new();
    let (end, patience) = tokio::select! {
        end = run(socket, &one, &mut waiting, shared, room, stopped) => {
            (end.unwrap_or_else(|end| end), Duration::MAX)
        }
        () = shared.who.until_void(login) => (End::policy(VOID_LOGIN), VOID_MAX),
    };
    if let End::Told(..) = end {
        // What was sent is answered, also at a stop: the client would not know what became of it.
        let _ = timeout(patience, finish(socket, &one, &mut waiting)).await;
    }
    end
}

async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut Socket<S>,
    one: &One,
    waiting: &mut VecDeque<Waiting>,
    shared: &Arc<Shared>,
    room: &Room,
    stopped: &mut watch::Receiver<bool>,
) -> Result<End, End> {
    loop {
        tokio::task::coop::consume_budget().await;
        if shared.is_stopping() {
            return Ok(End::away("the gateway stops"));
        }
        // Who takes no answers, or is not answered, sends no more.
        let is_charged = waiting.back().is_none_or(|last: &Waiting| last.charge.is_some());
        let hears = socket.has_room() && waiting.len() < WAITING_MAX && is_charged;
        let wake_at = socket.look_at();
        tokio::select! {
            turn = socket.turn(hears) => {
                if let Turn::Heard(text) = turn? {
                    // Behind those that wait: answers keep their order, refusals as well.
                    waiting.push_back(take(one, shared, room, &text).await);
                }
            }
            result = front(waiting) => answer(socket, one, waiting, result)?,
            () = told_to_stop(stopped) => {}
            () = sleep_until(wake_at) => {}
        }
        if Instant::now() >= socket.look_at() {
            socket.look()?;
        }
    }
}

/// Sends what the client said, or refuses it.
async fn take(one: &One, shared: &Arc<Shared>, room: &Room, text: &str) -> Waiting {
    let (read, context) = match produced(text) {
        Ok(Produced { draft, context }) => (Ok(draft), context.map(Cow::into_owned)),
        Err((error, context)) => (Err(error), context),
    };
    let mut charge = Charge::new(room);
    let charged = charge.add(WAITING_BYTES + context.as_ref().map_or(0, String::len));
    let charge = charged.is_ok().then_some(charge);
    let landing = match read.and_then(|draft| charged.map(|()| draft)) {
        Ok(draft) => one.send(shared, &draft).await,
        Err(error) => refused(error),
    };
    Waiting { landing, context, charge }
}

/// What became of the first that waits; never, if none does.
async fn front(waiting: &mut VecDeque<Waiting>) -> Result<(i32, i64), ApiError> {
    match waiting.front_mut() {
        Some(first) => Pin::new(&mut first.landing).await,
        None => pending().await,
    }
}

/// Tells the client what became of the first.
fn answer<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut Socket<S>,
    one: &One,
    waiting: &mut VecDeque<Waiting>,
    result: Result<(i32, i64), ApiError>,
) -> Result<(), End> {
    let first = waiting.pop_front();
    let context = first.as_ref().and_then(|first| first.context.as_deref());
    let text = match result {
        Ok((partition, offset)) => {
            frame::produced(&message_id::write(one.topic(), partition, offset), context)
        }
        Err(error) => frame::not_produced(&error, context),
    };
    socket.put(text.as_bytes())
}

/// Answers all that waits.
async fn finish<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut Socket<S>,
    one: &One,
    waiting: &mut VecDeque<Waiting>,
) -> Result<(), End> {
    while !waiting.is_empty() {
        let result = front(waiting).await;
        answer(socket, one, waiting, result)?;
    }
    Ok(())
}
