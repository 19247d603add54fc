//! The commands of the transcripts: words into requests, decisions into text.
//!
//! After every command the world checks what must always hold: deciding changed nothing, the
//! records replayed give the draft, a snapshot gives the image, and the delta names all changes.

use metadata::decide::*;
use metadata::image::HIGHWATER_VERSION;
use metadata::record::{BrokerSoftware, FeatureRange};
use metadata::topic_config::{ConfigSource, Resolver};
use metadata::{ClusterImage, ConfigResource, ControllerSettings, ImageDelta, MetadataRecord};
use metadata::{ImageUpdate, LocalChangeKind};
use model::{BrokerEpoch, BrokerId, LeaderEpoch, Offset, PartitionIndex, Timestamp, Uuid};
use std::fmt::Write;
use std::sync::Arc;

#[derive(Default)]
pub struct World {
    pub image: ClusterImage,
    pub settings: ControllerSettings,
    /// Of the newest decision.
    pub unclean: Vec<UncleanElection>,
    /// Whether nothing is checked and told but the answer: for long runs.
    pub quick: bool,
    ids_made: u64,
    now: i64,
}

pub fn uuid(number: u64) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    Uuid(bytes)
}

fn numbers(text: &str) -> Vec<BrokerId> {
    text.split(',').filter(|w| !w.is_empty()).map(|w| BrokerId(w.parse().unwrap())).collect()
}

/// `name=value` words by name.
fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    words.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

fn value(text: &str) -> Option<String> {
    (text != "null").then(|| text.replace('~', " "))
}

fn resource(word: &str) -> ConfigResource {
    let (kind, name) = word.split_once(':').unwrap_or((word, ""));
    match kind {
        "topic" => ConfigResource::Topic(name.into()),
        "broker" => ConfigResource::Broker(BrokerId(name.parse().unwrap())),
        "brokers" => ConfigResource::ClusterDefault,
        "group" => ConfigResource::Group(name.into()),
        "client-metrics" => ConfigResource::ClientMetrics(name.into()),
        other => panic!("no resource: {other}"),
    }
}

fn topic_partition(word: &str) -> (String, PartitionIndex) {
    let (topic, partition) = word.rsplit_once('-').unwrap();
    (topic.into(), PartitionIndex(partition.parse().unwrap()))
}

impl World {
    /// Runs one line; returns what came of it, every line ended.
    pub fn run(&mut self, line: &str) -> String {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (command, words) = words.split_first().unwrap();
        match *command {
            "topics" => self.topics(),
            "brokers" => self.brokers(),
            "describe" => self.describe(words),
            "static" => {
                let (key, value) = words[0].split_once('=').unwrap();
                self.settings.static_configs.insert(key.into(), value.into());
                String::new()
            }
            "defaults" => {
                self.settings.partitions_default = words[0].parse().unwrap();
                self.settings.replication_factor_default = words[1].parse().unwrap();
                String::new()
            }
            // Of a regenerated quorum, for the sweeps that follow.
            "generation" => {
                self.settings.generation = words[0].parse().unwrap();
                String::new()
            }
            "digest" => format!("{} records\n", self.image.to_records().len()),
            "snapshot" => text(&self.image.to_records()),
            "unclean" => self.unclean_elections(),
            "pending" => self.pending(),
            "replay" => self.replay(words[0]),
            _ => {
                let request = self.request(command, words);
                self.decide(&request)
            }
        }
    }

    pub fn decide(&mut self, request: &Request) -> String {
        self.now += 1;
        if self.quick {
            let decision = self.image.decide(&self.settings, Timestamp(self.now), request);
            decision.records.iter().for_each(|record| self.image.replay(record).unwrap());
            self.unclean = decision.unclean;
            return answer(&decision.response);
        }
        let before = self.image.clone();
        let digest = before.digest();
        let decision = self.image.decide(&self.settings, Timestamp(self.now), request);
        assert!(
            self.image == before && self.image.digest() == digest,
            "deciding changed the image"
        );
        let mut delta = ImageDelta::default();
        let mut merged = ImageDelta::default();
        let mut out = String::new();
        for record in &decision.records {
            delta.note(&self.image, record);
            let mut one = ImageDelta::default();
            one.note(&self.image, record);
            merged.merge(&one);
            self.image.replay(record).unwrap();
            let mut json = Vec::new();
            record.encode(&mut json);
            assert_eq!(MetadataRecord::decode(&json).as_ref(), Ok(record));
            writeln!(out, "{}", String::from_utf8(json).unwrap()).unwrap();
        }
        self.unclean = decision.unclean;
        assert_eq!(merged, delta, "steps taken one by one and merged are one step");
        self.check_snapshot();
        self.check_delta(&before, &delta);
        out + &answer(&decision.response) + &self.local(before, delta)
    }

