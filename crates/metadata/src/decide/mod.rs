//! Deciding: a request and the facts so far give new facts and an answer. Nothing changes here.
//!
//! One file per subject. Every decision works on a [`Draft`], a copy of the image that already
//! holds what the same request (or the batch it is decided in) has decided before, so that the
//! second topic of a request sees the first. Records must be committed before the answer leaves.

mod agreed;
mod brokers;
mod configs;
mod departures;
mod directories;
mod draft;
mod elections;
mod eligibility;
mod features;
mod found_epochs;
mod isr;
mod log_ends;
mod marks;
mod partitions;
mod placement;
mod producer_ids;
mod relief;
mod request;
mod sweep;
mod topics;
mod withdrawals;

pub use agreed::AGREED_KEYS;
pub use draft::Draft;
pub use features::{
    SUPPORTED_FEATURES, SupportedFeature, all_features, broker_features, cluster_feature,
    features_of_new_cluster, journal_feature, software_of_this_release,
};
pub use log_ends::{PendingElection, UncleanChoice};
pub use request::*;
pub use sweep::SWEEP_PARTITIONS_MAX;

use self::brokers::Registration;
use crate::image::ClusterImage;
use crate::record::MetadataRecord;
use crate::topic_config::StaticConfigs;
use model::{BrokerId, ErrorCode, LeaderEpoch, PartitionIndex, Timestamp, TopicId};

/// What the deciding node itself is configured with. Not replicated: only decisions use it.
#[derive(Clone, Debug)]
pub struct ControllerSettings {
    /// `num.partitions`: partitions of a topic that asks for -1.
    pub partitions_default: i32,
    /// `default.replication.factor`: replicas of a topic that asks for -1.
    pub replication_factor_default: i16,
    /// Least producer id of a new block.
    pub producer_ids_from: i64,
    /// Generation of a quorum that is regenerated: a sweep continues the leader epochs of all partitions in it. 0: a sweep
    /// leaves them.
    pub generation: u32,
    /// Broker-level values from the configuration file, by broker key.
    pub static_configs: StaticConfigs,
}

impl Default for ControllerSettings {
    fn default() -> ControllerSettings {
        ControllerSettings {
            partitions_default: 1,
            replication_factor_default: 1,
            producer_ids_from: 0,
            generation: 0,
            static_configs: StaticConfigs::default(),
        }
    }
}

/// New facts, and the answer that may leave once they are committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What becomes true, in order. Empty for a request that only asked or was refused; a registration
    /// that is to be repeated has some.
    pub records: Vec<MetadataRecord>,
    /// The elections among it after which acknowledged records may be missing: to be counted and told.
    pub unclean: Vec<UncleanElection>,
    /// The answer.
    pub response: Response,
}

/// A leader from outside of ISR and ELR: what only others had is lost (R4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UncleanElection {
    /// The topic.
    pub topic_id: TopicId,
    /// The partition.
    pub partition: PartitionIndex,
    /// Who leads.
    pub leader: BrokerId,
    /// In which leader epoch.
    pub leader_epoch: LeaderEpoch,
}

/// The protocol's way to say no: a code, and a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code. Never [`ErrorCode::None`].
    pub error: ErrorCode,
    /// What is wrong and what would be accepted; may be empty.
    pub message: String,
}

impl Refusal {
    /// A refusal with a sentence.
    pub fn new(error: ErrorCode, message: impl Into<String>) -> Refusal {
        assert!(!error.is_none(), "a refusal says what is wrong");
        Refusal { error, message: message.into() }
    }
}

/// The answer to one part of a request. A refusal is an answer, not a failure.
pub type Answer<T> = Result<T, Refusal>;

impl ClusterImage {
    /// Decides a request on this image. `now` is the controller's clock.
    pub fn decide(
        &self,
        settings: &ControllerSettings,
        now: Timestamp,
        request: &Request,
    ) -> Decision {
        let mut draft = Draft::new(self.clone());
        let response = draft.decide(settings, now, request);
        let unclean = draft.unclean_elections().to_vec();
        Decision { records: draft.into_records(), unclean, response }
    }
}

