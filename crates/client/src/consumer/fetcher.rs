//! Fetching from the leaders: which partitions to ask for, one request in flight for each broker,
//! and what the answers mean for the positions.

use super::config::ConsumerConfig;
use super::fetched::Fetched;
use super::session::{Session, Wanted};
use crate::cluster::{Cluster, PrivateLane};
use crate::connection::{Connection, Reply, read};
use crate::error::ClientError;
use bytes::Bytes;
use model::{ErrorCode, LeaderEpoch, Offset, TopicPartition};
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use wire::fetch::PartitionData;
use wire::{ApiKey, FetchRequest, FetchResponse};

/// Where the consumer is in one partition.
#[derive(Debug, Clone, Default)]
pub(super) struct Place {
    /// The next offset to read; `None` until that is known.
    pub(super) position: Option<Offset>,
    /// Whether fetching pauses.
    pub(super) paused: bool,
    /// Where the position comes from, if it is to be looked up: reset, not committed.
    pub(super) reset: bool,
    /// A replica nearer than the leader.
    pub(super) nearby: Option<i32>,
    /// The leader epoch of the last record read.
    pub(super) leader_epoch: Option<LeaderEpoch>,
}

impl Place {
    pub(super) fn at(offset: Offset) -> Place {
        Place { position: Some(offset), ..Place::default() }
    }
}

/// An answer, or why there is none.
pub(super) struct Answer {
    broker: i32,
    version: i16,
    /// What was asked for, with the offsets of that moment.
    asked: HashMap<TopicPartition, Offset>,
    /// How long it took.
    took: Duration,
    result: Result<Bytes, ClientError>,
}

#[derive(Default)]
struct Node {
    session: Session,
    /// When the request was sent that is not answered yet.
    sent: Option<Instant>,
    not_before: Option<Instant>,
    /// First and last failure since the last answer.
    failing: Option<(Instant, ClientError)>,
}

/// The requests of one consumer.
pub(super) struct Fetcher {
    cluster: Cluster,
    /// A fetch waits for records, and no one else shall wait for it.
    lane: PrivateLane,
    nodes: HashMap<i32, Node>,
    answers: mpsc::UnboundedSender<Answer>,
    inbox: mpsc::UnboundedReceiver<Answer>,
    /// Waited for, not taken yet.
    waiting: Option<Answer>,
    /// Whether metadata looked stale.
    pub(super) stale: bool,
    /// How long answers took, if anybody wants to know.
    pub(super) times: Option<Vec<Duration>>,
    /// Partitions that were given up, if they fail by themselves.
    pub(super) failures: Vec<(TopicPartition, ClientError)>,
}

impl Fetcher {
    pub(super) fn new(cluster: Cluster) -> Fetcher {
        let (answers, inbox) = mpsc::unbounded_channel();
        Fetcher {
            lane: cluster.private_lane(),
            cluster,
            nodes: HashMap::new(),
            answers,
            inbox,
            waiting: None,
            stale: false,
            times: None,
            failures: Vec::new(),
        }
    }

    /// The next answer; waits for it.
    pub(super) async fn answer(&mut self) -> Answer {
        self.inbox.recv().await.expect("a sender is kept here")
    }

    /// An answer that is there already.
    pub(super) fn try_answer(&mut self) -> Option<Answer> {
        self.waiting.take().or_else(|| self.inbox.try_recv().ok())
    }

    /// Hands the answer of [`Fetcher::answer`] back, to be taken next.
    pub(super) fn put_back(&mut self, answer: Answer) {
        self.waiting = Some(answer);
    }

    /// When a broker that failed may be asked again.
    pub(super) fn next_attempt(&self) -> Option<Instant> {
        self.nodes.values().filter(|n| n.sent.is_none()).filter_map(|n| n.not_before).min()
    }

