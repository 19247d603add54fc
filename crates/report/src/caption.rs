//! The sentences around numbers: what a figure's values are worth, and a run in short.

use crate::number;
use crate::picture::Picture;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::wording;
use experiment::analysis::{Better, ROUNDS_FOR_INTERVAL, Ratio, better};
use experiment::claims::Outcome;
use experiment::definition::{Chart, Form};
use std::collections::BTreeMap;

/// Under a figure: rounds, intervals, noise, machine, targets, emulation.
pub(crate) fn figure(run: &Run, sheet: &Sheet<'_>, chart: &Chart, pictures: &[Picture]) -> String {
    let mut sentences: Vec<String> = Vec::new();
    let notes = pictures.iter().flat_map(|picture| &picture.notes);
    for note in notes {
        if !sentences.contains(note) {
            sentences.push(note.clone());
        }
    }
    if sheet.targets.is_empty() {
        sentences
            .push(format!("Published values ({}, {}).", sheet.report.title, sheet.report.year));
        return sentences.join(" ");
    }
    if pictures.iter().any(|picture| picture.subject == "published") {
        sentences.push("Published values stand apart on their own scale.".to_owned());
    } else if pictures.iter().any(Picture::has_published) {
        sentences.push("Hollow markers: published values.".to_owned());
    }
    let whiskers = !matches!(chart.form, Form::HeatMap | Form::Counts);
    sentences.push(rounds(sheet, whiskers));
    sentences.extend(floors(run, &chart.y));
    sentences.push(ran_on(run, sheet));
    sentences.join(" ")
}

fn rounds(sheet: &Sheet<'_>, whiskers: bool) -> String {
    let rounds: Vec<usize> = sheet.cells().map(|cell| cell.rounds).collect();
    let (least, most) = (rounds.iter().min().copied(), rounds.iter().max().copied());
    let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
    let number = if least == most {
        wording::count(most, "round")
    } else {
        format!("{least} to {most} rounds")
    };
    if most >= ROUNDS_FOR_INTERVAL {
        let whiskers = if whiskers { "; whiskers: 95 % confidence intervals" } else { "" };
        format!("Means of {number}{whiskers}.")
    } else {
        format!("Means of {number}: too few for confidence intervals.")
    }
}

/// What the same target differs from itself by, for the metrics that were watched.
fn floors(run: &Run, metrics: &[String]) -> Option<String> {
    let of = |metric: &String| {
        let floor = run.analysis.floors.get(metric)?;
        let share = number::fixed((floor.within - 1.0) * 100.0, 1);
        Some(format!("{} {share} %", wording::metric(metric).text))
    };
    let mut texts: Vec<String> = metrics.iter().filter_map(of).collect();
    // A rate in records and one in bytes have one name and one floor.
    texts.dedup();
    (!texts.is_empty()).then(|| format!("Noise floor: {}.", texts.join(", ")))
}

fn ran_on(run: &Run, sheet: &Sheet<'_>) -> String {
    let emulations = sheet.emulations();
    let emulated = if emulations.is_empty() {
        "not emulated".to_owned()
    } else {
        format!("emulated ({})", emulations.join(", "))
    };
    let targets = sheet.targets.join(" and ");
    format!("Target: {targets}; {emulated}; environment {}.", environment(run))
}

/// The environment's hash, or that there is none.
pub(crate) fn environment(run: &Run) -> String {
    if run.environment.is_empty() { "not captured".to_owned() } else { run.environment.hash() }
}

/// The subjects of findings, the published rows first, and how often each verdict was given.
pub(crate) fn tally(run: &Run) -> Vec<(String, BTreeMap<Outcome, usize>)> {
    let mut subjects: Vec<&str> = vec![""];
    subjects.extend(run.targets.iter().map(|target| target.name.as_str()));
    let of = |subject: &str| {
        let mut counts = BTreeMap::new();
        for judged in run.findings.iter().filter(|judged| judged.target == subject) {
            *counts.entry(judged.finding.outcome).or_insert(0) += 1;
        }
        let name = if subject.is_empty() { "published rows" } else { subject };
        (name.to_owned(), counts)
    };
    subjects.into_iter().map(of).filter(|(_, counts)| !counts.is_empty()).collect()
}

