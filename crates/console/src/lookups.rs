//! What one page asks of the brokers besides the snapshot: the configuration of one topic or broker, the members of one group.
//! One request each; what it lacks is said on the page.

use std::collections::BTreeMap;

use client::admin::Resource;
use client::consumer::partitions_of_assignment;
use client::{Admin, ClientError};
use model::ErrorCode;

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) name: String,
    /// `None` for what is secret.
    pub(crate) value: Option<String>,
    /// Where the value comes from.
    pub(crate) source: &'static str,
    /// Whether it was set for this topic or broker.
    pub(crate) is_own: bool,
}

/// A member of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) id: String,
    pub(crate) client_id: String,
    pub(crate) host: String,
    /// Its partitions, by topic.
    pub(crate) partitions: BTreeMap<String, Vec<i32>>,
}

/// A group as its coordinator describes it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Described {
    pub(crate) state: String,
    pub(crate) assignor: String,
    pub(crate) members: Vec<Member>,
}

impl Described {
    /// Whether the coordinator knows of no such group: it is described as dead.
    pub(crate) fn is_gone(&self) -> bool {
        self.state == "Dead" && self.members.is_empty()
    }

    /// The member that reads a partition.
    pub(crate) fn owner(&self, topic: &str, partition: i32) -> Option<&Member> {
        self.members.iter().find(|member| {
            member.partitions.get(topic).is_some_and(|partitions| partitions.contains(&partition))
        })
    }
}

/// Whether it was refused because what it is about is not there.
pub(crate) fn is_gone(error: &ClientError) -> bool {
    matches!(error.code(), Some(ErrorCode::UnknownTopicOrPartition | ErrorCode::GroupIdNotFound))
}

/// The configuration of a topic, its own settings first.
pub(crate) async fn topic_settings(
    admin: &Admin,
    topic: &str,
) -> Result<Vec<Setting>, ClientError> {
    settings(admin, &Resource::topic(topic), &OWN_OF_TOPICS).await
}

/// The configuration of a broker, its own settings first.
pub(crate) async fn broker_settings(
    admin: &Admin,
    broker: i32,
) -> Result<Vec<Setting>, ClientError> {
    settings(admin, &Resource::broker(broker), &OWN_OF_BROKERS).await
}

async fn settings(
    admin: &Admin,
    resource: &Resource,
    own: &[i8],
) -> Result<Vec<Setting>, ClientError> {
    let described = admin.describe_configs(resource).await?;
    let settings = described.configs.into_iter().map(|config| {
        let is_own = own.contains(&config.config_source);
        let source = source(config.config_source);
        let value = config.value.filter(|_| !config.is_sensitive);
        Setting { name: config.name, value, source, is_own }
    });
    let mut settings: Vec<_> = settings.collect();
    settings.sort_by(|a, b| (!a.is_own, &a.name).cmp(&(!b.is_own, &b.name)));
    Ok(settings)
}

/// The protocol's numbers for values that were set for a topic.
const OWN_OF_TOPICS: [i8; 1] = [1];
/// And for a broker: at run time, or in the file that it was started with.
const OWN_OF_BROKERS: [i8; 2] = [2, 4];

/// The words for the protocol's number.
fn source(code: i8) -> &'static str {
    match code {
        1 => "topic",
        2 => "broker, at run time",
        3 => "cluster, at run time",
        4 => "broker's file",
        5 => "default",
        6 => "broker's loggers",
        7 => "client metrics",
        8 => "group",
        _ => "unknown",
    }
}

/// A group whose coordinator cannot be asked who its members are in the words of classic and consumer groups, which it denies to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Foreign {
    /// What a group of this kind is.
    pub(crate) what: String,
    /// Why nothing is known of its members, and what tells of them.
    pub(crate) members: String,
    /// Whether it commits offsets.
    pub(crate) commits: bool,
}

/// What is known of a group of this kind beforehand; `None` if it can be asked for its members.
pub(crate) fn foreign(kind: &str) -> Option<Foreign> {
    let (what, tool, commits) = match kind {
        // Brokers that are too old to say have classic groups alone.
        "" | "classic" | "consumer" => return None,
        "share" => (
            "A share group (KIP-932): its members read the same partitions together, each record goes to one of them and is \
             acknowledged by itself. It commits no offsets, so it has no lag that could be told from them.",
            "kafka-share-groups",
            false,
        ),
        "streams" => (
            "A streams group (KIP-1071): the instances of one application of Kafka Streams, which share its tasks out. It \
             commits offsets as consumers do.",
            "kafka-streams-groups",
            true,
        ),
        other => {
            return Some(Foreign {
                what: format!(
                    "A group of the type {other}, of which the console knows no more than the cluster lists."
                ),
                members: "the console does not know how to ask for them".to_owned(),
                commits: true,
            });
        }
    };
    let members = format!(
        "the console does not ask for those of a {kind} group; Kafka's {tool} describes it"
    );
    Some(Foreign { what: what.to_owned(), members, commits })
}

/// The state and the members of a group of this kind.
pub(crate) async fn group(admin: &Admin, id: &str, kind: &str) -> Result<Described, ClientError> {
    if let Some(foreign) = foreign(kind) {
        return Err(ClientError::Usage(foreign.members));
    }
    match kind {
        "consumer" => Ok(of_consumer(admin.describe_consumer_group(id).await?)),
        _ => Ok(of_classic(admin.describe_group(id).await?)),
    }
}

/// Whether the coordinator says that there is no such group.
pub(crate) fn is_no_group(described: &Result<Described, ClientError>) -> bool {
    match described {
        Ok(described) => described.is_gone(),
        Err(error) => is_gone(error),
    }
}

fn of_consumer(group: client::ConsumerGroup) -> Described {
    let members = group.members.into_iter().map(|member| Member {
        id: member.member_id,
        client_id: member.client_id,
        host: member.client_host,
        partitions: member
            .assignment
            .topic_partitions
            .into_iter()
            .map(|topic| (topic.topic_name, topic.partitions))
            .collect(),
    });
    Described {
        state: group.group_state,
        assignor: group.assignor_name,
        members: members.collect(),
    }
}

fn of_classic(group: client::ClassicGroup) -> Described {
    let members = group.members.into_iter().map(|member| Member {
        id: member.member_id,
        client_id: member.client_id,
        host: member.client_host,
        // Assignments of programs that are not consumers are in a form of their own.
        partitions: assigned(&member.member_assignment),
    });
    Described {
        state: group.group_state,
        assignor: group.protocol_data,
        members: members.collect(),
    }
}

fn assigned(assignment: &[u8]) -> BTreeMap<String, Vec<i32>> {
    let mut by_topic: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    for partition in partitions_of_assignment(assignment).unwrap_or_default() {
        by_topic.entry(partition.topic.to_string()).or_default().push(partition.partition.0);
    }
    by_topic
}
