//! What would be, before it is: the brokers are asked, and where they can check without doing, they do.

use client::admin::{ConfigOperation, NewTopic, Resource};
use client::{Admin, ClientError};
use maud::{Markup, html};
use model::TopicPartition;
use serving::choice::Rule;
use serving::operation::{Operation, Produce};

use super::{Review, groups, moves};
use crate::Visit;
use crate::pages::{no_rows, table};
use crate::parts::number::{count, maybe, maybe_bytes};
use crate::parts::text::{shown, visible};

/// Records of a review.
const RECORDS_SHOWN: u32 = 5;
/// Partitions of a review.
const PARTITIONS_SHOWN: usize = 200;

/// The review of an action.
///
/// # Errors
/// The cluster cannot be asked; in words.
pub(super) async fn of(visit: &Visit<'_>, asked: &Operation) -> Result<Review, String> {
    let admin = visit.looker.admin();
    let said = |error: ClientError| error.to_string();
    match asked {
        Operation::Produce(wanted) => Ok(produce(wanted)),
        Operation::CreateTopic { topic, partitions, replicas, settings } => {
            let new = new_topic(topic, *partitions, *replicas, settings);
            let checked = admin.create_topics(&[new], true).await.map_err(said)?;
            Ok(create(asked, checked.into_iter().find_map(|(_, result)| result.err())))
        }
        Operation::AddPartitions { topic, total } => {
            let now = partition_count(admin, topic).await?;
            Ok(Review {
                body: facts(&[
                    ("Partitions now", count(now)),
                    ("Partitions afterwards", count(*total)),
                ]),
                blocked: (*total <= now).then(|| format!("{topic} has {now} partitions already")),
                ..Review::default()
            })
        }
        Operation::AlterTopic { topic, set, delete } => alter(admin, topic, set, delete).await,
        Operation::DeleteTopic { topic } => delete_topic(visit, topic).await,
        Operation::MoveGroup { group, topic, target, .. } => {
            groups::review(visit, group, topic.as_deref(), *target).await
        }
        Operation::DeleteGroup { group } => groups::review_delete(visit, group).await,
        Operation::ElectLeaders { topic } => elect(visit, topic.as_deref()).await,
        Operation::Reassign { moves, throttle } => moves::review(visit, moves, *throttle).await,
        Operation::CancelMoves { topic } => moves::review_cancel(visit, topic.as_deref()).await,
        Operation::LiftThrottle => moves::review_lift(visit).await,
    }
}

pub(super) fn new_topic(
    topic: &str,
    partitions: Option<i32>,
    replicas: Option<i16>,
    settings: &[(String, String)],
) -> NewTopic {
    NewTopic {
        name: topic.to_owned(),
        partitions,
        replication_factor: replicas,
        configs: settings.to_vec(),
        ..NewTopic::default()
    }
}

/// What is set, and what goes back to its default.
pub(super) fn changes(
    set: &[(String, String)],
    delete: &[String],
) -> Vec<(String, ConfigOperation)> {
    let set = set.iter().map(|(name, value)| (name.clone(), ConfigOperation::Set(value.clone())));
    let delete = delete.iter().map(|name| (name.clone(), ConfigOperation::Delete));
    set.chain(delete).collect()
}

/// A list of facts.
pub(super) fn facts(facts: &[(&str, String)]) -> Markup {
    html! {
        dl.facts { @for (name, value) in facts { div { dt { (name) } dd { (visible(value)) } } } }
    }
}

fn produce(wanted: &Produce) -> Review {
    let by = match wanted.rule {
        Rule::Given => format!("partition {}", maybe(wanted.partition)),
        Rule::Chosen(pair) => {
            let broker = pair.broker.map(|broker| format!("broker by {}, ", broker.name()));
            format!("{}partition by {}", broker.unwrap_or_default(), pair.partition.name())
        }
    };
    let text = |text: Option<String>| {
        let shown = shown(text.as_ref().map(String::as_bytes));
        html! { @if matches!(shown.form, "null" | "empty") { span.form-of { (shown.form) } } @else { pre { (shown.text) } } }
    };
    let rows = html! {
        table.records {
            caption { "What is sent" @if wanted.count > RECORDS_SHOWN { ", the first " (RECORDS_SHOWN) } }
            thead { tr { th.number scope="col" { "n" } th scope="col" { "Key" } th scope="col" { "Value" } } }
            tbody {
                @for number in 0..wanted.count.min(RECORDS_SHOWN) {
                    @let (key, value) = wanted.record(number);
                    tr { th.number scope="row" { (number) } td { (text(key)) } td.value { (text(value)) } }
                }
            }
        }
    };
    let headers: Vec<String> =
        wanted.headers.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let body = html! {
        (facts(&[
            ("Records", count(i64::from(wanted.count))),
            ("Where", by),
            ("Headers", if headers.is_empty() { "–".to_owned() } else { headers.join(", ") }),
        ]))
        (table("Records", rows))
    };
    Review { body, ..Review::default() }
}

fn create(asked: &Operation, error: Option<ClientError>) -> Review {
    let Operation::CreateTopic { topic, partitions, replicas, settings } = asked else {
        return Review::default();
    };
    let or_default = |number: Option<i64>| number.map_or("the brokers' default".to_owned(), count);
    let body = html! {
        (facts(&[
            ("Topic", topic.clone()),
            ("Partitions", or_default(partitions.map(i64::from))),
            ("Copies of each", or_default(replicas.map(i64::from))),
        ]))
        @if !settings.is_empty() { (pairs("Configuration", settings)) }
        @if error.is_none() { p { "The cluster has checked this, and would do it." } }
    };
    Review { body, blocked: error.map(|error| error.to_string()), ..Review::default() }
}

