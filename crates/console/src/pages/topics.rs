//! Topics: all of them, and one.

use std::cmp::Ordering;

use maud::{Markup, html};
use serving::operation::Kind;

use super::{
    Page, alarm, broker_link, fact, gaps, ids, no_rows, offers, partition_state, percent, settings,
    table, topic_link,
};
use crate::Visit;
use crate::lookups;
use crate::parts::listing::{Column, Listing};
use crate::parts::number::{UNKNOWN, behind, count, maybe, maybe_bytes, rate};
use crate::parts::text::visible;
use crate::query::link;
use crate::snapshot::{PartitionView, TopicView};

/// Partitions that the page of one topic shows.
const PARTITIONS_MAX: usize = 1000;

/// What can be done about a topic.
const OFFERS: [(Kind, &str); 6] = [
    (Kind::Produce, "Produce"),
    (Kind::AddPartitions, "Add partitions"),
    (Kind::AlterTopic, "Change configuration"),
    (Kind::ElectLeaders, "Elect leaders"),
    (Kind::Reassign, "Move replicas"),
    (Kind::DeleteTopic, "Delete"),
];

static COLUMNS: [Column; 11] = [
    Column { name: "name", label: "Topic", is_number: false },
    Column { name: "partitions", label: "Partitions", is_number: true },
    Column { name: "replication", label: "Replicas", is_number: true },
    Column { name: "under", label: "Under-repl.", is_number: true },
    Column { name: "offline", label: "Offline", is_number: true },
    Column { name: "spread", label: "Spread", is_number: true },
    Column { name: "skew", label: "Skew", is_number: true },
    Column { name: "leader-skew", label: "Leader skew", is_number: true },
    Column { name: "rate", label: "Records in", is_number: true },
    Column { name: "offsets", label: "Summed offsets", is_number: true },
    Column { name: "size", label: "Size", is_number: true },
];

fn compare(a: &TopicView, b: &TopicView, by: &str) -> Ordering {
    let (left, right) = (&a.spread, &b.spread);
    match by {
        "partitions" => a.partitions.len().cmp(&b.partitions.len()),
        "replication" => left.replication_factor.cmp(&right.replication_factor),
        "under" => left.under_replicated.cmp(&right.under_replicated),
        "offline" => left.offline.cmp(&right.offline),
        "spread" => left.spread_percent.cmp(&right.spread_percent),
        "skew" => left.skew_percent.cmp(&right.skew_percent),
        "leader-skew" => left.leader_skew_percent.cmp(&right.leader_skew_percent),
        "rate" => a.per_second().unwrap_or(-1.0).total_cmp(&b.per_second().unwrap_or(-1.0)),
        "offsets" => a.summed_offsets().cmp(&b.summed_offsets()),
        "size" => a.size_bytes().cmp(&b.size_bytes()),
        _ => a.name.cmp(&b.name),
    }
}

pub(super) fn list(visit: &Visit<'_>) -> Page {
    let (snapshot, with_internal) = (&visit.snapshot, visit.query.is("internal"));
    let listing = Listing::of("/console/topics", &COLUMNS, &visit.query, &["internal"]);
    let fits =
        |topic: &&TopicView| (with_internal || !topic.is_internal) && listing.finds(&topic.name);
    let mut topics: Vec<&TopicView> = snapshot.topics.values().filter(fits).collect();
    // A stable sort: equal ones stay in the order of their names.
    topics.sort_by(|a, b| {
        let order = compare(a, b, listing.sort);
        if listing.descending { order.reverse() } else { order }
    });
    let internal = html! {
        label { input type="checkbox" name="internal" value="1" checked[with_internal]; " internal ones too" }
    };
    let body = html! {
        h1 { "Topics" }
        (offers(visit, &[(Kind::CreateTopic, "Create a topic")], ("topic", "")))
        (gaps(snapshot))
        (listing.search_form("Name contains", internal))
        (table("Topics", html! {
            table {
                caption { (count(topics.len() as i64)) " of " (count(snapshot.topics.len() as i64)) " topics" }
                thead { tr { (listing.heads(&COLUMNS)) } }
                tbody {
                    @if topics.is_empty() { (no_rows(COLUMNS.len(), "No topic fits.")) }
                    @for topic in listing.rows(&topics) { (row(topic)) }
                }
            }
        }))
        (listing.pager(topics.len()))
    };
    Page::new("Topics", body)
}

