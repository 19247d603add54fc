//! The sentences around numbers: what a figure's values are worth, what an experiment ran on, what waits. The run as
//! a whole is in `summary`.

use crate::number;
use crate::picture::{PUBLISHED, Picture};
use crate::run::Run;
use crate::sheet::Sheet;
use crate::wording;
use experiment::analysis::ROUNDS_FOR_INTERVAL;
use experiment::definition::{Chart, Form};
use experiment::round::Durability;

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
    if pictures.iter().any(|picture| picture.subject == PUBLISHED) {
        sentences.push("Published values stand apart on their own scale.".to_owned());
    } else if pictures.iter().any(Picture::has_published) {
        sentences.push("Hollow markers: published values.".to_owned());
    }
    let whiskers = !matches!(chart.form, Form::HeatMap | Form::Counts);
    sentences.push(rounds(sheet, whiskers));
    if sheet.cells().any(|cell| cell.young) {
        sentences
            .push("Some brokers were still warming up: the tables mark them with †.".to_owned());
    }
    sentences.extend(floors(run, sheet, &chart.y));
    sentences.push(ran_on(run, sheet));
    sentences.join(" ")
}

fn rounds(sheet: &Sheet<'_>, whiskers_drawn: bool) -> String {
    let rounds: Vec<usize> = sheet.cells().map(|cell| cell.rounds).collect();
    let (least, most) = (rounds.iter().min().copied(), rounds.iter().max().copied());
    let (least, most) = (least.unwrap_or(0), most.unwrap_or(0));
    let number = if least == most {
        wording::count(most, "round")
    } else {
        format!("{least} to {most} rounds")
    };
    if most >= ROUNDS_FOR_INTERVAL {
        let some = if least < ROUNDS_FOR_INTERVAL { " where there are five" } else { "" };
        let whiskers = format!("; whiskers: 95 % confidence intervals{some}");
        format!("Means of {number}{}.", if whiskers_drawn { whiskers.as_str() } else { "" })
    } else if most == 1 {
        "One round each: how far another would differ is not known.".to_owned()
    } else {
        format!("Means of {number}: too few for confidence intervals.")
    }
}

/// What the same target differs from itself by, for the metrics that were watched: in as few rounds as the least
/// measured cell has, since more rounds differ less.
fn floors(run: &Run, sheet: &Sheet<'_>, metrics: &[String]) -> Option<String> {
    let rounds = sheet.cells().map(|cell| cell.rounds).filter(|rounds| *rounds > 0).min()?;
    let of = |metric: &String| {
        let floor = run.analysis.floors.get(metric)?;
        let share = number::percent(floor.of_pairs(rounds) - 1.0);
        let name = wording::metric(metric);
        // A rate in records and one in bytes have one name.
        let name = if metrics.len() > 1 { name.with_unit() } else { name.text };
        Some(format!("{name} {share}"))
    };
    let texts: Vec<String> = metrics.iter().filter_map(of).collect();
    let rounds = wording::count(rounds, "round");
    (!texts.is_empty()).then(|| format!("Noise floor of {rounds}: {}.", texts.join("; ")))
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
    if let Some((rows, worths)) = sheet.unlike().filter(|_| sheet.has_records()) {
        lines.push(("Unlike", unlike(rows, &worths)));
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

/// That the targets did not promise the same, so that their numbers are not of the same work.
fn unlike(rows: usize, worths: &[(&str, Durability)]) -> String {
    let of = |(target, worth): &(&str, Durability)| {
        format!("{} on {target}", wording::durability(*worth))
    };
    let worths: Vec<String> = worths.iter().map(of).collect();
    format!(
        "an acknowledgement meant {} ({}): their numbers are not of the same work",
        worths.join(", "),
        wording::count(rows, "row")
    )
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
