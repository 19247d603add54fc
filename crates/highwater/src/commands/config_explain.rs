//! `config explain`: what a broker started with the same arguments would work with. Asks no broker.

use std::io::Write;
use std::process::ExitCode;

use configuration::explain::{self, Explained};
use serde::Serialize;

use crate::arguments::ConfigSources;
use crate::commands::sources;
use crate::failure::{Failure, on_output};
use crate::output::{self, Format, Row};

/// Writes the list, and fails like `start` would if the values cannot be used together.
pub fn run(
    typed: &ConfigSources,
    changed: bool,
    markdown: bool,
    format: Format,
) -> Result<ExitCode, Failure> {
    if markdown {
        let written = std::io::stdout().write_all(explain::markdown().as_bytes());
        return written.map(|()| ExitCode::SUCCESS).map_err(on_output);
    }
    let loaded = sources::load(typed)?;
    let problems = loaded.problems();
    let rows: Vec<Line> = explain::explain(&loaded.configuration, &problems)
        .into_iter()
        .filter(|explained| !changed || explained.source != "default")
        .map(Line::from)
        .collect();
    output::print(format, &rows)?;
    match loaded.finish() {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(invalid) => Err(sources::unusable(&invalid, typed.file.as_deref())),
    }
}

#[derive(Serialize)]
struct Line {
    key: String,
    value: Option<String>,
    source: String,
    status: &'static str,
    why: Option<String>,
    doc: &'static str,
}

impl From<Explained> for Line {
    fn from(explained: Explained) -> Line {
        let Explained { key, value, source, status, why, doc } = explained;
        Line { key, value, source, status, why, doc }
    }
}

impl Row for Line {
    const HEADERS: &'static [&'static str] = &["KEY", "VALUE", "SOURCE", "STATUS", "WHY"];

    fn cells(&self) -> Vec<String> {
        vec![
            self.key.clone(),
            output::cell(self.value.as_deref()),
            self.source.clone(),
            self.status.to_owned(),
            self.why.clone().unwrap_or_default(),
        ]
    }
}
