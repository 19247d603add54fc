//! A cluster with much in it, and the console's pages of it.

use std::collections::HashMap;
use std::time::Instant;

use client::admin::NewTopic;
use client::{Admin, Cluster, ClusterConfig, CommittedOffset};
use model::{ErrorCode, Offset, TopicPartition};
use perf::web::Connection;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};

use crate::Told;

/// Topics that are made in one request.
const AT_ONCE: usize = 100;
/// Partitions of each topic.
const PARTITIONS: i32 = 4;
/// Topics in which each group has committed.
const TOPICS_OF_GROUP: usize = 10;
/// The pages, and what they are called.
const PAGES: [(&str, &str); 5] = [
    ("overview", "/console"),
    ("topics", "/console/topics"),
    ("topic", "/console/topic?name=many-0"),
    ("brokers", "/console/brokers"),
    ("groups", "/console/groups"),
];

fn block_on<T>(work: impl Future<Output = Told<T>>) -> Told<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// As many open files as the system allows.
pub fn raise_open_files() {
    let limit = getrlimit(Resource::Nofile);
    // Where it cannot be raised, connections fail and say so.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
}

async fn admin(bootstrap: &str) -> Told<Admin> {
    Ok(Admin::new(Cluster::connect(ClusterConfig::new(bootstrap)).await?))
}

/// Makes a topic that is not there.
pub fn topic(bootstrap: &str, name: &str, partitions: i32) -> Told<()> {
    block_on(async {
        let admin = admin(bootstrap).await?;
        // Made rather than looked for: who looks for a topic waits a minute for one to be made.
        match admin.create_topic(&NewTopic::new(name, partitions, 1)).await {
            Err(error) if error.code() == Some(ErrorCode::TopicAlreadyExists) => Ok(()),
            made => made.map(|_| ()).map_err(Into::into),
        }
    })
}

/// Makes topics and groups.
pub fn fill(bootstrap: &str, topics: usize, groups: usize) -> Told<Value> {
    block_on(async {
        let admin = admin(bootstrap).await?;
        let names: Vec<String> = (0..topics).map(|number| format!("many-{number}")).collect();
        for names in names.chunks(AT_ONCE) {
            let new: Vec<NewTopic> =
                names.iter().map(|name| NewTopic::new(name, PARTITIONS, 1)).collect();
            for (_, made) in admin.create_topics(&new, false).await? {
                made?;
            }
        }
        for group in 0..groups {
            let mut offsets = HashMap::new();
            for at in 0..TOPICS_OF_GROUP.min(topics) {
                let name = &names[(group * TOPICS_OF_GROUP + at) % topics];
                for partition in 0..PARTITIONS {
                    let partition = TopicPartition::new(name.as_str(), partition);
                    offsets.insert(partition, CommittedOffset::at(Offset(0)));
                }
            }
            for (_, committed) in
                admin.alter_group_offsets(&format!("group-{group}"), &offsets).await?
            {
                committed?;
            }
        }
        Ok(json!({ "topics": topics, "groups": groups }))
    })
}

/// Fetches each page so often; the longest time of each, and of all.
pub fn pages(gateway: &str, times: u32) -> Told<Value> {
    block_on(async {
        let mut connection = Connection::open(gateway).await?;
        let mut line = serde_json::Map::new();
        let mut longest_ms: f64 = 0.0;
        for (name, path) in PAGES {
            let mut slowest_ms: f64 = 0.0;
            // The first one may wait for the first look at the cluster.
            for time in 0..=times {
                let began = Instant::now();
                let request = format!("GET {path} HTTP/1.1\r\nhost: {gateway}\r\n\r\n");
                let answer = connection.ask(request.as_bytes()).await?;
                if answer.head.status != 200 {
                    return Err(format!("{path}: {}", answer.head.status).into());
                }
                if time > 0 {
                    slowest_ms = slowest_ms.max(began.elapsed().as_secs_f64() * 1e3);
                }
            }
            line.insert(format!("{name}_ms"), slowest_ms.into());
            longest_ms = longest_ms.max(slowest_ms);
        }
        line.insert("page_ms".to_owned(), longest_ms.into());
        Ok(Value::Object(line))
    })
}
