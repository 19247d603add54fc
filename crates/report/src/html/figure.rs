//! Figures: for each panel the still picture, and what the script needs to make it answer.

use crate::caption;
use crate::echarts;
use crate::picture::{Picture, pictures};
use crate::run::Run;
use crate::sheet::Sheet;
use crate::svg;
use experiment::definition::Chart;
use maud::{Markup, PreEscaped, html};

/// All figures of an experiment.
pub(super) fn figures(run: &Run, sheet: &Sheet<'_>) -> Markup {
    let drawn: Vec<(&Chart, Vec<Picture>)> = sheet
        .experiment
        .charts
        .iter()
        .map(|chart| (chart, pictures(chart, sheet)))
        .filter(|(_, pictures)| !pictures.is_empty())
        .collect();
    html! {
        @if !drawn.is_empty() {
            div.figures { @for (chart, pictures) in &drawn { (figure(run, sheet, chart, pictures)) } }
        }
    }
}

fn figure(run: &Run, sheet: &Sheet<'_>, chart: &Chart, pictures: &[Picture]) -> Markup {
    html! {
        figure.wide[pictures.len() > 1] {
            div.panels { @for picture in pictures { (panel(picture)) } }
            figcaption { b { (chart.title) "." } " " (caption::figure(run, sheet, chart, pictures)) }
        }
    }
}

fn panel(picture: &Picture) -> Markup {
    let live = echarts::live(picture);
    // A script element ends at the first `</`, wherever it stands.
    let options = serde_json::to_string(&live).expect("numbers and texts").replace("</", "<\\/");
    html! {
        div.panel {
            @if !picture.subject.is_empty() { h5 { (picture.subject) } }
            div.still { (PreEscaped(inline(&svg::draw(picture)))) }
            div.live role="img" aria-label=(picture.description()) data-h=(live.height_px) { }
            script type="application/json" { (PreEscaped(options)) }
        }
    }
}

/// A file's picture as part of the page: the page's style says its colours.
fn inline(svg: &str) -> String {
    let plain = svg.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "");
    match (plain.find("<style>"), plain.find("</style>\n")) {
        (Some(start), Some(end)) => format!("{}{}", &plain[..start], &plain[end + 9..]),
        _ => plain,
    }
}
