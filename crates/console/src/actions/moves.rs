//! Replicas that move: a proposal, its review, its beginning with or without a limit, how far it is, and its end.
//!
//! The limit is Kafka's (KIP-73): a rate on each broker, and the list of copies that it holds for on each topic.

use std::collections::{BTreeMap, BTreeSet};

use client::admin::ConfigOperation;
use client::admin::Resource;
use client::{Admin, ClientError};
use maud::{Markup, html};
use model::TopicPartition;
use serde_json::{Value, json};
use serving::operation::reassign::{Candidate, Move, propose, text_of};
use serving::operation::{Fields, Invalid, Kind};

use super::review::facts;
use super::{Review, Told};
use crate::Visit;
use crate::pages::{Page, ids, no_rows, table};
use crate::parts::number::{UNKNOWN, bytes, count, maybe_bytes};
use crate::parts::text::visible;
use crate::query::link;

/// Rates, in bytes a second, of a broker as leader and as follower.
const RATES: [&str; 2] =
    ["leader.replication.throttled.rate", "follower.replication.throttled.rate"];
/// Copies of a topic for which those hold.
const COPIES: [&str; 2] =
    ["leader.replication.throttled.replicas", "follower.replication.throttled.replicas"];

/// The fields of a form; with a proposal, if one is asked for.
///
/// # Errors
/// There is nothing to propose.
pub(super) fn proposed(visit: &Visit<'_>, kind: Kind, fields: &Fields) -> Result<Fields, Invalid> {
    if kind != Kind::Reassign || !fields.is("propose") {
        return Ok(fields.clone());
    }
    let name = fields.get("topic").ok_or_else(|| Invalid::new("topic", "expected a name"))?;
    let topic = visit.snapshot.topics.get(name);
    let topic = topic.ok_or_else(|| Invalid::new("topic", "the cluster has no such topic"))?;
    let now: Vec<Vec<i32>> = topic.partitions.iter().map(|p| p.replicas.to_vec()).collect();
    let chosen: Vec<i32> = fields
        .iter()
        .filter(|(name, _)| *name == "on")
        .filter_map(|(_, id)| id.parse().ok())
        .collect();
    let brokers = visit.snapshot.brokers.values().filter(|broker| chosen.contains(&broker.id));
    let brokers: Vec<Candidate> =
        brokers.map(|broker| Candidate { id: broker.id, rack: broker.rack.clone() }).collect();
    let as_now = now.first().map_or(1, Vec::len);
    let copies = fields.number("copies", 1, 1000)?.unwrap_or(as_now);
    let plan = propose(&now, &brokers, copies);
    let plan = plan.ok_or_else(|| {
        Invalid::new("copies", format!("expected at least {copies} brokers for {copies} copies"))
    })?;
    let moves: Vec<Move> = (0..)
        .zip(plan)
        .map(|(partition, replicas)| Move { topic: name.to_owned(), partition, replicas })
        .collect();
    // What stays as it is needs no move.
    let moved: Vec<Move> =
        moves.into_iter().filter(|step| now[step.partition as usize] != step.replicas).collect();
    if moved.is_empty() {
        return Err(Invalid::new("topic", "every broker has an even share already"));
    }
    let text =
        text_of(&moved).replace("},{\"", "},\n{\"").replace("[{", "[\n{").replace("}],", "}\n],");
    let kept = fields.iter().filter(|(name, _)| *name != "moves" && *name != "propose");
    let kept = kept.map(|(name, text)| (name.to_owned(), text.to_owned()));
    Ok(Fields::new(kept.chain([("moves".to_owned(), text)])))
}

