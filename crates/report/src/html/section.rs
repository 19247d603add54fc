//! The body of the page: contents, reports with their experiments, what waits, the environment, how to read it all.

use super::{Lively, anchor, card, figure, ledger, tables};
use crate::caption;
use crate::card::Card;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::table;
use crate::wording;
use experiment::definition::Report;
use maud::{Markup, html};

/// Links to all experiments.
pub(super) fn contents(run: &Run, sheets: &[Sheet<'_>]) -> Markup {
    let of =
        |id: &str| sheets.iter().filter(move |sheet| sheet.report.id == id).collect::<Vec<_>>();
    html! {
        nav id="contents" aria-label="Contents" {
            details {
            summary { "Contents: " (wording::count(sheets.len(), "experiment")) }
            ul.toc {
                @for (number, report) in run.reports.iter().enumerate() {
                    li {
                        span.number { (number + 1) } strong { (report.title) }
                        ol {
                            @for (place, sheet) in of(&report.id).iter().enumerate() {
                                li { a href=(format!("#{}", anchor(&sheet.experiment.id))) {
                                    span.number { (number + 1) "." (place + 1) } (sheet.experiment.title)
                                } }
                            }
                        }
                    }
                }
                li {
                    @if !run.waiting.is_empty() { a href="#waiting" { strong { "What waits, and why" } } br; }
                    @if !run.environment.is_empty() { a href="#environment" { strong { "Environment" } } br; }
                    a href="#reading" { strong { "How to read it" } }
                }
            }
            }
        }
    }
}

/// A report and its experiments.
pub(super) fn report(
    run: &Run,
    report: &Report,
    sheets: &[Sheet<'_>],
    lively: &mut Lively,
) -> Markup {
    let number = run.reports.iter().position(|other| other.id == report.id).unwrap_or(0) + 1;
    let of_report = sheets.iter().filter(|sheet| sheet.report.id == report.id);
    let experiments: Vec<Markup> = of_report
        .enumerate()
        .map(|(place, sheet)| experiment(run, sheet, &format!("{number}.{}", place + 1), lively))
        .collect();
    html! {
        section id=(format!("r-{}", report.id)) {
            h2 { span.number { (number) } (report.title) " (" (report.year) ")" }
            p.setting { (report.setting) }
            p.setting { (report.source) }
            @for experiment in &experiments { (experiment) }
        }
    }
}

fn experiment(run: &Run, sheet: &Sheet<'_>, number: &str, lively: &mut Lively) -> Markup {
    let experiment = sheet.experiment;
    let tables = table::tables(sheet);
    let card = Card::new(sheet);
    html! {
        article id=(anchor(&experiment.id)) {
            p.kicker { span.number { (number) } (experiment.title) code { (experiment.id) } }
            h3 { (card.title) }
            (card::chart(sheet, &card))
            details.all open[sheet.targets.is_empty()] {
                summary { "Question, conditions, figures, tables, claims" }
                p.question { (experiment.question) }
                (ran(run, sheet))
                @if !experiment.notes.is_empty() { ul.notes { @for note in &experiment.notes { li { (note) } } } }
                (figure::figures(run, sheet, lively))
                @if let Some(first) = tables.first() { (tables::numbered(first, &experiment.title)) }
                (more(&tables, &experiment.title, lively))
                (ledger::ledger(run, sheet))
                (limits(run, sheet))
            }
        }
    }
}

/// The tables behind the first: folded away, and unpacked by the script.
fn more(tables: &[table::Table], subject: &str, lively: &mut Lively) -> Markup {
    let Some((_, rest)) = tables.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return html! {};
    };
    let marked_up: String =
        rest.iter().map(|table| tables::numbered(table, subject).into_string()).collect();
    lively.tables.push(marked_up);
    html! {
        details data-t=(lively.tables.len() - 1) {
            summary { "More columns: " (captions(rest)) }
            noscript { p.notes { "They are in cells.csv and report.md." } }
        }
    }
}

fn captions(tables: &[table::Table]) -> String {
    tables.iter().map(|table| table.caption.as_str()).collect::<Vec<_>>().join("; ")
}

/// What it ran on, and what was otherwise than asked for.
fn ran(run: &Run, sheet: &Sheet<'_>) -> Markup {
    let lines = caption::ran_lines(run, sheet);
    html! {
        @if !lines.is_empty() { dl.ran { @for (what, text) in &lines { dt { (what) } dd { (text) } } } }
    }
}

fn limits(run: &Run, sheet: &Sheet<'_>) -> Markup {
    let lines = caption::limits(run, sheet);
    let warnings = caption::warnings(sheet);
    html! {
        @if !lines.is_empty() {
            h4 { "What limits it" }
            ul.limits { @for line in &lines { li { (line) } } }
        }
        @if !warnings.is_empty() {
            details {
                summary { (wording::count(warnings.len(), "warning")) " of the rounds" }
                ul.notes { @for warning in &warnings { li { (warning) } } }
            }
        }
    }
}

/// Cells that were not run.
pub(super) fn waiting(run: &Run) -> Markup {
    let lines = caption::waiting(run);
    html! {
        @if !lines.is_empty() {
            section id="waiting" {
                h2 { "What waits, and why" }
                p { "Nothing is simulated in place of what a target cannot do yet. These cells run as soon as it can." }
                div.scroll.words tabindex="0" role="region" aria-label="Cells that wait" {
                    table {
                        thead { tr { th scope="col" { "experiment" } th scope="col" { "target" } th scope="col" { "cells" } th scope="col" { "why" } } }
                        tbody { @for line in &lines { tr {
                            td { (line.experiment) } td data-head="target" { (line.target) } td data-head="cells" { (line.cells) } td { span.says { (line.why) } }
                        } } }
                    }
                }
            }
        }
    }
}

/// The machine, programs and settings.
pub(super) fn environment(run: &Run) -> Markup {
    html! {
        @if !run.environment.is_empty() {
            section id="environment" {
                h2 { "Environment" }
                p { "Hash of the lasting part: " code { (run.environment.hash()) } ". Two runs are comparable where theirs agree." }
                div.scroll.words tabindex="0" role="region" aria-label="Environment" {
                    table {
                        thead { tr { th scope="col" { "key" } th scope="col" { "value" } } }
                        tbody { @for (key, value) in run.environment.iter() { tr { td { (key) } td { (wording::known(value)) } } } }
                    }
                }
            }
        }
    }
}

/// What words and signs mean.
pub(super) fn reading(run: &Run) -> Markup {
    html! {
        section id="reading" {
            h2 { "How to read it" }
            dl.ran {
                @for (what, text) in wording::reading(!run.targets.is_empty()) { dt { (what) } dd { (text) } }
            }
        }
    }
}