fn size(bytes: Option<i64>) -> String {
    maybe_bytes(bytes.and_then(|bytes| u64::try_from(bytes).ok()))
}

fn row(topic: &TopicView) -> Markup {
    let spread = &topic.spread;
    html! {
        tr {
            th.name scope="row" { (topic_link(&topic.name)) @if topic.is_internal { span.quiet { " internal" } } }
            td.number { (count(topic.partitions.len() as i64)) }
            td.number { (count(spread.replication_factor as i64)) }
            td.number { (alarm(spread.under_replicated, "warn")) }
            td.number { (alarm(spread.offline, "bad")) }
            td.number { (percent(spread.spread_percent)) }
            td.number { (percent(spread.skew_percent)) }
            td.number { (percent(spread.leader_skew_percent)) }
            td.number { (rate(topic.per_second())) }
            td.number { (maybe(topic.summed_offsets())) }
            td.number { (size(topic.size_bytes())) }
        }
    }
}

pub(super) async fn one(visit: &Visit<'_>) -> Page {
    let name = visit.query.get("name").unwrap_or_default();
    let Some(topic) = visit.snapshot.topics.get(name) else {
        return Page::missing("Topic", name, "/console/topics");
    };
    let configuration = lookups::topic_settings(visit.looker.admin(), name).await;
    if !visit.is_newest && configuration.as_ref().is_err_and(lookups::is_gone) {
        return Page::missing("Topic", name, "/console/topics");
    }
    let spread = &topic.spread;
    let body = html! {
        p.crumbs { a href="/console/topics" { "Topics" } }
        h1 { (visible(name)) @if topic.is_internal { span.quiet { " internal" } } }
        dl.facts {
            (fact("Partitions", html! { (count(topic.partitions.len() as i64)) }))
            (fact("Replicas each", html! { (count(spread.replication_factor as i64)) }))
            (fact("Under-replicated", html! { (alarm(spread.under_replicated, "warn")) " " span.quiet { "(" (percent(spread.under_replicated_percent)) ")" } }))
            (fact("Offline", alarm(spread.offline, "bad")))
            (fact("Preferred leader", html! { (percent(spread.preferred_percent)) }))
            (fact("Brokers spread", html! { (percent(spread.spread_percent)) }))
            (fact("Skew", html! { (percent(spread.skew_percent)) }))
            (fact("Leader skew", html! { (percent(spread.leader_skew_percent)) }))
            (fact("Records in", html! { (rate(topic.per_second())) }))
            (fact("Records", html! { (maybe(topic.records())) }))
            (fact("Summed offsets", html! { (maybe(topic.summed_offsets())) }))
            (fact("Size", html! { (size(topic.size_bytes())) }))
        }
        (offers(visit, &OFFERS, ("topic", name)))
        p {
            a href=(link("/console/records", &[("topic", name), ("partition", "all")])) { "Read its newest records" } ", or "
            a href=(link("/console/tail", &[("topic", name)])) { "follow them as they come" }
        }
        h2 { "Partitions" }
        (partitions(topic))
        h2 { "By broker" }
        (by_broker(topic))
        h2 { "Groups that committed" }
        (groups(visit, name))
        h2 { "Configuration" }
        (settings(&configuration))
    };
    Page::new(name, body)
}

fn partitions(topic: &TopicView) -> Markup {
    table(
        "Partitions",
        html! {
            table {
                caption {
                    "Size: the leader's log. Records in: between the last two looks."
                    @if topic.partitions.len() > PARTITIONS_MAX { " The first " (PARTITIONS_MAX) " are shown." }
                }
                thead { tr {
                    th.number scope="col" { "Partition" } th scope="col" { "State" } th.number scope="col" { "Leader" }
                    th scope="col" { "Replicas" } th scope="col" { "In sync" } th.number scope="col" { "First offset" }
                    th.number scope="col" { "End offset" } th.number scope="col" { "Records in" } th.number scope="col" { "Size" }
                    th scope="col" { span.hidden { "Records" } }
                } }
                tbody { @for partition in topic.partitions.iter().take(PARTITIONS_MAX) { (partition_row(&topic.name, partition)) } }
            }
        },
    )
}

