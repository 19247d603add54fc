//! Brokers: all of them, and one.

use maud::{Markup, html};

use super::{
    Page, broker_link, broker_state, fact, gaps, long_fact, no_rows, settings, skew, table,
    topic_link,
};
use crate::Visit;
use crate::look::dirs_of;
use crate::lookups;
use crate::parts::number::{UNKNOWN, bytes, count, maybe_bytes, rate};
use crate::parts::text::visible;
use crate::snapshot::{BrokerState, BrokerView, DirView};

/// Topics that the page of one broker names.
const TOPICS_MAX: usize = 500;

pub(super) fn list(visit: &Visit<'_>) -> Page {
    let snapshot = &visit.snapshot;
    let body = html! {
        h1 { "Brokers" }
        (gaps(snapshot))
        (table("Brokers", html! {
            table {
                caption { "Skew is the distance from the mean of the brokers that are up" }
                thead { tr {
                    th scope="col" { "Broker" } th scope="col" { "State" } th scope="col" { "Address" } th scope="col" { "Rack" }
                    th.number scope="col" { "Leaders" } th.number scope="col" { "Leader skew" }
                    th.number scope="col" { "Replicas" } th.number scope="col" { "Replica skew" }
                    th.number scope="col" { "Not in sync" } th.number scope="col" { "Records in" } th.number scope="col" { "Size" }
                } }
                tbody { @for broker in snapshot.brokers.values() { (row(broker, snapshot.controller)) } }
            }
        }))
        p.quiet { "Records in: those of the partitions that the broker leads, by the ends of their logs. Size: all logs on it." }
    };
    Page::new("Brokers", body)
}

fn row(broker: &BrokerView, controller: Option<i32>) -> Markup {
    let behind = broker.load.replicas - broker.load.in_sync;
    html! {
        tr {
            th scope="row" { (broker_link(broker.id)) @if controller == Some(broker.id) { span.quiet { " controller" } } }
            td { (broker_state(broker.state)) }
            td { @match &broker.address { Some(address) => (visible(address)), None => (UNKNOWN) } }
            td { @match &broker.rack { Some(rack) => (visible(rack)), None => (UNKNOWN) } }
            td.number { (count(broker.load.leaders as i64)) }
            td.number { (skew(broker.leader_skew_percent)) }
            td.number { (count(broker.load.replicas as i64)) }
            td.number { (skew(broker.replica_skew_percent)) }
            td.number { (super::alarm(behind, "warn")) }
            td.number { (rate(broker.per_second)) }
            td.number { (maybe_bytes(broker.size_bytes())) }
        }
    }
}

pub(super) async fn one(visit: &Visit<'_>) -> Page {
    let asked = visit.query.get("id").unwrap_or_default();
    let known = asked.parse().ok().and_then(|id: i32| visit.snapshot.brokers.get(&id));
    let Some(broker) = known else { return Page::missing("Broker", asked, "/console/brokers") };
    let serves = matches!(broker.state, BrokerState::Up | BrokerState::Silent);
    let configuration = match serves {
        true => Some(lookups::broker_settings(visit.looker.admin(), broker.id).await),
        false => None,
    };
    let title = format!("Broker {}", broker.id);
    let body = html! {
        p.crumbs { a href="/console/brokers" { "Brokers" } }
        h1 { (title) }
        dl.facts {
            (fact("State", broker_state(broker.state)))
            (fact("Leaders", html! { (count(broker.load.leaders as i64)) }))
            (fact("Preferred for", html! { (count(broker.load.preferred as i64)) }))
            (fact("Replicas", html! { (count(broker.load.replicas as i64)) }))
            (fact("In sync", html! { (count(broker.load.in_sync as i64)) }))
            (fact("Records in", html! { (rate(broker.per_second)) }))
            (fact("Size", html! { (maybe_bytes(broker.size_bytes())) }))
            (long_fact("Address", html! { (visible(broker.address.as_deref().unwrap_or(UNKNOWN))) }))
        }
        @if !serves { (not_serving(broker.state)) }
        h2 { "Topics" }
        (topics(visit, broker.id))
        @if serves {
            h2 { "Log directories" }
            (dirs(visit, broker))
        }
        @if let Some(configuration) = &configuration {
            h2 { "Configuration" }
            (settings(configuration))
        }
    };
    Page::new(title, body)
}

/// Why there is little to be seen of a broker, and what can be done.
fn not_serving(state: BrokerState) -> Markup {
    html! {
        div.notice.bad role="status" { p {
            @if state == BrokerState::Fenced { "The broker is registered and serves nothing: it has stopped, or its controller does not hear of it." }
            @else { "The broker is not there: replicas name it, and it is not registered." }
            " What it holds is served by other brokers in sync, or waits for it. Its log directories and configuration are shown when it is back."
        } }
    }
}

fn dirs(visit: &Visit<'_>, broker: &BrokerView) -> Markup {
    let Some(dirs) = &broker.dirs else {
        let what = dirs_of(broker.id);
        let gap = visit.snapshot.gaps.iter().find(|gap| gap.what == what);
        let why = gap.map_or("the broker did not answer", |gap| gap.why.as_str());
        return super::lacking("log directories could not be had", why);
    };
    table(
        "Log directories",
        html! {
            table {
                caption { "Sizes are those of logs; a disk may hold more" }
                thead { tr {
                    th scope="col" { "Directory" } th.number scope="col" { "Partitions" } th.number scope="col" { "Logs" }
                    th.number scope="col" { "Free" } th.number scope="col" { "Disk" } th scope="col" { "State" }
                } }
                tbody { @for dir in dirs { (dir_row(dir)) } }
            }
        },
    )
}

fn dir_row(dir: &DirView) -> Markup {
    html! {
        tr {
            th.name.mono scope="row" { (visible(&dir.path)) }
            td.number { (count(dir.partitions as i64)) }
            td.number { (bytes(dir.size_bytes)) }
            td.number { (maybe_bytes(dir.disk_bytes.map(|(_, free)| free))) }
            td.number { (maybe_bytes(dir.disk_bytes.map(|(total, _)| total))) }
            td {
                @match &dir.error {
                    Some(error) => span.state.bad { (error) },
                    None => span.state.good { "ok" },
                }
            }
        }
    }
}

/// What it holds of each topic.
fn topics(visit: &Visit<'_>, broker: i32) -> Markup {
    let topics: Vec<_> = visit
        .snapshot
        .topics
        .values()
        .map(|topic| {
            let held = topic.partitions.iter().filter(|p| p.replicas.contains(&broker)).count();
            let led = topic.partitions.iter().filter(|p| p.leader == Some(broker)).count();
            (topic, held, led)
        })
        .filter(|(_, held, led)| held + led > 0)
        .collect();
    table(
        "Topics of the broker",
        html! {
            table {
                caption { "Topics with replicas here: " (count(topics.len() as i64)) @if topics.len() > TOPICS_MAX { ", the first " (TOPICS_MAX) " of them" } }
                thead { tr {
                    th scope="col" { "Topic" } th.number scope="col" { "Replicas" } th.number scope="col" { "Leaders" }
                    th.number scope="col" { "of partitions" }
                } }
                tbody {
                    @if topics.is_empty() { (no_rows(4, "It holds no replica.")) }
                    @for (topic, held, led) in topics.iter().take(TOPICS_MAX) {
                        tr {
                            th.name scope="row" { (topic_link(&topic.name)) }
                            td.number { (count(*held as i64)) }
                            td.number { (count(*led as i64)) }
                            td.number { (count(topic.partitions.len() as i64)) }
                        }
                    }
                }
            }
        },
    )
}
