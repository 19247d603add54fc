//! What the metadata quorum looks like: only its leader knows, and tells every broker that is asked.
//!
//! ```text
//! a question:  1 version (1)
//! its answer:  1 whether the receiver leads; if it does:
//!              4 leader   4 leader epoch   8 high watermark   voters, then observers:
//!              4 count, of each  4 node   8 log end   8 + 8 milliseconds since it was heard, since it had everything;
//!                                                           all bits set: never
//! ```

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ::link::codec::CodecError;
use ::link::codec::fields::{Reader, Writer};
use ::link::{Answering, Decline, Declined, Peer, Service, service};
use bytes::Bytes;
use model::{BrokerId, Offset};
use parking_lot::Mutex;
use quorum::{MemberDescription, Quorum};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::server::Server;

const VERSION: u8 = 1;
/// In the place of milliseconds: it never was.
const NEVER: u64 = u64::MAX;
/// How long a leader is looked for.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);
/// How often the leader looks who has everything, as often as Kafka's followers fetch.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Members of one kind: an answer with more is refused.
const MEMBERS_MAX: u32 = 10_000;

/// The metadata quorum as its leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedQuorum {
    /// Who leads.
    pub leader: BrokerId,
    /// Its epoch: the raft term.
    pub leader_epoch: i32,
    /// Entries below this offset are committed.
    pub high_watermark: Offset,
    /// Members that vote, the leader among them.
    pub voters: Vec<DescribedMember>,
    /// Members that receive everything and do not vote.
    pub observers: Vec<DescribedMember>,
}

/// One member's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    /// Which member.
    pub node: BrokerId,
    /// The offset behind the last entry that is known to be in its log.
    pub log_end: Offset,
    /// How long ago it was heard; zero of the leader itself.
    pub heard_ago: Option<Duration>,
    /// How long ago its log held everything, as far as the leader has looked.
    pub caught_up_ago: Option<Duration>,
}

/// When each member was last seen to have everything, by the node that leads.
#[derive(Debug, Default)]
pub(super) struct CaughtUp {
    at: Mutex<BTreeMap<BrokerId, Instant>>,
}

impl CaughtUp {
    /// Looks at all members. What another leader has seen says nothing, so it is forgotten.
    fn look(&self, members: Option<&[MemberDescription]>, now: Instant) {
        let mut at = self.at.lock();
        let Some(members) = members else { return at.clear() };
        at.retain(|node, _| members.iter().any(|member| member.node == *node));
        for member in members.iter().filter(|member| member.caught_up) {
            if let Some(seen) = member.heard_ago.and_then(|ago| now.checked_sub(ago)) {
                at.insert(member.node, seen);
            }
        }
    }

    fn ago(&self, node: BrokerId, now: Instant) -> Option<Duration> {
        self.at.lock().get(&node).map(|at| now.saturating_duration_since(*at))
    }
}

/// As this node knows it; `None` unless it leads.
fn describe_here(quorum: &Quorum, caught_up: &CaughtUp) -> Option<DescribedQuorum> {
    let now = Instant::now();
    let found = quorum.describe();
    let members = found.as_ref().map(|found| [&found.voters[..], &found.observers[..]].concat());
    caught_up.look(members.as_deref(), now);
    let found = found?;
    let member = |member: &MemberDescription| DescribedMember {
        node: member.node,
        log_end: member.log_end,
        heard_ago: member.heard_ago,
        caught_up_ago: caught_up.ago(member.node, now),
    };
    Some(DescribedQuorum {
        leader: quorum.node(),
        leader_epoch: found.leader_epoch,
        high_watermark: found.high_watermark,
        voters: found.voters.iter().map(member).collect(),
        observers: found.observers.iter().map(member).collect(),
    })
}

/// Looks at the members' places as long as the broker runs, with and without requests for them.
pub(super) async fn follow(server: Arc<Server>) {
    let Some(links) = server.links.clone() else { return };
    let mut ticks = interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if server.quorum.is_leader() {
            describe_here(&server.quorum, links.caught_up());
        }
    }
}

/// As the leader knows it, wherever that is; `None` if there is none that answers. A question may be asked again.
pub async fn describe(server: &Server) -> Option<DescribedQuorum> {
    let Some(links) = &server.links else {
        return describe_here(&server.quorum, &CaughtUp::default());
    };
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = describe_here(&server.quorum, links.caught_up()) {
            return Some(found);
        }
        if let Some(leader) = server.quorum.leader().filter(|leader| *leader != server.node_id) {
            let patience = until.saturating_duration_since(Instant::now());
            let called = links.links().call(leader, service::DESCRIPTION, vec![VERSION], patience);
            if let Some(found) = called.await.ok().and_then(|answer| decode(&answer).ok()?) {
                return Some(found);
            }
        }
        if Instant::now() + PAUSE >= until {
            return None;
        }
        sleep(PAUSE).await;
    }
}

/// Answers other brokers while this node leads.
pub(super) struct DescriptionService {
    pub(super) quorum: Arc<OnceLock<Arc<Quorum>>>,
    pub(super) caught_up: Arc<CaughtUp>,
}

