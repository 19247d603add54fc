//! Hints (KIP-951): who leads a partition that this broker does not, and where the client reaches that broker, in
//! answers to Produce (from version 10 on) and Fetch (from version 16 on).
//!
//! A client that follows a hint asks for no metadata, so a wrong one costs more than none: a leader is named only
//! together with its end point, of the listener that the client came through, and only in a leader epoch that is newer
//! than the one that the client knows. No broker is named that is fenced or whose process is known to have ended, and
//! this broker names itself only once it leads. Without a hint the client asks for metadata, as it always did.

use std::net::SocketAddr;
use std::sync::Arc;

use ::metadata::{BrokerImage, ClusterImage, TopicImage};
use model::{BrokerId, ErrorCode, LeaderEpoch, PartitionIndex, TopicId};
use partition::Status;
use smallvec::SmallVec;
use wire::{fetch, produce};

use crate::server::Server;

/// Who asks, as far as it matters for the answer.
#[derive(Clone, Copy)]
pub struct Asker<'a> {
    /// The broker that is asked.
    pub server: &'a Server,
    /// The listener that the client came through.
    pub listener: &'a str,
    /// The address that it reached.
    pub local: SocketAddr,
}

impl Asker<'_> {
    /// Where a client of this listener reaches `broker`: host and port.
    pub fn endpoint_of(&self, broker: &BrokerImage) -> Option<(String, u16)> {
        if broker.id == self.server.node_id {
            return Some(self.server.endpoints.for_client(self.listener, self.local));
        }
        let endpoint = broker.endpoint(self.listener)?;
        Some((endpoint.host.clone(), endpoint.port))
    }
}

/// A topic as the request, or its answer, names it.
#[derive(Clone, Copy)]
pub enum Named<'a> {
    /// By name.
    Name(&'a str),
    /// By id.
    Id(TopicId),
}

/// Who leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentLeader {
    broker: BrokerId,
    epoch: LeaderEpoch,
}

impl From<CurrentLeader> for produce::LeaderIdAndEpoch {
    fn from(leader: CurrentLeader) -> Self {
        Self { leader_id: leader.broker.0, leader_epoch: leader.epoch.0 }
    }
}

impl From<CurrentLeader> for fetch::LeaderIdAndEpoch {
    fn from(leader: CurrentLeader) -> Self {
        Self { leader_id: leader.broker.0, leader_epoch: leader.epoch.0 }
    }
}

/// Where a leader is reached.
struct Place {
    broker: BrokerId,
    host: String,
    port: u16,
    rack: Option<String>,
}

/// The hints of one answer. The metadata is looked at once, and only if there is something to hint at.
pub struct Leaders<'a> {
    asker: &'a Asker<'a>,
    image: Option<Arc<ClusterImage>>,
    /// Each leader that was named, once.
    places: SmallVec<[Place; 1]>,
}

impl<'a> Leaders<'a> {
    /// No hint yet.
    pub fn new(asker: &'a Asker<'a>) -> Leaders<'a> {
        Leaders { asker, image: None, places: SmallVec::new() }
    }

    /// Who leads a partition for which the client is told `code`, if that helps a client that knows `known`.
    pub fn hint(
        &mut self,
        code: ErrorCode,
        topic: Named<'_>,
        index: PartitionIndex,
        known: Option<LeaderEpoch>,
    ) -> Option<CurrentLeader> {
        if !matches!(code, ErrorCode::NotLeaderOrFollower | ErrorCode::FencedLeaderEpoch) {
            return None;
        }
        let server = self.asker.server;
        let image = Arc::clone(self.image.get_or_insert_with(|| server.image()));
        let topic = match topic {
            Named::Name(name) => image.topic(name),
            Named::Id(id) => image.topic_by_id(id),
        };
        let topic = topic?;
        let state = topic.partition(index)?;
        let leader = CurrentLeader { broker: state.leader, epoch: state.leader_epoch };
        let is_news = known.is_none_or(|known| known < leader.epoch);
        if !is_news || !serves(server, &image, topic, index, leader) {
            return None;
        }
        self.place(image.broker(leader.broker)?)?;
        Some(leader)
    }

    /// Remembers where the broker is reached; `None` if clients of this listener do not reach it.
    fn place(&mut self, broker: &BrokerImage) -> Option<()> {
        if self.places.iter().any(|place| place.broker == broker.id) {
            return Some(());
        }
        let (host, port) = self.asker.endpoint_of(broker)?;
        self.places.push(Place { broker: broker.id, host, port, rack: broker.rack.clone() });
        Some(())
    }

    /// Where the leaders are that were named, for the end of an answer to Produce.
    pub fn of_produce(self) -> SmallVec<[produce::NodeEndpoint; 1]> {
        let endpoint = |Place { broker, host, port, rack }| produce::NodeEndpoint {
            node_id: broker.0,
            host,
            port: i32::from(port),
            rack,
        };
        self.places.into_iter().map(endpoint).collect()
    }

    /// Where the leaders are that were named, for the end of an answer to Fetch.
    pub fn of_fetch(self) -> SmallVec<[fetch::NodeEndpoint; 1]> {
        let endpoint = |Place { broker, host, port, rack }| fetch::NodeEndpoint {
            node_id: broker.0,
            host,
            port: i32::from(port),
            rack,
        };
        self.places.into_iter().map(endpoint).collect()
    }
}

/// Whether the leader takes requests, as far as this broker knows.
fn serves(
    server: &Server,
    image: &ClusterImage,
    topic: &TopicImage,
    index: PartitionIndex,
    leader: CurrentLeader,
) -> bool {
    if leader.broker == server.node_id {
        let topics = server.topics.load();
        let held = topics.by_id(&topic.id).and_then(|topic| topic.partition(index));
        return held.is_some_and(|partition| {
            partition.epoch() == leader.epoch && partition.status() == Status::Leading
        });
    }
    let suspected = |links: &Arc<crate::cluster::ClusterLinks>| {
        links.watching().is_suspected(image, leader.broker)
    };
    image.is_active(leader.broker) && !server.links.as_ref().is_some_and(suspected)
}