/// One experiment's ratios of its first compared metric, in short.
pub(crate) struct Headline<'a> {
    pub(crate) metric: &'a str,
    pub(crate) target: &'a str,
    pub(crate) base: &'a str,
    pub(crate) ratios: Vec<&'a Ratio>,
    /// Geometric mean over the cells.
    pub(crate) mean: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The headline of an experiment: none without pairs.
pub(crate) fn headline<'a>(sheet: &Sheet<'a>) -> Option<Headline<'a>> {
    let (target, base) = sheet.versus?;
    let of = |metric: &str| -> Vec<&'a Ratio> {
        sheet.rows.iter().filter_map(|row| row.ratios?.get(metric)).collect()
    };
    let metrics = sheet.experiment.columns.iter().map(String::as_str);
    let metrics = metrics.filter(|metric| better(metric) != Better::Neither);
    let (metric, ratios) =
        metrics.map(|metric| (metric, of(metric))).find(|(_, ratios)| !ratios.is_empty())?;
    let values = ratios.iter().map(|ratio| ratio.ratio);
    let mean = (values.clone().map(f64::ln).sum::<f64>() / ratios.len() as f64).exp();
    let (low, high) =
        values.fold((f64::INFINITY, 0.0), |(low, high), v| (f64::min(low, v), f64::max(high, v)));
    Some(Headline { metric, target, base, ratios, mean, low, high })
}

/// Under the title: how long, when, from what, on what.
pub(crate) fn facts(run: &Run) -> String {
    let mut facts: Vec<String> = Vec::new();
    if run.rounds.is_empty() {
        facts.push("published values, nothing was run".to_owned());
    } else {
        facts.push(format!("profile {}", run.profile));
        let started = run.rounds.iter().map(|round| round.started_ms).min().unwrap_or(0);
        facts.push(wording::moment(started));
        facts.push(wording::count(run.rounds.len(), "round"));
        facts.push(format!("seed {}", run.seed));
        facts.push(format!("environment {}", environment(run)));
    }
    if !run.commit.is_empty() {
        facts.push(format!("commit {}", run.commit));
    }
    facts.join(" · ")
}

/// What must be read before the numbers; many of one kind become a line.
pub(crate) fn banners(run: &Run) -> Vec<String> {
    const SHOWN: usize = 4;
    let mut banners: Vec<String> = run.analysis.banners.iter().take(SHOWN).cloned().collect();
    let more = run.analysis.banners.len().saturating_sub(SHOWN);
    if more > 0 {
        banners.push(format!(
            "And {} of this kind: the tables name each.",
            wording::count(more, "note")
        ));
    }
    banners
}