    /// A record as it stands in a log, whoever wrote it.
    fn replay(&mut self, json: &str) -> String {
        let told = match MetadataRecord::decode(json.as_bytes()) {
            Ok(record) => self.image.replay(&record).map_err(|error| error.reason.to_owned()),
            Err(error) => Err(error.to_string()),
        };
        self.check_snapshot();
        told.map_or_else(|reason| format!("=> {reason}\n"), |()| String::new())
    }

    fn unclean_elections(&self) -> String {
        let line = |unclean: &UncleanElection| {
            let topic = self.image.topic_by_id(unclean.topic_id).unwrap();
            let (name, index) = (&topic.name, unclean.partition);
            format!("{name}-{index} {} in epoch {}\n", unclean.leader, unclean.leader_epoch)
        };
        self.unclean.iter().map(line).collect()
    }

    fn check_snapshot(&self) {
        let mut copy = ClusterImage::default();
        self.image.to_records().iter().for_each(|record| copy.replay(record).unwrap());
        assert!(copy == self.image, "a snapshot gives the image");
        assert_eq!(copy.digest(), self.image.digest());
        assert_eq!(
            self.image.partition_count(),
            self.image.topics().map(|topic| topic.partition_count()).sum::<usize>()
        );
    }

    fn check_delta(&self, before: &ClusterImage, delta: &ImageDelta) {
        // A record may set what was set already: the delta of records may name more.
        let least = ImageDelta::between(before, &self.image);
        assert!(least.topics.keys().all(|id| delta.topics.contains_key(id)), "{least:?} {delta:?}");
        assert!(least.brokers.is_subset(&delta.brokers) && least.configs.is_subset(&delta.configs));
        assert!(least.cluster <= delta.cluster);
    }

    /// What the step means for the replicas of broker 1.
    fn local(&self, before: ClusterImage, delta: ImageDelta) -> String {
        let after = Arc::new(self.image.clone());
        let update = ImageUpdate { index: 0, before: before.into(), after, delta: delta.into() };
        let mut out = String::new();
        for change in update.local_changes(BrokerId(1)) {
            let what = match change.kind {
                LocalChangeKind::Lead(state) => format!("leads in term {}", state.leader_epoch),
                LocalChangeKind::Follow(state) => format!("follows {}", state.leader),
                LocalChangeKind::Remove => "removes it".into(),
            };
            writeln!(out, "  broker 1: {}-{} {what}", change.topic, change.partition).unwrap();
        }
        out
    }

    fn broker_ref(&self, words: &[&str]) -> BrokerRef {
        let broker = BrokerId(words[0].parse().unwrap());
        let known = self.image.broker(broker).map_or(BrokerEpoch(-1), |broker| broker.epoch);
        let epoch = option(words, "epoch").map_or(known, |e| BrokerEpoch(e.parse().unwrap()));
        BrokerRef { broker, epoch }
    }

