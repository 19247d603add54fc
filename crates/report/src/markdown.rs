//! The report as Markdown, with its pictures as files beside it. The same sentences, tables and pictures as the page,
//! without what only a browser can do.

use crate::caption;
use crate::card::Card;
use crate::exports;
use crate::html::{judged, shown, subjects};
use crate::overview::{Loss, Overview};
use crate::picture::{Picture, pictures};
use crate::run::{Run, Target};
use crate::sheet::Sheet;
use crate::summary;
use crate::svg;
use crate::table::{self, Cell, Table};
use crate::wording::{self, known};
use experiment::definition::Report;

/// A text in the making, and the pictures that it shows.
struct Draft<'a> {
    run: &'a Run,
    text: String,
    charts: Vec<(String, String)>,
}

/// The text, and paths and texts of the pictures.
pub(crate) fn write(run: &Run, sheets: &[Sheet<'_>]) -> (String, Vec<(String, String)>) {
    let mut draft = Draft { run, text: String::new(), charts: Vec::new() };
    draft.opening(sheets);
    for (number, report) in run.reports.iter().enumerate() {
        draft.report(number + 1, report);
        let of_report = sheets.iter().filter(|sheet| sheet.report.id == report.id);
        for (place, sheet) in of_report.enumerate() {
            draft.experiment(&format!("{}.{}", number + 1, place + 1), sheet);
        }
    }
    draft.closing();
    (draft.text, draft.charts)
}

impl Draft<'_> {
    /// A paragraph.
    fn say(&mut self, text: &str) {
        let flowing: Vec<&str> = text.split_whitespace().collect();
        if !flowing.is_empty() {
            self.text.push_str(&flowing.join(" "));
            self.text.push_str("\n\n");
        }
    }

    /// Lines of one item each, whatever they hold.
    fn list(&mut self, lines: &[String]) {
        for line in lines {
            let flowing: Vec<&str> = line.split_whitespace().collect();
            self.text.push_str(&format!("- {}\n", flowing.join(" ")));
        }
        if !lines.is_empty() {
            self.text.push('\n');
        }
    }

    fn opening(&mut self, sheets: &[Sheet<'_>]) {
        let run = self.run;
        self.say(&format!("# {}", inert(&run.title)));
        let overview = Overview::new(run, sheets);
        if overview.has_figures() {
            self.overview(&overview);
        }
        self.say(&inert(&summary::facts(run)));
        self.say(&inert(&summary::machine(run).unwrap_or_default()));
        for banner in summary::banners(run) {
            self.say(&format!("> **Read first.** {}", inert(&banner)));
        }
        self.say(&inert(&summary::abstract_of(run, sheets)));
        self.say(&inert(&summary::outcome(sheets)));
        let tables =
            [summary::verdicts(run), summary::side_by_side_in_words(sheets), summary::noise(run)];
        for table in tables.into_iter().flatten() {
            self.say(&format!("**{}**", inert(&table.caption)));
            self.table(&table);
            self.say(&inert(&table.note));
        }
        let line = |target: &Target| {
            format!("**{}**: {}", inert(&target.name), inert(&target.description))
        };
        self.list(&run.targets.iter().map(line).collect::<Vec<_>>());
        if !run.reproduce.is_empty() {
            self.text.push_str(&format!("```\n{}\n```\n\n", run.reproduce.join("\n")));
        }
    }

    /// The finding, the picture of its figures, and the losses.
    fn overview(&mut self, overview: &Overview) {
        self.say(&format!("**{}**", inert(&overview.finding)));
        self.say(&format!("![{}](summary.svg)", inert(&overview.finding)));
        if !overview.is_compared {
            return;
        }
        self.say(&format!("**{}**", inert(&overview.losses_title())));
        let line = |loss: &Loss| {
            let (factor, cell, certainty) = (loss.factor(), &loss.cell, loss.certainty());
            inert(&format!("{factor} in {}: {cell}; {certainty}", loss.experiment))
        };
        let lines: Vec<String> = overview.losses.iter().map(line).collect();
        match lines.is_empty() {
            true => self.say("No compared figure is worse."),
            false => self.list(&lines),
        }
    }

    fn report(&mut self, number: usize, report: &Report) {
        self.say(&format!("## {number} {} ({})", inert(&report.title), report.year));
        self.say(&inert(&report.setting));
        self.say(&inert(&report.source));
    }

    fn experiment(&mut self, number: &str, sheet: &Sheet<'_>) {
        let experiment = sheet.experiment;
        self.say(&format!("### {number} {} (`{}`)", inert(&experiment.title), experiment.id));
        let card = Card::new(sheet);
        if card.title != experiment.title {
            self.say(&format!("**{}.** {}", inert(&card.title), inert(&card.summary)));
        }
        self.say(&format!("*{}*", inert(&experiment.question)));
        let ran: Vec<String> = caption::ran_lines(self.run, sheet)
            .into_iter()
            .map(|(what, text)| format!("{what}: {text}"))
            .collect();
        self.outside("", &ran);
        self.outside("", &experiment.notes);
        self.figures(sheet);
        for table in table::tables(sheet) {
            self.say(&format!("**{}.** {}", inert(&table.caption), inert(&table.note)));
            self.table(&table);
        }
        self.ledger(sheet);
        self.outside("What limits it:", &caption::limits(self.run, sheet));
        self.outside("Warnings of the rounds:", &caption::warnings(sheet));
    }

    /// A list of texts that may hold anything, below a line that says what they are.
    fn outside(&mut self, head: &str, lines: &[String]) {
        if !lines.is_empty() {
            self.say(head);
            self.list(&lines.iter().map(|line| inert(line)).collect::<Vec<_>>());
        }
    }

    fn figures(&mut self, sheet: &Sheet<'_>) {
        for (number, chart) in sheet.experiment.charts.iter().enumerate() {
            let pictures = pictures(chart, sheet);
            for (place, picture) in pictures.iter().enumerate() {
                let path = path(&sheet.experiment.id, number, place, &pictures);
                self.text.push_str(&format!("![{}]({path})\n\n", inert(&picture.description())));
                self.charts.push((path, svg::draw(picture)));
            }
            if !pictures.is_empty() {
                let caption = caption::figure(self.run, sheet, chart, &pictures);
                self.say(&format!("**{}.** {}", inert(&chart.title), inert(&caption)));
            }
        }
    }

    fn ledger(&mut self, sheet: &Sheet<'_>) {
        let (run, subjects) = (self.run, subjects(self.run, sheet));
        for claim in sheet.experiment.claims.iter().filter(|_| !subjects.is_empty()) {
            let ours = if claim.ours { " (ours)" } else { "" };
            self.text.push_str(&format!("- **{}** {}{ours}\n", claim.id, inert(&claim.says)));
            for subject in &subjects {
                if let Some(judged) = judged(run, sheet, claim, subject) {
                    let subject = inert(shown(subject));
                    let outcome = wording::verdict(judged.finding.outcome, claim.ours);
                    let because = inert(&judged.finding.because);
                    self.text.push_str(&format!("  - {subject}: {outcome}. {because}\n"));
                }
            }
        }
        if !sheet.experiment.claims.is_empty() && !subjects.is_empty() {
            self.text.push('\n');
        }
    }

    fn closing(&mut self) {
        let run = self.run;
        let waiting = caption::waiting(run);
        if !waiting.is_empty() {
            self.say("## What waits, and why");
            let line = |w: &caption::WaitingLine| {
                format!(
                    "`{}` on {}: {} ({})",
                    w.experiment,
                    inert(&w.target),
                    inert(&w.why),
                    inert(&w.cells)
                )
            };
            self.list(&waiting.iter().map(line).collect::<Vec<_>>());
        }
        if !run.environment.is_empty() {
            self.say("## Environment");
            self.say(&format!("Hash of the lasting part: `{}`.", run.environment.hash()));
            let line = |(key, value): (&str, &str)| format!("`{key}`: {}", inert(known(value)));
            self.list(&run.environment.iter().map(line).collect::<Vec<_>>());
        }
        self.say("## How to read it");
        let lines = wording::reading(!run.targets.is_empty());
        let line = |(what, text): (&str, &str)| format!("**{what}**: {text}");
        self.list(&lines.into_iter().map(line).collect::<Vec<_>>());
        self.text.truncate(self.text.trim_end().len());
        self.text.push('\n');
    }

    /// A table has one row of heads here: a group's name goes before each of its columns.
    fn table(&mut self, table: &Table) {
        let head = |head: &table::Head| match head.group.is_empty() {
            true => inert(&head.text),
            false => format!("{}: {}", inert(&head.group), inert(&head.text)),
        };
        let heads: Vec<String> = table.heads.iter().map(head).collect();
        let rules: Vec<&str> =
            table.heads.iter().map(|head| if head.numeric { "--:" } else { ":--" }).collect();
        self.row(&heads);
        self.row(&rules);
        for cells in &table.rows {
            self.row(&cells.iter().map(whole).collect::<Vec<_>>());
        }
        self.text.push('\n');
    }

    fn row<T: AsRef<str>>(&mut self, cells: &[T]) {
        let cells: Vec<&str> = cells.iter().map(AsRef::as_ref).collect();
        self.text.push_str(&format!("| {} |\n", cells.join(" | ")));
    }
}

fn whole(cell: &Cell) -> String {
    let small = if cell.small.is_empty() { String::new() } else { format!(" ({})", cell.small) };
    inert(&format!("{}{small}", cell.text))
}

/// Text that means nothing to Markdown, but what it says: it may come from brokers, paths and errors. An underscore
/// between letters means nothing anyway.
fn inert(text: &str) -> String {
    let mut inert = String::with_capacity(text.len());
    let mut before = ' ';
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let inside =
            before.is_alphanumeric() && letters.peek().is_some_and(|c| c.is_alphanumeric());
        match letter {
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '|' | '&' | '~' => inert.push('\\'),
            '_' if !inside => inert.push('\\'),
            _ => {}
        }
        inert.push(if letter.is_control() { ' ' } else { letter });
        before = letter;
    }
    inert
}

/// The path of a chart's panel: by whose values it shows, and by its place where two names make one file's name.
fn path(experiment: &str, number: usize, place: usize, panels: &[Picture]) -> String {
    let name = |panel: &Picture| exports::file_name(&panel.subject).to_lowercase();
    let subject = name(&panels[place]);
    let taken = panels[..place].iter().any(|earlier| name(earlier) == subject);
    let place = if taken { format!("-{}", place + 1) } else { String::new() };
    let tail = if subject.is_empty() { String::new() } else { format!("-{subject}") };
    format!("charts/{experiment}-{}{tail}{place}.svg", number + 1)
}