impl Draft {
    /// Decides a request on top of what the draft holds; its records stay in the draft.
    pub fn decide(
        &mut self,
        settings: &ControllerSettings,
        now: Timestamp,
        request: &Request,
    ) -> Response {
        match request {
            Request::CreateCluster(request) => {
                Response::CreateCluster(self.create_cluster(settings, request))
            }
            Request::CreateTopics(request) => {
                Response::CreateTopics(self.create_topics(settings, now, request))
            }
            Request::DeleteTopics(topics) => Response::DeleteTopics(self.delete_topics(topics)),
            Request::CreatePartitions(request) => {
                Response::CreatePartitions(self.create_partitions(request))
            }
            Request::AlterConfigs(request) => Response::AlterConfigs(self.alter_configs(request)),
            Request::IncrementalAlterConfigs(request) => {
                Response::AlterConfigs(self.incremental_alter_configs(settings, request))
            }
            Request::AllocateProducerIds(request) => {
                Response::AllocateProducerIds(self.allocate_producer_ids(settings, request))
            }
            Request::RegisterBroker(request) => {
                Response::RegisterBroker(self.register_broker(settings, &Registration::of(request)))
            }
            Request::RegisterBroker2(RegisterBroker2 { register, directories }) => {
                let of = Registration { told: Some(directories), ..Registration::of(register) };
                Response::RegisterBroker(self.register_broker(settings, &of))
            }
            Request::RegisterBroker3(request) => Response::RegisterBroker(
                self.register_broker(settings, &Registration::from(request)),
            ),
            Request::RegisterBroker4(RegisterBroker4 { request, marks }) => {
                let of = Registration { marks: Some(marks), ..Registration::from(request) };
                Response::RegisterBroker(self.register_broker(settings, &of))
            }
            Request::RaiseMarks(request) => Response::Broker(self.raise_marks(request)),
            Request::FenceBroker(request) => Response::Broker(self.fence(settings, request)),
            Request::UnfenceBroker(request) => Response::Broker(self.unfence(settings, request)),
            Request::BeginShutdown(request) => Response::Broker(self.begin_shutdown(request)),
            Request::UnregisterBroker(id) => Response::Broker(self.unregister(settings, *id)),
            Request::Sweep => {
                Response::Sweep(self.sweep_in(settings.generation, SWEEP_PARTITIONS_MAX))
            }
            Request::ReportEmptyReplicas(request) => {
                Response::EmptyReplicas(self.withdraw_empty(&EmptyReplicas2::from(request)))
            }
            Request::ReportEmptyReplicas2(request) => {
                Response::EmptyReplicas(self.withdraw_empty(request))
            }
            Request::GiveUpReplicas(request) => Response::EmptyReplicas(self.give_up(request)),
            Request::GiveUpMissing(request) => {
                Response::EmptyReplicas(self.give_up_missing(request))
            }
            Request::ReportLeaderEpochs(request) => {
                Response::EmptyReplicas(self.note_found_epochs(request))
            }
            Request::AlterPartition(request) => {
                Response::AlterPartition(self.alter_isr(request, &[]))
            }
            Request::AlterPartition2(AlterPartition2 { alter, unfit }) => {
                Response::AlterPartition(self.alter_isr(alter, unfit))
            }
            Request::RelieveReplicas(request) => {
                Response::EmptyReplicas(self.relieve_replicas(request))
            }
            Request::ElectLeaders(request) => {
                Response::ElectLeaders(self.elect_leaders(request, &[]))
            }
            Request::ElectLeaders2(ElectLeaders2 { request, ends }) => {
                Response::ElectLeaders(self.elect_leaders(request, ends))
            }
            Request::ElectByEnds(request) => Response::EmptyReplicas(self.elect_by_ends(request)),
            Request::UpdateFeatures(request) => {
                Response::UpdateFeatures(self.update_features(settings, request))
            }
        }
    }
}
