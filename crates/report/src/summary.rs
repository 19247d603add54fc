//! A run as a whole: what was compared, what came out, and how far it can be trusted. Sentences and tables that stand
//! above all experiments, for the page and for Markdown. What is said of one experiment is in `caption`.

use crate::caption;
use crate::number;
use crate::run::Run;
use crate::sheet::Sheet;
use crate::table::{Cell, Head, Table, Tone};
use crate::wording;
use experiment::analysis::{Better, Drift, Ratio, Standing, better};
use experiment::claims::Outcome;
use experiment::round::Verdict;
use std::collections::{BTreeMap, BTreeSet};

/// All of them, in the order of the table's columns.
const OUTCOMES: [Outcome; 4] =
    [Outcome::Reproduced, Outcome::Contradicted, Outcome::WithinNoise, Outcome::NotTestable];
/// The metrics whose noise stands above all.
const WATCHED: [&str; 5] =
    ["throughput", "runtime_ms", "p50_ms", "p99_ms", "broker_cpu_s_per_mrec"];
/// Experiments that are named in a sentence at most.
const FEW: usize = 6;
/// Rounds for which it is told.
const ROUNDS_TOLD: [usize; 3] = [1, 3, 5];

/// How often each verdict was given to the claims of the reports, or to ours, on one subject.
pub(crate) struct Tally {
    /// Whether the claims are ours.
    pub(crate) ours: bool,
    /// `published rows`, or a target.
    pub(crate) subject: String,
    pub(crate) counts: BTreeMap<Outcome, usize>,
}

/// The claims of the reports first, and of the subjects the published rows; without those that nothing was asked.
pub(crate) fn tally(run: &Run) -> Vec<Tally> {
    let claims = run.experiments().flat_map(|(_, one)| one.claims.iter().map(|c| (&one.id, c)));
    let ours: BTreeSet<(&str, &str)> =
        claims.filter(|(_, c)| c.ours).map(|(id, c)| (id.as_str(), c.id.as_str())).collect();
    let is_ours = |finding: &experiment::claims::Finding| {
        ours.contains(&(finding.experiment.as_str(), finding.claim.as_str()))
    };
    let names = run.targets.iter().map(|target| target.name.as_str());
    let subjects: Vec<&str> = std::iter::once("").chain(names).collect();
    let of = |ours: bool, subject: &str| {
        let mut counts = BTreeMap::new();
        for judged in run.findings.iter().filter(|judged| judged.target == subject) {
            if is_ours(&judged.finding) == ours {
                *counts.entry(judged.finding.outcome).or_insert(0) += 1;
            }
        }
        let subject = if subject.is_empty() { "published rows" } else { subject };
        Tally { ours, subject: subject.to_owned(), counts }
    };
    let all = [false, true].into_iter().flat_map(|ours| subjects.iter().map(move |s| (ours, *s)));
    all.map(|(ours, subject)| of(ours, subject)).filter(|tally| !tally.counts.is_empty()).collect()
}

/// One experiment's ratios of its first compared metric, in short.
struct Headline<'a> {
    metric: &'a str,
    target: &'a str,
    base: &'a str,
    ratios: Vec<&'a Ratio>,
    /// Geometric mean over the cells.
    mean: f64,
    low: f64,
    high: f64,
}

impl Headline<'_> {
    fn count(&self, standing: Standing) -> usize {
        self.ratios.iter().filter(|ratio| ratio.standing == standing).count()
    }

    /// Whether more than half of the cells stand so.
    fn mostly(&self, standing: Standing) -> bool {
        self.count(standing) * 2 > self.ratios.len()
    }
}

/// The headline of an experiment: none without pairs.
fn headline<'a>(sheet: &Sheet<'a>) -> Option<Headline<'a>> {
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
        facts.push(format!("environment {}", caption::environment(run)));
    }
    if !run.commit.is_empty() {
        facts.push(format!("commit {}", run.commit));
    }
    facts.join(" · ")
}

