//! Groups: all of them, and one.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};

use maud::{Markup, html};
use model::TopicPartition;
use serving::operation::Kind;

use super::{
    Page, broker_link, fact, gaps, group_link, group_name, group_state, history, lacking, no_rows,
    offers, table, topic_link,
};
use crate::Visit;
use crate::lookups::{self, Described};
use crate::parts::listing::{Column, Listing};
use crate::parts::number::{UNKNOWN, behind, count, duration, maybe};
use crate::parts::text::visible;
use crate::query::link;
use crate::snapshot::{GroupRow, GroupView};

/// Partitions that the page of one group shows.
const ROWS_MAX: usize = 1000;

static COLUMNS: [Column; 8] = [
    Column { name: "id", label: "Group", is_number: false },
    Column { name: "state", label: "State", is_number: false },
    Column { name: "type", label: "Protocol", is_number: false },
    Column { name: "coordinator", label: "Coordinator", is_number: true },
    Column { name: "topics", label: "Topics", is_number: true },
    Column { name: "partitions", label: "Partitions", is_number: true },
    Column { name: "lag", label: "Lag", is_number: true },
    Column { name: "behind", label: "Behind", is_number: true },
];

fn partitions(group: &GroupView) -> Option<usize> {
    group.rows.as_ref().ok().map(Vec::len)
}

/// How many topics it has committed offsets of.
fn topics(group: &GroupView) -> Option<usize> {
    let names = group.rows.as_ref().ok()?.iter().map(|row| &row.topic);
    Some(names.collect::<BTreeSet<_>>().len())
}

fn compare(a: &GroupView, b: &GroupView, by: &str) -> Ordering {
    let age = |group: &GroupView| group.behind().map(|behind| (behind.ms, behind.at_least));
    match by {
        "state" => a.state.cmp(&b.state),
        "type" => a.kind.cmp(&b.kind),
        "coordinator" => a.coordinator.cmp(&b.coordinator),
        "topics" => topics(a).cmp(&topics(b)),
        "partitions" => partitions(a).cmp(&partitions(b)),
        "lag" => a.lag().cmp(&b.lag()),
        "behind" => age(a).cmp(&age(b)),
        _ => a.id.cmp(&b.id),
    }
}

pub(super) fn list(visit: &Visit<'_>) -> Page {
    let snapshot = &visit.snapshot;
    let listing = Listing::of("/console/groups", &COLUMNS, &visit.query, &[]);
    let mut groups: Vec<&GroupView> =
        snapshot.groups.values().filter(|group| listing.finds(&group.id)).collect();
    groups.sort_by(|a, b| {
        let order = compare(a, b, listing.sort);
        if listing.descending { order.reverse() } else { order }
    });
    let body = html! {
        h1 { "Groups" }
        (gaps(snapshot))
        (listing.search_form("Id contains", html! {}))
        (table("Groups", html! {
            table {
                caption {
                    (count(groups.len() as i64)) " of " (count(snapshot.groups.len() as i64)) " groups. Lag: records that were not read. "
                    "Behind: the age of the oldest of them"
                }
                thead { tr { (listing.heads(&COLUMNS)) } }
                tbody {
                    @if groups.is_empty() { (no_rows(COLUMNS.len(), "No group fits.")) }
                    @for group in listing.rows(&groups) { (row(group)) }
                }
            }
        }))
        (listing.pager(groups.len()))
    };
    Page::new("Groups", body)
}

fn row(group: &GroupView) -> Markup {
    html! {
        tr {
            th.name scope="row" { (group_link(&group.id)) }
            td { (group_state(&group.state)) }
            td { (kind(group)) }
            td.number { (broker_link(group.coordinator)) }
            td.number { (maybe(topics(group).map(|topics| topics as i64))) }
            td.number { (maybe(partitions(group).map(|rows| rows as i64))) }
            td.number { (maybe(group.lag())) }
            td.number { (behind(group.behind())) }
        }
    }
}

fn kind(group: &GroupView) -> Markup {
    html! { @if group.kind.is_empty() { (UNKNOWN) } @else { (visible(&group.kind)) } }
}

