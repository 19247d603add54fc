//! What the client knows of the cluster: brokers, topics, who leads which partition. A value; who
//! fetches it is [`crate::cluster`].

use model::{ErrorCode, LeaderEpoch, TopicId, Uuid};
use std::collections::HashMap;
use std::sync::Arc;
use wire::MetadataResponse;
use wire::metadata::{MetadataResponsePartition, MetadataResponseTopic};

/// A broker's address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broker {
    /// `node.id`.
    pub id: i32,
    /// Host.
    pub host: String,
    /// Port.
    pub port: i32,
    /// Rack, if it has one.
    pub rack: Option<String>,
}

impl Broker {
    /// `host:port`.
    pub fn address(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

/// A partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    /// Its number.
    pub index: i32,
    /// Who leads it; `None` while no one does.
    pub leader: Option<i32>,
    /// The leader epoch; none if the broker does not say.
    pub leader_epoch: LeaderEpoch,
    /// Where copies should be; the first is the preferred leader.
    pub replicas: Vec<i32>,
    /// Which copies are in sync.
    pub isr: Vec<i32>,
    /// Copies on brokers that are away.
    pub offline: Vec<i32>,
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topic {
    /// Its name.
    pub name: Arc<str>,
    /// Its id; zero if the broker is too old to give one.
    pub id: TopicId,
    /// Whether Kafka made it for itself.
    pub is_internal: bool,
    /// What is wrong with it, if anything.
    pub error: ErrorCode,
    /// Its partitions by number. Invariant: entry `i` is partition `i`.
    pub partitions: Vec<Partition>,
}

impl Topic {
    /// Who leads this partition.
    pub fn leader(&self, partition: i32) -> Option<i32> {
        self.partitions.get(usize::try_from(partition).ok()?)?.leader
    }
}

/// What is known of the cluster at one moment.
#[derive(Debug, Clone, Default)]
pub struct Metadata {
    /// The cluster's id.
    pub cluster_id: Option<String>,
    /// Who takes requests for the controller.
    pub controller: Option<i32>,
    /// The brokers by id.
    pub brokers: HashMap<i32, Broker>,
    /// The topics by name. Not all that exist: those that were asked for.
    pub topics: HashMap<Arc<str>, Arc<Topic>>,
    names: HashMap<Uuid, Arc<str>>,
}

impl Metadata {
    /// Who leads a partition; `None` if that is not known.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<i32> {
        self.topics.get(topic)?.leader(partition)
    }

    /// The topic with this id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<&Arc<Topic>> {
        self.topics.get(self.names.get(&id)?)
    }

    /// What an answer says, and no more. The answer is taken apart on the way: there are never two pictures of all topics.
    pub(crate) fn of(mut response: MetadataResponse) -> Metadata {
        let mut metadata = Metadata::default();
        for topic in std::mem::take(&mut response.topics) {
            metadata.take_topic(topic);
        }
        metadata.merge(&response);
        metadata
    }

    /// The same without tables: the topics that are there, in the order of their names, beside all else.
    pub(crate) fn in_order(mut response: MetadataResponse) -> (Metadata, Vec<Topic>) {
        let answered = std::mem::take(&mut response.topics);
        let mut topics: Vec<Topic> = answered.into_iter().filter_map(topic_of).collect();
        topics.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        topics.dedup_by(|a, b| a.name == b.name);
        (Metadata::of(response), topics)
    }

    /// Takes in an answer; topics that it does not name stay as they are.
    pub fn merge(&mut self, response: &MetadataResponse) {
        self.cluster_id.clone_from(&response.cluster_id);
        self.controller = (response.controller_id >= 0).then_some(response.controller_id);
        let brokers = response.brokers.iter().map(|b| {
            let (host, rack) = (b.host.clone(), b.rack.clone());
            (b.node_id, Broker { id: b.node_id, host, port: b.port, rack })
        });
        self.brokers = brokers.collect();
        for topic in &response.topics {
            self.take_topic(topic.clone());
        }
    }

    /// Forgets all topics but these.
    pub(crate) fn retain(&mut self, keeps: impl Fn(&str) -> bool) {
        self.topics.retain(|name, _| keeps(name));
        self.names.retain(|_, name| keeps(name));
    }

