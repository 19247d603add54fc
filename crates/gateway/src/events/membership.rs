//! Event streams with `group=`: a member of a group, whose records come as events.
//!
//! What is acknowledged is what an id says that the client sends: by `POST /groups/{group}/ack`, or as `Last-Event-ID` when it
//! comes again with the same `instance=`. With `ack=sent` everything is that was written.

use std::io;
use std::sync::Arc;

use client::Cluster;
use hyper::Version;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use model::TopicPartition;
use serving::error::{ApiError, Kind};
use serving::events::id::PARTITIONS_MAX;
use serving::events::pace::Return;
use serving::events::query::GroupQuery;
use serving::events::{IdStyle, Passed, Position, TopicHash, id, notice};
use serving::push::Tracker;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::counts::Closed;
use super::open::{self, Asked};
use super::writer::Writer;
use crate::answer::Answer;
use crate::charge::Charge;
use crate::front::Transport;
use crate::groups::{Acking, CHARGED_BYTES, Out, Session, Wanted, event_bytes_max, existing};
use crate::lifetime::told_to_stop;
use crate::produce::of_refusal;
use crate::request::instances::check_name;
use crate::share_owner::ShareOwner;
use crate::state::Shared;
use crate::who::{Login, VOID_LOGIN};

/// Bytes of events that are written at once; the id follows them.
const WRITE_BYTES: usize = 24 * 1024;
/// An event that is larger is not gathered with others.
const LARGE_BYTES: usize = 8 * 1024;

/// A stream of a member that can begin.
pub(crate) struct OpenedMember {
    session: Session,
    id_style: IdStyle,
    pub(crate) origin: Option<HeaderValue>,
    /// The login that opened the stream.
    pub(crate) login: Option<Login>,
    is_chunked: bool,
    /// Of what is gathered to be written.
    charge: Charge,
}

impl std::fmt::Debug for OpenedMember {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpenedMember")
    }
}

/// Opens a stream of a member of a group.
pub(super) async fn open(
    shared: &Arc<Shared>,
    asked: Asked<'_>,
    group: GroupQuery,
    parts: &Parts,
) -> Result<Answer, ApiError> {
    check_name("group", &group.group)?;
    if let Some(instance) = &group.instance {
        check_name("instance", instance)?;
    }
    let mut partitions = 0;
    for topic in &asked.topics {
        partitions += existing(shared, topic).await?.partitions.len();
    }
    if partitions > PARTITIONS_MAX {
        return Err(ApiError::new(Kind::Malformed, "more than 256 partitions in one stream"));
    }
    let mut charge = Charge::new(&shared.reading.of(ShareOwner::of(parts)));
    charge.add(CHARGED_BYTES + WRITE_BYTES + LARGE_BYTES)?;
    let of_writing = charge.split(WRITE_BYTES + LARGE_BYTES);
    let entry = shared.groups.enter(ShareOwner::of(parts), &group.group, false)?;
    let wanted = Wanted {
        topics: asked.topics.iter().map(|topic| (*topic).to_owned()).collect(),
        from_earliest: group.from_earliest,
        is_exclusive: false,
        acking: if group.acks_sent { Acking::Sent } else { Acking::ById },
        projection: asked.query.projection.clone(),
        // Without a name that it had before, nobody knows whether the partitions were its own.
        id: asked.id.filter(|_| group.instance.is_some()),
        instance: group.instance,
        group: group.group,
        event_bytes_max: event_bytes_max(&shared.reading),
    };
    let session = Session::new(shared.topics.cluster(), &shared.groups, wanted, entry, charge);
    Ok(Answer::member(OpenedMember {
        session: session.map_err(|error| of_refusal(&error))?,
        id_style: asked.query.id_style,
        origin: None,
        login: None,
        is_chunked: parts.version == Version::HTTP_11,
        charge: of_writing,
    }))
}

/// Writes the stream to a connection of which the request was read, and leaves the group.
pub(crate) async fn serve_member(
    stream: Transport,
    opened: OpenedMember,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let counts = &shared.events.counts;
    let _counted = counts.streams.raised();
    let OpenedMember { mut session, id_style, origin, login, is_chunked, charge } = opened;
    let settings = shared.events.settings;
    let mut writer = Writer::new(stream, is_chunked, settings.blocked_max, counts);
    let head = open::head_of(is_chunked, origin.as_ref());
    let member = Member { session: &mut session, id_style, shared: &shared };
    let ran = tokio::select! {
        ran = member.run(&mut writer, &head, &mut stopped) => ran,
        () = shared.who.until_void(login.as_ref()) => Err(io::Error::other(VOID_LOGIN)),
    };
    let closed = match ran {
        Ok(closed) => {
            let mut last = Vec::new();
            notice::write_retry(Return::SentAway.retry_ms(fastrand::f64()), &mut last);
            let written = writer.body(&last, b"", || shared.is_stopping()).await;
            if written.is_ok() {
                let _ = writer.finish(|| shared.is_stopping()).await;
            }
            closed
        }
        Err(cause) => {
            debug!(%cause, "a reader of events is gone");
            if cause.kind() == io::ErrorKind::TimedOut { Closed::Blocked } else { Closed::Left }
        }
    };
    counts.closed.count(closed);
    drop(charge);
    session.close().await;
}

