//! The active controller: the real decisions over the end of the metadata log, and the sessions of brokers.
//!
//! It says what is to be written into the log, and what may be answered once that is committed; who commits it is not
//! its business.

use std::collections::BTreeMap;
use std::sync::Arc;

use metadata::decide::{
    AlterPartition, AlterPartition2, BrokerMarks, BrokerRef, ConfigChange, ConfigOperation,
    CreateCluster, CreateTopics, ElectByEnds, ElectLeaders, ElectLeaders2, ElectionKind,
    EmptyReplicas2, GiveUpMissing, GiveUpReplicas, IncrementalAlterConfigs, KnownDirectory, NewIsr,
    NewTopic, RaiseMarks, RegisterBroker2, RelieveReplicas, TopicRef, UncleanElection,
};
use metadata::image::{BrokerImage, HIGHWATER_VERSION};
use metadata::{
    Answer, ClusterImage, ConfigResource, ControllerSettings, Decision, MetadataRecord, Request,
    Response,
};
use model::{BrokerEpoch, BrokerId, ErrorCode, Moment, PartitionIndex, Timestamp, TopicId, Uuid};
use node::probe_book::ProbeBook;
use partition::{IsrAnswer, IsrDecision};

use super::directories::heard_within;
use super::operator::OperatorEnds;
use super::topics::index_of;
use super::{forwarded, sick};
use crate::controller::CLUSTER_ID;
use crate::message::PartitionId;
use crate::start::TOPIC;

/// How many in-sync replicas are asked for.
pub(super) const MIN_INSYNC: &str = "min.insync.replicas";

/// How often marks of log directories are recorded.
const MARKS_MS: i64 = 150;
/// How long a broker may be silent.
const SESSION_MS: i64 = 300;

/// Answers to AlterPartition, by partition.
type Altered = Answer<Vec<(TopicId, PartitionIndex, Answer<metadata::decide::AlteredPartition>)>>;

/// What a broker asks of the controller.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    /// With the marks of its log directories, if the cluster detects copies.
    Register(RegisterBroker2, Option<Vec<u64>>),
    /// It is there; and whether it is ready to serve.
    Heartbeat {
        who: BrokerRef,
        is_ready: bool,
        marks: Vec<(Uuid, u64)>,
    },
    BeginShutdown(BrokerRef),
    ReportEmpty(EmptyReplicas2),
    GiveUp(GiveUpReplicas),
    GiveUpMissing(GiveUpMissing),
    /// Of one partition.
    AlterIsr(AlterPartition),
    Configure(IncrementalAlterConfigs),
    /// A person wants a leader, whatever it lacks.
    Elect(ElectLeaders),
    CreateTopic(NewTopic),
    DeleteTopic(TopicRef),
    /// A broker has a sick disk.
    Relieve(RelieveReplicas),
}

/// What the controller answers.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    Registered(BrokerEpoch),
    /// A process that holds its predecessor's disk was taken for a second one.
    TakenForAnother,
    Altered(NewIsr, IsrAnswer),
    /// A report of replicas that are in a missing directory of this registration, or were in one that is back, is decided.
    MissingReported(BrokerRef),
    /// Other brokers took over replicas.
    Relieved,
    /// The answer to a heartbeat, as bytes.
    Heard(Vec<u8>),
    /// Nothing that would be waited for, or that it is to be asked again.
    Nothing,
}

/// What is to be written as one entry.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    pub(crate) records: Arc<[MetadataRecord]>,
    pub(crate) unclean: Vec<UncleanElection>,
    /// With it, all that follows from brokers' coming and going is decided.
    pub(crate) is_swept: bool,
    /// It answers this broker's report of replicas that are out of reach.
    pub(crate) given_up_by: Option<BrokerRef>,
    /// It answers this broker's report of empty replicas.
    pub(crate) emptied_by: Option<BrokerId>,
    /// Replicas of this broker are relieved for its sick disk.
    pub(crate) relieves: Option<BrokerId>,
    /// It answers a person's request, decided by these log ends.
    pub(super) by_operator: Option<OperatorEnds>,
}