impl Service for DescriptionService {
    fn answer<'a>(&'a self, _: &'a Arc<Peer>, message: Bytes) -> Answering<'a> {
        Box::pin(async move {
            check_question(&message)?;
            let quorum = self.quorum.get();
            Ok(encode(quorum.and_then(|quorum| describe_here(quorum, &self.caught_up)).as_ref()))
        })
    }
}

/// Declines a question of another version, or with a field of a newer release.
fn check_question(message: &[u8]) -> Result<(), Declined> {
    if *message == [VERSION] {
        return Ok(());
    }
    let words = "an unknown version of a question about the quorum";
    Err(Declined::new(Decline::Failed, words.to_owned()))
}

fn encode(found: Option<&DescribedQuorum>) -> Vec<u8> {
    let mut out = Writer::default();
    out.flag(found.is_some());
    let Some(found) = found else { return out.into_bytes() };
    out.i32(found.leader.0);
    out.i32(found.leader_epoch);
    out.u64(found.high_watermark.0 as u64);
    for members in [&found.voters, &found.observers] {
        out.u32(members.len() as u32);
        for member in members {
            out.i32(member.node.0);
            out.u64(member.log_end.0 as u64);
            for ago in [member.heard_ago, member.caught_up_ago] {
                out.u64(ago.map_or(NEVER, |ago| ago.as_millis() as u64));
            }
        }
    }
    out.into_bytes()
}

fn decode(bytes: &[u8]) -> Result<Option<DescribedQuorum>, CodecError> {
    let mut fields = Reader::new(bytes);
    if !fields.flag()? {
        fields.end()?;
        return Ok(None);
    }
    let found = DescribedQuorum {
        leader: BrokerId(fields.i32()?),
        leader_epoch: fields.i32()?,
        high_watermark: Offset(fields.u64()? as i64),
        voters: members(&mut fields)?,
        observers: members(&mut fields)?,
    };
    fields.end()?;
    Ok(Some(found))
}

fn members(fields: &mut Reader<'_>) -> Result<Vec<DescribedMember>, CodecError> {
    let count = fields.u32()?;
    if count > MEMBERS_MAX {
        return Err(CodecError::Value("more members than a quorum has"));
    }
    (0..count).map(|_| member(fields)).collect()
}

fn member(fields: &mut Reader<'_>) -> Result<DescribedMember, CodecError> {
    let (node, log_end) = (BrokerId(fields.i32()?), Offset(fields.u64()? as i64));
    let mut ago = || -> Result<Option<Duration>, CodecError> {
        let ms = fields.u64()?;
        Ok((ms != NEVER).then(|| Duration::from_millis(ms)))
    };
    Ok(DescribedMember { node, log_end, heard_ago: ago()?, caught_up_ago: ago()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_and_back() {
        let member = |node, ago: Option<u64>| DescribedMember {
            node: BrokerId(node),
            log_end: Offset(40 + i64::from(node)),
            heard_ago: ago.map(Duration::from_millis),
            caught_up_ago: ago.map(|ms| Duration::from_millis(ms * 2)),
        };
        let found = DescribedQuorum {
            leader: BrokerId(1),
            leader_epoch: 7,
            high_watermark: Offset(41),
            voters: vec![member(1, Some(0)), member(2, Some(90)), member(3, None)],
            observers: vec![member(4, Some(5))],
        };
        for found in [Some(found), None] {
            let bytes = encode(found.as_ref());
            assert_eq!(decode(&bytes), Ok(found));
            for cut in 0..bytes.len() {
                assert!(decode(&bytes[..cut]).is_err());
            }
        }
        let many = [&[1][..], &[0; 16], &[255; 4]].concat();
        assert!(decode(&many).is_err());
    }

    /// A field behind the last one is refused, in the question and in the answer: a newer release needs a version of its own.
    #[test]
    fn newer_versions_and_fields_are_refused() {
        assert!(check_question(&[VERSION]).is_ok());
        for question in [&[][..], &[VERSION + 1], &[VERSION, 0]] {
            let declined = check_question(question).expect_err("it is not of this release");
            assert_eq!(declined.why, Decline::Failed, "{question:?}");
        }
        let found = DescribedQuorum {
            leader: BrokerId(1),
            leader_epoch: 7,
            high_watermark: Offset(41),
            voters: Vec::new(),
            observers: Vec::new(),
        };
        for found in [Some(&found), None] {
            let bytes = [&encode(found)[..], &[0]].concat();
            assert!(decode(&bytes).is_err(), "{found:?}");
        }
    }

    #[test]
    fn who_falls_behind_has_caught_up_when_it_was_last_seen_to() {
        let member = |caught_up| MemberDescription {
            node: BrokerId(2),
            log_end: Offset(1),
            heard_ago: Some(Duration::from_millis(100)),
            caught_up,
        };
        let begun = Instant::now() + Duration::from_secs(60);
        let later = begun + Duration::from_secs(1);
        let caught_up = CaughtUp::default();
        caught_up.look(Some(&[member(false)]), begun);
        assert_eq!(caught_up.ago(BrokerId(2), begun), None);
        caught_up.look(Some(&[member(true)]), begun);
        caught_up.look(Some(&[member(false)]), later);
        assert_eq!(caught_up.ago(BrokerId(2), later), Some(Duration::from_millis(1100)));
        caught_up.look(None, later);
        assert_eq!(caught_up.ago(BrokerId(2), later), None, "another leads");
    }
}
