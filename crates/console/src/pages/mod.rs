//! Pages. What all of them share is here: head, navigation, footer, and what says that something is missing. No page holds a
//! style or a script of its own; names are written by [`visible`], and markup is escaped by maud.

mod actions;
mod brokers;
pub(crate) mod distribution;
mod gateway;
mod groups;
mod history;
mod lab;
mod overview;
mod records;
mod tail;
mod topics;

use std::borrow::Cow;

use bytes::Bytes;
use hyper::{Response, StatusCode};
use maud::{DOCTYPE, Markup, html};
use serving::operation::Kind;

use crate::Visit;
use crate::answer;
use crate::parts::number::time_of_day;
use crate::parts::text::visible;
use crate::query::link;
use crate::route::Wanted;
use crate::snapshot::{BrokerState, PartitionState, Snapshot, TopicView};

/// A page that was made: its title, its parts, and its status.
pub(crate) struct Page {
    pub(crate) status: StatusCode,
    pub(crate) title: String,
    pub(crate) body: Markup,
}

impl Page {
    pub(crate) fn new(title: impl Into<String>, body: Markup) -> Page {
        Page { status: StatusCode::OK, title: title.into(), body }
    }

    /// A page about something that is not there.
    fn missing(what: &str, name: &str, back: &str) -> Page {
        let title = format!("{what} not found");
        let kind = what.to_lowercase();
        let body = html! {
            h1 { (title) }
            @if name.is_empty() { p { "The address names no " (kind) "." } }
            @else { p { "The cluster has no " (kind) " " strong { (visible(name)) } ": it was deleted, or it was never there." } }
            p { a href=(back) { "Back to the list" } }
        };
        Page { status: StatusCode::NOT_FOUND, title, body }
    }
}

/// Answers with a page.
pub(crate) async fn answer(visit: &Visit<'_>, wanted: &Wanted) -> Response<Bytes> {
    let page = match wanted {
        Wanted::Overview => overview::page(visit),
        Wanted::Brokers => brokers::list(visit),
        Wanted::Broker => brokers::one(visit).await,
        Wanted::Topics => topics::list(visit),
        Wanted::Topic => topics::one(visit).await,
        Wanted::Groups => groups::list(visit),
        Wanted::Group => groups::one(visit).await,
        Wanted::Records => records::page(visit).await,
        Wanted::Distribution => distribution::page(visit),
        Wanted::Tail => tail::page(visit),
        Wanted::Gateway => gateway::page(visit),
        Wanted::Moves => crate::actions::moves_page(visit).await,
        Wanted::Actions => actions::page(visit),
        Wanted::Runs => lab::list(visit).await,
        Wanted::Run => lab::one(visit).await,
    };
    // The stream itself is what programs read.
    let json =
        (*wanted != Wanted::Tail).then(|| visit.query.under(&format!("/api/v1/{}", wanted.name())));
    whole(visit, section(wanted), json, page)
}

/// A page within its frame: which part of the navigation it belongs to, and where the same is as JSON.
pub(crate) fn whole(
    visit: &Visit<'_>,
    section: &'static str,
    json: Option<String>,
    page: Page,
) -> Response<Bytes> {
    let (snapshot, may_act) = (&*visit.snapshot, visit.desk.is_open);
    let has_lab = visit.lab.is_open();
    let shown = Shown { section, snapshot, json, may_act, has_lab };
    answer::page(page.status, layout(&page.title, Some(shown), &page.body))
}

/// A page that is shown when nothing is known of the cluster.
pub(crate) fn without_snapshot(title: &str, reason: &str) -> Markup {
    let body = html! {
        h1 { (title) }
        div.notice.bad { p { (visible(reason)) } }
        p { a href="/console" { "Try again" } }
    };
    layout(title, None, &body)
}

/// Topics that a field offers.
const CHOICES_MAX: usize = 500;

/// The part that is there only if the console is told where runs are.
const LAB: &str = "Lab";
/// The parts of the console, as the navigation names them.
const SECTIONS: [(&str, &str); 9] = [
    ("Overview", "/console"),
    ("Brokers", "/console/brokers"),
    ("Topics", "/console/topics"),
    ("Groups", "/console/groups"),
    ("Records", "/console/records"),
    ("Tail", "/console/tail"),
    ("Gateway", "/console/gateway"),
    ("Actions", "/console/actions"),
    (LAB, "/console/runs"),
];