#[derive(Debug)]
pub(crate) struct Controller {
    /// All that is in the log, committed or not.
    pub(super) image: ClusterImage,
    settings: ControllerSettings,
    /// When each broker was last heard of.
    heard: BTreeMap<BrokerId, Timestamp>,
    /// When this controller got the last message of each broker.
    answered: BTreeMap<BrokerId, Timestamp>,
    /// Marks of log directories that brokers have reported.
    marks: BTreeMap<BrokerRef, Vec<(Uuid, u64)>>,
    marks_recorded: Timestamp,
    /// There may be something to sweep.
    pub(crate) wants_sweep: bool,
    /// Silence after which a broker is fenced.
    pub(super) session_ms: i64,
    /// Answers to probes, in a sick run.
    pub(super) book: Option<ProbeBook>,
}

impl Controller {
    /// One that goes on where the log ends. Nobody was silent so far, and what its predecessor did not come to is
    /// swept up.
    pub(crate) fn new(image: ClusterImage, now: Timestamp) -> Controller {
        let heard = image.brokers().map(|broker| (broker.id, now)).collect();
        let settings = ControllerSettings::default();
        let (session_ms, book) = (SESSION_MS, None);
        let (marks, marks_recorded) = (BTreeMap::new(), now);
        let wants_sweep = true;
        Controller {
            image,
            settings,
            heard,
            answered: BTreeMap::new(),
            marks,
            marks_recorded,
            wants_sweep,
            session_ms,
            book,
        }
    }

    /// The first thing that is ever decided.
    pub(crate) fn found(&mut self, now: Timestamp, version: i16) -> Entry {
        let features = match version {
            0 => Vec::new(),
            level => vec![(HIGHWATER_VERSION.to_owned(), level)],
        };
        let create = CreateCluster { cluster_id: CLUSTER_ID.to_owned(), features };
        self.decide(now, &Request::CreateCluster(create)).0
    }

    pub(crate) fn create_topic(&mut self, now: Timestamp, topic: NewTopic) -> Entry {
        let request = CreateTopics { topics: vec![topic], validate_only: false };
        let (entry, response) = self.decide(now, &Request::CreateTopics(request));
        match response {
            Response::CreateTopics(answers) => answers.into_iter().for_each(|(name, answer)| {
                answer.unwrap_or_else(|refusal| panic!("topic {name}: {refusal:?}"));
            }),
            other => panic!("CreateTopics is answered with {other:?}"),
        }
        entry
    }

    /// Decides what a broker asks.
    pub(crate) fn ask(&mut self, now: Timestamp, ask: &Ask) -> (Entry, Told) {
        match ask {
            Ask::Register(request, marks) => self.register(now, request, marks.as_deref()),
            Ask::Heartbeat { who, is_ready, marks } => {
                self.marks.insert(*who, marks.clone());
                (self.heartbeat(now, *who, *is_ready), Told::Nothing)
            }
            Ask::BeginShutdown(who) => {
                self.wants_sweep = true;
                (self.decide(now, &Request::BeginShutdown(*who)).0, Told::Nothing)
            }
            Ask::ReportEmpty(report) => {
                let request = Request::ReportEmptyReplicas2(report.clone());
                let (entry, _) = self.decide(now, &request);
                let emptied_by = Some(report.broker.broker);
                (Entry { emptied_by, ..entry }, Told::Nothing)
            }
            Ask::GiveUp(report) => {
                let request = Request::GiveUpReplicas(report.clone());
                self.give_up(now, report.broker, &request, Told::Nothing)
            }
            Ask::GiveUpMissing(report) => {
                let heard = heard_within(&self.answered, &self.image, now);
                let report = GiveUpMissing { heard, ..report.clone() };
                let (by, told) = (report.broker, Told::MissingReported(report.broker));
                self.give_up(now, by, &Request::GiveUpMissing(report), told)
            }
            Ask::Configure(request) => {
                self.wants_sweep = true;
                let request = Request::IncrementalAlterConfigs(request.clone());
                (self.decide(now, &request).0, Told::Nothing)
            }
            Ask::Elect(request) => {
                self.wants_sweep = true;
                (self.decide(now, &Request::ElectLeaders(request.clone())).0, Told::Nothing)
            }
            Ask::CreateTopic(topic) => {
                let request = CreateTopics { topics: vec![topic.clone()], validate_only: false };
                (self.decide(now, &Request::CreateTopics(request)).0, Told::Nothing)
            }
            Ask::DeleteTopic(topic) => {
                (self.decide(now, &Request::DeleteTopics(vec![topic.clone()])).0, Told::Nothing)
            }
            Ask::Relieve(request) => match self.relieve(now, request) {
                (entry, true) => (entry, Told::Relieved),
                (entry, false) => (entry, Told::Nothing),
            },
            Ask::AlterIsr(request) => {
                let wish = request.partitions.first().expect("one is asked for");
                let (entry, response) = self.decide(now, &self.completed(now, request));
                let Response::AlterPartition(answer) = forwarded::as_read(&response) else {
                    panic!("AlterPartition is answered with {response:?}");
                };
                (entry, Told::Altered(wish.clone(), isr_answer(answer)))
            }
        }
    }

