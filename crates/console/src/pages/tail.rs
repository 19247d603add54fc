//! Records as they come: an event stream of the gateway, shown by the page's script. The filters on key and header are the
//! gateway's; the one on values is the page's.

use hyper::StatusCode;
use maud::{Markup, html};

use super::{Page, topic_choice};
use crate::Visit;
use crate::parts::text::visible;
use crate::query::{Query, link};
use crate::snapshot::Snapshot;

pub(super) fn page(visit: &Visit<'_>) -> Page {
    let query = &visit.query;
    let topic = query.get("topic").filter(|topic| visit.snapshot.topics.contains_key(*topic));
    let body = html! {
        @if let Some(topic) = topic {
            p.crumbs { a href=(link("/console/topic", &[("name", topic)])) { (visible(topic)) } }
        }
        h1 { "Records as they come" }
        (form(query, &visit.snapshot))
        @match (topic, query.get("topic")) {
            (Some(topic), _) => (stream(topic, query)),
            (None, Some(name)) => div.notice.bad role="alert" { p { "The cluster has no topic " (visible(name)) "." } },
            (None, None) => p.quiet { "Choose a topic." },
        }
    };
    let is_missing = topic.is_none() && query.get("topic").is_some();
    let status = if is_missing { StatusCode::NOT_FOUND } else { StatusCode::OK };
    Page { status, ..Page::new("Records as they come", body) }
}

fn form(query: &Query, snapshot: &Snapshot) -> Markup {
    let value = |name: &str| query.get(name).unwrap_or_default();
    let field = |name: &str, label: &str, hint: &str| {
        html! { div.field { label for=(name) { (label) } input #(name) type="text" name=(name) value=(visible(value(name))) placeholder=(hint) list=[(name == "topic").then_some("topics")] autocomplete="off" spellcheck="false"; } }
    };
    html! {
        (topic_choice(snapshot))
        form.search method="get" action="/console/tail" {
            (field("topic", "Topic", ""))
            (field("partitions", "Partitions", "all"))
            (field("key", "Key", "user-1, or user-*"))
            (field("header", "Header", "kind=order*"))
            (field("contains", "Value contains", ""))
            button type="submit" { "Follow" }
        }
    }
}

/// Where the stream is, and the table that it fills.
fn stream(topic: &str, query: &Query) -> Markup {
    let from = source(topic, query);
    let contains = query.get("contains").unwrap_or_default();
    html! {
        p.buttons data-stays { button #tail-pause type="button" hidden { "Pause" } span #tail-state role="status" { "Without script nothing is shown here: use Records." } }
        div.table tabindex="0" role="region" aria-label="Records" {
            table.records #tail data-tail=(from) data-contains=(contains) {
                caption { "The newest first; the last 200 are kept" }
                thead { tr {
                    th.number scope="col" { "Partition" } th.number scope="col" { "Offset" } th scope="col" { "Time" } th scope="col" { "Key" }
                    th scope="col" { "Value" } th scope="col" { "Headers" }
                } }
                tbody { tr { td.empty colspan="6" { "Nothing has come yet." } } }
            }
        }
    }
}

fn source(topic: &str, query: &Query) -> String {
    let condition =
        |prefix: &str, name: &str| query.get(name).map(|text| format!("{prefix}:{text}"));
    let filter: Vec<String> =
        [condition("key", "key"), condition("header", "header")].into_iter().flatten().collect();
    let filter = filter.join(",");
    let partitions = query.get("partitions").unwrap_or_default();
    let parameters =
        [("data", "record"), ("slow", "skip"), ("partitions", partitions), ("filter", &*filter)];
    link(&format!("/topics/{topic}/events"), &parameters)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_those_of_the_gateway() {
        let query = Query::of(Some("topic=t&key=a%26b*&header=kind=x&partitions=0,2"));
        assert_eq!(
            source("t", &query),
            "/topics/t/events?data=record&slow=skip&partitions=0%2C2&filter=key%3Aa%26b*%2Cheader%3Akind%3Dx"
        );
        assert_eq!(source("t", &Query::default()), "/topics/t/events?data=record&slow=skip");
    }
}
