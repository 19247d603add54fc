//! The report as Markdown, with its pictures as files beside it. The same sentences, tables and pictures as the page,
//! without what only a browser can do.

use crate::caption;
use crate::html::{headlines_in_words, judged, shown, subjects, verdicts};
use crate::picture::{Picture, pictures};
use crate::run::Run;
use crate::sheet::Sheet;
use crate::svg;
use crate::table::{self, Cell, Table};
use crate::wording;
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

    fn list(&mut self, lines: &[String]) {
        for line in lines {
            self.text.push_str(&format!("- {line}\n"));
        }
        if !lines.is_empty() {
            self.text.push('\n');
        }
    }

    fn opening(&mut self, sheets: &[Sheet<'_>]) {
        let run = self.run;
        self.say(&format!("# {}", run.title));
        self.say(&caption::facts(run));
        for banner in caption::banners(run) {
            self.say(&format!("> **Read first.** {banner}"));
        }
        self.say(&caption::abstract_of(run, sheets));
        for table in [verdicts(run), headlines_in_words(sheets)].into_iter().flatten() {
            self.table(&table);
        }
        let targets: Vec<String> = run
            .targets
            .iter()
            .map(|target| format!("**{}**: {}", target.name, target.description))
            .collect();
        self.list(&targets);
        if !run.reproduce.is_empty() {
            self.text.push_str(&format!("```\n{}\n```\n\n", run.reproduce.join("\n")));
        }
    }

    fn report(&mut self, number: usize, report: &Report) {
        self.say(&format!("## {number} {} ({})", report.title, report.year));
        self.say(&report.setting);
        self.say(&report.source);
    }

    fn experiment(&mut self, number: &str, sheet: &Sheet<'_>) {
        let experiment = sheet.experiment;
        self.say(&format!("### {number} {} (`{}`)", experiment.title, experiment.id));
        self.say(&format!("*{}*", experiment.question));
        let ran: Vec<String> = caption::ran_lines(self.run, sheet)
            .into_iter()
            .map(|(what, text)| format!("{what}: {text}"))
            .collect();
        self.list(&ran);
        self.list(&experiment.notes);
        self.figures(sheet);
        for table in table::tables(sheet) {
            self.say(&format!("**{}.** {}", table.caption, table.note));
            self.table(&table);
        }
        self.ledger(sheet);
        let limits = caption::limits(self.run, sheet);
        if !limits.is_empty() {
            self.say("What limits it:");
            self.list(&limits);
        }
    }

    fn figures(&mut self, sheet: &Sheet<'_>) {
        for (number, chart) in sheet.experiment.charts.iter().enumerate() {
            let pictures = pictures(chart, sheet);
            for (place, picture) in pictures.iter().enumerate() {
                let path = path(&sheet.experiment.id, number, place, picture);
                self.text.push_str(&format!("![{}]({path})\n\n", inert(&picture.description())));
                self.charts.push((path, svg::draw(picture)));
            }
            if !pictures.is_empty() {
                let caption = caption::figure(self.run, sheet, chart, &pictures);
                self.say(&format!("**{}.** {caption}", chart.title));
            }
        }
    }

    fn ledger(&mut self, sheet: &Sheet<'_>) {
        let (run, subjects) = (self.run, subjects(self.run, sheet));
        for claim in sheet.experiment.claims.iter().filter(|_| !subjects.is_empty()) {
            let ours = if claim.ours { " (ours)" } else { "" };
            self.text.push_str(&format!("- **{}** {}{ours}\n", claim.id, claim.says));
            for subject in &subjects {
                if let Some(judged) = judged(run, sheet, claim, subject) {
                    let (outcome, because) =
                        (judged.finding.outcome.name(), &judged.finding.because);
                    self.text.push_str(&format!("  - {}: {outcome}. {because}\n", shown(subject)));
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
                format!("`{}` on {}: {} ({})", w.experiment, w.target, w.why, w.cells)
            };
            self.list(&waiting.iter().map(line).collect::<Vec<_>>());
        }
        if !run.environment.is_empty() {
            self.say("## Environment");
            self.say(&format!("Hash of the lasting part: `{}`.", run.environment.hash()));
            let line = |(key, value): (&str, &str)| format!("`{key}`: {value}");
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

/// Text that means nothing to Markdown's tables and links.
fn inert(text: &str) -> String {
    text.replace('|', "\\|").replace('[', "\\[").replace(']', "\\]")
}

fn path(experiment: &str, number: usize, place: usize, picture: &Picture) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let subject: String = picture.subject.chars().map(letter).collect();
    let tail = match (subject.is_empty(), place) {
        (true, _) => String::new(),
        (false, _) => format!("-{subject}"),
    };
    format!("charts/{experiment}-{}{tail}.svg", number + 1)
}