pub(super) async fn one(visit: &Visit<'_>) -> Page {
    let id = visit.query.get("id").unwrap_or_default();
    let Some(group) = visit.snapshot.groups.get(id) else {
        return Page::missing("Group", id, "/console/groups");
    };
    let described = lookups::group(visit.looker.admin(), id, &group.kind).await;
    if !visit.is_newest && lookups::is_no_group(&described) {
        return Page::missing("Group", id, "/console/groups");
    }
    let shown = group.rows.as_deref().unwrap_or_default();
    let oldest = visit.exact.of(visit.looker, &shown[..shown.len().min(ROWS_MAX)]).await;
    let foreign = lookups::foreign(&group.kind);
    let commits = foreign.as_ref().is_none_or(|foreign| foreign.commits);
    let of_members = described.as_ref().ok();
    let state = of_members.map_or(&*group.state, |described| &*described.state);
    let body = html! {
        p.crumbs { a href="/console/groups" { "Groups" } }
        h1 { (group_name(id)) }
        dl.facts {
            (fact("State", group_state(state)))
            (fact("Protocol", kind(group)))
            (fact("Members", html! { (maybe(of_members.map(|described| described.members.len() as i64))) }))
            (fact("Lag", html! { (maybe(group.lag())) }))
            (fact("Behind", html! { (behind(group.behind())) }))
            (fact("Partitions", html! { (maybe(partitions(group).map(|rows| rows as i64))) }))
            (fact("Covered", html! { (covered(group, of_members)) }))
            (fact("Assignor", html! { (assignor(of_members)) }))
            (fact("Coordinator", broker_link(group.coordinator)))
        }
        @match &foreign {
            Some(foreign) => p { (visible(&foreign.what)) },
            None => (offers(visit, &[(Kind::MoveGroup, "Reset offsets"), (Kind::DeleteGroup, "Delete")], ("group", id))),
        }
        @if commits {
            h2 { "Lag over time" }
            (history::charts(visit, group))
            h2 { "Partitions" }
            (offsets(group, of_members, &oldest, visit.snapshot.taken_ms))
        }
        h2 { "Members" }
        @match &described {
            Ok(described) => (members(described)),
            Err(error) => (lacking("the members could not be had", error)),
        }
    };
    Page::new(group_name(id), body)
}

fn assignor(described: Option<&Described>) -> std::borrow::Cow<'_, str> {
    let named = described.map(|described| &*described.assignor).filter(|name| !name.is_empty());
    visible(named.unwrap_or(UNKNOWN))
}

/// Of the partitions in which the group committed, how many a member reads: "% of partitions covered" in CMAK.
fn covered(group: &GroupView, described: Option<&Described>) -> String {
    let (Some(described), Ok(rows)) = (described, &group.rows) else { return UNKNOWN.to_owned() };
    let owned =
        rows.iter().filter(|row| described.owner(&row.topic, row.partition).is_some()).count();
    super::percent(serving::overview::percent(owned, rows.len(), 100))
}

fn offsets(
    group: &GroupView,
    described: Option<&Described>,
    oldest: &HashMap<TopicPartition, i64>,
    now_ms: i64,
) -> Markup {
    let rows = match &group.rows {
        Ok(rows) => rows,
        Err(why) => return lacking("committed offsets could not be had", why),
    };
    table(
        "Partitions of the group",
        html! {
            table {
                caption {
                    "Behind: how long ago the oldest unread record arrived, right within one look (15 s, or a minute); ≥ if it was there before the first. Oldest unread: the age of that record by its own timestamp"
                    @if rows.len() > ROWS_MAX { ". The first " (ROWS_MAX) " are shown" }
                }
                thead { tr {
                    th scope="col" { "Topic" } th.number scope="col" { "Partition" } th.number scope="col" { "Committed" }
                    th.number scope="col" { "End" } th.number scope="col" { "Lag" } th.number scope="col" { "Behind" } th.number scope="col" { "Oldest unread" }
                    th scope="col" { "Owner" }
                } }
                tbody {
                    @if rows.is_empty() { (no_rows(8, "It has committed no offset.")) }
                    @for row in rows.iter().take(ROWS_MAX) { (offset_row(row, described, oldest, now_ms)) }
                }
            }
        },
    )
}

fn offset_row(
    row: &GroupRow,
    described: Option<&Described>,
    oldest: &HashMap<TopicPartition, i64>,
    now_ms: i64,
) -> Markup {
    let oldest = match row.lag() {
        Some(0) => Some(0),
        _ => oldest.get(&TopicPartition::new(&*row.topic, row.partition)).map(|at| now_ms - at),
    };
    let owner = described.and_then(|described| described.owner(&row.topic, row.partition));
    let index = row.partition.to_string();
    let at = row.committed.to_string();
    let records =
        link("/console/records", &[("topic", &row.topic), ("partition", &index), ("offset", &at)]);
    html! {
        tr {
            th.name scope="row" { (topic_link(&row.topic)) }
            td.number { (index) }
            td.number { a href=(records) { (count(row.committed)) } }
            td.number { (maybe(row.end.get())) }
            td.number { (maybe(row.lag())) }
            td.number { (behind(row.behind)) }
            td.number { @match oldest { Some(ms) => (duration(ms)), None => (UNKNOWN) } }
            td.name { @match owner { Some(member) => (visible(&member.id)), None => (UNKNOWN) } }
        }
    }
}

fn members(described: &Described) -> Markup {
    table(
        "Members",
        html! {
            table {
                caption { (count(described.members.len() as i64)) " members" }
                thead { tr {
                    th scope="col" { "Member" } th scope="col" { "Client" } th scope="col" { "Host" } th scope="col" { "Reads" }
                } }
                tbody {
                    @if described.members.is_empty() { (no_rows(4, "The group has no members now.")) }
                    @for member in &described.members {
                        tr {
                            th.name scope="row" { (visible(&member.id)) }
                            td.name { (visible(&member.client_id)) }
                            td { (visible(&member.host)) }
                            td.name {
                                @for (topic, partitions) in &member.partitions {
                                    div { (visible(topic)) ": " (super::ids(partitions)) }
                                }
                            }
                        }
                    }
                }
            }
        },
    )
}