/// What moves, and how much is copied for it.
pub(super) async fn review(
    visit: &Visit<'_>,
    moves: &[Move],
    throttle: Option<u64>,
) -> Result<Review, String> {
    let known = |step: &Move| visit.snapshot.partition(&step.topic, step.partition);
    if let Some(step) = moves.iter().find(|step| known(step).is_none()) {
        let (partition, topic) = (step.partition, &step.topic);
        return Err(format!("the cluster has no partition {partition} of {topic}"));
    }
    let added = |step: &Move| -> Vec<i32> {
        let now = &known(step).expect("all are known").replicas;
        step.replicas.iter().copied().filter(|id| !now.contains(id)).collect()
    };
    let copied: i64 = moves
        .iter()
        .map(|step| {
            known(step).and_then(|p| p.log().size_bytes).unwrap_or(0) * added(step).len() as i64
        })
        .sum();
    let missing: BTreeSet<i32> = moves
        .iter()
        .flat_map(|step| step.replicas.iter().copied())
        .filter(|id| !visit.snapshot.brokers.contains_key(id))
        .collect();
    let body = html! {
        (facts(&[
            ("Partitions", count(moves.len() as i64)),
            ("Copied, about", bytes(u64::try_from(copied).unwrap_or(0))),
            ("At most", throttle.map_or("no limit".to_owned(), |rate| format!("{}/s each broker", bytes(rate)))),
        ]))
        (table("Moves", html! {
            table {
                caption { "Brokers of each partition; the first is preferred to lead" }
                thead { tr {
                    th scope="col" { "Topic" } th.number scope="col" { "Partition" } th scope="col" { "Now" } th scope="col" { "Afterwards" }
                    th scope="col" { "New copies on" } th.number scope="col" { "Size" }
                } }
                tbody { @for step in moves {
                    @let partition = known(step).expect("all are known");
                    tr {
                        th.name scope="row" { (visible(&step.topic)) }
                        td.number { (step.partition) }
                        td { (ids(&partition.replicas)) }
                        td { (ids(&step.replicas)) }
                        td { (or_none(&added(step))) }
                        td.number { (maybe_bytes(partition.log().size_bytes.and_then(|size| u64::try_from(size).ok()))) }
                    }
                } }
            }
        }))
    };
    let away = (!missing.is_empty()).then(|| {
        let missing: Vec<i32> = missing.into_iter().collect();
        format!("the cluster has no broker {}", ids(&missing))
    });
    Ok(Review { body, blocked: away, ..Review::default() })
}

fn or_none(list: &[i32]) -> String {
    if list.is_empty() { UNKNOWN.to_owned() } else { ids(list) }
}

/// Sets the limit, if there is one, then begins.
pub(super) async fn begin(visit: &Visit<'_>, moves: &[Move], throttle: Option<u64>) -> Told {
    let admin = visit.looker.admin();
    if let Some(rate) = throttle
        && let Err(error) = limit(visit, moves, rate).await
    {
        return Told::failed(format!("the limit could not be set, and nothing was moved: {error}"));
    }
    let wanted: Vec<_> = moves
        .iter()
        .map(|step| {
            let partition = TopicPartition::new(&*step.topic, step.partition);
            (partition, Some(step.replicas.clone()))
        })
        .collect();
    match admin.alter_reassignments(&wanted).await {
        Ok(results) => Told::each(results, "begun"),
        Err(error) => Told::failed(error),
    }
}

async fn limit(visit: &Visit<'_>, moves: &[Move], rate: u64) -> Result<(), ClientError> {
    let admin = visit.looker.admin();
    let mut copies: BTreeMap<&str, [Vec<String>; 2]> = BTreeMap::new();
    let mut brokers: BTreeSet<i32> = BTreeSet::new();
    for step in moves {
        let now = visit.snapshot.partition(&step.topic, step.partition);
        let now = now.map(|partition| partition.replicas.to_vec()).unwrap_or_default();
        let [leaders, followers] = copies.entry(&step.topic).or_default();
        let name = |id: &i32| format!("{}:{id}", step.partition);
        leaders.extend(now.iter().map(name));
        followers.extend(step.replicas.iter().filter(|id| !now.contains(id)).map(name));
        brokers.extend(now.iter().chain(&step.replicas));
    }
    for (topic, lists) in copies {
        let changes: Vec<_> = COPIES
            .into_iter()
            .zip(lists)
            .filter(|(_, list)| !list.is_empty())
            .map(|(name, list)| (name.to_owned(), ConfigOperation::Set(list.join(","))))
            .collect();
        admin.alter_configs(&Resource::topic(topic), &changes, false).await?;
    }
    let rates = RATES.map(|name| (name.to_owned(), ConfigOperation::Set(rate.to_string())));
    for broker in brokers {
        admin.alter_configs(&Resource::broker(broker), &rates, false).await?;
    }
    Ok(())
}

/// A move that is under way.
struct Going {
    partition: TopicPartition,
    replicas: Vec<i32>,
    adding: Vec<i32>,
    removing: Vec<i32>,
    /// Of the new copies: bytes that are there, and bytes that the leader has.
    copied: Option<(u64, u64)>,
}