fn pairs(caption: &str, pairs: &[(String, String)]) -> Markup {
    table(
        caption,
        html! {
            table {
                caption { (caption) }
                tbody { @for (name, value) in pairs { tr { th.mono scope="row" { (visible(name)) } td.name.mono { (visible(value)) } } } }
            }
        },
    )
}

async fn partition_count(admin: &Admin, topic: &str) -> Result<i32, String> {
    let metadata = admin.cluster().describe([topic]).await.map_err(|error| error.to_string())?;
    let topic = metadata.topics.get(topic).filter(|found| found.error.is_none());
    let topic = topic.ok_or("the cluster has no such topic")?;
    Ok(i32::try_from(topic.partitions.len()).unwrap_or(i32::MAX))
}

async fn alter(
    admin: &Admin,
    topic: &str,
    set: &[(String, String)],
    delete: &[String],
) -> Result<Review, String> {
    let resource = Resource::topic(topic);
    let described = admin.describe_configs(&resource).await.map_err(|error| error.to_string())?;
    let now = |name: &str| {
        let config = described.configs.iter().find(|config| config.name == name);
        config.map_or("not known".to_owned(), |config| config.value.clone().unwrap_or_default())
    };
    let refused = admin.alter_configs(&resource, &changes(set, delete), true).await.err();
    let set = set.iter().map(|(name, value)| (name, value.clone()));
    let delete = delete.iter().map(|name| (name, "the default".to_owned()));
    let rows: Vec<_> = set.chain(delete).collect();
    let body = table(
        "Changes",
        html! {
            table {
                caption { "Changes" @if refused.is_none() { "; the cluster has checked them, and would make them" } }
                thead { tr { th scope="col" { "Name" } th scope="col" { "Now" } th scope="col" { "Afterwards" } } }
                tbody { @for (name, value) in &rows {
                    tr { th.mono scope="row" { (visible(name)) } td.name.mono { (visible(&now(name))) } td.name.mono { (visible(value)) } }
                } }
            }
        },
    );
    Ok(Review { body, blocked: refused.map(|error| error.to_string()), ..Review::default() })
}

async fn delete_topic(visit: &Visit<'_>, topic: &str) -> Result<Review, String> {
    let partitions = partition_count(visit.looker.admin(), topic).await?;
    let seen = visit.snapshot.topics.get(topic);
    let reads = |group: &&crate::snapshot::GroupView| {
        group.rows.iter().flatten().any(|row| &*row.topic == topic)
    };
    let groups: Vec<&str> =
        visit.snapshot.groups.values().filter(reads).map(|group| group.id.as_str()).collect();
    let size = seen.and_then(|seen| seen.size_bytes()).and_then(|size| u64::try_from(size).ok());
    let body = html! {
        (facts(&[
            ("Partitions", count(partitions)),
            ("Records", maybe(seen.and_then(|seen| seen.records()))),
            ("Size of one copy", maybe_bytes(size)),
            ("Groups with offsets", count(groups.len() as i64)),
        ]))
        @if !groups.is_empty() { p { "They have committed offsets of it: " (visible(&groups.join(", "))) } }
        p { strong { "Its records cannot be had again." } }
    };
    let is_internal = seen.is_some_and(|seen| seen.is_internal);
    Ok(Review {
        body,
        typed: Some(topic.to_owned()),
        blocked: is_internal.then(|| "it is one of the cluster's own topics".to_owned()),
        is_grave: true,
        ..Review::default()
    })
}

/// Partitions of which another replica than the first leads.
pub(super) async fn not_preferred(
    admin: &Admin,
    topic: Option<&str>,
) -> Result<Vec<(TopicPartition, i32, Option<i32>)>, String> {
    let metadata = match topic {
        Some(topic) => admin.cluster().describe([topic]).await,
        None => admin.describe_all().await,
    };
    let metadata = metadata.map_err(|error| error.to_string())?;
    if topic.is_some_and(|topic| metadata.topics.get(topic).is_none_or(|t| !t.error.is_none())) {
        return Err("the cluster has no such topic".to_owned());
    }
    let mut found = Vec::new();
    for (name, topic) in &metadata.topics {
        for (index, partition) in (0..).zip(&topic.partitions) {
            let Some(first) = partition.replicas.first() else { continue };
            if partition.leader != Some(*first) {
                found.push((TopicPartition::new(&**name, index), *first, partition.leader));
            }
        }
    }
    found.sort();
    Ok(found)
}

async fn elect(visit: &Visit<'_>, topic: Option<&str>) -> Result<Review, String> {
    let found = not_preferred(visit.looker.admin(), topic).await?;
    let body = table(
        "Partitions",
        html! {
            table {
                caption { (count(found.len() as i64)) " partitions are not led by their first replica" }
                thead { tr { th scope="col" { "Partition" } th.number scope="col" { "Leader now" } th.number scope="col" { "Preferred" } } }
                tbody {
                    @if found.is_empty() { (no_rows(3, "None: every partition has the leader that it prefers.")) }
                    @for (partition, preferred, leader) in found.iter().take(PARTITIONS_SHOWN) {
                        tr { th.name scope="row" { (visible(&partition.to_string())) } td.number { (maybe(*leader)) } td.number { (preferred) } }
                    }
                }
            }
        },
    );
    let blocked = found.is_empty().then(|| "there is nothing to be done".to_owned());
    Ok(Review { body, blocked, ..Review::default() })
}