/// The machine in a line; none if it was not looked at.
pub(crate) fn machine(run: &Run) -> Option<String> {
    let of = |key: &str| run.environment.get(key).filter(|value| !value.is_empty());
    let mib =
        of("memory.mib").map(|mib| mib.parse().map_or(mib.to_owned(), |n| number::fixed(n, 0)));
    let parts = [
        of("cpu.cores").zip(of("cpu.model")).map(|(cores, model)| format!("{cores} × {model}")),
        mib.map(|mib| format!("{mib} MiB of memory")),
        of("disk.file_system").map(|name| format!("data on {name}")),
        of("probe.sync_4k_p50_ms").map(|ms| format!("a sync of 4 KiB takes {ms} ms")),
        of("kernel").map(|release| format!("kernel {release}")),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" · "))
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
    let failed = run.rounds.iter().filter(|round| round.failure.is_some()).count();
    let mut text = format!(
        "{experiments} from {reports}: {}; {}",
        where_run(sheets),
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

/// How many experiments ran on which targets: `25 on highwater and apache-kafka, 6 on apache-kafka only`.
fn where_run(sheets: &[Sheet<'_>]) -> String {
    let mut counts: BTreeMap<Vec<&str>, usize> = BTreeMap::new();
    for sheet in sheets {
        *counts.entry(sheet.targets.clone()).or_default() += 1;
    }
    let most = counts.keys().map(Vec::len).max().unwrap_or(0);
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(targets, count)| std::cmp::Reverse((targets.len(), *count)));
    let parts = counts.iter().map(|(targets, count)| match targets.len() {
        0 => format!("{count} not run"),
        few if few < most => format!("{count} on {} only", targets.join(" and ")),
        _ => format!("{count} on {}", targets.join(" and ")),
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// What came out where two targets were compared; empty if none were.
pub(crate) fn outcome(sheets: &[Sheet<'_>]) -> String {
    let found = headlines(sheets);
    let Some((_, first)) = found.first() else { return String::new() };
    let names = |standing| {
        let ids = found.iter().filter(|(_, headline)| headline.mostly(standing));
        let ids: Vec<&str> = ids.map(|(sheet, _)| sheet.experiment.id.as_str()).collect();
        if ids.len() > FEW {
            return ids.len().to_string();
        }
        if ids.is_empty() {
            "no experiment".to_owned()
        } else {
            format!("{} ({})", ids.len(), ids.join(", "))
        }
    };
    format!(
        "{target} ran beside {} in {}. {target} was better beyond noise in most cells of {}, and worse in most cells of {}. In the \
         other experiments neither holds: cells differ in both directions, lie within noise, or have too few rounds.",
        wording::target(first.base),
        wording::count(found.len(), "experiment"),
        names(Standing::Better),
        names(Standing::Worse),
        target = wording::target(first.target),
    )
}

fn delivery(sheets: &[Sheet<'_>]) -> String {
    let verdicts: Vec<_> = sheets
        .iter()
        .filter(|sheet| counts_itself(sheet))
        .flat_map(|sheet| sheet.cells())
        .map(|c| &c.verdict)
        .collect();
    let clean = verdicts.iter().filter(|verdict| verdict.is_clean()).count();
    let bad = verdicts.iter().filter(|verdict| broken(verdict)).count();
    let rest = verdicts.len() - clean - bad;
    let which = if rest > 0 { format!(" ({})", unverified(sheets)) } else { String::new() };
    format!(
        "Every acknowledged record was found once, whole and in order in {clean} of {} results; {bad} broke that, {rest} \
         were not verified{which}. ",
        verdicts.len()
    )
}

/// Whether there are records, and they are not counted with another experiment that shows the same runs.
fn counts_itself(sheet: &Sheet<'_>) -> bool {
    sheet.has_records() && sheet.experiment.same_runs_as.is_none()
}

/// The experiments with results that were not, or not wholly, verified.
fn unverified(sheets: &[Sheet<'_>]) -> String {
    let open = |sheet: &&Sheet<'_>| {
        let left = |v: &Verdict| !v.checked && !broken(v);
        counts_itself(sheet) && sheet.cells().any(|cell| left(&cell.verdict))
    };
    let names: Vec<String> =
        sheets.iter().filter(open).map(|sheet| sheet.experiment.id.clone()).collect();
    if names.len() > FEW { wording::count(names.len(), "experiment") } else { names.join(", ") }
}

fn broken(verdict: &Verdict) -> bool {
    verdict.lost + verdict.duplicated + verdict.reordered + verdict.damaged > 0
}

fn drifts(run: &Run) -> String {
    let of = |drift: &Drift| {
        let name = wording::metric(&drift.metric);
        let values: Vec<String> = drift.values.iter().map(|v| number::measured(*v)).collect();
        let values = match drift.values.len() {
            0..=9 => format!(" ({}: {})", name.with_unit(), values.join("; ")),
            _ => String::new(),
        };
        format!("{} on {}{values}", number::percent(drift.worst), drift.target)
    };
    let texts: Vec<String> = run.analysis.drifts.iter().map(of).collect();
    match texts.is_empty() {
        true => String::new(),
        false => format!(
            "The canary, one cell that was run again and again, drifted by {}.",
            texts.join(" and ")
        ),
    }
}

fn number_cell(count: usize) -> Cell {
    Cell { value: Some(count as f64), ..Cell::text(number::fixed(count as f64, 0)) }
}

fn verdict_of_claims(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Reproduced => "hold",
        Outcome::Contradicted => "do not hold",
        Outcome::WithinNoise => "within noise",
        Outcome::NotTestable => "not testable",
    }
}

/// How often each verdict was given; none if nothing was tested.
pub(crate) fn verdicts(run: &Run) -> Option<Table> {
    let tallies = tally(run);
    let mut heads = vec![Head::alone("claims of", false), Head::alone("tested on", false)];
    heads.extend(OUTCOMES.map(|outcome| Head::alone(verdict_of_claims(outcome), true)));
    let row = |tally: &Tally| {
        let whose = if tally.ours { "Highwater's lab" } else { "the reports" };
        let mut cells = vec![Cell::text(whose), Cell::text(tally.subject.clone())];
        let count = |outcome| tally.counts.get(&outcome).copied().unwrap_or(0);
        cells.extend(OUTCOMES.map(|outcome| number_cell(count(outcome))));
        cells
    };
    let rows: Vec<Vec<Cell>> = tallies.iter().map(row).collect();
    (!rows.is_empty()).then(|| Table {
        caption: "Claims, and what became of them".to_owned(),
        note: "Each claim is a predicate; the experiments show it with its numbers. A claim of a report that does not hold on a \
               target is a finding about the claim, not about the target."
            .to_owned(),
        heads,
        rows,
    })
}

/// What the same target differs from itself by; none if nothing was run against itself.
pub(crate) fn noise(run: &Run) -> Option<Table> {
    let floors = &run.analysis.floors;
    let watched: Vec<_> =
        WATCHED.iter().filter_map(|metric| Some((*metric, floors.get(*metric)?))).collect();
    let pairs = watched.iter().map(|(_, floor)| floor.n).max()?;
    let mut heads = vec![Head::alone("metric", false), Head::alone("second ÷ first", true)];
    heads.extend(ROUNDS_TOLD.map(|n| Head::alone(&wording::count(n, "round"), true)));
    let row = |(metric, floor): &(&str, &experiment::analysis::Floor)| {
        let factor = |n: f64| Cell { value: Some(n), ..Cell::text(number::ratio(n)) };
        let mut cells = vec![Cell::text(wording::metric(metric).text), factor(floor.ratio)];
        cells.extend(ROUNDS_TOLD.map(|rounds| factor(floor.of_pairs(rounds))));
        cells
    };
    let rows = watched.iter().map(row).collect();
    let note = format!(
        "The same target run against itself, {}: the factor by which the second differs from the first, 19 times of 20, if \
         so many rounds are compared. Two targets that differ by no more are within noise.",
        wording::count(pairs, "pair")
    );
    Some(Table { caption: "Noise of this machine".to_owned(), note, heads, rows })
}

fn headlines<'s, 'a>(sheets: &'s [Sheet<'a>]) -> Vec<(&'s Sheet<'a>, Headline<'a>)> {
    sheets.iter().filter_map(|sheet| Some((sheet, headline(sheet)?))).collect()
}

/// Each experiment's ratio of its first compared metric; none if nothing was compared.
pub(crate) fn side_by_side(sheets: &[Sheet<'_>]) -> Option<Table> {
    let found = headlines(sheets);
    let (_, first) = found.first()?;
    let name = wording::target;
    let heads = vec![
        Head::alone("experiment", false),
        Head::alone("metric", false),
        Head::alone(&format!("{} ÷ {}", name(first.target), name(first.base)), true),
        Head::alone("over cells", true),
        Head::alone("⅛ to 8 times", false),
        Head::alone("cells", true),
        Head::alone("better", true),
        Head::alone("worse", true),
        Head::alone("within noise", true),
        Head::alone("too few rounds", true),
    ];
    let rows = found.iter().map(|(sheet, headline)| headline_row(sheet, headline)).collect();
    let note = "Geometric mean of the ratios over an experiment's cells, with the smallest and the largest. ▲ better, \
                ▼ worse beyond noise in more cells than not. Too few rounds: the difference is larger than noise, but was \
                seen once only, or nothing was run against itself to hold it against.";
    Some(Table { caption: "Side by side".to_owned(), note: note.to_owned(), heads, rows })
}

/// The same without what only the page can draw.
pub(crate) fn side_by_side_in_words(sheets: &[Sheet<'_>]) -> Option<Table> {
    let mut table = side_by_side(sheets)?;
    let drawn = table.rows.first()?.iter().position(|cell| cell.strip.is_some())?;
    table.heads.remove(drawn);
    table.rows.iter_mut().for_each(|row| drop(row.remove(drawn)));
    Some(table)
}

fn headline_row(sheet: &Sheet<'_>, headline: &Headline<'_>) -> Vec<Cell> {
    let (mark, tone) = match (headline.mostly(Standing::Better), headline.mostly(Standing::Worse)) {
        (true, _) => (" ▲", Tone::Good),
        (_, true) => (" ▼", Tone::Bad),
        _ => ("", Tone::Plain),
    };
    let direction = match better(headline.metric) {
        Better::Lower => "less is better",
        Better::Higher | Better::Neither => "",
    };
    let between = match headline.ratios.len() {
        1 => String::new(),
        _ => format!("{}–{}", number::ratio(headline.low), number::ratio(headline.high)),
    };
    let mean = format!("{}{mark}", number::ratio(headline.mean));
    let counts = [Standing::Better, Standing::Worse, Standing::WithinNoise, Standing::Unknown];
    let mut cells = vec![
        Cell::text(sheet.experiment.id.clone()),
        Cell { small: direction.to_owned(), ..Cell::text(wording::metric(headline.metric).text) },
        Cell { value: Some(headline.mean), tone, ..Cell::text(mean) },
        Cell::text(between).toned(Tone::Quiet),
        Cell { strip: Some([headline.low, headline.mean, headline.high]), ..Cell::default() },
        number_cell(headline.ratios.len()),
    ];
    cells.extend(counts.map(|standing| number_cell(headline.count(standing))));
    cells
}
