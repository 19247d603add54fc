//! The claims ledger of an experiment: each claim, and what became of it on the published rows and on each target.

use crate::run::{Judged, Run};
use crate::sheet::Sheet;
use crate::wording;
use experiment::claims::Outcome;
use experiment::definition::Claim;
use maud::{Markup, html};

/// The ledger; nothing if the experiment claims nothing or nothing was tested.
pub(super) fn ledger(run: &Run, sheet: &Sheet<'_>) -> Markup {
    let subjects = subjects(run, sheet);
    html! {
        @if !sheet.experiment.claims.is_empty() && !subjects.is_empty() {
            h4 { "Claims" }
            div.scroll.words tabindex="0" role="region" aria-label=(format!("{}: claims", sheet.experiment.title)) {
                table {
                    thead { tr {
                        th scope="col" { "" } th scope="col" { "claim" }
                        @for subject in &subjects { th scope="col" { (shown(subject)) } }
                    } }
                    tbody { @for claim in &sheet.experiment.claims { (line(run, sheet, claim, &subjects)) } }
                }
            }
        }
    }
}

/// Who was tested in this experiment: the published rows first.
pub(crate) fn subjects<'a>(run: &'a Run, sheet: &Sheet<'_>) -> Vec<&'a str> {
    let tested = |name: &str| {
        let mut all = run.findings.iter();
        all.any(|judged| judged.finding.experiment == sheet.experiment.id && judged.target == name)
    };
    let names = run.targets.iter().map(|target| target.name.as_str());
    std::iter::once("").chain(names).filter(|name| tested(name)).collect()
}

/// A subject's name for readers.
pub(crate) fn shown(subject: &str) -> &str {
    if subject.is_empty() { "published rows" } else { subject }
}

/// What was found about a claim on a subject.
pub(crate) fn judged<'a>(
    run: &'a Run,
    sheet: &Sheet<'_>,
    claim: &Claim,
    subject: &str,
) -> Option<&'a Judged> {
    run.findings.iter().find(|judged| {
        judged.finding.experiment == sheet.experiment.id
            && judged.finding.claim == claim.id
            && judged.target == subject
    })
}

fn line(run: &Run, sheet: &Sheet<'_>, claim: &Claim, subjects: &[&str]) -> Markup {
    html! {
        tr {
            td { (claim.id) }
            td { div.says { (claim.says) @if claim.ours { " " span.quiet { "(ours)" } } } }
            @for subject in subjects {
                td data-head=(shown(subject)) {
                    @match judged(run, sheet, claim, subject) {
                        Some(judged) => {
                            span class=(class(judged.finding.outcome, claim.ours)) { (wording::verdict(judged.finding.outcome, claim.ours)) }
                            span.why { (judged.finding.because) }
                        },
                        None => span.quiet { "–" },
                    }
                }
            }
        }
    }
}

/// A published claim that does not hold here is not a fault of a target: only ours are coloured as one.
fn class(outcome: Outcome, is_ours: bool) -> &'static str {
    match outcome {
        Outcome::Reproduced => "verdict reproduced",
        Outcome::Contradicted if is_ours => "verdict contradicted",
        _ => "verdict open",
    }
}
