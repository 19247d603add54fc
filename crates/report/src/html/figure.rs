//! Figures: for each panel the still picture, and what the script needs to make it answer.

use super::Lively;
use crate::caption;
use crate::echarts;
use crate::palette;
use crate::picture::{Picture, pictures};
use crate::run::Run;
use crate::sheet::Sheet;
use crate::svg;
use experiment::definition::Chart;
use maud::{Markup, PreEscaped, html};

/// All figures of an experiment. What the script needs for each panel goes to `lively`.
pub(super) fn figures(run: &Run, sheet: &Sheet<'_>, lively: &mut Lively) -> Markup {
    let mut figures: Vec<Markup> = Vec::new();
    for chart in &sheet.experiment.charts {
        let pictures = pictures(chart, sheet);
        if !pictures.is_empty() {
            figures.push(figure(run, sheet, chart, &pictures, lively.pictures.len()));
            lively.pictures.extend(pictures.iter().map(echarts::live));
        }
    }
    html! {
        @if !figures.is_empty() { div.figures { @for figure in &figures { (figure) } } }
    }
}

fn figure(
    run: &Run,
    sheet: &Sheet<'_>,
    chart: &Chart,
    pictures: &[Picture],
    first: usize,
) -> Markup {
    html! {
        figure.wide[pictures.len() > 1].three[pictures.len() == 3] {
            div.panels {
                @for (place, picture) in pictures.iter().enumerate() { (panel(picture, first + place)) }
            }
            figcaption { b { (chart.title) "." } " " (caption::figure(run, sheet, chart, pictures)) }
        }
    }
}

fn panel(picture: &Picture, number: usize) -> Markup {
    html! {
        div.panel {
            @if !picture.subject.is_empty() { h5 { (picture.subject) } }
            div.still aria-hidden="true" { (PreEscaped(inline(&svg::draw(picture)))) }
            div.live role="img" aria-label=(picture.description()) data-n=(number) { }
        }
    }
}

/// A file's picture as part of the page: the page's style says its colours, the panel what it shows.
fn inline(svg: &str) -> String {
    let grid = format!(" stroke=\"{}\"", palette::hex(palette::LINE).to_uppercase());
    let plain = svg
        .replacen(" role=\"img\"", "", 1)
        .replace(" xmlns=\"http://www.w3.org/2000/svg\"", "")
        .replace("<polyline fill=\"none\"", "<polyline")
        .replace(&grid, "");
    match (plain.find("<title>"), plain.find("</style>\n")) {
        (Some(start), Some(end)) => format!("{}{}", &plain[..start], &plain[end + 9..]),
        _ => plain,
    }
}