    fn request(&mut self, command: &str, words: &[&str]) -> Request {
        let validate_only = words.contains(&"validate");
        let words: Vec<&str> = words.iter().copied().filter(|word| *word != "validate").collect();
        let words = words.as_slice();
        match command {
            "cluster" => Request::CreateCluster(CreateCluster {
                cluster_id: words[0].into(),
                features: features(option(words, "version")),
            }),
            "sweep" => Request::Sweep,
            "shutdown" => Request::BeginShutdown(self.broker_ref(words)),
            "empty" => {
                let broker = self.broker_ref(words);
                let named = words[1..].iter().filter(|word| !word.contains('='));
                let named: Vec<_> = named.map(|word| self.partition_id(word)).collect();
                let Some(state) = option(words, "state") else {
                    let report = EmptyReplicas { broker, partitions: named };
                    return Request::ReportEmptyReplicas(report);
                };
                let partition_epoch = Some(state.parse().unwrap());
                let empty =
                    |(topic_id, partition)| EmptyReplica { topic_id, partition, partition_epoch };
                let partitions = named.into_iter().map(empty).collect();
                Request::ReportEmptyReplicas2(EmptyReplicas2 { broker, partitions })
            }
            "give-up" => {
                let broker = self.broker_ref(words);
                let offline = words.contains(&"offline");
                let named = words[1..].iter().filter(|word| word.contains('-'));
                let partitions = named.map(|word| self.partition_id(word)).collect();
                Request::GiveUpReplicas(GiveUpReplicas { broker, partitions, offline })
            }
            "give-up-missing" => {
                let named = words[1..].iter().filter(|word| !word.contains('='));
                Request::GiveUpMissing(GiveUpMissing {
                    broker: self.broker_ref(words),
                    partitions: named.map(|word| self.partition_id(word)).collect(),
                    heard: option(words, "heard").map(numbers).unwrap_or_default(),
                })
            }
            "found" => self.found(words),
            "relieve" => self.relief(words),
            "register" => self.register(words),
            "fence" => Request::FenceBroker(self.broker_ref(words)),
            "unfence" => Request::UnfenceBroker(self.broker_ref(words)),
            "unregister" => Request::UnregisterBroker(BrokerId(words[0].parse().unwrap())),
            "producer-ids" => Request::AllocateProducerIds(self.broker_ref(words)),
            "create" => {
                let topics = words.split(|word| *word == "+").map(|words| self.new_topic(words));
                Request::CreateTopics(CreateTopics { topics: topics.collect(), validate_only })
            }
            "delete" => Request::DeleteTopics(words.iter().map(|word| topic_ref(word)).collect()),
            "grow" => {
                let topics = words.split(|word| *word == "+").map(new_partitions).collect();
                Request::CreatePartitions(CreatePartitions { topics, validate_only })
            }
            "alter" => Request::AlterConfigs(AlterConfigs {
                resources: words.split(|word| *word == "+").map(all_configs).collect(),
                validate_only,
            }),
            "incr" => Request::IncrementalAlterConfigs(IncrementalAlterConfigs {
                resources: words.split(|word| *word == "+").map(config_changes).collect(),
                validate_only,
            }),
            "isr" => self.alter_partition(words),
            "ends" => self.ends(words),
            "marks" => self.marks(words),
            "elect" => self.elect(words),
            "features" => Request::UpdateFeatures(UpdateFeatures {
                updates: words.chunks(2).map(feature_update).collect(),
                validate_only,
            }),
            other => panic!("no command: {other}"),
        }
    }

    /// `elect unclean t-0 2=1@20`: with the end of broker 2's log.
    fn elect(&self, words: &[&str]) -> Request {
        let kind = match words[0] {
            "preferred" => ElectionKind::Preferred,
            _ => ElectionKind::Unclean,
        };
        let is_name = |word: &&&str| !word.contains('=');
        let named: Vec<_> =
            words[1..].iter().filter(is_name).map(|word| topic_partition(word)).collect();
        let partitions = (words.len() > 1).then_some(named);
        let request = ElectLeaders { kind, partitions };
        match words.iter().any(|word| word.contains('=')) {
            true => {
                let ends = vec![self.replica_ends(&words[1..])];
                Request::ElectLeaders2(ElectLeaders2 { request, ends })
            }
            false => Request::ElectLeaders(request),
        }
    }

    /// `found 2 t-0=7`: the log of broker 2 has leader epoch 7.
    fn found(&self, words: &[&str]) -> Request {
        let one = |word: &&str| {
            let (name, epoch) = word.split_once('=').filter(|(name, _)| name.contains('-'))?;
            let (topic_id, partition) = self.partition_id(name);
            let leader_epoch = LeaderEpoch(epoch.parse().unwrap());
            Some(FoundEpoch { topic_id, partition, leader_epoch })
        };
        let partitions = words[1..].iter().filter_map(one).collect();
        let broker = self.broker_ref(words);
        Request::ReportLeaderEpochs(ReportLeaderEpochs { broker, partitions })
    }

