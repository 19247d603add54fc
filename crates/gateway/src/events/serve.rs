//! Serves one reader to its end.

use std::io;
use std::sync::Arc;

use serving::events::notice;
use serving::events::pace::Return;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::counts::{CatchingUp, Closed};
use super::open::{self, Opened};
use super::reader::{Reader, Step};
use super::writer::Writer;
use crate::front::Transport;
use crate::lifetime::told_to_stop;
use crate::state::Shared;
use crate::who::VOID_LOGIN;

/// Writes the stream to a connection of which the request was read.
pub(crate) async fn serve(
    stream: Transport,
    opened: Opened,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let settings = shared.events.settings;
    let counts = &shared.events.counts;
    let _counted = counts.streams.raised();
    let writer = Writer::new(stream, opened.is_chunked, settings.blocked_max, counts);
    let login = opened.login.clone();
    let ran = tokio::select! {
        ran = run(writer, opened, &shared, &mut stopped) => ran,
        () = shared.who.until_void(login.as_ref()) => Err(io::Error::other(VOID_LOGIN)),
    };
    let closed = match ran {
        Ok(closed) => closed,
        Err(cause) => {
            debug!(%cause, "a reader of events is gone");
            let is_slow = cause.kind() == io::ErrorKind::TimedOut;
            if is_slow { Closed::Blocked } else { Closed::Left }
        }
    };
    counts.closed.count(closed);
}

async fn run(
    mut writer: Writer<'_>,
    opened: Opened,
    shared: &Shared,
    stopped: &mut watch::Receiver<bool>,
) -> io::Result<Closed> {
    let counts = &shared.events.counts;
    let mut catching_up = CatchingUp::default();
    let mut why = Closed::Stopping;
    let mut reader = begin(&mut writer, opened, shared).await?;
    let ping_every = shared.events.settings.ping_every;
    let mut ping_at = Instant::now() + ping_every;
    while !shared.is_stopping() {
        // A reader that always has something must let others have their turn.
        tokio::task::coop::consume_budget().await;
        match reader.step() {
            Step::Send(piece) => {
                let mut id = Vec::new();
                let with_ids = reader.with_ids(&piece);
                if with_ids.is_none() {
                    reader.id_behind(&piece, &mut id);
                }
                let bytes = with_ids.as_deref().unwrap_or(piece.bytes());
                let is_burden = || piece.is_burden() || shared.is_stopping();
                writer.body(bytes, &id, is_burden).await?;
                if let Some(age) = piece.age() {
                    counts.delivery.observe(age);
                }
                ping_at = Instant::now() + ping_every;
            }
            Step::Say(notice) => writer.body(&notice, b"", || shared.is_stopping()).await?,
            Step::CatchUp(at) => {
                catching_up.begin(counts);
                if let Some(notice) = Box::pin(reader.catch_up(&shared.events, at)).await {
                    writer.body(&notice, b"", || shared.is_stopping()).await?;
                }
            }
            Step::Wait(until) => {
                if reader.is_at_end() {
                    catching_up.end();
                }
                let wake_at = until.map_or(ping_at, |until| until.min(ping_at));
                let bell = reader.bell();
                tokio::select! {
                    () = bell.notified() => {}
                    () = writer.gone() => return Ok(Closed::Left),
                    () = told_to_stop(stopped) => {}
                    () = sleep_until(wake_at) => {}
                }
                if Instant::now() >= ping_at {
                    writer.body(&reader.ping(), b"", || shared.is_stopping()).await?;
                    ping_at = Instant::now() + ping_every;
                }
            }
            Step::Finish(end) => {
                let mut out = Vec::new();
                notice::write_end(end, &mut out);
                reader.write_id_block(&mut out);
                writer.body(&out, b"", || shared.is_stopping()).await?;
                return writer.finish(|| shared.is_stopping()).await.map(|()| Closed::Ended);
            }
            Step::LeaveSlow => {
                why = Closed::Lag;
                break;
            }
            Step::Leave => {
                why = Closed::Changed;
                break;
            }
        }
    }
    send_away(writer, reader, shared).await.map(|()| why)
}

/// The head, when to come again, the first id, and what was missed until here.
async fn begin(writer: &mut Writer<'_>, opened: Opened, shared: &Shared) -> io::Result<Reader> {
    let mut first = open::head(&opened);
    writer.head(&first).await?;
    first.clear();
    notice::write_retry(Return::Broken.retry_ms(fastrand::f64()), &mut first);
    let Opened { mut reader, notices, .. } = opened;
    // Gaps come before the id that lies behind them: who breaks off in between hears of them again.
    first.extend(notices);
    reader.write_id_block(&mut first);
    writer.body(&first, b"", || shared.is_stopping()).await?;
    Ok(reader)
}

/// Has the client come again, at some time, where it is now.
async fn send_away(mut writer: Writer<'_>, mut reader: Reader, shared: &Shared) -> io::Result<()> {
    let mut last = Vec::new();
    notice::write_retry(Return::SentAway.retry_ms(fastrand::f64()), &mut last);
    reader.write_id_block(&mut last);
    drop(reader);
    writer.body(&last, b"", || shared.is_stopping()).await?;
    writer.finish(|| shared.is_stopping()).await
}