/// The first paragraph.
pub(crate) fn abstract_of(run: &Run, sheets: &[Sheet<'_>]) -> String {
    let experiments = wording::count(sheets.len(), "experiment");
    let reports = wording::count(run.reports.len(), "report");
    if run.rounds.is_empty() {
        return format!(
            "{experiments} of {reports}, redrawn from the published numbers. Nothing was measured for this document."
        );
    }
    let measured = sheets.iter().filter(|sheet| !sheet.targets.is_empty()).count();
    let names: Vec<&str> = run.targets.iter().map(|target| target.name.as_str()).collect();
    let failed = run.rounds.iter().filter(|round| round.failure.is_some()).count();
    let mut text = format!(
        "{} of {experiments} from {reports} were run on {}: {}",
        number::fixed(measured as f64, 0),
        names.join(" and "),
        wording::count(run.rounds.len(), "round"),
    );
    text.push_str(&match failed {
        0 => ", none failed. ".to_owned(),
        _ => format!(", of which {} failed. ", number::fixed(failed as f64, 0)),
    });
    text.push_str(&delivery(sheets));
    text.push_str(&drifts(run));
    text
}

fn delivery(sheets: &[Sheet<'_>]) -> String {
    let verdicts: Vec<_> = sheets
        .iter()
        .filter(|sheet| sheet.has_records())
        .flat_map(|sheet| sheet.cells())
        .map(|c| &c.verdict)
        .collect();
    let broken =
        |v: &experiment::round::Verdict| v.lost + v.duplicated + v.reordered + v.damaged > 0;
    let clean = verdicts.iter().filter(|verdict| verdict.is_clean()).count();
    let bad = verdicts.iter().filter(|verdict| broken(verdict)).count();
    let rest = verdicts.len() - clean - bad;
    format!(
        "Every acknowledged record was found once, whole and in order in {clean} of {} results; {bad} broke that, {rest} \
         were not verified. ",
        verdicts.len()
    )
}

fn drifts(run: &Run) -> String {
    let of = |drift: &experiment::analysis::Drift| {
        format!("{} {} %", drift.target, number::fixed(drift.worst * 100.0, 1))
    };
    let texts: Vec<String> = run.analysis.drifts.iter().map(of).collect();
    if texts.is_empty() {
        String::new()
    } else {
        format!("Drift of the canary: {}.", texts.join(", "))
    }
}

/// What an experiment ran on: names and texts.
pub(crate) fn ran_lines(run: &Run, sheet: &Sheet<'_>) -> Vec<(&'static str, String)> {
    let mut lines = Vec::new();
    if !run.targets.is_empty() {
        let on =
            if sheet.targets.is_empty() { "not run".to_owned() } else { sheet.targets.join(", ") };
        lines.push(("Ran on", on));
    }
    let emulations = sheet.emulations();
    if !emulations.is_empty() {
        lines.push((
            "Emulated",
            format!("{}: shaped by a proxy, not the machine of then", emulations.join(", ")),
        ));
    }
    if let Some(other) = &sheet.experiment.same_runs_as {
        lines.push(("Runs", format!("those of {other}, seen from another side")));
    }
    let constants: Vec<String> =
        sheet.constants().iter().map(|(factor, level)| wording::setting(factor, level)).collect();
    if !constants.is_empty() {
        lines.push(("Held fixed", constants.join(", ")));
    }
    let deviations = sheet.deviations();
    for (place, (target, deviation)) in deviations.iter().enumerate() {
        let both = deviations.iter().filter(|(_, other)| other == deviation).count();
        let first = deviations.iter().position(|(_, other)| other == deviation) == Some(place);
        match (both > 1, first) {
            (true, true) => lines.push(("Differs", (*deviation).to_owned())),
            (true, false) => {}
            (false, _) => lines.push(("Differs", format!("{target}: {deviation}"))),
        }
    }
    lines
}

/// What limits an experiment's numbers: the explainers' sentences.
pub(crate) fn limits(run: &Run, sheet: &Sheet<'_>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for explanation in run.explanations.iter().filter(|e| e.experiment == sheet.experiment.id) {
        let subject = if explanation.target.is_empty() { "Published" } else { &explanation.target };
        lines.push(format!("{subject}: {}", explanation.sentence));
    }
    lines
}

/// What looked wrong in an experiment's rounds, each once.
pub(crate) fn warnings(sheet: &Sheet<'_>) -> Vec<String> {
    let mut warnings: Vec<(String, usize)> = Vec::new();
    for cell in sheet.cells() {
        for warning in &cell.warnings {
            let text = format!("{}: {warning}", cell.target);
            match warnings.iter_mut().find(|(other, _)| *other == text) {
                Some((_, cells)) => *cells += 1,
                None => warnings.push((text, 1)),
            }
        }
    }
    let shown = |(text, cells)| if cells > 1 { format!("{text} ({cells} cells)") } else { text };
    warnings.into_iter().map(shown).collect()
}

/// One line of what waits.
pub(crate) struct WaitingLine {
    pub(crate) experiment: String,
    pub(crate) target: String,
    pub(crate) cells: String,
    pub(crate) why: String,
}

/// What waits, the cells of one reason together.
pub(crate) fn waiting(run: &Run) -> Vec<WaitingLine> {
    let mut lines: Vec<(WaitingLine, Vec<String>)> = Vec::new();
    for waiting in &run.waiting {
        let cell = wording::cell(&waiting.cell);
        let same = lines.iter_mut().find(|(line, _)| {
            line.experiment == waiting.experiment
                && line.target == waiting.target
                && line.why == waiting.why
        });
        match same {
            Some((_, cells)) => cells.push(cell),
            None => {
                let line = WaitingLine {
                    experiment: waiting.experiment.clone(),
                    target: waiting.target.clone(),
                    cells: String::new(),
                    why: waiting.why.clone(),
                };
                lines.push((line, vec![cell]));
            }
        }
    }
    lines.into_iter().map(|(line, cells)| WaitingLine { cells: few(&cells), ..line }).collect()
}

/// The cells by name if they are few, else how many.
fn few(cells: &[String]) -> String {
    if cells.len() > 4 { wording::count(cells.len(), "cell") } else { cells.join("; ") }
}
