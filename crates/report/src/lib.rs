//! What was measured, as documents: HTML, Markdown with SVG, CSV, JSON. Pure: returns texts, writes no file.
//!
//! [`Run`] is all that is known of a run. Each experiment of it becomes a `sheet` (numbers side by side), from which
//! `table` and `picture` are made; `html` and `markdown` write both, `svg` and `echarts` draw the pictures.

mod caption;
mod card;
mod echarts;
mod exports;
mod fixture;
mod html;
mod markdown;
mod number;
mod overview;
mod palette;
mod picture;
mod run;
mod sheet;
mod summary;
mod summary_picture;
mod svg;
mod table;
mod terminal;
mod wording;

pub use run::{Judged, Run, Target};

use overview::Overview;
use sheet::Sheet;

/// Every document of a run: relative paths, and their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Documents(pub Vec<(String, Vec<u8>)>);

/// What cannot be rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RenderError {
    /// The catalogue has no report of that id.
    #[error("no report is called {id:?}")]
    UnknownReport {
        /// What was asked for.
        id: String,
    },
}

/// All documents of a run: `report.html`, `report.md` with `summary.svg` and `charts/*.svg`, `cells.csv`, `result.json`, `omb/*.json`,
/// `hgrm/*.hgrm`, `metrics.prom`. The same run gives the same bytes.
pub fn render(run: &Run) -> Documents {
    let sheets = sheets(run);
    let mut documents = pages(run, &sheets);
    documents.add("result.json", exports::result::json(run));
    documents.add("metrics.prom", exports::prometheus::text(run));
    let files = exports::omb::files(run).into_iter().chain(exports::hgrm::files(run));
    files.for_each(|(path, text)| documents.add(path, text));
    documents
}

/// The finding, the figures and the losses of a run as lines for a terminal.
pub fn summary(run: &Run) -> String {
    terminal::text(run, &Overview::new(run, &sheets(run)))
}

/// The documents of a published report (`ibm`, `ali`, `cs6`, `mif`): its tables and pictures drawn again from the
/// catalogue, without running anything.
///
/// # Errors
///
/// [`RenderError::UnknownReport`] if the catalogue has none of that id.
pub fn from_fixture(report_id: &str) -> Result<Documents, RenderError> {
    let report = experiment::catalogue::report(report_id)
        .ok_or_else(|| RenderError::UnknownReport { id: report_id.to_owned() })?;
    let run = fixture::run(report);
    Ok(pages(&run, &sheets(&run)))
}

fn sheets(run: &Run) -> Vec<Sheet<'_>> {
    run.experiments().map(|(report, experiment)| Sheet::new(run, report, experiment)).collect()
}

fn pages(run: &Run, sheets: &[Sheet<'_>]) -> Documents {
    let mut documents = Documents::default();
    documents.add("report.html", html::page(run, sheets));
    let (text, charts) = markdown::write(run, sheets);
    documents.add("report.md", text);
    let overview = Overview::new(run, sheets);
    if overview.has_figures() {
        documents.add("summary.svg", summary_picture::draw(&overview));
    }
    charts.into_iter().for_each(|(path, svg)| documents.add(path, svg));
    documents.add("cells.csv", exports::cells::csv(sheets));
    documents
}

impl Documents {
    /// The bytes of a document.
    pub fn get(&self, path: &str) -> Option<&[u8]> {
        self.0.iter().find(|(name, _)| name == path).map(|(_, bytes)| bytes.as_slice())
    }

    fn add(&mut self, path: impl Into<String>, text: impl Into<Vec<u8>>) {
        self.0.push((path.into(), text.into()));
    }
}