fn section(wanted: &Wanted) -> &'static str {
    match wanted {
        Wanted::Overview => "Overview",
        Wanted::Brokers | Wanted::Broker => "Brokers",
        Wanted::Topics | Wanted::Topic => "Topics",
        Wanted::Groups | Wanted::Group => "Groups",
        Wanted::Records => "Records",
        Wanted::Tail => "Tail",
        Wanted::Gateway | Wanted::Distribution => "Gateway",
        Wanted::Moves | Wanted::Actions => "Actions",
        Wanted::Runs | Wanted::Run => LAB,
    }
}

/// What the frame of a page says of it.
struct Shown<'a> {
    /// Which part of the navigation it belongs to.
    section: &'static str,
    snapshot: &'a Snapshot,
    /// Where the same is as JSON.
    json: Option<String>,
    /// Whether anything may be changed.
    may_act: bool,
    /// Whether there are runs of the laboratory.
    has_lab: bool,
}

fn layout(title: &str, shown: Option<Shown<'_>>, body: &Markup) -> Markup {
    let current = shown.as_ref().map(|shown| shown.section);
    let has_lab = shown.as_ref().is_some_and(|shown| shown.has_lab);
    let sections = SECTIONS.into_iter().filter(|(name, _)| has_lab || *name != LAB);
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (visible(title)) " – Highwater" }
                link rel="icon" type="image/svg+xml" href="/console/assets/icon.svg";
                link rel="stylesheet" href="/console/assets/console.css";
                script defer src="/console/assets/console.js" {}
            }
            body {
                a.skip href="#main" { "Skip to the content" }
                header.top {
                    div {
                        a.brand href="/console" { img src="/console/assets/icon.svg" alt=""; "Highwater" }
                        nav.main aria-label="Main" {
                            ul {
                                @for (name, path) in sections {
                                    li { a href=(path) aria-current=[(current == Some(name)).then_some("page")] { (name) } }
                                }
                            }
                        }
                        @if let Some(Shown { snapshot, .. }) = &shown {
                            span #as-of title={ "The brokers were asked for " (snapshot.took_ms) " ms" } {
                                "as of " (time_of_day(snapshot.taken_ms))
                            }
                        }
                    }
                }
                main #main tabindex="-1" { (body) }
                footer {
                    @if shown.as_ref().is_some_and(|shown| shown.may_act) {
                        span { "Actions change the cluster, after a review; each is " a href="/console/actions" { "written down" } "." }
                    } @else {
                        span { "Reads only: nothing here changes the cluster." }
                    }
                    @if let Some(json) = shown.as_ref().and_then(|shown| shown.json.as_ref()) { a href=(json) { "This page as JSON" } }
                    span hidden { label { input #refresh type="checkbox"; "Refresh every 15 s" } }
                }
            }
        }
    }
}

/// What a list says that could not be had.
fn gaps(snapshot: &Snapshot) -> Markup {
    html! {
        @if !snapshot.gaps.is_empty() {
            section.notice aria-label="Missing" {
                h2 { "Not everything could be had" }
                ul {
                    @for gap in &snapshot.gaps { li { (visible(&gap.what)) ": " (visible(&gap.why)) } }
                }
            }
        }
    }
}

