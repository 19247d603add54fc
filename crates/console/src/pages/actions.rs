//! The log of actions.

use maud::{Markup, html};

use super::{Page, no_rows, table};
use crate::Visit;
use crate::actions::journal::{End, Entry};
use crate::parts::number::time;
use crate::parts::text::visible;
use crate::query::link;

/// Actions of a page.
const SHOWN: usize = 200;

pub(super) fn page(visit: &Visit<'_>) -> Page {
    let journal = &visit.desk.journal;
    let wanted = visit.query.number("id").and_then(|id| u64::try_from(id).ok());
    let one = wanted.and_then(|id| journal.get(id)).map(|one| one.told_to(visit.by.rights));
    let entries = journal.entries();
    let body = html! {
        h1 { "Actions" }
        @if let Some(entry) = &one { (told(entry)) }
        @if !visit.desk.is_open { p.quiet { "This console only reads; what stands here was done when it might act." } }
        @else { (offers()) }
        h2 { "Log" }
        (table("Log of actions", html! {
            table {
                caption { "The newest first" @if entries.len() > SHOWN { "; the last " (SHOWN) " are shown" } }
                thead { tr {
                    th scope="col" { "Time" } th scope="col" { "Who" } th scope="col" { "Action" } th scope="col" { "About" } th scope="col" { "End" }
                } }
                tbody {
                    @if entries.is_empty() { (no_rows(5, "Nothing has been done.")) }
                    @for entry in entries.iter().take(SHOWN) { tr {
                        td { (time(entry.at_ms)) }
                        td { (visible(&entry.who)) }
                        th scope="row" { a href=(link("/console/actions", &[("id", &entry.id.to_string())])) { (visible(&entry.kind)) } }
                        td.name { (visible(&entry.subject)) }
                        td { (end(entry.end)) }
                    } }
                }
            }
        }))
    };
    Page::new("Actions", body)
}

/// What can be done that is not about one topic or group.
fn offers() -> Markup {
    html! {
        p.buttons {
            a.button href="/console/do/create-topic" { "Create a topic" }
            a.button href="/console/do/produce" { "Produce records" }
            a.button href="/console/do/elect-leaders" { "Elect preferred leaders" }
            a.button href="/console/do/reassign" { "Move replicas" }
            a.button href="/console/moves" { "Moves under way" }
        }
    }
}

fn end(end: End) -> Markup {
    let class = match end {
        End::Done => "good",
        End::Failed => "bad",
        End::UnderWay => "note",
        End::Unknown => "warn",
    };
    html! { span.state.(class) { (end.name()) } }
}

/// One action, with what came of it.
fn told(entry: &Entry) -> Markup {
    let (is_good, is_bad) = (entry.end == End::Done, entry.end == End::Failed);
    let next = match &*entry.kind {
        "produce" => link("/console/do/produce", &[("topic", &entry.subject)]),
        "reassign" | "cancel-moves" => "/console/moves".to_owned(),
        "move-group" => link("/console/group", &[("id", &entry.subject)]),
        "create-topic" | "add-partitions" | "alter-topic" => {
            link("/console/topic", &[("name", &entry.subject)])
        }
        "delete-group" => "/console/groups".to_owned(),
        _ => "/console/topics".to_owned(),
    };
    html! {
        section.notice.good[is_good].bad[is_bad] role="status" aria-label="What came of it" {
            h2 { (visible(&entry.kind)) " " (visible(&entry.subject)) ": " (end(entry.end)) }
            ul { @for line in &entry.lines { li { (visible(line)) } } }
            pre.command tabindex="0" { code { (visible(&entry.command)) } }
            p { a href=(next) { "Go on" } }
        }
    }
}