    /// `told`: the answer, unless the report is refused whole.
    fn give_up(
        &mut self,
        now: Timestamp,
        by: BrokerRef,
        request: &Request,
        told: Told,
    ) -> (Entry, Told) {
        let (entry, response) = self.decide(now, request);
        let is_taken = matches!(response, Response::EmptyReplicas(Ok(_)));
        let told = if is_taken { told } else { Told::Nothing };
        (Entry { given_up_by: Some(by), ..entry }, told)
    }

    fn completed(&self, now: Timestamp, alter: &AlterPartition) -> Request {
        let alter = alter.clone();
        match &self.book {
            None => Request::AlterPartition(alter),
            Some(book) => {
                let now = Moment(now.0 as u64 * sick::MICROSECONDS);
                let unfit = book.unfit(now, &self.image, alter.leader.broker);
                Request::AlterPartition2(AlterPartition2 { alter, unfit })
            }
        }
    }

    fn register(
        &mut self,
        now: Timestamp,
        request: &RegisterBroker2,
        marks: Option<&[u64]>,
    ) -> (Entry, Told) {
        let id = request.register.broker;
        let mut request = request.clone();
        request.register.earlier_incarnation_alive =
            self.image.is_active(id) && !self.is_silent(id, now);
        let known = self.image.broker(id).cloned();
        let (entry, response) = self.decide(now, &forwarded::registration(request.clone(), marks));
        let Response::RegisterBroker(answer) = forwarded::as_read(&response) else {
            panic!("RegisterBroker is answered with {response:?}");
        };
        let told = match answer {
            Ok(epoch) => {
                self.heard.insert(id, now);
                self.answered.insert(id, now);
                Told::Registered(epoch)
            }
            Err(refusal) if refusal.error == ErrorCode::DuplicateBrokerRegistration => {
                // A copy of a disk proves nothing of who has the disk.
                let known = known.as_ref().expect("another one is registered");
                let mut directories = request.directories.directories.iter();
                let is_copy = marks.is_some_and(|marks| self.is_behind(&request, marks))
                    || directories.any(|directory| is_older(known, directory));
                let log_dirs = &request.register.log_dirs;
                let is_same = known.shares_log_dir(log_dirs);
                let is_heir = is_same && !is_copy;
                if is_heir { Told::TakenForAnother } else { Told::Nothing }
            }
            Err(_) => Told::Nothing,
        };
        self.wants_sweep = true;
        (entry, told)
    }

