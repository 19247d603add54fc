//! How many records this gateway has sent where: bars for each rule, each broker and each partition.

use std::collections::BTreeMap;

use maud::{Markup, html};
use serving::choice::{Row, Rule};

use super::{Page, no_rows, table};
use crate::Visit;
use crate::parts::number::{UNKNOWN, count};
use crate::parts::text::visible;
use crate::query::link;

/// The width of a bar that is full, in its own units.
const WIDTH: u64 = 200;

pub(super) fn page(visit: &Visit<'_>) -> Page {
    let topic = visit.query.get("topic");
    let body = html! { h1 { "Distribution" } (section(visit, topic)) };
    Page::new("Distribution", body)
}

/// The part of a page that shows it, kept fresh by the page's script.
pub(crate) fn section(visit: &Visit<'_>, topic: Option<&str>) -> Markup {
    let from = link("/console/distribution", &[("topic", topic.unwrap_or_default())]);
    html! {
        section #distribution data-live="1000" data-from=(from) aria-label="Distribution" {
            @match topic {
                None => p.quiet { "Choose a topic to see where its records go." },
                Some(topic) => (bars(topic, &visit.front.distribution(topic))),
            }
        }
    }
}

fn name(rule: Rule) -> String {
    match rule {
        Rule::Given => "partition named by the request".to_owned(),
        Rule::Chosen(pair) => match pair.broker {
            None => pair.partition.name().to_owned(),
            Some(broker) => format!("{} × {}", broker.name(), pair.partition.name()),
        },
    }
}

pub(super) fn bars(topic: &str, rows: &[Row]) -> Markup {
    let mut rules: BTreeMap<Rule, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        rules.entry(row.rule).or_default().push(row);
    }
    html! {
        h2 { "Where records of " (visible(topic)) " went" }
        p.quiet { "Records that came over this gateway since it was started, by the rule that chose their place." }
        @if rules.is_empty() {
            (table("Distribution", html! { table { tbody { (no_rows(1, "None yet.")) } } }))
        }
        div.rules { @for (rule, rows) in &rules { (of_rule(&name(*rule), rows)) } }
    }
}

fn of_rule(rule: &str, rows: &[&Row]) -> Markup {
    let most = rows.iter().map(|row| row.records).max().unwrap_or(0).max(1);
    let sum: u64 = rows.iter().map(|row| row.records).sum();
    let mut brokers: BTreeMap<i32, u64> = BTreeMap::new();
    for row in rows {
        if let Some(broker) = row.broker {
            *brokers.entry(broker).or_default() += row.records;
        }
    }
    let most_of_brokers = brokers.values().copied().max().unwrap_or(0).max(1);
    table(
        rule,
        html! {
            table.bars {
                caption { strong { (rule) } ": " (count(i128::from(sum))) " records" }
                thead { tr { th.number scope="col" { "Broker" } th.number scope="col" { "Partition" } th scope="col" { span.hidden { "Bar" } } th.number scope="col" { "Records" } } }
                tbody {
                    @for (broker, records) in &brokers { tr.sum {
                        th.number scope="row" { (broker) } td.number { "all" } td { (bar(*records, most_of_brokers)) } td.number { (count(i128::from(*records))) }
                    } }
                    @for row in rows { tr {
                        td.number { @match row.broker { Some(id) => (id), None => (UNKNOWN) } }
                        th.number scope="row" { (row.partition) }
                        td { (bar(row.records, most)) }
                        td.number { (count(i128::from(row.records))) }
                    } }
                }
            }
        },
    )
}

/// A bar as a picture: its length is an attribute, which the content policy allows.
fn bar(records: u64, most: u64) -> Markup {
    let width = (u128::from(records) * u128::from(WIDTH)).div_ceil(u128::from(most));
    html! {
        svg.bar viewBox={ "0 0 " (WIDTH) " 10" } preserveAspectRatio="none" aria-hidden="true" { rect width=(width) height="10" {} }
    }
}
