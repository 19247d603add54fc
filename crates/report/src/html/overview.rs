//! The first screen: the finding, bars, failover, losses, and one folded line of what limits them.

use super::tables;
use crate::number;
use crate::overview::{DurabilityClass, Failover, Overview, Shown};
use crate::palette;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::summary;
use crate::table::Table;
use crate::wording;
use maud::{Markup, html};

/// Losses that the first screen lists.
const LOSSES_SHOWN: usize = 4;
/// The least width of a bar, percent of its track: a bar of nothing would look like a missing one.
const LEAST_PERCENT: f64 = 0.8;

/// Everything above the contents.
pub(super) fn first_screen(run: &Run, sheets: &[Sheet<'_>], overview: &Overview) -> Markup {
    html! {
        header {
            p.kicker { (kicker(run)) button.theme type="button" hidden { "Theme: auto" } }
            h1 { (overview.finding) }
            @if overview.has_figures() { (legend(&overview.targets)) }
        }
        @if overview.has_figures() {
            section id="overview" aria-label="The finding in figures" {
                div.panels-of-bars {
                    @for class in &overview.classes { (panel(class, &overview.targets)) }
                    @if let Some(gaps) = &overview.failover { (failover(gaps, &overview.targets)) }
                    @if overview.classes.len() > 1 { (method_note()) }
                    @if overview.is_compared { (losses(overview)) }
                }
            }
        }
        (trust(run, sheets, overview))
    }
}

/// Names the means of the bars. Readers took two panels for one workload with and without syncs.
fn method_note() -> Markup {
    html! {
        p.notes.wide {
            "Bars are geometric means over configurations (record sizes, batches, partitions, clients). Each panel has its own ones, so panels \
             are not compared with each other. Most run at full load, where latency is queueing time. Memory is resident, of all brokers together."
        }
    }
}

/// Title, date, machine: one line.
fn kicker(run: &Run) -> String {
    let mut parts = vec![run.title.clone()];
    if let Some(started) = run.rounds.iter().map(|round| round.started_ms).min() {
        parts.push(wording::moment(started).chars().take(10).collect());
    }
    let of = |key: &str| run.environment.get(key).filter(|value| !value.is_empty());
    parts.extend(
        of("cpu.cores")
            .zip(of("cpu.model"))
            .map(|(cores, model)| format!("one machine, {cores} cores, {model}")),
    );
    parts.join(" · ")
}

fn colour(target: &Shown) -> String {
    palette::hex(palette::series(target.colour))
}

fn legend(targets: &[Shown]) -> Markup {
    html! {
        p.legend {
            @for target in targets {
                span.key { i style=(format!("background:{}", colour(target))) {} (target.name) }
            }
        }
    }
}

fn panel(class: &DurabilityClass, targets: &[Shown]) -> Markup {
    html! {
        div.bars {
            h2 { (class.title) small { (wording::count(class.cells, "configuration")) } }
            @for group in &class.bars {
                h3 {
                    (group.name) " " span.quiet { (group.unit) }
                    @if let Some(ratio) = group.ratio() {
                        b.good[group.first_is_better()].bad[!group.first_is_better()] { (number::multiple(ratio)) }
                    }
                }
                (bars(&group.values, targets, &|value| number::short(value)))
            }
        }
    }
}

/// One bar a target, the number behind it.
fn bars(values: &[f64], targets: &[Shown], text: &dyn Fn(f64) -> String) -> Markup {
    let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    html! {
        div.group {
            @for (value, target) in values.iter().zip(targets) {
                div.bar title=(target.name) {
                    i style=(format!("width:{:.1}%;background:{}", (value / most * 72.0).max(LEAST_PERCENT), colour(target))) {}
                    span { (text(*value)) }
                }
            }
        }
    }
}

/// First by second time: less is better.
fn factor(times_ms: &[f64]) -> Markup {
    html! {
        @if let [first, second] = times_ms {
            b.good[first < second].bad[first >= second] { (number::multiple(first / second)) }
        }
    }
}

fn failover(gaps: &Failover, targets: &[Shown]) -> Markup {
    html! {
        div.bars {
            h2 { "A broker is killed"
                small { (number::fixed(gaps.kills, 0)) " kills, " (wording::count(gaps.clients, "client")) }
            }
            h3 { "Pause of writes, median" (factor(&gaps.median_ms)) }
            (bars(&gaps.median_ms, targets, &number::duration))
            h3 { "Pause of writes, worst" (factor(&gaps.worst_ms)) }
            (bars(&gaps.worst_ms, targets, &number::duration))
        }
    }
}

fn losses(overview: &Overview) -> Markup {
    let losses = &overview.losses;
    html! {
        div.bars.losses {
            h2 { (overview.losses_title()) }
            @if losses.is_empty() {
                p { "No compared figure is worse." }
            } @else {
                ul {
                    @for loss in losses.iter().take(LOSSES_SHOWN) {
                        li { b { (loss.factor()) } " " a href=(format!("#{}", super::anchor(&loss.experiment))) { (loss.experiment) }
                            span.quiet { " " (loss.cell) "; " (loss.certainty()) } }
                    }
                }
                @if losses.len() > LOSSES_SHOWN {
                    p.notes { "And " (losses.len() - LOSSES_SHOWN) " more in the tables." }
                }
            }
        }
    }
}

/// Noise, warnings, verdicts, ratios, targets, how to repeat it: one line that unfolds.
fn trust(run: &Run, sheets: &[Sheet<'_>], overview: &Overview) -> Markup {
    let outcome = summary::outcome(sheets);
    let banners = summary::banners(run);
    html! {
        details.trust id="summary" open[!overview.has_figures()] {
            summary { (trust_line(run, &banners)) }
            p.facts { (summary::facts(run)) }
            @if let Some(machine) = summary::machine(run) { p.facts { (machine) } }
            @for banner in &banners { p.banner role="note" { (banner) } }
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
                h4 { "Command of the run" }
                pre { code { (run.reproduce.join("\n")) } }
            }
        }
    }
}

fn trust_line(run: &Run, banners: &[String]) -> String {
    if run.rounds.is_empty() {
        return "Sources and claims".to_owned();
    }
    let mut parts = vec![wording::count(run.rounds.len(), "round")];
    if let Some(floor) = run.analysis.floors.get("throughput") {
        parts
            .push(format!("noise of one round {}", number::percent_whole(floor.of_pairs(1) - 1.0)));
    }
    parts.push(wording::count(banners.len(), "warning"));
    format!("Noise, warnings, method: {}", parts.join(", "))
}

fn headed(table: &Table) -> Markup {
    html! {
        h4 { (table.caption) }
        (tables::plain(table))
        @if !table.note.is_empty() { p.notes { (table.note) } }
    }
}
