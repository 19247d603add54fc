//! The top of the page: title, what must be known first, the summary, the contents.

use super::{anchor, tables};
use crate::caption::{self, Headline};
use crate::number;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::table::{Cell, Head, Table, Tone};
use crate::wording;
use experiment::analysis::Standing;
use experiment::claims::Outcome;
use maud::{Markup, html};

/// All of them, in the order of the table's columns.
const OUTCOMES: [Outcome; 4] =
    [Outcome::Reproduced, Outcome::Contradicted, Outcome::WithinNoise, Outcome::NotTestable];

/// Title and facts.
pub(super) fn masthead(run: &Run) -> Markup {
    html! {
        header {
            button.theme type="button" hidden { "Theme: auto" }
            h1 { (run.title) }
            p.facts { (caption::facts(run)) }
        }
    }
}

/// Banners, verdicts, headline ratios, targets, how to repeat it.
pub(super) fn summary(run: &Run, sheets: &[Sheet<'_>]) -> Markup {
    html! {
        section id="summary" aria-labelledby="summary-h" {
            h2 id="summary-h" { "Summary" }
            @for banner in caption::banners(run) { p.banner role="note" { (banner) } }
            p { (caption::abstract_of(run, sheets)) }
            @if let Some(table) = verdicts(run) {
                h4 { "Published claims, tested on the published rows" @if !run.targets.is_empty() { " and on each target" } }
                (tables::plain(&table))
            }
            @if let Some(table) = headlines(sheets) {
                h4 { "Side by side" }
                (tables::plain(&table))
                p.notes { "Geometric mean of the ratios over an experiment's cells, with the smallest and the largest. \
                    ▲ better, ▼ worse beyond noise in more cells than not." }
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

/// The headline table without what only the page can draw.
pub(crate) fn headlines_in_words(sheets: &[Sheet<'_>]) -> Option<Table> {
    let mut table = headlines(sheets)?;
    let drawn = table.rows.first()?.iter().position(|cell| cell.strip.is_some())?;
    table.heads.remove(drawn);
    table.rows.iter_mut().for_each(|row| drop(row.remove(drawn)));
    Some(table)
}

/// How often each verdict was given; none if nothing was tested.
pub(crate) fn verdicts(run: &Run) -> Option<Table> {
    let tally = caption::tally(run);
    let mut heads = vec![Head::alone("", false)];
    heads.extend(OUTCOMES.map(|outcome| Head::alone(&outcome.name().to_lowercase(), true)));
    let count =
        |number: usize| Cell { value: Some(number as f64), ..Cell::text(number.to_string()) };
    let row = |(name, counts): &(String, std::collections::BTreeMap<Outcome, usize>)| {
        let mut cells = vec![Cell::text(name.clone())];
        cells.extend(OUTCOMES.map(|outcome| count(counts.get(&outcome).copied().unwrap_or(0))));
        cells
    };
    let rows: Vec<Vec<Cell>> = tally.iter().map(row).collect();
    (!rows.is_empty()).then(|| Table {
        caption: "Verdicts on claims".to_owned(),
        note: String::new(),
        heads,
        rows,
    })
}

/// Each experiment's ratio of its first compared metric; none if nothing was compared.
fn headlines(sheets: &[Sheet<'_>]) -> Option<Table> {
    let found: Vec<(&Sheet<'_>, Headline<'_>)> =
        sheets.iter().filter_map(|sheet| Some((sheet, caption::headline(sheet)?))).collect();
    let (_, first) = found.first()?;
    let heads = vec![
        Head::alone("experiment", false),
        Head::alone("metric", false),
        Head::alone(&format!("{} ÷ {}", first.target, first.base), true),
        Head::alone("over cells", true),
        Head::alone("⅛ to 8 times", false),
        Head::alone("cells", true),
        Head::alone("better", true),
        Head::alone("worse", true),
        Head::alone("within noise", true),
    ];
    let rows = found.iter().map(|(sheet, headline)| headline_row(sheet, headline)).collect();
    Some(Table { caption: "Ratios by experiment".to_owned(), note: String::new(), heads, rows })
}

fn headline_row(sheet: &Sheet<'_>, headline: &Headline<'_>) -> Vec<Cell> {
    let of = |standing| headline.ratios.iter().filter(|r| r.standing == standing).count();
    let (better, worse) = (of(Standing::Better), of(Standing::Worse));
    let number = |count: usize| Cell { value: Some(count as f64), ..Cell::text(count.to_string()) };
    let (mark, tone) = match (better * 2 > headline.ratios.len(), worse * 2 > headline.ratios.len())
    {
        (true, _) => (" ▲", Tone::Good),
        (_, true) => (" ▼", Tone::Bad),
        _ => ("", Tone::Plain),
    };
    let between = format!("{}–{}", number::ratio(headline.low), number::ratio(headline.high));
    let mean = format!("{}{mark}", number::ratio(headline.mean));
    vec![
        Cell::text(sheet.experiment.id.clone()),
        Cell::text(wording::metric(headline.metric).text),
        Cell { value: Some(headline.mean), tone, ..Cell::text(mean) },
        Cell::text(between).toned(Tone::Quiet),
        Cell { strip: Some([headline.low, headline.mean, headline.high]), ..Cell::default() },
        number(headline.ratios.len()),
        number(better),
        number(worse),
        number(of(Standing::WithinNoise)),
    ]
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
