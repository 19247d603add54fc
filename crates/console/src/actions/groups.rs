//! Groups: where their offsets go, and their end.

use std::collections::HashMap;

use client::{Admin, CommittedOffset, OffsetSpec};
use maud::html;
use model::{Offset, Timestamp, TopicPartition};
use serving::operation::reset::{Known, Row, Target, text_of};

use super::review::facts;
use super::{Review, Told};
use crate::Visit;
use crate::lookups;
use crate::pages::{no_rows, table};
use crate::parts::number::{UNKNOWN, count, maybe};
use crate::parts::text::visible;

/// Rows of a review that are shown; all of them are carried out.
const ROWS_SHOWN: usize = 1000;

/// How many members a group has, and its state in the words of its coordinator.
async fn members(visit: &Visit<'_>, group: &str) -> Result<(usize, String), String> {
    let kind = visit.snapshot.groups.get(group).map_or("", |group| &*group.kind);
    if lookups::foreign(kind).is_some() {
        return Err(format!(
            "the console changes nothing of a {kind} group: whether it has members is not known here"
        ));
    }
    let described = lookups::group(visit.looker.admin(), group, kind).await;
    let described = described.map_err(|error| error.to_string())?;
    Ok((described.members.len(), described.state))
}

fn has_members(members: usize) -> Option<String> {
    (members > 0).then(|| {
        format!("the group has {members} members, which go on from where they are: stop its consumers first")
    })
}

/// Where each partition of the group would go.
pub(super) async fn review(
    visit: &Visit<'_>,
    group: &str,
    topic: Option<&str>,
    target: Target,
) -> Result<Review, String> {
    let (members, state) = members(visit, group).await?;
    let rows = rows(visit.looker.admin(), group, topic, target).await?;
    let by = |row: &Row| row.from.map(|from| row.to - from);
    let moved = rows.iter().filter(|row| row.from != Some(row.to)).count();
    let body = html! {
        (facts(&[
            ("State", state),
            ("Members", count(members as i64)),
            ("Partitions", count(rows.len() as i64)),
            ("Moved", count(moved as i64)),
        ]))
        (table("Offsets", html! {
            table {
                caption { "Where it would go; nothing has been done" @if rows.len() > ROWS_SHOWN { ". The first " (ROWS_SHOWN) " are shown" } }
                thead { tr {
                    th scope="col" { "Topic" } th.number scope="col" { "Partition" } th.number scope="col" { "Now" }
                    th.number scope="col" { "Afterwards" } th.number scope="col" { "Moved by" }
                } }
                tbody {
                    @if rows.is_empty() { (no_rows(5, "No partition.")) }
                    @for row in rows.iter().take(ROWS_SHOWN) {
                        tr {
                            th.name scope="row" { (visible(&row.topic)) }
                            td.number { (row.partition) }
                            td.number { (maybe(row.from)) }
                            td.number { (count(row.to)) }
                            td.number { @match by(row) { Some(by) => (count(by)), None => (UNKNOWN) } }
                        }
                    }
                }
            }
        }))
    };
    let nothing = || rows.is_empty().then(|| "there is nothing to be moved".to_owned());
    Ok(Review {
        body,
        fields: vec![("rows".to_owned(), text_of(&rows))],
        blocked: has_members(members).or_else(nothing),
        ..Review::default()
    })
}