    /// A broker that was fenced serves again as soon as it is ready.
    fn heartbeat(&mut self, now: Timestamp, who: BrokerRef, is_ready: bool) -> Entry {
        let is_it = self.image.broker(who.broker).is_some_and(|known| known.epoch == who.epoch);
        if !is_it {
            return Entry::default();
        }
        self.heard.insert(who.broker, now);
        self.answered.insert(who.broker, now);
        if !is_ready || self.image.is_active(who.broker) {
            return Entry::default();
        }
        self.wants_sweep = true;
        self.decide(now, &Request::UnfenceBroker(who)).0
    }

    fn is_silent(&self, broker: BrokerId, now: Timestamp) -> bool {
        self.heard.get(&broker).is_none_or(|heard| now.ms_since(*heard) > self.session_ms)
    }

    /// Fences those who were silent for too long.
    pub(crate) fn end_sessions(&mut self, now: Timestamp) -> Vec<Entry> {
        let late: Vec<BrokerRef> = self
            .image
            .brokers()
            .filter(|broker| !broker.fenced && self.is_silent(broker.id, now))
            .map(|broker| BrokerRef { broker: broker.id, epoch: broker.epoch })
            .collect();
        self.wants_sweep |= !late.is_empty();
        late.into_iter().map(|who| self.decide(now, &Request::FenceBroker(who)).0).collect()
    }

    /// Elects leaders by the ends of logs.
    pub(crate) fn elect_by_ends(&mut self, now: Timestamp, request: ElectByEnds) -> Entry {
        self.decide(now, &Request::ElectByEnds(request)).0
    }

    /// Decides a person's request by log ends.
    pub(crate) fn elect_for_operator(&mut self, now: Timestamp, request: ElectLeaders2) -> Entry {
        self.wants_sweep = true;
        self.decide(now, &Request::ElectLeaders2(request)).0
    }

    /// Records the marks that are news, now and then.
    pub(crate) fn record_marks(&mut self, now: Timestamp) -> Option<Entry> {
        if now.ms_since(self.marks_recorded) < MARKS_MS || !self.image.detects_copies() {
            return None;
        }
        self.marks_recorded = now;
        let of_broker = |(who, marks): (&BrokerRef, &Vec<(Uuid, u64)>)| BrokerMarks {
            broker: *who,
            marks: marks.clone(),
        };
        let brokers = self.marks.iter().map(of_broker).collect();
        let entry = self.decide(now, &Request::RaiseMarks(RaiseMarks { brokers })).0;
        (!entry.records.is_empty()).then_some(entry)
    }

    /// Whether a registration of a process that is not registered has a directory that was put back from a copy, by the
    /// processes that the disk notes; and whether its mark is below the recorded one.
    pub(crate) fn recognise(
        &self,
        request: &RegisterBroker2,
        noted: &[Uuid],
        marks: Option<&[u64]>,
    ) -> (bool, bool) {
        let RegisterBroker2 { register, directories } = request;
        let Some(known) = self.image.broker(register.broker) else { return (false, false) };
        if known.incarnation == register.incarnation || !self.image.has_eligible_replicas() {
            return (false, false);
        }
        let is_behind = marks.is_some_and(|marks| self.is_behind(request, marks));
        // Of a directory that says that the metadata is older nothing is known, nor of a disk that has another process by now.
        let mut directories = directories.directories.iter();
        let is_newer =
            directories.any(|it| it.stopped.is_some_and(|stopped| stopped > known.epoch));
        // Alone a process is noted when another controller has registered it.
        let is_older = noted.len() > 1
            && noted.last() == Some(&register.incarnation)
            && noted.first() != Some(&Uuid::ZERO)
            && !noted.contains(&known.incarnation)
            && known.shares_log_dir(&register.log_dirs);
        (is_behind || is_older && !is_newer, is_behind)
    }

    /// Whether a broker has a complete replica.
    pub(crate) fn counts(&self, broker: BrokerId) -> bool {
        let mut states =
            self.image.topics().flat_map(|topic| topic.partitions().map(|(_, state)| state));
        states.any(|state| state.is_complete(broker))
    }

