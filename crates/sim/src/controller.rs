//! The controller, which here never fails: the real decisions over an image kept in memory.

use metadata::{
    ClusterImage, ControllerSettings, MetadataRecord, Request, Response,
    decide::{CreateCluster, CreateTopics, NewTopic, RegisterBroker},
    image::PartitionImage,
};
use model::{BrokerId, PartitionIndex, Timestamp, Uuid};

pub(crate) const BROKER: BrokerId = BrokerId(1);
pub(crate) const CLUSTER_ID: &str = "SimulatedClusterAAAAAA";

#[derive(Debug)]
pub(crate) struct Controller {
    image: ClusterImage,
    settings: ControllerSettings,
    incarnations: u8,
}

impl Controller {
    /// A cluster of one broker.
    pub(crate) fn new(now: Timestamp) -> Controller {
        let image = ClusterImage::default();
        let mut controller =
            Controller { image, settings: ControllerSettings::default(), incarnations: 0 };
        let cluster_id = CLUSTER_ID.to_owned();
        let create = CreateCluster { cluster_id, features: Vec::new() };
        controller.decide(now, &Request::CreateCluster(create));
        controller.register(now, true);
        controller
    }

    pub(crate) fn create_topic(&mut self, now: Timestamp, name: &str, partitions: usize, id: u8) {
        let topic = NewTopic {
            name: name.to_owned(),
            id: Uuid::from_random([id; 16]),
            partitions: partitions as i32,
            replication_factor: 1,
            ..NewTopic::default()
        };
        let topics = CreateTopics { topics: vec![topic], validate_only: false };
        match self.decide(now, &Request::CreateTopics(topics)) {
            Response::CreateTopics(answers) => answers.into_iter().for_each(|(name, answer)| {
                answer.unwrap_or_else(|refusal| panic!("topic {name}: {refusal:?}"));
            }),
            other => panic!("CreateTopics is answered with {other:?}"),
        }
    }

    /// A new process of the broker. `clean`: its predecessor stopped cleanly.
    pub(crate) fn register(&mut self, now: Timestamp, clean: bool) {
        self.incarnations = self.incarnations.wrapping_add(1);
        let request = RegisterBroker {
            broker: BROKER,
            incarnation: Uuid::from_random([self.incarnations; 16]),
            cluster_id: CLUSTER_ID.to_owned(),
            endpoints: Vec::new(),
            rack: None,
            log_dirs: vec![Uuid::from_random([7; 16])],
            clean,
            fenced: false,
            earlier_incarnation_alive: false,
        };
        match self.decide(now, &Request::RegisterBroker(request)) {
            Response::RegisterBroker(Ok(_)) => {}
            other => panic!("RegisterBroker is answered with {other:?}"),
        }
    }

    pub(crate) fn partition(&self, topic: &str, partition: usize) -> &PartitionImage {
        let partition = PartitionIndex(partition as i32);
        self.image.partition(topic, partition).expect("topics are made before brokers start")
    }

    fn decide(&mut self, now: Timestamp, request: &Request) -> Response {
        let decision = self.image.decide(&self.settings, now, request);
        for record in &decision.records {
            self.replay(record);
        }
        decision.response
    }

    fn replay(&mut self, record: &MetadataRecord) {
        self.image.replay(record).expect("a record that was just decided contradicts nothing");
    }
}
