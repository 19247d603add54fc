//! Runs of the laboratory: how far each is, what was judged, and its charts.

use hyper::StatusCode;
use maud::{Markup, html};

use super::{Page, fact, lacking, no_rows, table};
use crate::Visit;
use crate::lab::{Judged, Round, Run, Whole};
use crate::parts::chart::{self, Line, Point};
use crate::parts::number::{UNKNOWN, count, rate, time};
use crate::parts::text::visible;
use crate::query::link;

pub(super) async fn list(visit: &Visit<'_>) -> Page {
    let body = match visit.lab.runs().await {
        Err(why) => return unreadable(visit, &why),
        Ok((runs, is_cut)) => html! {
            h1 { "Laboratory" }
            (table("Runs", html! {
                table {
                    caption { "Runs, the newest first" @if is_cut { "; there are more" } }
                    thead { tr {
                        th scope="col" { "Run" } th.number scope="col" { "Rounds" } th scope="col" { "State" } th scope="col" { "Changed" } th scope="col" { "Report" }
                    } }
                    tbody {
                        @if runs.is_empty() { (no_rows(5, "No folder here holds a run.")) }
                        @for run in &runs { tr {
                            th.name scope="row" { a href=(at("/console/run", run)) { (visible(&run.name)) } }
                            td.number { (rounds(run)) }
                            td { (state(run)) }
                            td { (time(run.changed_ms)) }
                            td { @if run.has_report { a href=(at("/console/run/report", run)) aria-label={ "open the report of " (run.name) } { "open" } } @else { (UNKNOWN) } }
                        } }
                    }
                }
            }))
            p.quiet { "A run is begun with " code { "highwater lab run … --out FOLDER" } ", in a folder within that of " code { "console.lab.dir" } "." }
        },
    };
    Page::new("Laboratory", body)
}

/// There is no laboratory, or its folder cannot be read now.
fn unreadable(visit: &Visit<'_>, why: &str) -> Page {
    let body = html! { h1 { "Laboratory" } div.notice { p { (visible(why)) } } };
    let is_open = visit.lab.is_open();
    let status = if is_open { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NOT_FOUND };
    Page { status, ..Page::new("Laboratory", body) }
}

pub(super) async fn one(visit: &Visit<'_>) -> Page {
    let name = visit.query.get("name").unwrap_or_default();
    match visit.lab.run(name).await {
        Ok(Some(found)) => Page::new(found.run.name.clone(), whole(&found)),
        Ok(None) => missing(&format!("There is no run {name}")),
        Err(why) => unreadable(visit, &why),
    }
}

fn missing(why: &str) -> Page {
    let body = html! {
        h1 { "Run not found" }
        p { (visible(why)) }
        p { a href="/console/runs" { "Back to the list" } }
    };
    Page { status: StatusCode::NOT_FOUND, title: "Run not found".to_owned(), body }
}

fn at(path: &str, run: &Run) -> String {
    link(path, &[("name", &run.name)])
}

fn whole(found: &Whole) -> Markup {
    let Whole { run, judged, rounds: measured, charts } = found;
    let failed = measured.iter().filter(|round| round.failure.is_some()).count();
    html! {
        p.crumbs { a href="/console/runs" { "Laboratory" } }
        h1 { (visible(&run.name)) }
        dl.facts {
            (fact("Rounds", html! { (rounds(run)) }))
            (fact("State", state(run)))
            (fact("Failed", html! { (count(failed as i64)) }))
            @if let Ok(judged) = judged {
                (fact("Profile", html! { (visible(&judged.profile)) }))
                (fact("Build", html! { (visible(&judged.commit)) }))
            }
        }
        @if let Ok(judged) = judged { p { (visible(&judged.title)) } }
        @if run.has_report { p { a.button href=(at("/console/run/report", run)) { "Open the report" } } }
        @if !measured.is_empty() { (pace(measured)) }
        h2 { "Verdicts" }
        @match judged {
            Ok(judged) => (verdicts(judged)),
            Err(why) => (lacking("nothing was judged yet", why)),
        }
        @if !charts.is_empty() {
            h2 { "Charts" }
            // They are made at the end, and are not fetched again and again.
            div.charts data-stays { @for chart in charts {
                @let address = link("/console/run/chart", &[("name", &run.name), ("chart", chart)]);
                figure.chart {
                    figcaption { a href=(address) { (chart) } }
                    img loading="lazy" src=(address) alt={ "Chart " (chart) ", told in the report" };
                }
            } }
        }
    }
}

