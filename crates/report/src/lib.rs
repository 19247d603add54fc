//! What was measured, as documents: HTML, Markdown with SVG, CSV, JSON. Pure: returns texts, writes no file.
//!
//! [`Run`] is all that is known of a run. Each experiment of it becomes a `sheet` (numbers side by side), from which
//! `table` and `picture` are made; `html` and `markdown` write both, `svg` and `echarts` draw the pictures.

mod caption;
mod echarts;
mod html;
mod number;
mod palette;
mod picture;
mod run;
mod sheet;
mod svg;
mod table;
mod wording;

pub use run::{Judged, Run, Target};

use sheet::Sheet;

/// Every document of a run: relative paths, and their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Documents(pub Vec<(String, Vec<u8>)>);

/// All documents of a run.
pub fn render(run: &Run) -> Documents {
    let sheets: Vec<Sheet<'_>> =
        run.experiments().map(|(report, experiment)| Sheet::new(run, report, experiment)).collect();
    let mut documents = Documents::default();
    documents.add("report.html", html::page(run, &sheets));
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