fn partition_row(topic: &str, partition: &PartitionView) -> Markup {
    let (index, log) = (partition.index.to_string(), partition.log());
    html! {
        tr {
            th.number scope="row" { (index) }
            td { (partition_state(partition.state())) }
            td.number { @match partition.leader { Some(id) => (broker_link(id)), None => (UNKNOWN) } }
            td { (replicas(partition)) }
            td { @if partition.isr.is_empty() { (UNKNOWN) } @else { (ids(&partition.isr)) } }
            td.number { (maybe(log.start)) }
            td.number { (maybe(log.end)) }
            td.number { (rate(log.per_second)) }
            td.number { (size(log.size_bytes)) }
            td {
                a href=(link("/console/records", &[("topic", topic), ("partition", &index)])) {
                    "read" span.hidden { " records of partition " (index) }
                }
            }
        }
    }
}

/// The brokers that hold it; those whose copy is not in sync stand out.
fn replicas(partition: &PartitionView) -> Markup {
    html! {
        @for (at, id) in partition.replicas.iter().enumerate() {
            @if at > 0 { ", " }
            @if partition.isr.contains(id) { (id) } @else { span.state.warn title="not in sync" { (id) } }
        }
    }
}

fn by_broker(topic: &TopicView) -> Markup {
    table(
        "Partitions by broker",
        html! {
            table {
                caption { "Copies in sync and leaders of this topic; skewed is more than an even share, rounded up" }
                thead { tr {
                    th scope="col" { "Broker" } th.number scope="col" { "In sync" } th.number scope="col" { "Leaders" } th scope="col" { "Skew" }
                } }
                tbody {
                    @if topic.spread.shares.is_empty() { (no_rows(4, "No broker holds a copy in sync.")) }
                    @for share in &topic.spread.shares {
                        tr {
                            th scope="row" { (broker_link(share.broker)) }
                            td.number { (count(share.replicas as i64)) }
                            td.number { (count(share.leaders as i64)) }
                            td {
                                @match (share.is_skewed, share.is_leader_skewed) {
                                    (false, false) => span.state.good { "even" },
                                    (true, false) => span.state.warn { "skewed" },
                                    (false, true) => span.state.warn { "leader-skewed" },
                                    (true, true) => span.state.warn { "skewed, leader-skewed" },
                                }
                            }
                        }
                    }
                }
            }
        },
    )
}

fn groups(visit: &Visit<'_>, topic: &str) -> Markup {
    let reads = |group: &&crate::snapshot::GroupView| {
        group.rows.iter().flatten().any(|row| &*row.topic == topic)
    };
    let groups: Vec<_> = visit.snapshot.groups.values().filter(reads).collect();
    table(
        "Groups that committed",
        html! {
            table {
                caption { "Lag and time of this topic alone" }
                thead { tr {
                    th scope="col" { "Group" } th scope="col" { "State" } th.number scope="col" { "Partitions" }
                    th.number scope="col" { "Lag" } th.number scope="col" { "Behind" }
                } }
                tbody {
                    @if groups.is_empty() { (no_rows(5, "No group has committed offsets of this topic.")) }
                    @for group in groups {
                        @let rows: Vec<_> = group.rows.iter().flatten().filter(|row| &*row.topic == topic).collect();
                        @let lags: Vec<u64> = rows.iter().filter_map(|row| row.lag()).collect();
                        tr {
                            th.name scope="row" { (super::group_link(&group.id)) }
                            td { (super::group_state(&group.state)) }
                            td.number { (count(rows.len() as i64)) }
                            td.number { (maybe((!lags.is_empty()).then(|| lags.iter().sum::<u64>()))) }
                            td.number { (behind(rows.iter().filter_map(|row| row.behind).reduce(serving::lag::arrivals::Behind::worse))) }
                        }
                    }
                }
            }
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_that_are_not_in_sync_stand_out() {
        let partition = PartitionView::new(0, Some(1), [1, 2, 3].into(), [3, 1].into());
        assert_eq!(
            replicas(&partition).into_string(),
            "1, <span class=\"state warn\" title=\"not in sync\">2</span>, 3"
        );
    }
}
