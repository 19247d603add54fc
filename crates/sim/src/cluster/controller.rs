//! A controller that never fails: the real decisions over an image kept in memory, and sessions of brokers.

use std::collections::BTreeMap;
use std::sync::Arc;

use metadata::decide::{
    AlterPartition, BrokerRef, CreateCluster, CreateTopics, NewTopic, RegisterBroker,
};
use metadata::{Answer, ClusterImage, ControllerSettings, Request, Response};
use model::{BrokerEpoch, BrokerId, Timestamp, Uuid};

use crate::controller::CLUSTER_ID;

/// How long a broker may be silent.
const SESSION_MS: i64 = 300;

/// Answers to AlterPartition, by partition.
pub(crate) type Altered = Answer<
    Vec<(model::TopicId, model::PartitionIndex, Answer<metadata::decide::AlteredPartition>)>,
>;

#[derive(Debug)]
pub(crate) struct ClusterController {
    image: Arc<ClusterImage>,
    settings: ControllerSettings,
    /// When each broker was last heard of.
    heard: BTreeMap<BrokerId, Timestamp>,
}

impl ClusterController {
    pub(crate) fn new(now: Timestamp) -> ClusterController {
        let mut controller = ClusterController {
            image: Arc::default(),
            settings: ControllerSettings::default(),
            heard: BTreeMap::new(),
        };
        let create = CreateCluster { cluster_id: CLUSTER_ID.to_owned(), features: Vec::new() };
        controller.decide(now, &Request::CreateCluster(create));
        controller
    }

    /// What everybody is told.
    pub(crate) fn image(&self) -> &Arc<ClusterImage> {
        &self.image
    }

    pub(crate) fn create_topic(&mut self, now: Timestamp, topic: NewTopic) {
        let name = topic.name.clone();
        let request = CreateTopics { topics: vec![topic], validate_only: false };
        match self.decide(now, &Request::CreateTopics(request)) {
            Response::CreateTopics(answers) => answers.into_iter().for_each(|(_, answer)| {
                answer.unwrap_or_else(|refusal| panic!("topic {name}: {refusal:?}"));
            }),
            other => panic!("CreateTopics is answered with {other:?}"),
        }
    }

    /// A new process of a broker, on the disk that it always had.
    pub(crate) fn register(
        &mut self,
        now: Timestamp,
        broker: BrokerId,
        incarnation: u64,
        clean: bool,
    ) -> BrokerEpoch {
        let mut random = [broker.0 as u8; 16];
        random[..8].copy_from_slice(&incarnation.to_be_bytes());
        let request = RegisterBroker {
            broker,
            incarnation: Uuid::from_random(random),
            cluster_id: CLUSTER_ID.to_owned(),
            endpoints: Vec::new(),
            rack: None,
            log_dirs: vec![Uuid::from_random([broker.0 as u8; 16])],
            clean,
            fenced: false,
            earlier_incarnation_alive: false,
        };
        self.heard.insert(broker, now);
        match self.decide(now, &Request::RegisterBroker(request)) {
            Response::RegisterBroker(Ok(epoch)) => epoch,
            other => panic!("RegisterBroker is answered with {other:?}"),
        }
    }

    /// A broker is there. One that was fenced serves again.
    pub(crate) fn heartbeat(&mut self, now: Timestamp, who: BrokerRef) {
        let is_it = self.image.broker(who.broker).is_some_and(|known| known.epoch == who.epoch);
        if is_it {
            self.heard.insert(who.broker, now);
            if !self.image.is_active(who.broker) {
                self.decide(now, &Request::UnfenceBroker(who));
            }
        }
    }

    /// Fences those who were silent for too long.
    pub(crate) fn end_sessions(&mut self, now: Timestamp) {
        let late: Vec<BrokerRef> = self
            .image
            .brokers()
            .filter(|broker| !broker.fenced)
            .filter(|broker| now.ms_since(self.heard[&broker.id]) > SESSION_MS)
            .map(|broker| BrokerRef { broker: broker.id, epoch: broker.epoch })
            .collect();
        for who in late {
            self.decide(now, &Request::FenceBroker(who));
        }
    }

    pub(crate) fn alter_partition(&mut self, now: Timestamp, request: AlterPartition) -> Altered {
        match self.decide(now, &Request::AlterPartition(request)) {
            Response::AlterPartition(answer) => answer,
            other => panic!("AlterPartition is answered with {other:?}"),
        }
    }

    fn decide(&mut self, now: Timestamp, request: &Request) -> Response {
        let decision = self.image.decide(&self.settings, now, request);
        if !decision.records.is_empty() {
            let image = Arc::make_mut(&mut self.image);
            for record in &decision.records {
                image.replay(record).expect("a record that was just decided contradicts nothing");
            }
        }
        decision.response
    }
}