    fn take_topic(&mut self, response: MetadataResponseTopic) {
        let Some(name) = response.name.as_deref() else { return };
        let old = self.topics.remove(name);
        if let Some(old) = old {
            self.names.remove(&old.id);
        }
        let Some(topic) = topic_of(response) else { return };
        if !topic.id.is_zero() {
            self.names.insert(topic.id, topic.name.clone());
        }
        self.topics.insert(topic.name.clone(), Arc::new(topic));
    }
}

/// A topic, if it has a name and is there.
fn topic_of(response: MetadataResponseTopic) -> Option<Topic> {
    let error = response.error();
    let name = response.name.filter(|_| error != ErrorCode::UnknownTopicOrPartition)?;
    let mut partitions: Vec<_> = response.partitions.into_iter().map(partition_of).collect();
    partitions.sort_by_key(|p| p.index);
    // A hole would make indexes lie; Kafka has none.
    let whole = partitions.iter().zip(0..).take_while(|(p, i)| p.index == *i).count();
    partitions.truncate(whole);
    Some(Topic {
        name: Arc::from(name),
        id: response.topic_id,
        is_internal: response.is_internal,
        error,
        partitions,
    })
}

fn partition_of(response: MetadataResponsePartition) -> Partition {
    Partition {
        index: response.partition_index,
        leader: (response.leader_id >= 0).then_some(response.leader_id),
        leader_epoch: LeaderEpoch(response.leader_epoch),
        replicas: response.replica_nodes,
        isr: response.isr_nodes,
        offline: response.offline_replicas,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(topic: MetadataResponseTopic) -> MetadataResponse {
        MetadataResponse { topics: vec![topic], ..Default::default() }
    }

    fn topic(error_code: i16, id: u8, leaders: &[i32]) -> MetadataResponseTopic {
        let partitions = leaders.iter().zip(0..).map(|(leader, index)| MetadataResponsePartition {
            leader_id: *leader,
            partition_index: index,
            ..Default::default()
        });
        MetadataResponseTopic {
            error_code,
            name: Some("t".to_owned()),
            topic_id: Uuid([id; 16]),
            partitions: partitions.collect(),
            ..Default::default()
        }
    }

    #[test]
    fn a_topic_made_again_is_found_by_its_new_id_only() {
        let mut metadata = Metadata::default();
        metadata.merge(&answer(topic(0, 1, &[7, -1])));
        assert_eq!(metadata.leader("t", 0), Some(7));
        assert_eq!(metadata.leader("t", 1), None);
        metadata.merge(&answer(topic(0, 2, &[8])));
        assert!(metadata.topic_by_id(Uuid([1; 16])).is_none());
        assert_eq!(metadata.topic_by_id(Uuid([2; 16])).unwrap().leader(0), Some(8));
    }

    #[test]
    fn an_answer_that_is_taken_apart_says_what_one_that_is_merged_says() {
        let mut response = answer(topic(0, 1, &[7, -1]));
        (response.cluster_id, response.controller_id) = (Some("c".to_owned()), 7);
        response.topics.push(MetadataResponseTopic {
            name: Some("gone".to_owned()),
            error_code: ErrorCode::UnknownTopicOrPartition.code(),
            ..Default::default()
        });
        let mut merged = Metadata::default();
        merged.merge(&response);
        let (brokers, topics) = Metadata::in_order(response.clone());
        assert_eq!((brokers.topics.len(), brokers.controller), (0, Some(7)));
        assert_eq!(topics, [Topic::clone(&merged.topics["t"])]);
        let whole = Metadata::of(response);
        assert_eq!((whole.cluster_id.as_deref(), whole.controller), (Some("c"), Some(7)));
        assert_eq!(whole.topics, merged.topics);
        assert_eq!(whole.topics.len(), 1);
        assert_eq!(whole.topic_by_id(Uuid([1; 16])), merged.topic_by_id(Uuid([1; 16])));
    }

    #[test]
    fn a_topic_that_is_gone_is_forgotten() {
        let mut metadata = Metadata::default();
        metadata.merge(&answer(topic(0, 1, &[7])));
        metadata.merge(&answer(topic(3, 0, &[])));
        assert!(metadata.topics.is_empty());
        assert!(metadata.topic_by_id(Uuid([1; 16])).is_none());
    }
}