async fn under_way(admin: &Admin, topic: Option<&str>) -> Result<Vec<Going>, String> {
    let listed = admin.list_reassignments().await.map_err(|error| error.to_string())?;
    let fits = |p: &TopicPartition| topic.is_none_or(|topic| &*p.topic == topic);
    let mut going: Vec<Going> = listed
        .into_iter()
        .filter(|(partition, _)| fits(partition))
        .map(|(partition, ongoing)| Going {
            partition,
            replicas: ongoing.replicas,
            adding: ongoing.adding_replicas,
            removing: ongoing.removing_replicas,
            copied: None,
        })
        .collect();
    going.sort_by(|a, b| a.partition.cmp(&b.partition));
    if !going.is_empty() {
        weigh(admin, &mut going).await;
    }
    Ok(going)
}

/// How much of the new copies is there, if the brokers say.
async fn weigh(admin: &Admin, going: &mut [Going]) {
    let Ok(dirs) = admin.describe_log_dirs().await else { return };
    let mut sizes: BTreeMap<(TopicPartition, i32), u64> = BTreeMap::new();
    for (broker, dirs) in &dirs {
        for topic in dirs.iter().flat_map(|dir| &dir.topics) {
            for partition in &*topic.partitions {
                let name = TopicPartition::new(&*topic.name, partition.partition_index);
                let size = u64::try_from(partition.partition_size).unwrap_or(0);
                sizes
                    .entry((name, *broker))
                    .and_modify(|known| *known = (*known).max(size))
                    .or_insert(size);
            }
        }
    }
    for step in going {
        let size = |id: &i32| sizes.get(&(step.partition.clone(), *id)).copied();
        let whole =
            step.replicas.iter().filter(|id| !step.adding.contains(id)).filter_map(size).max();
        let there: u64 = step.adding.iter().filter_map(size).sum();
        step.copied = whole.map(|whole| (there, whole * step.adding.len() as u64));
    }
}

/// The page of moves that are under way.
pub(crate) async fn page(visit: &Visit<'_>) -> Page {
    let admin = visit.looker.admin();
    let going = under_way(admin, None).await;
    let limits = limits(visit).await;
    let is_open = visit.desk.is_open;
    let can_cancel = is_open && going.as_ref().is_ok_and(|going| !going.is_empty());
    let body = html! {
        h1 { "Moves of replicas" }
        div #moves data-live="2000" {
            @match &going {
                Err(why) => div.notice { p { "They cannot be listed: " (visible(why)) } },
                Ok(going) => (list(going)),
            }
        }
        @if can_cancel {
            p { a.button href=(super::path(Kind::CancelMoves)) { "Cancel them" } }
        }
        @match &limits {
            Ok(limits) if !limits.is_empty() => {
                div.notice {
                    p { "Copying is limited on " (limits.len()) " topics and brokers." }
                    @if is_open { p { a.button href=(super::path(Kind::LiftThrottle)) { "Lift the throttle" } } }
                }
            }
            _ => {}
        }
        @if is_open { p { a.button href=(super::path(Kind::Reassign)) { "Move replicas" } } }
    };
    Page::new("Moves of replicas", body)
}

fn list(going: &[Going]) -> Markup {
    let share = |(there, whole): (u64, u64)| {
        let percent =
            if whole == 0 { 100 } else { (there.min(whole) as u128 * 100 / whole as u128) as u64 };
        html! {
            progress value=(percent) max="100" aria-label="Copied" { (percent) " %" }
            " " (percent) " % of " (bytes(whole))
        }
    };
    table(
        "Moves under way",
        html! {
            table {
                caption { (count(going.len() as i64)) " partitions move now" }
                thead { tr {
                    th scope="col" { "Partition" } th scope="col" { "Brokers" } th scope="col" { "New" } th scope="col" { "Leaving" } th scope="col" { "Copied" }
                } }
                tbody {
                    @if going.is_empty() { (no_rows(5, "None.")) }
                    @for step in going { tr {
                        th.name scope="row" { a href=(link("/console/topic", &[("name", &step.partition.topic)])) { (visible(&step.partition.to_string())) } }
                        td { (ids(&step.replicas)) }
                        td { (or_none(&step.adding)) }
                        td { (or_none(&step.removing)) }
                        td { @match step.copied { Some(copied) => (share(copied)), None => (UNKNOWN) } }
                    } }
                }
            }
        },
    )
}