fn rounds(run: &Run) -> String {
    let or_unknown = |number: Option<usize>| number.map_or(UNKNOWN.to_owned(), |n| count(n as i64));
    match (run.rounds, run.planned) {
        (None, None) => UNKNOWN.to_owned(),
        (done, planned) => format!("{} of {}", or_unknown(done), or_unknown(planned)),
    }
}

fn state(run: &Run) -> Markup {
    match (run.rounds, run.planned) {
        (Some(done), Some(planned)) if done >= planned => html! { span.state.good { "measured" } },
        (_, Some(_)) => html! { span.state.note { "not whole" } },
        (_, None) => html! { span.state.note { "a report" } },
    }
}

/// Records a second of one round after the other, for each target: what moves while a run goes on.
fn pace(measured: &[Round]) -> Markup {
    let mut targets: Vec<&str> = measured.iter().map(|round| &*round.target).collect();
    targets.sort_unstable();
    targets.dedup();
    let last = measured.last().map(|round| &*round.experiment).unwrap_or_default();
    let words = |value: f64| rate(Some(value));
    html! {
        h2 { "Rounds" }
        div.charts { @for target in targets.into_iter().take(8) {
            @let points = points(measured, target);
            @let now = rate(points.iter().rev().find_map(|(_, value)| *value));
            @let (title, to_ms) = (format!("Records a second, {}", visible(target)), points.len() as i64);
            (chart::line(&Line {
                title: &title, now: &now, points: &points, from_ms: 0, to_ms, step_ms: 1, words, ends: ("first round", "last round"),
            }))
        } }
        p.quiet { "The last one was of " (visible(last)) ". Rounds of different experiments are not to be compared." }
    }
}

/// One place for each round of a target.
fn points(measured: &[Round], target: &str) -> Vec<Point> {
    let own = measured.iter().filter(|round| round.target == target);
    (0..)
        .zip(own)
        .map(|(place, round)| (place, round.metrics.throughput.filter(|v| v.is_finite())))
        .collect()
}

fn verdicts(judged: &Judged) -> Markup {
    let outcomes: Vec<String> = judged
        .outcomes()
        .into_iter()
        .map(|(outcome, number)| format!("{} {}", count(number as i64), words(outcome)))
        .collect();
    html! {
        (table("Verdicts", html! {
            table {
                caption { @if outcomes.is_empty() { "No claim" } @else { (visible(&outcomes.join(", "))) } }
                thead { tr {
                    th scope="col" { "Experiment" } th scope="col" { "Claim" } th scope="col" { "On" } th scope="col" { "Verdict" } th scope="col" { "Because" }
                } }
                tbody {
                    @if judged.findings.is_empty() { (no_rows(5, "No claim was judged.")) }
                    @for finding in judged.shown() {
                        @let verdict = &finding.verdict;
                        tr {
                            td.name { (visible(&verdict.experiment)) }
                            th.name scope="row" { (visible(&verdict.claim)) }
                            td { @if finding.target.is_empty() { "published" } @else { (visible(&finding.target)) } }
                            td { span.state.(class(&verdict.outcome)) { (visible(&words(&verdict.outcome))) } }
                            td { (visible(&verdict.because)) }
                        }
                    }
                }
            }
        }))
        @if !judged.explanations.is_empty() {
            h2 { "What limits it" }
            ul { @for explanation in judged.explanations.iter().take(200) {
                li { strong { (visible(&explanation.experiment)) } ": " (visible(&explanation.sentence)) }
            } }
        }
    }
}

fn words(outcome: &str) -> String {
    outcome.replace('-', " ")
}

fn class(outcome: &str) -> &'static str {
    match outcome {
        "reproduced" => "good",
        "contradicted" => "bad",
        _ => "note",
    }
}
