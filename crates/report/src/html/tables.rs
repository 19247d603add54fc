//! A table in HTML: two rows of heads where metrics have several columns, numbers at the right, sortable.

use crate::table::{Cell, Head, Table, Tone};
use maud::{Markup, html};

/// Letters above which a text may take several lines.
const LONG: usize = 24;

/// A numbered table of an experiment.
pub(super) fn numbered(table: &Table, subject: &str) -> Markup {
    html! {
        div.scroll.numbered tabindex="0" role="region" aria-label=(format!("{subject}: {}", table.caption)) {
            table {
                caption { span { b { (capital(&table.caption)) "." } " " (table.note) } }
                (heads(&table.heads))
                (body(table))
            }
        }
    }
}

/// A table whose heading stands above it.
pub(super) fn plain(table: &Table) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(table.caption) {
            table { (heads(&table.heads)) (body(table)) }
        }
    }
}

/// `throughput` becomes `Throughput`; `p95 latency` stays.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if letters.as_str().starts_with(|c: char| c.is_alphabetic()) => {
            format!("{}{}", first.to_uppercase(), letters.as_str())
        }
        _ => text.to_owned(),
    }
}

/// A metric's columns have one head together; a column alone has one head over both rows.
fn heads(heads: &[Head]) -> Markup {
    let grouped = heads.iter().any(|head| !head.group.is_empty());
    html! {
        thead {
            @if grouped {
                tr {
                    @for (place, span) in spans(heads) {
                        @let head = &heads[place];
                        @if head.group.is_empty() { (last(head, place, 2)) }
                        @else { th scope="colgroup" colspan=(span) { (head.group) } }
                    }
                }
                tr {
                    @for (place, head) in heads.iter().enumerate().filter(|(_, head)| !head.group.is_empty()) {
                        (last(head, place, 1))
                    }
                }
            } @else {
                tr { @for (place, head) in heads.iter().enumerate() { (last(head, place, 1)) } }
            }
        }
    }
}

fn last(head: &Head, place: usize, rows: usize) -> Markup {
    let rows = (rows > 1).then_some(rows);
    html! {
        th.t[!head.numeric] scope="col" rowspan=[rows] aria-sort="none" data-c=(place) {
            (breaking_at_dots(&head.text))
        }
    }
}

/// Where each group begins, and how many columns it has.
fn spans(heads: &[Head]) -> Vec<(usize, usize)> {
    let mut spans: Vec<(usize, usize)> = Vec::new();
    for (place, head) in heads.iter().enumerate() {
        match spans.last_mut() {
            Some((start, span)) if !head.group.is_empty() && heads[*start].group == head.group => {
                *span += 1;
            }
            _ => spans.push((place, 1)),
        }
    }
    spans
}

fn body(table: &Table) -> Markup {
    html! {
        tbody {
            @for row in &table.rows {
                tr { @for (cell, head) in row.iter().zip(&table.heads) { (data(cell, head)) } }
            }
        }
    }
}

fn data(cell: &Cell, head: &Head) -> Markup {
    let title = (!cell.title.is_empty()).then_some(&cell.title);
    let tone = match cell.tone {
        Tone::Plain => "",
        Tone::Quiet => "quiet",
        Tone::Good => "good",
        Tone::Bad => "bad",
    };
    let long = !head.numeric && cell.text.chars().count() > LONG;
    let classes = [if head.numeric { "" } else { "t" }, if long { "wrap" } else { "" }, tone];
    let classes: Vec<&str> = classes.into_iter().filter(|class| !class.is_empty()).collect();
    let class = (!classes.is_empty()).then(|| classes.join(" "));
    html! {
        td class=[class] title=[title] data-v=[cell.value.filter(|_| cell.text.ends_with('B'))] {
            @if let Some(ratios) = cell.strip { (strip(ratios)) }
            (cell.text) @if !cell.small.is_empty() { small { (cell.small) } }
        }
    }
}

/// A head that may break behind the dots of a setting's name, so that it does not run into the next one.
fn breaking_at_dots(text: &str) -> Markup {
    html! {
        @for (number, part) in text.split('.').enumerate() {
            @if number > 0 { "." wbr; }
            (part)
        }
    }
}

/// A ratio's range and middle on a logarithmic strip from an eighth to eight times; a tick stands at 1.
fn strip(ratios: [f64; 3]) -> Markup {
    const HALF_PX: f64 = 60.0;
    let at =
        |ratio: f64| (HALF_PX + (ratio.log2() / 3.0).clamp(-1.0, 1.0) * (HALF_PX - 5.0)).round();
    let [low, middle, high] = ratios.map(at);
    html! {
        svg.strip viewBox="0 0 120 12" width="120" height="12" aria-hidden="true" {
            path d="M0 6H120M60 1V11" {}
            path.range d=(format!("M{low} 6H{high}")) {}
            circle cx=(middle) cy="6" r="3.5" {}
        }
    }
}