/// The same as JSON.
pub(crate) async fn value(visit: &Visit<'_>) -> Result<Value, String> {
    let going = under_way(visit.looker.admin(), None).await?;
    let row = |step: &Going| {
        json!({
            "topic": &*step.partition.topic, "partition": step.partition.partition.0, "replicas": step.replicas,
            "adding": step.adding, "removing": step.removing,
            "copied_bytes": step.copied.map(|(there, _)| there), "whole_bytes": step.copied.map(|(_, whole)| whole),
        })
    };
    Ok(json!({ "moves": going.iter().map(row).collect::<Vec<_>>() }))
}

pub(super) async fn review_cancel(
    visit: &Visit<'_>,
    topic: Option<&str>,
) -> Result<Review, String> {
    let going = under_way(visit.looker.admin(), topic).await?;
    let blocked = going.is_empty().then(|| "no replica moves now".to_owned());
    Ok(Review { body: list(&going), blocked, ..Review::default() })
}

pub(super) async fn cancel(visit: &Visit<'_>, topic: Option<&str>) -> Told {
    let admin = visit.looker.admin();
    let going = match under_way(admin, topic).await {
        Ok(going) => going,
        Err(why) => return Told::failed(why),
    };
    let moves: Vec<_> = going.into_iter().map(|step| (step.partition, None)).collect();
    if moves.is_empty() {
        return Told::done("no replica moved any more");
    }
    match admin.alter_reassignments(&moves).await {
        Ok(results) => Told::each(results, "cancelled"),
        Err(error) => Told::failed(error),
    }
}

/// Where copying is limited: what has the settings, and which of them.
async fn limits(visit: &Visit<'_>) -> Result<Vec<(Resource, Vec<String>)>, String> {
    let admin = visit.looker.admin();
    // Brokers are few; of topics only those are asked that have settings of their own, where the brokers can list them.
    let said = |error: ClientError| error.to_string();
    let brokers = visit.snapshot.brokers.keys().map(|id| (Resource::broker(*id), RATES));
    let mut found = Vec::new();
    let topics: BTreeSet<String> = match admin.list_reassignments().await {
        Ok(going) => going.into_iter().map(|(partition, _)| partition.topic.to_string()).collect(),
        Err(error) => return Err(said(error)),
    };
    let acted = visit
        .desk
        .journal
        .entries()
        .into_iter()
        .filter(|entry| entry.kind == Kind::Reassign.name());
    let topics: BTreeSet<String> =
        topics.into_iter().chain(acted.map(|entry| entry.subject)).collect();
    let topics = topics.iter().filter(|name| visit.snapshot.topics.contains_key(&***name));
    let topics = topics.map(|name| (Resource::topic(name), COPIES));
    for (resource, names) in brokers.chain(topics) {
        let described = admin.describe_configs(&resource).await.map_err(said)?;
        let set = described.configs.iter().filter(|config| {
            names.contains(&&*config.name)
                && matches!(config.config_source, 1 | 2)
                && config.value.as_deref().is_some_and(|value| !value.is_empty())
        });
        let set: Vec<String> = set.map(|config| config.name.clone()).collect();
        if !set.is_empty() {
            found.push((resource, set));
        }
    }
    Ok(found)
}

pub(super) async fn review_lift(visit: &Visit<'_>) -> Result<Review, String> {
    let limits = limits(visit).await?;
    let going = under_way(visit.looker.admin(), None).await?;
    let body = html! {
        @if !going.is_empty() { div.notice { p { (going.len()) " partitions move still; they would go on without a limit." } } }
        (table("Limits", html! {
            table {
                caption { "Settings that go back to their defaults" }
                tbody {
                    @if limits.is_empty() { (no_rows(2, "None.")) }
                    @for (resource, names) in &limits { @for name in names {
                        tr { th.name scope="row" { (visible(&resource.name)) } td.mono { (name) } }
                    } }
                }
            }
        }))
    };
    let blocked = limits.is_empty().then(|| "nothing limits copying".to_owned());
    Ok(Review { body, blocked, ..Review::default() })
}

pub(super) async fn lift(visit: &Visit<'_>) -> Told {
    let limits = match limits(visit).await {
        Ok(limits) => limits,
        Err(why) => return Told::failed(why),
    };
    let mut results = Vec::new();
    for (resource, names) in limits {
        let changes: Vec<_> =
            names.into_iter().map(|name| (name, ConfigOperation::Delete)).collect();
        let lifted = visit.looker.admin().alter_configs(&resource, &changes, false).await;
        results.push((resource.name, lifted));
    }
    Told::each(results, "no limit")
}