    /// `ends t-0 2=1@20`: the log of broker 2 ends at offset 20, in leader epoch 1.
    fn ends(&self, words: &[&str]) -> Request {
        Request::ElectByEnds(ElectByEnds { partitions: vec![self.replica_ends(words)] })
    }

    fn replica_ends(&self, words: &[&str]) -> ReplicaEnds {
        let (topic_id, partition) = self.partition_id(words[0]);
        let known = self.image.topic_by_id(topic_id).and_then(|topic| topic.partition(partition));
        let partition_epoch = option(words, "state")
            .map_or(known.map_or(0, |state| state.partition_epoch), |word| word.parse().unwrap());
        let end = |word: &&str| {
            let (broker, end) = word.split_once('=').unwrap();
            let registration = words.iter().copied().find(|word| word.starts_with("epoch="));
            let named: Vec<&str> = [broker].into_iter().chain(registration).collect();
            let (last_epoch, end) = end.split_once('@')?;
            Some(ReplicaEnd {
                broker: self.broker_ref(&named),
                last_epoch: LeaderEpoch(last_epoch.parse().unwrap()),
                end: Offset(end.parse().unwrap()),
            })
        };
        let ends = words[1..].iter().filter_map(end).collect();
        ReplicaEnds { topic_id, partition, partition_epoch, ends }
    }

    /// `marks 1 11=5`: broker 1 has reported mark 5 of directory 11.
    fn marks(&self, words: &[&str]) -> Request {
        let mark = |word: &&str| {
            let (directory, mark) = word.split_once('=')?;
            Some((uuid(directory.parse().ok()?), mark.parse().unwrap()))
        };
        let broker = self.broker_ref(words);
        let marks = words[1..].iter().filter_map(mark).collect();
        Request::RaiseMarks(RaiseMarks { brokers: vec![BrokerMarks { broker, marks }] })
    }

    /// Partitions that wait for log ends: the brokers to be requested, and those that may come back.
    fn pending(&self) -> String {
        let line = |pending: PendingElection| {
            let topic = self.image.topic_by_id(pending.topic_id).unwrap();
            let candidates: Vec<_> = pending.candidates.iter().map(|who| who.broker).collect();
            let (name, index, absent) = (&topic.name, pending.partition, pending.absent);
            format!("{name}-{index} candidates={candidates:?} absent={absent:?}\n")
        };
        self.image.pending_elections().into_iter().map(line).collect()
    }

    /// With `stopped=`, `had-by=` or `instead-of=` as a process that says what it knows of its directories; with
    /// `level=` as a program that reads `highwater.version` up to this level.
    fn register(&self, words: &[&str]) -> Request {
        let cluster = self.image.cluster_id().map_or(String::new(), |id| id.to_string());
        let flag = |name, otherwise| option(words, name).map_or(otherwise, |word| word == "true");
        let register = RegisterBroker {
            broker: BrokerId(words[0].parse().unwrap()),
            incarnation: uuid(option(words, "process").map_or(1, |word| word.parse().unwrap())),
            cluster_id: option(words, "cluster").map_or(cluster, str::to_owned),
            endpoints: Vec::new(),
            rack: option(words, "rack").map(str::to_owned),
            log_dirs: option(words, "dirs").map(directories).unwrap_or_default(),
            clean: flag("clean", true),
            fenced: flag("fenced", false),
            earlier_incarnation_alive: flag("alive", false),
        };
        let [stopped, had_by, instead_of] =
            ["stopped", "had-by", "instead-of"].map(|name| option(words, name));
        let level = option(words, "level");
        if stopped.or(had_by).or(instead_of).or(level).is_none() {
            return Request::RegisterBroker(register);
        }
        let epoch = |word: &str| word.parse().ok().map(BrokerEpoch);
        let at = |words: Option<&str>, at: usize| {
            words.and_then(|words| words.split(',').nth(at)).unwrap_or("-").to_owned()
        };
        let known = |number| KnownDirectory {
            stopped: epoch(&at(stopped, number)),
            had_by: at(had_by, number)
                .split('+')
                .filter_map(|it| it.parse().ok())
                .map(uuid)
                .collect(),
        };
        let directories = KnownDirectories {
            directories: (0..register.log_dirs.len()).map(known).collect(),
            instead_of: instead_of.and_then(epoch),
        };
        let request = RegisterBroker2 { register, directories };
        let Some(level) = level else { return Request::RegisterBroker2(request) };
        let range =
            FeatureRange { name: HIGHWATER_VERSION.into(), min: 1, max: level.parse().unwrap() };
        let software = BrokerSoftware { release: "0.2.0".into(), levels: vec![range] };
        let request = RegisterBroker3 { request, software };
        let Some(marks) = option(words, "marks") else { return Request::RegisterBroker3(request) };
        let marks = marks.split(',').map(|mark| mark.parse().unwrap()).collect();
        Request::RegisterBroker4(RegisterBroker4 { request, marks })
    }

