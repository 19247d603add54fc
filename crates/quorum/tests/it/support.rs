//! What the tests share: requests, nodes on simulated disks, and a transport within the process.

use metadata::decide::{CreateCluster, CreateTopics, NewTopic, RegisterBroker};
use metadata::{Request, Response};
use model::{BrokerId, ErrorCode, Uuid};
use quorum::{NoTransport, Quorum, QuorumConfig, QuorumError, Sent, Transport, TransportError};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use storage::disk::{Disk, SimDisk};

pub const CLUSTER: &str = "AAAAAAAAAAAAAAAAAAAAAA";

/// A disk with the log directory that the broker would have made.
pub fn new_disk() -> SimDisk {
    let disk = SimDisk::new();
    prepare_disk(&disk);
    disk
}

pub fn prepare_disk(disk: &SimDisk) {
    disk.create_dir_all(&PathBuf::from("/data")).unwrap();
    disk.sync_dir(&PathBuf::from("/")).unwrap();
}

pub fn config(node: i32) -> QuorumConfig {
    QuorumConfig::new(BrokerId(node), CLUSTER, PathBuf::from("/data/__cluster_metadata-0"))
}

/// A single voter.
pub async fn alone(disk: &SimDisk) -> Result<Quorum, QuorumError> {
    start(config(1), disk, Arc::new(NoTransport)).await
}

pub async fn start(
    config: QuorumConfig,
    disk: &SimDisk,
    transport: Arc<dyn Transport>,
) -> Result<Quorum, QuorumError> {
    Quorum::start(config, Arc::new(disk.clone()), transport).await
}

pub fn cluster() -> Request {
    let cluster_id = CLUSTER.to_owned();
    Request::CreateCluster(CreateCluster { cluster_id, features: Vec::new() })
}

pub fn register(broker: i32) -> Request {
    Request::RegisterBroker(RegisterBroker {
        broker: BrokerId(broker),
        incarnation: Uuid::from_random([7; 16]),
        cluster_id: CLUSTER.to_owned(),
        endpoints: Vec::new(),
        rack: None,
        log_dirs: Vec::new(),
        clean: true,
        fenced: false,
        earlier_incarnation_alive: false,
    })
}

pub fn create(name: &str, number: u64) -> Request {
    let mut id = [1; 16];
    id[..8].copy_from_slice(&number.to_be_bytes());
    let topic = NewTopic {
        name: name.to_owned(),
        id: Uuid(id),
        partitions: 1,
        replication_factor: 1,
        ..NewTopic::default()
    };
    Request::CreateTopics(CreateTopics { topics: vec![topic], validate_only: false })
}

/// Whether a topic was created.
pub fn created(response: &Response) -> bool {
    match response {
        Response::CreateTopics(answers) => answers.iter().all(|(_, answer)| answer.is_ok()),
        other => panic!("an answer to something else: {other:?}"),
    }
}

/// Whether a topic is there now, be it that an earlier attempt created it.
pub fn there(response: &Response) -> bool {
    let exists = |refusal: &metadata::Refusal| refusal.error == ErrorCode::TopicAlreadyExists;
    match response {
        Response::CreateTopics(answers) => {
            answers.iter().all(|(_, answer)| answer.as_ref().err().is_none_or(exists))
        }
        other => panic!("an answer to something else: {other:?}"),
    }
}

/// A cluster with a broker to place topics on.
pub async fn prepare(quorum: &Quorum) {
    quorum.propose(cluster()).await.unwrap();
    quorum.propose(register(1)).await.unwrap();
}

/// Nodes that reach each other unless they are cut off.
#[derive(Default, Clone)]
pub struct Mesh {
    nodes: Arc<Mutex<BTreeMap<BrokerId, Quorum>>>,
}

struct Link {
    from: BrokerId,
    mesh: Mesh,
}

impl Transport for Link {
    fn send(&self, to: BrokerId, message: Vec<u8>, _: Duration) -> Sent<'_> {
        let nodes = self.mesh.nodes.lock().unwrap();
        let target = nodes.get(&to).filter(|_| nodes.contains_key(&self.from)).cloned();
        drop(nodes);
        Box::pin(async move {
            let target = target.ok_or_else(|| TransportError(format!("node {to} is cut off")))?;
            Ok(target.receive(&message).await)
        })
    }
}

impl Mesh {
    /// Starts a node; nobody reaches it before [`Mesh::join`].
    pub async fn start(&self, config: QuorumConfig, disk: &SimDisk) -> Result<Quorum, QuorumError> {
        let link = Link { from: config.node, mesh: self.clone() };
        start(config, disk, Arc::new(link)).await
    }

    pub fn join(&self, node: i32, quorum: &Quorum) {
        self.nodes.lock().unwrap().insert(BrokerId(node), quorum.clone());
    }

    pub fn cut_off(&self, node: i32) {
        self.nodes.lock().unwrap().remove(&BrokerId(node));
    }
}

/// Three voters with short times.
pub fn voter(node: i32) -> QuorumConfig {
    QuorumConfig {
        voters: vec![BrokerId(1), BrokerId(2), BrokerId(3)],
        heartbeat_ms: 50,
        election_timeout_ms: 400..800,
        ..config(node)
    }
}

/// Waits until one of the nodes says that it leads; returns it.
pub async fn await_leader(nodes: &[(i32, Quorum)]) -> i32 {
    loop {
        let known: Vec<Option<BrokerId>> = nodes.iter().map(|(_, node)| node.leader()).collect();
        for ((id, _), leader) in nodes.iter().zip(&known) {
            if *leader == Some(BrokerId(*id)) {
                return *id;
            }
        }
        let waits = nodes
            .iter()
            .zip(known)
            .map(|((_, node), leader)| Box::pin(node.leader_changed(leader)));
        futures_util::future::select_all(waits).await.0.unwrap();
    }
}

/// Asks whoever leads until somebody says what became of it. What was asked twice because of that
/// may be refused the second time.
pub async fn ask(nodes: &[(i32, Quorum)], request: Request) -> Response {
    loop {
        let leader = await_leader(nodes).await;
        let (_, node) = nodes.iter().find(|(id, _)| *id == leader).unwrap();
        match node.propose(request.clone()).await {
            Ok(response) => return response,
            Err(QuorumError::NotLeader { .. } | QuorumError::OutcomeUnknown) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
