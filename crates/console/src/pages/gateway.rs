//! The gateway on whose listener the console stands: what it counts, and where records went that came over it.

use maud::{Markup, html};
use serde_json::Value;

use super::{Page, fact, no_rows, table};
use crate::Visit;
use crate::parts::number::{bytes, count};
use crate::parts::text::visible;
use crate::query::link;

pub(super) fn page(visit: &Visit<'_>) -> Page {
    let body = html! {
        h1 { "Gateway" }
        div #gateway data-live="2000" { (counts(&visit.front.counts())) }
        h2 { "Topics that records were sent to" }
        (topics(visit))
    };
    Page::new("Gateway", body)
}

fn counts(counts: &Value) -> Markup {
    let number =
        |value: &Value| value.as_u64().map_or_else(|| "–".to_owned(), |n| count(i128::from(n)));
    let size = |value: &Value| value.as_u64().map_or_else(|| "–".to_owned(), bytes);
    let (events, keys) = (&counts["events"], &counts["keys"]);
    let used =
        counts["request_memory_bytes"].as_u64().zip(counts["request_memory_free_bytes"].as_u64());
    let used = used.map_or("–".to_owned(), |(all, free)| {
        format!("{} of {}", bytes(all.saturating_sub(free)), bytes(all))
    });
    html! {
        dl.facts {
            (fact("Connections", html! { (number(&counts["connections"])) span.quiet { " of " (number(&counts["connections_max"])) } }))
            (fact("Memory of requests", html! { (used) }))
            (fact("Consumer instances", html! { (number(&counts["instances"])) span.quiet { " of " (number(&counts["instances_max"])) } }))
            (fact("Idempotency keys", html! { (number(&keys["keys"])) span.quiet { " in " (size(&keys["bytes"])) } }))
            (fact("Answers given again", html! { (number(&keys["replayed"])) }))
        }
        h2 { "Event streams" }
        dl.facts {
            (fact("Readers", html! { (number(&events["readers"])) }))
            (fact("that take nothing", html! { (number(&events["blocked_readers"])) }))
            (fact("Events sent", html! { (number(&events["sent_events"])) }))
            (fact("encoded", html! { (number(&events["encoded_events"])) }))
            (fact("Reads of the past", html! { (number(&events["catch_up_reads"])) }))
            (fact("Gaps said", html! { (number(&events["gaps"])) }))
            (fact("Closed as too slow", html! { (number(&events["closed_slow"])) }))
            (fact("Memory of chunks", html! { (size(&events["chunk_bytes"])) }))
        }
    }
}

fn topics(visit: &Visit<'_>) -> Markup {
    let topics = visit.front.topics();
    table(
        "Topics",
        html! {
            table {
                caption { "Since the gateway was started" }
                thead { tr { th scope="col" { "Topic" } th.number scope="col" { "Records" } } }
                tbody {
                    @if topics.is_empty() { (no_rows(2, "No record came over this gateway.")) }
                    @for topic in &topics { tr {
                        th.name scope="row" { a href=(link("/console/distribution", &[("topic", topic)])) { (visible(topic)) } }
                        @let sum: u64 = visit.front.distribution(topic).iter().map(|row| row.records).sum();
                        td.number { (count(i128::from(sum))) }
                    } }
                }
            }
        },
    )
}
