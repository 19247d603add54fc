//! The cluster at one glance: is anything wrong, and where.

use maud::html;
use serving::overview::rate;

use super::{
    Page, alarm, broker_link, broker_state, fact, gaps, group_link, long_fact, no_rows, table,
    topic_link,
};
use crate::Visit;
use crate::parts::number::{UNKNOWN, behind, count, maybe, maybe_bytes, rate as shown_rate};
use crate::parts::text::visible;
use crate::snapshot::{BrokerState, GroupView, Snapshot, TopicView};

/// Rows of each list here.
const ROWS: usize = 8;

pub(super) fn page(visit: &Visit<'_>) -> Page {
    let snapshot = &visit.snapshot;
    let (under_replicated, offline) = snapshot.troubles();
    let up = snapshot.brokers.values().filter(|broker| broker.state == BrokerState::Up).count();
    let sizes: Option<u64> = snapshot
        .brokers
        .values()
        .filter(|b| b.state == BrokerState::Up)
        .map(|b| b.size_bytes())
        .sum();
    let name = snapshot.cluster_id.as_deref().unwrap_or(UNKNOWN);
    let body = html! {
        h1 { "Cluster" }
        (not_up(snapshot))
        (gaps(snapshot))
        dl.facts {
            (fact("Brokers up", html! {
                (count(up as i64)) @if up < snapshot.brokers.len() { " of " (alarm(snapshot.brokers.len(), "bad")) }
            }))
            (fact("Topics", html! { (count(snapshot.topics.len() as i64)) }))
            (fact("Partitions", html! { (count(snapshot.partitions().count() as i64)) }))
            (fact("Under-replicated", alarm(under_replicated, "warn")))
            (fact("Offline", alarm(offline, "bad")))
            (fact("Groups", html! { (count(snapshot.groups.len() as i64)) }))
            (fact("Records in", html! { (shown_rate(rate::sum(snapshot.topics.values().map(TopicView::per_second)))) }))
            (fact("On disk", html! { (maybe_bytes(sizes)) }))
            (fact("Controller", html! { @match snapshot.controller { Some(id) => (broker_link(id)), None => (UNKNOWN) } }))
            (long_fact("Cluster id", html! { span.mono { (visible(name)) } }))
        }
        (troubled(visit))
        (busiest(visit))
        (most_behind(visit))
    };
    Page::new("Cluster", body)
}

/// Brokers that do not serve, each with its state.
fn not_up(snapshot: &Snapshot) -> maud::Markup {
    let brokers: Vec<_> =
        snapshot.brokers.values().filter(|broker| broker.state != BrokerState::Up).collect();
    html! {
        @if !brokers.is_empty() {
            section.notice.bad aria-label="Brokers that do not serve" {
                h2 { "Brokers that do not serve" }
                ul { @for broker in brokers.iter().take(ROWS) { li { "Broker " (broker_link(broker.id)) ": " (broker_state(broker.state)) } } }
            }
        }
    }
}

/// Topics with partitions that are not well, worst first.
fn troubled(visit: &Visit<'_>) -> maud::Markup {
    let mut topics: Vec<_> = visit
        .snapshot
        .topics
        .values()
        .filter(|t| t.spread.offline + t.spread.under_replicated > 0)
        .collect();
    topics.sort_by_key(|topic| {
        std::cmp::Reverse((topic.spread.offline, topic.spread.under_replicated))
    });
    html! {
        @if !topics.is_empty() {
            h2 { "Topics in trouble" }
            (table("Topics in trouble", html! {
                table {
                    caption { "Worst first; " (count(topics.len() as i64)) " in all" }
                    thead { tr {
                        th scope="col" { "Topic" } th.number scope="col" { "Partitions" }
                        th.number scope="col" { "Under-replicated" } th.number scope="col" { "Offline" }
                    } }
                    tbody { @for topic in topics.iter().take(ROWS) {
                        tr {
                            th.name scope="row" { (topic_link(&topic.name)) }
                            td.number { (count(topic.partitions.len() as i64)) }
                            td.number { (alarm(topic.spread.under_replicated, "warn")) }
                            td.number { (alarm(topic.spread.offline, "bad")) }
                        }
                    } }
                }
            }))
        }
    }
}

/// Topics to which most is written.
fn busiest(visit: &Visit<'_>) -> maud::Markup {
    let mut topics: Vec<(f64, &TopicView)> = visit
        .snapshot
        .topics
        .values()
        .map(|topic| (topic.per_second().unwrap_or(0.0), topic))
        .collect();
    topics.sort_by(|a, b| b.0.total_cmp(&a.0));
    topics.retain(|(rate, _)| *rate > 0.0);
    html! {
        h2 { "Busiest topics" }
        (table("Busiest topics", html! {
            table {
                caption { "By records a second, between the last two looks" }
                thead { tr {
                    th scope="col" { "Topic" } th.number scope="col" { "Records in" }
                    th.number scope="col" { "Partitions" } th.number scope="col" { "Size" }
                } }
                tbody {
                    @if topics.is_empty() { (no_rows(4, "Nothing was written between the last two looks.")) }
                    @for (rate, topic) in topics.iter().take(ROWS) {
                        tr {
                            th.name scope="row" { (topic_link(&topic.name)) }
                            td.number { (shown_rate(Some(*rate))) }
                            td.number { (count(topic.partitions.len() as i64)) }
                            td.number { (maybe_bytes(topic.size_bytes().and_then(|bytes| u64::try_from(bytes).ok()))) }
                        }
                    }
                }
            }
        }))
    }
}

/// Groups that have most to catch up with.
fn most_behind(visit: &Visit<'_>) -> maud::Markup {
    let mut groups: Vec<(u64, &GroupView)> =
        visit.snapshot.groups.values().filter_map(|group| Some((group.lag()?, group))).collect();
    groups.sort_by_key(|(lag, _)| std::cmp::Reverse(*lag));
    groups.retain(|(lag, _)| *lag > 0);
    html! {
        h2 { "Groups behind" }
        (table("Groups behind", html! {
            table {
                caption { "By records that were not read" }
                thead { tr {
                    th scope="col" { "Group" } th scope="col" { "State" }
                    th.number scope="col" { "Lag" } th.number scope="col" { "Behind" }
                } }
                tbody {
                    @if groups.is_empty() { (no_rows(4, "No group that committed offsets is behind.")) }
                    @for (lag, group) in groups.iter().take(ROWS) {
                        tr {
                            th.name scope="row" { (group_link(&group.id)) }
                            td { (super::group_state(&group.state)) }
                            td.number { (maybe(Some(*lag))) }
                            td.number { (behind(group.behind())) }
                        }
                    }
                }
            }
        }))
    }
}
