//! The report as one HTML file: style, script, pictures and numbers inside, nothing fetched. Without script the still
//! pictures show; with it they answer the pointer, tables sort, and the page can be light or dark.

mod card;
mod figure;
mod ledger;
mod overview;
mod section;
mod tables;

pub(crate) use ledger::{judged, shown, subjects};

use crate::caption;
use crate::echarts::Live;
use crate::overview::Overview;
use crate::run::Run;
use crate::sheet::Sheet;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use flate2::Compression;
use flate2::write::GzEncoder;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::Serialize;
use std::io::Write;

const STYLE: &str = include_str!("../../assets/report.css");
const SCRIPT: &str = include_str!("../../assets/report.js");
/// What `entry.js` beside it takes of Apache ECharts, packed with gzip.
const ECHARTS: &[u8] = include_bytes!("../../assets/echarts/echarts.min.js.gz");
const ECHARTS_NOTICE: &str = include_str!("../../assets/echarts/NOTICE");
/// Nothing may be loaded from anywhere; what is inside may run.
const POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:";

/// What only the script shows: it is packed, and far smaller so.
#[derive(Default, Serialize)]
struct Lively {
    /// By number of the panel.
    pictures: Vec<Live>,
    /// Tables that are folded away, by number.
    tables: Vec<String>,
}

/// The file.
pub(crate) fn page(run: &Run, sheets: &[Sheet<'_>]) -> String {
    let mut lively = Lively::default();
    let reports: Vec<Markup> = run
        .reports
        .iter()
        .map(|report| section::report(run, report, sheets, &mut lively))
        .collect();
    let mark_up = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (run.title) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                main {
                    (overview::first_screen(run, sheets, &Overview::new(run, sheets)))
                    (section::contents(run, sheets))
                    @for report in &reports { (report) }
                    (section::waiting(run))
                    (section::environment(run))
                    (section::reading(run))
                }
                (foot(run))
                script type="text/plain" id="echarts" { (PreEscaped(STANDARD.encode(ECHARTS))) }
                script type="text/plain" id="live" { (packed(&lively)) }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    mark_up.into_string()
}

/// The pictures' options, as the library's text is packed: gzip, then base64.
fn packed(lively: &Lively) -> String {
    let text = serde_json::to_vec(lively).expect("numbers and texts");
    let mut pack = GzEncoder::new(Vec::new(), Compression::best());
    let written = pack.write_all(&text).and_then(|()| pack.finish());
    STANDARD.encode(written.expect("writing to memory cannot fail"))
}

fn foot(run: &Run) -> Markup {
    html! {
        footer {
            p { "Made by Highwater's lab, commit " code { (run.commit) } ", environment " code { (caption::environment(run)) } "." }
            p { "Interactive pictures: " (notice()) " Licensed under the Apache License, version 2.0." }
        }
    }
}

/// The library's notice as one line, its paragraphs as sentences, its address without what makes it a link.
fn notice() -> String {
    let flowing = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let paragraphs: Vec<String> = ECHARTS_NOTICE.split("\n\n").map(flowing).collect();
    paragraphs.join(". ").replace("https://", "")
}

/// The place in the page of an experiment.
fn anchor(experiment: &str) -> String {
    format!("e-{experiment}")
}
