//! What a session asks of the brokers beside load: who leads what, who leads the quorum, and elections. Each broker is asked by
//! itself, over a connection of its own, so that one that is dead or starting keeps nobody waiting.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use client::admin::NewTopic;
use client::{Connection, ConnectionConfig, Metadata};
use model::ErrorCode;
use tokio::runtime::Runtime;
use wire::describe_quorum::{RequestPartitionData, RequestTopicData};
use wire::elect_leaders::TopicPartitions;
use wire::metadata::MetadataRequestTopic;
use wire::{DescribeQuorumRequest, ElectLeadersRequest, MetadataRequest, Request};

use crate::admin;

/// How long connecting, or an answer, may take: whoever waits asks again.
const PATIENCE: Duration = Duration::from_secs(5);
/// ElectLeaders' code for the preferred leader.
const PREFERRED: i8 = 0;

/// The brokers of a cluster, by id.
pub(super) struct Brokers {
    runtime: Runtime,
    addresses: BTreeMap<i32, String>,
    connections: BTreeMap<i32, Connection>,
}

impl Brokers {
    /// Those that the cluster says it has.
    pub(super) fn of(bootstrap: &str) -> Result<Brokers> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let metadata = runtime.block_on(async {
            let admin = admin::connect(bootstrap).await?;
            anyhow::Ok(admin.describe_all().await?)
        })?;
        let addresses = metadata.brokers.values().map(|broker| (broker.id, broker.address()));
        Ok(Brokers { runtime, addresses: addresses.collect(), connections: BTreeMap::new() })
    }

    /// Their ids, ascending.
    pub(super) fn ids(&self) -> Vec<i32> {
        self.addresses.keys().copied().collect()
    }

    /// Makes topics in which the partition `i` has a replica on every broker and prefers the `i`-th as its leader.
    pub(super) fn make_topics(&self, bootstrap: &str, names: &[&str], min_isr: u32) -> Result<()> {
        let ids = self.ids();
        let placed = (0..ids.len()).map(|first| {
            let mut replicas = ids.clone();
            replicas.rotate_left(first);
            replicas
        });
        let assignments: Vec<Vec<i32>> = placed.collect();
        let topic = |name: &&str| NewTopic {
            name: (*name).to_owned(),
            assignments: assignments.clone(),
            configs: vec![("min.insync.replicas".to_owned(), min_isr.to_string())],
            ..NewTopic::default()
        };
        let topics: Vec<NewTopic> = names.iter().map(topic).collect();
        let made = self.runtime.block_on(async {
            let admin = admin::connect(bootstrap).await?;
            anyhow::Ok(admin.create_topics(&topics, false).await?)
        })?;
        for (name, made) in made {
            made.with_context(|| format!("cannot make the topic {name}"))?;
        }
        Ok(())
    }

    /// The partition that prefers this broker as its leader, in topics of [`Brokers::make_topics`].
    pub(super) fn partition_of(&self, leader: i32) -> Result<i32> {
        let at = self.ids().iter().position(|id| *id == leader);
        at.map(|at| at as i32).with_context(|| format!("no broker has the id {leader}"))
    }

    /// Who leads the metadata quorum, if a broker knows.
    pub(super) fn controller(&mut self) -> Option<i32> {
        let log = RequestTopicData {
            topic_name: "__cluster_metadata".to_owned(),
            partitions: vec![RequestPartitionData { partition_index: 0 }],
        };
        let request = DescribeQuorumRequest { topics: vec![log] };
        let ids = self.ids();
        ids.iter().find_map(|id| {
            let answer = self.ask(*id, &request).ok()?;
            let log = answer.topics.first()?.partitions.first()?;
            let known = answer.error_code == ErrorCode::None.code()
                && log.error_code == ErrorCode::None.code()
                && ids.contains(&log.leader_id);
            known.then_some(log.leader_id)
        })
    }

    /// Why not every broker says that all partitions of these topics have all their replicas in sync; `None` if they do. With `at_home`
    /// each must be led by the replica that it prefers, too.
    pub(super) fn unsettled(&mut self, topics: &[&str], at_home: bool) -> Option<String> {
        let partitions = self.addresses.len();
        self.ids().into_iter().find_map(|id| {
            let metadata = match self.metadata(id, topics) {
                Ok(metadata) => metadata,
                Err(error) => return Some(format!("broker {id}: {error:#}")),
            };
            topics.iter().find_map(|name| {
                let topic = metadata.topics.get(*name);
                let all = topic.filter(|topic| topic.partitions.len() == partitions);
                let Some(topic) = all else {
                    return Some(format!("broker {id} does not know all partitions of {name}"));
                };
                topic.partitions.iter().find_map(|partition| {
                    let preferred = partition.replicas.first().copied();
                    let wrong = match partition.leader {
                        None => "has no leader",
                        Some(_) if partition.isr.len() < partition.replicas.len() => {
                            "has not all replicas in sync"
                        }
                        Some(_) if at_home && partition.leader != preferred => {
                            "is not led by the replica that it prefers"
                        }
                        Some(_) => return None,
                    };
                    Some(format!("broker {id} says that {name}-{} {wrong}", partition.index))
                })
            })
        })
    }

    /// Lets every partition of these topics be led by the replica that it prefers; those that are already are left alone.
    pub(super) fn elect_preferred(&mut self, topics: &[&str]) -> Result<()> {
        let partitions: Vec<i32> = (0..self.addresses.len() as i32).collect();
        let of = |topic: &&str| TopicPartitions {
            topic: (*topic).to_owned(),
            partitions: partitions.clone(),
        };
        let request = ElectLeadersRequest {
            election_type: PREFERRED,
            topic_partitions: Some(topics.iter().map(of).collect()),
            timeout_ms: PATIENCE.as_millis() as i32,
        };
        let mut last = None;
        for id in self.ids() {
            match self.ask(id, &request) {
                // What became of each partition is looked at in the metadata.
                Ok(answer) if answer.error_code == ErrorCode::None.code() => return Ok(()),
                Ok(answer) => {
                    last = Some(format!("broker {id}: error {}", answer.error_code));
                }
                Err(error) => last = Some(format!("broker {id}: {error:#}")),
            }
        }
        ensure!(last.is_none(), "no broker holds an election: {}", last.unwrap_or_default());
        Ok(())
    }

    fn metadata(&mut self, id: i32, topics: &[&str]) -> Result<Metadata> {
        let topic = |name: &&str| MetadataRequestTopic {
            name: Some((*name).to_owned()),
            ..Default::default()
        };
        let request = MetadataRequest {
            topics: Some(topics.iter().map(topic).collect()),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let answer = self.ask(id, &request)?;
        let mut metadata = Metadata::default();
        metadata.merge(&answer);
        Ok(metadata)
    }

    /// Asks one broker, over the connection that there is or a new one.
    fn ask<R: Request>(&mut self, id: i32, request: &R) -> Result<R::Response> {
        let address = self.addresses.get(&id).with_context(|| format!("no broker {id}"))?;
        let known = self.connections.remove(&id).filter(|connection| !connection.is_closed());
        let config = ConnectionConfig {
            connect_timeout: PATIENCE,
            request_timeout: PATIENCE,
            ..ConnectionConfig::default()
        };
        let (connection, answer) = self.runtime.block_on(async {
            let connection = match known {
                Some(connection) => connection,
                None => Connection::open(address, &config).await?,
            };
            let answer = connection.call(request).await?;
            anyhow::Ok((connection, answer))
        })?;
        self.connections.insert(id, connection);
        Ok(answer)
    }
}