    /// Reason why a partition with a position cannot be read now, and since when if that is known.
    pub(super) fn obstacle(
        &self,
        partition: &TopicPartition,
        answer_max: Duration,
    ) -> Option<(String, Option<Instant>)> {
        let metadata = self.cluster.metadata();
        let Some(leader) = metadata.leader(&partition.topic, partition.partition.0) else {
            return Some((format!("{partition} has no leader"), None));
        };
        let node = self.nodes.get(&leader)?;
        if let Some((since, error)) = &node.failing {
            return Some((
                format!("broker {leader}, which leads {partition}: {error}"),
                Some(*since),
            ));
        }
        let silent = node.sent.filter(|sent| sent.elapsed() > answer_max)?;
        Some((format!("broker {leader}, which leads {partition}, does not answer"), Some(silent)))
    }

    /// Asks every broker that has something to be read and that is not being asked.
    pub(super) async fn send(
        &mut self,
        places: &HashMap<TopicPartition, Place>,
        config: &ConsumerConfig,
    ) -> Result<(), ClientError> {
        for (broker, wanted) in self.wanted(places, config) {
            let node = self.nodes.entry(broker).or_default();
            let waits = node.not_before.is_some_and(|at| at > Instant::now());
            if node.sent.is_some() || waits {
                continue;
            }
            match self.lane.broker(broker).await {
                Ok(connection) => self.send_to(broker, &connection, wanted, config)?,
                Err(error) if error.is_retriable() => self.failed(broker, &error),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn failed(&mut self, broker: i32, error: &ClientError) {
        tracing::debug!(broker, %error, "cannot fetch");
        let node = self.nodes.entry(broker).or_default();
        node.session.forget();
        let since = node.failing.as_ref().map_or_else(Instant::now, |(since, _)| *since);
        node.failing = Some((since, error.clone()));
        node.not_before = Some(Instant::now() + super::pause_of_absence(&self.cluster, since));
        self.stale = true;
    }

    /// What is to be asked of which broker: an entry too for brokers that shall forget all.
    fn wanted(
        &mut self,
        places: &HashMap<TopicPartition, Place>,
        config: &ConsumerConfig,
    ) -> HashMap<i32, HashMap<TopicPartition, Wanted>> {
        let metadata = self.cluster.metadata();
        let mut out: HashMap<i32, HashMap<TopicPartition, Wanted>> = HashMap::new();
        for (partition, place) in places {
            let Some(offset) = place.position.filter(|_| !place.paused) else { continue };
            let known = metadata.topics.get(&partition.topic).and_then(|topic| {
                Some((topic, topic.partitions.get(usize::try_from(partition.partition.0).ok()?)?))
            });
            let Some((topic, known)) = known else {
                self.stale = true;
                continue;
            };
            let nearby = place.nearby.filter(|id| metadata.brokers.contains_key(id));
            let Some(broker) = nearby.or(known.leader) else {
                self.stale = true;
                continue;
            };
            let wanted = Wanted {
                topic_id: topic.id,
                offset,
                leader_epoch: known.leader_epoch,
                max_bytes: config.partition_bytes_max,
            };
            out.entry(broker).or_default().insert(partition.clone(), wanted);
        }
        out
    }

    fn send_to(
        &mut self,
        broker: i32,
        connection: &Connection,
        wanted: HashMap<TopicPartition, Wanted>,
        config: &ConsumerConfig,
    ) -> Result<(), ClientError> {
        let named = wanted.values().any(|w| w.topic_id.is_zero());
        let limit = if named { 12 } else { i16::MAX };
        let peer = connection.peer().to_owned();
        let version = connection.versions().newest_up_to(ApiKey::Fetch, limit);
        let version = version.ok_or(ClientError::Unsupported { peer, api: ApiKey::Fetch })?;
        let mut request = request(config, version);
        let asked = wanted.iter().map(|(p, w)| (p.clone(), w.offset)).collect();
        let node = self.nodes.entry(broker).or_default();
        node.not_before = None;
        if !node.session.fill(&mut request, version, wanted) {
            return Ok(());
        }
        let (answers, sent) = (self.answers.clone(), Instant::now());
        // The consumer may be gone by then.
        let reply: Reply = Box::new(move |result| {
            let took = sent.elapsed();
            drop(answers.send(Answer { broker, version, asked, took, result }));
        });
        let timeout = config.fetch_wait_max + Duration::from_secs(30);
        match connection.send(&request, version, timeout, reply) {
            Ok(()) => node.sent = Some(sent),
            Err(error) => self.failed(broker, &error),
        }
        Ok(())
    }

    /// Takes an answer in: moves positions on and returns the records.
    pub(super) fn take(
        &mut self,
        answer: Answer,
        places: &mut HashMap<TopicPartition, Place>,
        config: &ConsumerConfig,
    ) -> Result<Vec<Fetched>, ClientError> {
        let broker = answer.broker;
        if let Some(times) = self.times.as_mut().filter(|_| answer.result.is_ok()) {
            times.push(answer.took);
        }
        self.nodes.entry(broker).or_default().sent = None;
        let response = answer.result.and_then(|frame| {
            read::<FetchResponse>(
                &format!("broker {broker}"),
                &frame,
                ApiKey::Fetch,
                answer.version,
            )
        });
        let response = match response {
            Ok(response) => response,
            Err(error) if error.is_retriable() => {
                self.failed(broker, &error);
                return Ok(Vec::new());
            }
            Err(error) => return Err(error),
        };
        let node = self.nodes.entry(broker).or_default();
        node.session.answered(response.session_id, response.error());
        node.failing = None;
        let metadata = self.cluster.metadata();
        let mut out = Vec::new();
        for topic in &response.responses {
            let named = metadata.topic_by_id(topic.topic_id).map(|t| t.name.clone());
            let name = if answer.version >= 13 { named } else { Some((*topic.topic).into()) };
            // A topic that was made again meanwhile.
            let Some(name) = name else { continue };
            for data in &topic.partitions {
                let partition = TopicPartition::new(name.clone(), data.partition_index);
                let asked = answer.asked.get(&partition);
                match self.take_partition(partition.clone(), data, asked, places, config) {
                    Ok(fetched) => out.extend(fetched),
                    Err(error) if config.failures_apart => {
                        places.remove(&partition);
                        self.failures.push((partition, error));
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(out)
    }

    fn take_partition(
        &mut self,
        partition: TopicPartition,
        data: &PartitionData,
        asked: Option<&Offset>,
        places: &mut HashMap<TopicPartition, Place>,
        config: &ConsumerConfig,
    ) -> Result<Option<Fetched>, ClientError> {
        let Some(place) = places.get_mut(&partition) else { return Ok(None) };
        // The consumer has gone elsewhere since it asked.
        let Some(offset) = place.position.filter(|position| Some(position) == asked) else {
            return Ok(None);
        };
        match data.error() {
            ErrorCode::None => {}
            ErrorCode::OffsetOutOfRange => {
                // A replica nearby may be behind; the leader decides.
                let at_leader = place.nearby.take().is_none();
                if at_leader && config.failures_apart {
                    let what = format!("fetch of {partition} at offset {offset}");
                    return Err(ClientError::refused(what, ErrorCode::OffsetOutOfRange));
                }
                if at_leader {
                    (place.position, place.reset) = (None, true);
                }
                return Ok(None);
            }
            code if code.is_retriable() => {
                place.nearby = None;
                self.stale = true;
                return Ok(None);
            }
            code => return Err(ClientError::refused(format!("fetch of {partition}"), code)),
        }
        if data.preferred_read_replica >= 0 {
            place.nearby = Some(data.preferred_read_replica);
        }
        let committed = config.read_committed;
        let fetched = Fetched::of(&partition, offset, data, committed, config.check_crcs)?;
        if fetched.is_empty() {
            return Ok(None);
        }
        place.position = Some(fetched.next_offset);
        place.leader_epoch = Some(fetched.leader_epoch);
        Ok(Some(fetched))
    }
}

fn request(config: &ConsumerConfig, version: i16) -> FetchRequest {
    FetchRequest {
        max_wait_ms: config.fetch_wait_max.as_millis() as i32,
        min_bytes: config.fetch_bytes_min,
        max_bytes: config.fetch_bytes_max,
        isolation_level: config.read_committed as i8,
        rack_id: if version >= 11 { config.rack.clone() } else { String::new() },
        ..Default::default()
    }
}