struct Member<'a> {
    session: &'a mut Session,
    id_style: IdStyle,
    shared: &'a Shared,
}

impl Member<'_> {
    async fn run(
        self,
        writer: &mut Writer<'_>,
        head: &[u8],
        stopped: &mut watch::Receiver<bool>,
    ) -> io::Result<Closed> {
        writer.head(head).await?;
        let mut first = Vec::new();
        notice::write_retry(Return::Broken.retry_ms(fastrand::f64()), &mut first);
        writer.body(&first, b"", || self.shared.is_stopping()).await?;
        let ping_every = self.shared.events.settings.ping_every;
        let mut ping_at = Instant::now() + ping_every;
        // The last that was written.
        let mut id = self.id();
        while !self.shared.is_stopping() {
            tokio::task::coop::consume_budget().await;
            let mut part = Part::default();
            while !part.is_full()
                && let Some((out, charge)) = self.session.take(true, true)
            {
                part.add(out, charge);
            }
            if !part.is_empty() {
                id = self.id();
                part.write(writer, &id, || self.shared.is_stopping()).await?;
                self.session.was_written();
                self.shared.events.counts.sent.add(part.count);
                ping_at = Instant::now() + ping_every;
                continue;
            }
            tokio::select! {
                gone_on = self.session.next(true, false) => if let Err(failure) = gone_on {
                    debug!(cause = %failure.words, "a member of a group cannot go on");
                    return Ok(Closed::Changed);
                },
                () = writer.gone() => return Ok(Closed::Left),
                () = told_to_stop(stopped) => {}
                () = sleep_until(ping_at) => {}
            }
            if Instant::now() >= ping_at {
                // What the filter has left out is passed as well.
                let now = self.id();
                let is_new = now != id && self.session.trackers().next().is_some();
                let ping = if is_new { &now } else { notice::PING };
                writer.body(ping, b"", || self.shared.is_stopping()).await?;
                self.session.was_written();
                (id, ping_at) = (now, Instant::now() + ping_every);
            }
        }
        Ok(Closed::Stopping)
    }

    /// The id of all partitions that the member has, as it is written.
    fn id(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let all: Vec<(&TopicPartition, &Tracker)> = self.session.trackers().collect();
        let hashes: Vec<TopicHash> =
            all.iter().map(|(partition, _)| hash(self.session.cluster(), partition)).collect();
        let passed = all.iter().zip(&hashes).map(|((partition, tracker), hash)| Passed {
            topic: &partition.topic,
            topic_hash: *hash,
            partition: partition.partition.0,
            position: Position { offset: tracker.passed() - 1, leader_epoch: -1 },
        });
        notice::write_id(&mut out, |out| id::write(self.id_style, passed, out));
        out
    }
}

/// What is written at once.
#[derive(Default)]
struct Part {
    events: Vec<u8>,
    /// One that is not gathered with the others, and goes behind them.
    large: Vec<u8>,
    /// Records among them.
    count: u64,
    /// Of the large one.
    _charge: Option<Charge>,
}

impl Part {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.large.is_empty()
    }

    fn is_full(&self) -> bool {
        self.events.len() >= WRITE_BYTES || !self.large.is_empty()
    }

    fn add(&mut self, out: Out, charge: Charge) {
        self.count += u64::from(out.is_message());
        match out.text().len() > LARGE_BYTES {
            true => (self.large, self._charge) = (out.into_text(), Some(charge)),
            false => self.events.extend(out.text()),
        }
    }

    async fn write(
        &self,
        writer: &mut Writer<'_>,
        id: &[u8],
        is_burden: impl Fn() -> bool,
    ) -> io::Result<()> {
        if self.large.is_empty() {
            return writer.body(&self.events, id, is_burden).await;
        }
        writer.body(&self.events, &self.large, &is_burden).await?;
        writer.body(id, b"", is_burden).await
    }
}

fn hash(cluster: &Cluster, partition: &TopicPartition) -> TopicHash {
    let metadata = cluster.metadata();
    let topic = metadata.topics.get(&partition.topic);
    topic.map_or(TopicHash(0), |topic| TopicHash::of_id(&topic.id.0))
}