    fn new_topic(&mut self, words: &[&str]) -> NewTopic {
        self.ids_made += 1;
        let config = |word: &&str| {
            let (key, text) = word.split_once('=')?;
            (!["p", "rf", "assign", "id"].contains(&key)).then(|| (key.to_owned(), value(text)))
        };
        let assigned =
            option(words, "assign").map(|text| text.split(';').map(assignment).collect());
        let otherwise = if assigned.is_some() { "-1" } else { "1" };
        NewTopic {
            name: words[0].replace('~', " ").replace("EMPTY", ""),
            id: uuid(option(words, "id").map_or(self.ids_made, |word| word.parse().unwrap())),
            partitions: option(words, "p").unwrap_or(otherwise).parse().unwrap(),
            replication_factor: option(words, "rf").unwrap_or(otherwise).parse().unwrap(),
            assignments: assigned.unwrap_or_default(),
            configs: words[1..].iter().filter_map(config).collect(),
        }
    }

    fn alter_partition(&self, words: &[&str]) -> Request {
        let (topic, partition) = topic_partition(words[1]);
        let known = self.image.topic(&topic);
        let state = known.and_then(|topic| topic.partition(partition));
        let number =
            |name, otherwise: i32| option(words, name).map_or(otherwise, |w| w.parse().unwrap());
        let known_epoch = |id| self.image.broker(id).map_or(BrokerEpoch(-1), |broker| broker.epoch);
        let member = |word: &str| match word.split_once('@') {
            Some((id, epoch)) => {
                (BrokerId(id.parse().unwrap()), BrokerEpoch(epoch.parse().unwrap()))
            }
            None => {
                let id = BrokerId(word.parse().unwrap());
                (id, known_epoch(id))
            }
        };
        let isr = option(words, "isr").unwrap().split(',').filter(|word| !word.is_empty());
        let alter = AlterPartition {
            leader: self.broker_ref(words),
            partitions: vec![NewIsr {
                topic_id: known.map_or(uuid(999), |topic| topic.id),
                partition,
                leader_epoch: LeaderEpoch(number("term", state.map_or(0, |s| s.leader_epoch.0))),
                partition_epoch: number("seen", state.map_or(0, |s| s.partition_epoch)),
                isr: isr.map(member).collect(),
                recovering: option(words, "recovering") == Some("true"),
                durable: option(words, "durable") == Some("true"),
            }],
        };
        match option(words, "unfit") {
            None => Request::AlterPartition(alter),
            Some(unfit) => {
                Request::AlterPartition2(AlterPartition2 { alter, unfit: numbers(unfit) })
            }
        }
    }

    /// `relieve BROKER healthy=1,2 [PARTITION ...]`: without a partition, everything of the broker.
    fn relief(&self, words: &[&str]) -> Request {
        let partitions: Vec<_> = words[1..]
            .iter()
            .filter(|word| !word.contains('='))
            .map(|word| self.partition_id(word))
            .collect();
        Request::RelieveReplicas(RelieveReplicas {
            broker: self.broker_ref(words),
            partitions: (!partitions.is_empty()).then_some(partitions),
            healthy: option(words, "healthy").map(numbers).unwrap_or_default(),
            hung_ms: 0,
        })
    }

