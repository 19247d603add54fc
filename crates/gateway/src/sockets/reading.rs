//! Records for a client that belongs to no group: those of event streams, as texts.

use std::borrow::Cow;

use serving::push::{Credit, frame};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::socket::{End, Socket, Turn};
use crate::events::{Closed, Piece, Reader, Step};
use crate::lifetime::told_to_stop;
use crate::request::frames::{Said, said};
use crate::state::Shared;
use crate::who::{Login, VOID_LOGIN};

/// A reader, and what it is told first.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) reader: Reader,
    pub(super) notices: Vec<Vec<u8>>,
    /// How many messages it takes without acknowledging some; `None`: as many as its connection takes.
    pub(super) credit: Option<Credit>,
}

/// Records that are being put.
struct Putting {
    piece: Piece,
    /// How many were put.
    at: usize,
}

/// Serves a reader to its end.
pub(super) async fn serve<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut Socket<S>,
    Reading { mut reader, notices, credit }: Reading,
    shared: &Shared,
    login: Option<&Login>,
    stopped: &mut watch::Receiver<bool>,
) -> End {
    tokio::select! {
        end = run(socket, &mut reader, &notices, credit, shared, stopped) => match end {
            Ok(end) | Err(end) => end,
        },
        () = shared.who.until_void(login) => End::policy(VOID_LOGIN),
    }
}

async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut Socket<S>,
    reader: &mut Reader,
    notices: &[Vec<u8>],
    credit: Option<Credit>,
    shared: &Shared,
    stopped: &mut watch::Receiver<bool>,
) -> Result<End, End> {
    for notice in notices {
        socket.put(notice)?;
    }
    let mut putting: Option<Putting> = None;
    // Messages that were sent and not acknowledged.
    let mut open = 0_usize;
    loop {
        // A reader that always has something must let others have their turn.
        tokio::task::coop::consume_budget().await;
        if shared.is_stopping() {
            return Ok(End::away("the gateway stops"));
        }
        let mut wake_at = socket.look_at();
        if let Some(one) = &mut putting {
            let is_burden = one.piece.is_burden();
            open += put(socket, one)?;
            if one.at == one.piece.count() {
                putting = None;
            } else if is_burden && socket.blocked_since().is_some() {
                // Memory is short, and this one keeps some that nobody else wants.
                return Ok(End::policy("nothing was taken while memory is short: come again"));
            }
        }
        let mut waits = putting.is_some() || !socket.has_room();
        if !waits {
            if let Some(credit) = credit {
                reader.set_credit(credit.left(open) as u64);
            }
            match reader.step() {
                Step::Send(piece) => putting = Some(Putting { piece, at: 0 }),
                Step::Say(notice) => socket.put(&notice)?,
                Step::CatchUp(at) => {
                    if let Some(notice) = Box::pin(reader.catch_up(&shared.events, at)).await {
                        socket.put(&notice)?;
                    }
                }
                Step::Wait(until) => {
                    waits = true;
                    wake_at = until.map_or(wake_at, |until| until.min(wake_at));
                }
                Step::Finish(end) => {
                    socket.put(frame::end(end).as_bytes())?;
                    return Ok(End::done());
                }
                Step::LeaveSlow => {
                    shared.events.counts.closed.count(Closed::Lag);
                    return Ok(End::policy("too far behind (maxLag)"));
                }
                Step::Leave => {
                    return Ok(End::away(
                        "the topic has changed, or another client needs the filter: reconnect",
                    ));
                }
            }
        }
        if !waits {
            continue;
        }
        let bell = reader.bell();
        tokio::select! {
            turn = socket.turn(true) => {
                if let Turn::Heard(text) = turn? {
                    open = open.saturating_sub(hear(socket, &text)?);
                }
            }
            () = bell.notified() => {}
            () = told_to_stop(stopped) => {}
            () = sleep_until(wake_at) => {}
        }
        if Instant::now() >= socket.look_at() {
            socket.look()?;
        }
    }
}

/// Puts records until there is no room; how many of them are messages to be acknowledged.
fn put<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut Socket<S>,
    one: &mut Putting,
) -> Result<usize, End> {
    let mut messages = 0;
    for text in one.piece.each().skip(one.at) {
        if !socket.has_room() {
            break;
        }
        socket.put(text)?;
        one.at += 1;
        // What is said besides has a type, and no id.
        messages += usize::from(!text.starts_with(b"{\"type\":"));
    }
    Ok(messages)
}

/// Takes what the client says; how many messages it has acknowledged.
fn hear<S: AsyncRead + AsyncWrite + Unpin>(
    socket: &mut Socket<S>,
    text: &str,
) -> Result<usize, End> {
    match said(text).map_err(|error| End::policy(Cow::Owned(error.message.into_owned())))? {
        // It belongs to no group, and commits nothing.
        Said::Ack(_) => Ok(1),
        Said::IsEndOfTopic if !socket.has_room() => Err(End::policy("answers are not taken")),
        Said::IsEndOfTopic => socket.put(frame::end_of_topic().as_bytes()).map(|()| 0),
        Said::AckTo(_) | Said::Nack(_) | Said::Permit(_) => {
            Err(End::policy("a reader acknowledges single messages, and asks for nothing else"))
        }
    }
}