/// The topics that a field can be filled with; whoever types another one may.
fn topic_choice(snapshot: &Snapshot) -> Markup {
    let is_typed_so = |topic: &&TopicView| matches!(visible(&topic.name), Cow::Borrowed(_));
    let mut topics: Vec<&TopicView> = snapshot.topics.values().filter(is_typed_so).collect();
    topics.sort_by_key(|topic| topic.is_internal);
    html! { datalist #topics { @for topic in topics.iter().take(CHOICES_MAX) { option value=(&*topic.name) {} } } }
}

/// Something that one page lacks, with the reason.
fn lacking(what: &str, why: impl std::fmt::Display) -> Markup {
    html! { p.quiet { "– " (what) ": " (visible(&why.to_string())) } }
}

/// A table with its scroll box, which the keyboard reaches.
pub(crate) fn table(label: &str, body: Markup) -> Markup {
    html! { div.table tabindex="0" role="region" aria-label=(label) { (body) } }
}

/// A row that says that there are none.
pub(crate) fn no_rows(columns: usize, words: &str) -> Markup {
    html! { tr { td.empty colspan=(columns) { (words) } } }
}

/// What can be done about a topic or group, if anything may be.
fn offers(visit: &Visit<'_>, offers: &[(Kind, &str)], subject: (&str, &str)) -> Markup {
    html! {
        @if visit.desk.is_open {
            nav.buttons aria-label="Actions" {
                @for (kind, words) in offers {
                    a.button href=(link(&crate::actions::path(*kind), &[subject])) { (words) }
                }
            }
        }
    }
}

/// A fact: its name and its value.
fn fact(name: &str, value: Markup) -> Markup {
    html! { div { dt { (name) } dd { (value) } } }
}

/// A fact that takes more room.
fn long_fact(name: &str, value: Markup) -> Markup {
    html! { div.long { dt { (name) } dd { (value) } } }
}

/// A count that is bad unless it is zero.
fn alarm(count: usize, class: &str) -> Markup {
    match count {
        0 => html! { "0" },
        _ => html! { span.state.(class) { (crate::parts::number::count(count as i64)) } },
    }
}

fn partition_state(state: PartitionState) -> Markup {
    let class = match state {
        PartitionState::Well => "good",
        PartitionState::NotPreferred => "note",
        PartitionState::UnderReplicated => "warn",
        PartitionState::Offline => "bad",
    };
    html! { span.state.(class) { (state.name()) } }
}

fn broker_state(state: BrokerState) -> Markup {
    let class = match state {
        BrokerState::Up => "good",
        BrokerState::Fenced => "warn",
        BrokerState::Silent | BrokerState::Away => "bad",
    };
    html! { span.state.(class) { (state.name()) } }
}

/// A state in a broker's own words.
fn group_state(state: &str) -> Markup {
    let class = match state {
        "Stable" => "good",
        "Dead" => "bad",
        "PreparingRebalance" | "CompletingRebalance" | "Assigning" | "Reconciling" => "warn",
        _ => "note",
    };
    html! { @if state.is_empty() { "–" } @else { span.state.(class) { (visible(state)) } } }
}

fn topic_link(name: &str) -> Markup {
    html! { a href=(link("/console/topic", &[("name", name)])) { (visible(name)) } }
}

/// The id as it is shown; a group may have an empty one.
fn group_name(id: &str) -> Cow<'_, str> {
    if id.is_empty() { "(empty id)".into() } else { visible(id) }
}

fn group_link(id: &str) -> Markup {
    html! { a href=(link("/console/group", &[("id", id)])) { (group_name(id)) } }
}

fn broker_link(id: i32) -> Markup {
    let text = id.to_string();
    html! { a href=(link("/console/broker", &[("id", &text)])) { (text) } }
}

/// Ids with commas.
pub(crate) fn ids(ids: &[i32]) -> String {
    ids.iter().map(i32::to_string).collect::<Vec<_>>().join(", ")
}

/// Per cent, which is bad above zero or not at all.
fn percent(percent: u32) -> String {
    format!("{percent} %")
}

/// A distance from the mean.
fn skew(percent: i64) -> String {
    match percent {
        0 => "0 %".to_owned(),
        1.. => format!("+{percent} %"),
        _ => format!("−{} %", percent.unsigned_abs()),
    }
}

/// The settings of a topic or broker.
fn settings(settings: &Result<Vec<crate::lookups::Setting>, client::ClientError>) -> Markup {
    let settings = match settings {
        Ok(settings) => settings,
        Err(error) => return lacking("the configuration could not be had", error),
    };
    let (own, rest): (Vec<_>, Vec<_>) = settings.iter().partition(|setting| setting.is_own);
    let rows = |rows: &[&crate::lookups::Setting], caption: &str| {
        table(
            caption,
            html! {
                table {
                    caption { (caption) }
                    thead { tr { th scope="col" { "Name" } th scope="col" { "Value" } th scope="col" { "From" } } }
                    tbody {
                        @if rows.is_empty() { (no_rows(3, "None.")) }
                        @for setting in rows {
                            tr {
                                th.mono scope="row" { (visible(&setting.name)) }
                                td.name.mono { @match &setting.value { Some(value) => (visible(value)), None => "(not shown)" } }
                                td.quiet { (setting.source) }
                            }
                        }
                    }
                }
            },
        )
    };
    html! {
        (rows(&own, "Set for itself"))
        details { summary { (rest.len()) " more, as everywhere" } (rows(&rest, "Not set for itself")) }
    }
}
