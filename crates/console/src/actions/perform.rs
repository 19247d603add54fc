//! The doing of what was reviewed.

use client::admin::Resource;
use serving::operation::{NewRecord, Operation, Produce};

use super::review::{changes, new_topic, not_preferred};
use super::{Told, groups, moves};
use crate::Visit;

/// Does it, and says what came of it.
pub(super) async fn perform(visit: &Visit<'_>, asked: &Operation) -> Told {
    let admin = visit.looker.admin();
    let one = |result: Result<(), client::ClientError>, done: String| match result {
        Ok(()) => Told::done(done),
        Err(error) => Told::failed(error),
    };
    match asked {
        Operation::Produce(wanted) => produce(visit, wanted).await,
        Operation::CreateTopic { topic, partitions, replicas, settings } => {
            let new = new_topic(topic, *partitions, *replicas, settings);
            one(admin.create_topic(&new).await.map(drop), format!("{topic} is there"))
        }
        Operation::AddPartitions { topic, total } => {
            let grown = admin.create_partitions(topic, *total, None).await;
            one(grown, format!("{topic} has {total} partitions"))
        }
        Operation::AlterTopic { topic, set, delete } => {
            let changes = changes(set, delete);
            let altered = admin.alter_configs(&Resource::topic(topic), &changes, false).await;
            one(altered, format!("the configuration of {topic} is changed"))
        }
        Operation::DeleteTopic { topic } => match admin.delete_topics(&[topic]).await {
            Ok(results) => Told::each(results, "deleted"),
            Err(error) => Told::failed(error),
        },
        Operation::MoveGroup { group, rows, .. } => groups::reset(admin, group, rows).await,
        Operation::DeleteGroup { group } => match admin.delete_groups(&[group]).await {
            Ok(results) => Told::each(results, "deleted"),
            Err(error) => Told::failed(error),
        },
        Operation::ElectLeaders { topic } => elect(visit, topic.as_deref()).await,
        Operation::Reassign { moves, throttle } => moves::begin(visit, moves, *throttle).await,
        Operation::CancelMoves { topic } => moves::cancel(visit, topic.as_deref()).await,
        Operation::LiftThrottle => moves::lift(visit).await,
    }
}

async fn produce(visit: &Visit<'_>, wanted: &Produce) -> Told {
    let records: Vec<NewRecord> = wanted.records().collect();
    let sent = visit.front.send(&wanted.topic, &records, wanted.pair(), wanted.partition).await;
    let sent = match sent {
        Ok(sent) => sent,
        Err(error) => return Told::failed(error.message),
    };
    let mut told = Told { lines: Vec::with_capacity(sent.len()), is_done: true };
    for (number, result) in sent.into_iter().enumerate() {
        told.is_done &= result.is_ok();
        told.lines.push(match result {
            Ok(at) => {
                let broker =
                    at.broker.map(|broker| format!("broker {broker}, ")).unwrap_or_default();
                format!("record {number}: {broker}partition {}, offset {}", at.partition, at.offset)
            }
            Err(error) => format!(
                "record {number}: {} (written: {})",
                error.message,
                error.kind.written().name()
            ),
        });
    }
    told
}

async fn elect(visit: &Visit<'_>, topic: Option<&str>) -> Told {
    let admin = visit.looker.admin();
    let partitions = match not_preferred(admin, topic).await {
        Ok(found) => found.into_iter().map(|(partition, _, _)| partition).collect::<Vec<_>>(),
        Err(why) => return Told::failed(why),
    };
    if partitions.is_empty() {
        return Told::done("every partition has the leader that it prefers already");
    }
    match admin.elect_leaders(false, Some(&partitions)).await {
        Ok(results) => Told::each(results, "elected"),
        Err(error) => Told::failed(error),
    }
}