    fn partition_id(&self, word: &str) -> (Uuid, PartitionIndex) {
        let (topic, partition) = topic_partition(word);
        (self.image.topic(&topic).map_or(uuid(999), |topic| topic.id), partition)
    }

    fn topics(&self) -> String {
        let mut out = String::new();
        for topic in self.image.topics() {
            for (index, p) in topic.partitions() {
                let (replicas, isr, leader) = (&p.replicas, &p.isr, p.leader);
                let (term, epoch) = (p.leader_epoch, p.partition_epoch);
                let mut more = String::new();
                if !p.elr.is_empty() {
                    write!(more, " elr={:?}", p.elr).unwrap();
                }
                if !p.restarted.is_empty() {
                    write!(more, " restarted={:?}", p.restarted).unwrap();
                }
                if p.last_known_leader != BrokerId::NONE {
                    write!(more, " last={}", p.last_known_leader).unwrap();
                }
                let flags = [(p.recovering, " recovering"), (p.durable, " durable")];
                flags.iter().filter(|(set, _)| *set).for_each(|(_, word)| more.push_str(word));
                writeln!(
                    out,
                    "{}-{index} replicas={replicas:?} isr={isr:?} leader={leader} term={term} epoch={epoch}{more}",
                    topic.name
                )
                .unwrap();
            }
        }
        out
    }

    fn brokers(&self) -> String {
        let line = |b: &Arc<metadata::BrokerImage>| {
            let stops = if b.in_controlled_shutdown { " stops" } else { "" };
            let partitions = self.image.topics().flat_map(|topic| {
                let here = topic.partitions().filter(|(at, _)| b.is_offline(topic.id, *at));
                here.map(|(at, _)| format!(" offline={}-{at}", topic.name))
            });
            let offline: String = partitions.collect();
            format!("broker {} epoch={} fenced={}{stops}{offline}\n", b.id, b.epoch, b.fenced)
        };
        self.image.brokers().map(line).collect()
    }

    /// What differs from the default.
    fn describe(&self, words: &[&str]) -> String {
        let broker = option(words, "broker").map(|id| BrokerId(id.parse().unwrap()));
        let resolver = Resolver::new(&self.image, &self.settings.static_configs, broker);
        let mut out = String::new();
        let configs = resolver.describe(words[0]).into_iter();
        for config in configs.filter(|config| config.source != ConfigSource::Default) {
            let (name, value, source) = (config.name, &config.value, config.source.name());
            writeln!(out, "{name}={value} {source}").unwrap();
            for synonym in config.synonyms {
                let (name, value) = (synonym.name, synonym.value);
                writeln!(out, "  {name}={value} {}", synonym.source.name()).unwrap();
            }
        }
        out
    }
}

fn features(version: Option<&str>) -> Vec<(String, i16)> {
    let mut features = vec![("metadata.version".into(), 30)];
    features.extend(version.map(|level| (HIGHWATER_VERSION.into(), level.parse().unwrap())));
    features
}

fn directories(text: &str) -> Vec<Uuid> {
    text.split(',').map(|word| uuid(word.parse().unwrap())).collect()
}

fn text(records: &[MetadataRecord]) -> String {
    let mut lines = Vec::new();
    MetadataRecord::encode_lines(records, &mut lines);
    String::from_utf8(lines).unwrap()
}

fn assignment(word: &str) -> (PartitionIndex, Vec<BrokerId>) {
    let (index, replicas) = word.split_once(':').unwrap();
    (PartitionIndex(index.parse().unwrap()), numbers(replicas))
}

fn topic_ref(word: &str) -> TopicRef {
    match word.strip_prefix('#') {
        Some(number) => TopicRef::Id(uuid(number.parse().unwrap())),
        None => TopicRef::Name(word.into()),
    }
}

fn new_partitions(words: &[&str]) -> NewPartitions {
    let assigned = option(words, "assign").map(|text| text.split(';').map(numbers).collect());
    NewPartitions {
        topic: words[0].into(),
        count: words[1].parse().unwrap(),
        assignments: assigned,
    }
}