    /// Whether a registration of a process that is not registered has a mark below the recorded one.
    pub(crate) fn is_behind(&self, request: &RegisterBroker2, marks: &[u64]) -> bool {
        let register = &request.register;
        let known = self.image.broker(register.broker);
        if known.is_some_and(|known| known.incarnation == register.incarnation) {
            return false;
        }
        let mut marked = register.log_dirs.iter().zip(marks);
        marked.any(|(dir, mark)| *mark < self.image.directory_mark(register.broker, *dir))
    }

    /// The next piece of what follows from brokers' coming and going.
    pub(crate) fn sweep(&mut self, now: Timestamp) -> Entry {
        let (mut entry, response) = self.decide(now, &Request::Sweep);
        let Response::Sweep(swept) = response else {
            panic!("Sweep is answered with {response:?}");
        };
        self.wants_sweep = swept.more;
        entry.is_swept = !swept.more && self.image.has_eligible_replicas();
        entry
    }

    /// A member of an ISR that was just decided, of which another registration has caught up than the one that is
    /// registered (R6).
    pub(crate) fn another_member(&self, told: &Told) -> Option<BrokerId> {
        let Told::Altered(wish, IsrAnswer::Decided(_)) = told else { return None };
        let is_another = |(id, epoch): &&(BrokerId, BrokerEpoch)| {
            self.image.broker(*id).is_none_or(|known| known.epoch != *epoch)
        };
        wish.isr.iter().find(is_another).map(|(id, _)| *id)
    }

    pub(super) fn decide(&mut self, now: Timestamp, request: &Request) -> (Entry, Response) {
        let decision = self.image.decide(&self.settings, now, request);
        for record in &decision.records {
            self.image.replay(record).expect("a record that was just decided contradicts nothing");
        }
        let Decision { records, unclean, response } = decision;
        (Entry { records: records.into(), unclean, ..Entry::default() }, response)
    }
}

/// So many in-sync replicas are asked for from now on.
pub(super) fn require_in_sync(count: usize) -> Ask {
    let change = ConfigChange {
        key: MIN_INSYNC.to_owned(),
        operation: ConfigOperation::Set,
        value: Some(count.to_string()),
    };
    let resources = vec![(ConfigResource::Topic(TOPIC.into()), vec![change])];
    Ask::Configure(IncrementalAlterConfigs { resources, validate_only: false })
}

/// What a leader makes of the controller's answer.
fn isr_answer(answer: Altered) -> IsrAnswer {
    let Ok(partitions) = answer else { return IsrAnswer::Superseded };
    let (_, _, one) = partitions.into_iter().next().expect("one was asked for");
    match one {
        Ok(altered) => IsrAnswer::Decided(IsrDecision {
            partition_epoch: altered.partition_epoch,
            isr: altered.isr,
            recovering: altered.recovering,
        }),
        Err(refusal) => match refusal.error {
            ErrorCode::IneligibleReplica | ErrorCode::InvalidRequest => IsrAnswer::Refused,
            // A controller that is behind its asker has decided nothing.
            ErrorCode::NotController => IsrAnswer::Unknown,
            _ => IsrAnswer::Superseded,
        },
    }
}

/// A person's request for a leader of one partition.
pub(super) fn elect_uncleanly(at: PartitionId) -> Ask {
    let partitions = Some(vec![(TOPIC.to_owned(), index_of(at))]);
    Ask::Elect(ElectLeaders { kind: ElectionKind::Unclean, partitions })
}

/// What an image says of how many in-sync replicas are asked for.
pub(super) fn min_insync_of(image: &ClusterImage) -> usize {
    let value = image.config(&ConfigResource::Topic(TOPIC.to_owned()), MIN_INSYNC);
    value.map_or(1, |value| value.parse().expect("it was checked"))
}

/// Whether the process that was registered last did not have the directory.
fn is_older(known: &BrokerImage, directory: &KnownDirectory) -> bool {
    match directory.had_by.is_empty() {
        true => directory.stopped.is_some_and(|epoch| epoch < known.epoch),
        false => !directory.had_by.contains(&known.incarnation),
    }
}
