//! The top of the page: title, what must be known first, the summary, the contents.

use super::{anchor, tables};
use crate::run::Run;
use crate::sheet::Sheet;
use crate::summary;
use crate::table::Table;
use maud::{Markup, html};

/// Title and facts.
pub(super) fn masthead(run: &Run) -> Markup {
    html! {
        header {
            button.theme type="button" hidden { "Theme: auto" }
            h1 { (run.title) }
            p.facts { (summary::facts(run)) }
            @if let Some(machine) = summary::machine(run) { p.facts { (machine) } }
        }
    }
}

/// Banners, what came out, verdicts, ratios, noise, targets, how to repeat it.
pub(super) fn summary(run: &Run, sheets: &[Sheet<'_>]) -> Markup {
    let outcome = summary::outcome(sheets);
    html! {
        section id="summary" aria-labelledby="summary-h" {
            h2 id="summary-h" { "Summary" }
            @for banner in summary::banners(run) { p.banner role="note" { (banner) } }
            p { (summary::abstract_of(run, sheets)) }
            @if !outcome.is_empty() { p { (outcome) } }
            @for table in [summary::verdicts(run), summary::side_by_side(sheets), summary::noise(run)].into_iter().flatten() {
                (headed(&table))
            }
            @if !run.targets.is_empty() {
                h4 { "Targets" }
                dl.ran { @for target in &run.targets { dt { (target.name) } dd { (target.description) } } }
            }
            @if !run.reproduce.is_empty() {
                h4 { "How to repeat it" }
                pre { code { (run.reproduce.join("\n")) } }
            }
        }
    }
}

fn headed(table: &Table) -> Markup {
    html! {
        h4 { (table.caption) }
        (tables::plain(table))
        @if !table.note.is_empty() { p.notes { (table.note) } }
    }
}

/// Links to all experiments.
pub(super) fn contents(run: &Run, sheets: &[Sheet<'_>]) -> Markup {
    let of =
        |id: &str| sheets.iter().filter(move |sheet| sheet.report.id == id).collect::<Vec<_>>();
    html! {
        nav id="contents" aria-labelledby="contents-h" {
            h2 id="contents-h" { "Contents" }
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