fn all_configs(words: &[&str]) -> (ConfigResource, Vec<(String, Option<String>)>) {
    let pair = |word: &&str| {
        let (key, text) = word.split_once('=').unwrap();
        (key.to_owned(), value(text))
    };
    (resource(words[0]), words[1..].iter().map(pair).collect())
}

fn config_changes(words: &[&str]) -> (ConfigResource, Vec<ConfigChange>) {
    let change = |pair: &[&str]| {
        let (key, text) = pair[1].split_once('=').unwrap_or((pair[1], "null"));
        let operation = match pair[0] {
            "set" => ConfigOperation::Set,
            "delete" => ConfigOperation::Delete,
            "append" => ConfigOperation::Append,
            "subtract" => ConfigOperation::Subtract,
            other => panic!("no operation: {other}"),
        };
        ConfigChange { key: key.into(), operation, value: value(text) }
    };
    (resource(words[0]), words[1..].chunks(2).map(change).collect())
}

/// `upgrade name=level`.
fn feature_update(words: &[&str]) -> FeatureUpdate {
    let (name, level) = words[1].split_once('=').unwrap();
    let change = match words[0] {
        "upgrade" => FeatureChange::Upgrade,
        "downgrade" => FeatureChange::Downgrade,
        number => FeatureChange::Unknown(number.parse().unwrap()),
    };
    FeatureUpdate { name: name.into(), level: level.parse().unwrap(), change }
}

fn told<T>(what: &str, answer: &Answer<T>, ok: impl Fn(&T) -> String) -> String {
    let what = if what.is_empty() { String::new() } else { format!("{what}: ") };
    match answer {
        Ok(value) => format!("=> {what}ok{}\n", ok(value)),
        Err(refusal) => format!("=> {what}{} {}\n", refusal.error, refusal.message),
    }
}

fn nothing<T>(_: &T) -> String {
    String::new()
}

fn answer(response: &Response) -> String {
    match response {
        Response::CreateCluster(answer)
        | Response::Broker(answer)
        | Response::UpdateFeatures(answer) => told("", answer, nothing),
        Response::CreateTopics(answers) => {
            let created = |t: &CreatedTopic| {
                format!(" {} partition(s) {} replica(s)", t.partitions, t.replication_factor)
            };
            answers.iter().map(|(name, answer)| told(name, answer, created)).collect()
        }
        Response::DeleteTopics(answers) => {
            let deleted = |topic: &DeletedTopic| format!(" {}", topic.name);
            let line = |(_, answer): &(TopicRef, Answer<DeletedTopic>)| told("", answer, deleted);
            answers.iter().map(line).collect()
        }
        Response::CreatePartitions(answers) => {
            answers.iter().map(|(name, answer)| told(name, answer, nothing)).collect()
        }
        Response::AlterConfigs(answers) => {
            answers.iter().map(|(_, answer)| told("", answer, nothing)).collect()
        }
        Response::AllocateProducerIds(answer) => {
            told("", answer, |block| format!(" {} ids from {}", block.count, block.first))
        }
        Response::RegisterBroker(answer) => told("", answer, |epoch| format!(" epoch {epoch}")),
        Response::AlterPartition(Err(_)) => {
            let Response::AlterPartition(answer) = response else { unreachable!() };
            told("", answer, nothing)
        }
        Response::AlterPartition(Ok(answers)) => {
            let state =
                |p: &AlteredPartition| format!(" isr={:?} epoch={}", p.isr, p.partition_epoch);
            answers.iter().map(|(_, _, answer)| told("", answer, state)).collect()
        }
        Response::Sweep(swept) => {
            let more = if swept.more { ", more to do" } else { "" };
            format!("=> {} partition(s){more}\n", swept.changed)
        }
        Response::EmptyReplicas(Err(refusal)) => told::<()>("", &Err(refusal.clone()), nothing),
        Response::EmptyReplicas(Ok(answers)) => {
            answers.iter().map(|(_, _, answer)| told("", answer, nothing)).collect()
        }
        Response::ElectLeaders(answers) => {
            let line = |(topic, partition, answer): &(Arc<str>, PartitionIndex, Answer<()>)| {
                told(&format!("{topic}-{partition}"), answer, nothing)
            };
            answers.iter().map(line).collect()
        }
    }
}