/// The partitions of a topic, or all in which the group has committed and that are there.
async fn rows(
    admin: &Admin,
    group: &str,
    topic: Option<&str>,
    target: Target,
) -> Result<Vec<Row>, String> {
    let said = |error: client::ClientError| error.to_string();
    let committed = admin.group_offsets(group).await.map_err(said)?;
    let metadata = match topic {
        Some(topic) => admin.cluster().describe([topic]).await,
        None => admin.describe_all().await,
    };
    let metadata = metadata.map_err(said)?;
    let partitions: Vec<TopicPartition> = match topic {
        None => {
            let is_led = |p: &&TopicPartition| metadata.leader(&p.topic, p.partition.0).is_some();
            committed.keys().filter(is_led).cloned().collect()
        }
        Some(topic) => {
            let known = metadata.topics.get(topic).filter(|known| known.error.is_none());
            let known = known.ok_or("the cluster has no such topic")?;
            (0..known.partitions.len() as i32)
                .map(|index| TopicPartition::new(topic, index))
                .collect()
        }
    };
    let look = async |spec| {
        let wanted: Vec<_> = partitions.iter().map(|p| (p.clone(), spec)).collect();
        admin.list_offsets(&wanted).await.map_err(said)
    };
    let (starts, ends) = (look(OffsetSpec::Earliest).await?, look(OffsetSpec::Latest).await?);
    let at_time = match target {
        Target::Time(ms) => look(OffsetSpec::AtOrAfter(Timestamp(ms))).await?,
        _ => HashMap::new(),
    };
    let found = |offsets: &HashMap<TopicPartition, client::FoundOffset>, p: &TopicPartition| {
        offsets.get(p).and_then(|found| found.offset).map(|offset| offset.0)
    };
    let row = |p: &TopicPartition| {
        let start = found(&starts, p)?;
        let known = Known {
            committed: committed.get(p).map(|committed| committed.offset.0),
            start,
            end: found(&ends, p)?,
            at_time: found(&at_time, p),
        };
        let to = target.resolve(&known)?;
        Some(Row {
            topic: p.topic.to_string(),
            partition: p.partition.0,
            from: known.committed,
            to,
        })
    };
    let mut rows: Vec<Row> = partitions.iter().filter_map(row).collect();
    rows.sort();
    Ok(rows)
}

/// Moves the group as it was reviewed, unless it has moved since.
pub(super) async fn reset(admin: &Admin, group: &str, rows: &[Row]) -> Told {
    if rows.is_empty() {
        return Told::failed("the review named no partition: nothing was done");
    }
    let committed = match admin.group_offsets(group).await {
        Ok(committed) => committed,
        Err(error) => return Told::failed(error),
    };
    let partition = |row: &Row| TopicPartition::new(&*row.topic, row.partition);
    let is_moved = |row: &&Row| committed.get(&partition(row)).map(|c| c.offset.0) != row.from;
    if let Some(moved) = rows.iter().find(is_moved) {
        return Told::failed(format!(
            "the group has committed in partition {} of {} since the review: nothing was done",
            moved.partition, moved.topic
        ));
    }
    let offsets: HashMap<_, _> =
        rows.iter().map(|row| (partition(row), CommittedOffset::at(Offset(row.to)))).collect();
    match admin.alter_group_offsets(group, &offsets).await {
        Ok(mut results) => {
            results.sort_by(|a, b| a.0.cmp(&b.0));
            let to: HashMap<String, i64> =
                rows.iter().map(|row| (partition(row).to_string(), row.to)).collect();
            let named = results.into_iter().map(|(name, result)| {
                let to = to.get(&name).copied();
                (format!("{name}, offset {}", maybe(to)), result)
            });
            Told::each(named, "moved there")
        }
        Err(error) => Told::failed(error),
    }
}

/// What goes with a group.
pub(super) async fn review_delete(visit: &Visit<'_>, group: &str) -> Result<Review, String> {
    let (members, state) = members(visit, group).await?;
    let said = |error: client::ClientError| error.to_string();
    let committed = visit.looker.admin().group_offsets(group).await.map_err(said)?;
    let body = html! {
        (facts(&[
            ("State", state),
            ("Members", count(members as i64)),
            ("Committed offsets", count(committed.len() as i64)),
        ]))
        p { "Its offsets go with it: a consumer of this group begins anew." }
    };
    Ok(Review { body, blocked: has_members(members), is_grave: true, ..Review::default() })
}
