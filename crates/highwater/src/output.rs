//! Answers of commands: tables for people, JSON for programs. Both come from the same rows.

use std::io::{self, Write};

use clap::ValueEnum;
use comfy_table::{ContentArrangement, Table, presets};
use serde::Serialize;

use crate::failure::{Failure, on_output};

/// How an answer is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum Format {
    /// Columns under headers in upper case.
    #[default]
    Table,
    /// JSON: an array of rows, or one object where there is one answer.
    Json,
}

/// One row of an answer.
pub trait Row: Serialize {
    /// The headers of its columns, in upper case with dashes.
    const HEADERS: &'static [&'static str];

    /// Its cells, as many as there are headers. What is not known is a dash.
    fn cells(&self) -> Vec<String>;
}

/// A number or text that may be unknown, as a cell.
pub fn cell<T: ToString>(value: Option<T>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

/// Writes all rows to standard output.
pub fn print<R: Row>(format: Format, rows: &[R]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    write(&mut out, format, rows).and_then(|()| out.flush()).map_err(on_output)
}

/// Writes one value: JSON, or lines of `name: value` by `text`.
pub fn print_one<T: Serialize>(
    format: Format,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = match format {
        Format::Json => write_json(&mut out, value),
        Format::Table => out.write_all(text(value).as_bytes()),
    };
    written.and_then(|()| out.flush()).map_err(on_output)
}

/// Writes tables, with an empty line between them; or `json`, which has the same rows.
pub fn print_tables<T: Serialize>(
    format: Format,
    json: &T,
    tables: &[String],
) -> Result<(), Failure> {
    print_one(format, json, |_| tables.join("\n"))
}

fn write<R: Row>(out: &mut impl Write, format: Format, rows: &[R]) -> io::Result<()> {
    match format {
        Format::Json => write_json(out, &rows),
        Format::Table => out.write_all(table(rows).as_bytes()),
    }
}

fn write_json<T: Serialize>(out: &mut impl Write, value: &T) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    out.write_all(b"\n")
}

/// The rows as a table for people.
pub fn table<'a, R: Row + 'a>(rows: impl IntoIterator<Item = &'a R>) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(R::HEADERS);
    for row in rows {
        let cells = row.cells();
        assert_eq!(cells.len(), R::HEADERS.len(), "a cell for each header");
        table.add_row(cells);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Sample {
        name: &'static str,
        lag: Option<i64>,
    }

    impl Row for Sample {
        const HEADERS: &'static [&'static str] = &["NAME", "LAG"];

        fn cells(&self) -> Vec<String> {
            vec![self.name.to_owned(), cell(self.lag)]
        }
    }

    const ROWS: [Sample; 2] =
        [Sample { name: "a-long-name", lag: Some(12) }, Sample { name: "b", lag: None }];

    fn written(format: Format, rows: &[Sample]) -> String {
        let mut out = Vec::new();
        write(&mut out, format, rows).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_table_has_headers_and_no_trailing_blanks() {
        assert_eq!(
            written(Format::Table, &ROWS),
            "NAME         LAG\na-long-name  12\nb            -\n"
        );
        assert_eq!(written(Format::Table, &[]), "NAME  LAG\n");
    }

    #[test]
    fn json_holds_the_same_rows() {
        let found: serde_json::Value = serde_json::from_str(&written(Format::Json, &ROWS)).unwrap();
        let expected =
            serde_json::json!([{"name": "a-long-name", "lag": 12}, {"name": "b", "lag": null}]);
        assert_eq!(found, expected);
        assert_eq!(written(Format::Json, &[]), "[]\n");
    }
}
