//! The card of an experiment: the finding, and a line of dots for each cell, all on one scale. It needs no script.

use crate::card::{Card, Dot, DotLine, Dots};
use crate::number;
use crate::palette;
use crate::sheet::Sheet;
use crate::wording;
use experiment::analysis::Standing;
use maud::{Markup, html};

/// Lines that show at once; the others are folded.
const LINES_SHOWN: usize = 8;

/// The finding's factor and the chart.
pub(super) fn chart(sheet: &Sheet<'_>, card: &Card) -> Markup {
    html! {
        @if !card.summary.is_empty() { p.factor { (card.summary) } }
        @if let Some(dots) = &card.dots {
            div.dots {
                (legend(sheet, dots))
                @for line in dots.lines.iter().take(LINES_SHOWN) { (row(sheet, line)) }
                (axis(dots))
                @if dots.lines.len() > LINES_SHOWN {
                    details {
                        summary { (dots.lines.len() - LINES_SHOWN) " more cells" }
                        @for line in dots.lines.iter().skip(LINES_SHOWN) { (row(sheet, line)) }
                    }
                }
            }
        }
    }
}

fn colour(sheet: &Sheet<'_>, target: usize) -> String {
    palette::hex(palette::series(sheet.colours[target]))
}

fn legend(sheet: &Sheet<'_>, dots: &Dots) -> Markup {
    html! {
        p.legend {
            b { (dots.metric) @if dots.less_is_better { " (less is better)" } }
            @if dots.has_published { span.key { i.ring {} "published" } }
            @for (place, target) in sheet.targets.iter().enumerate() {
                span.key { i style=(format!("background:{}", colour(sheet, place))) {} (wording::target(target)) }
            }
            @if dots.has_young { span.key { "† brokers still warming up" } }
        }
    }
}

fn row(sheet: &Sheet<'_>, line: &DotLine) -> Markup {
    html! {
        div.cell {
            span.label { (line.label) }
            span.track {
                @if let Some(dot) = &line.published { i.ring style=(left(dot)) title=(format!("published: {}", dot.text)) {} }
                @for (place, dot) in line.measured.iter().enumerate().rev() {
                    @if let Some(dot) = dot {
                        i.young[dot.young] style=(format!("{};--c:{}", left(dot), colour(sheet, place)))
                            title=(format!("{}: {}", wording::target(sheet.targets[place]), dot.text)) {}
                    }
                }
            }
            span.values {
                @if let Some(dot) = &line.published { span.quiet { "○ " (dot.text) } }
                @for (place, dot) in line.measured.iter().enumerate() {
                    @if let Some(dot) = dot {
                        span style=(format!("--c:{}", colour(sheet, place))) { (dot.text) @if dot.young { "†" } }
                    }
                }
            }
            span.factor-of { (factor(line)) }
        }
    }
}

/// The factor to the base; without a base the factor to the published value.
fn factor(line: &DotLine) -> Markup {
    html! {
        @if let Some((ratio, standing)) = line.ratio {
            b class=(tone(standing)) { (number::ratio(ratio)) "×" }
        } @else if line.measured.iter().flatten().count() > 1 {
            span.quiet { "no factor" }
        }
        @if let Some(ratio) = line.by_published {
            small { (number::ratio(ratio)) "× ○" }
        }
    }
}

fn tone(standing: Standing) -> &'static str {
    match standing {
        Standing::Better => "good",
        Standing::Worse => "bad",
        Standing::WithinNoise => "quiet",
        Standing::Different | Standing::Unknown => "",
    }
}

fn left(dot: &Dot) -> String {
    format!("left:{:.1}%", dot.place * 100.0)
}

fn axis(dots: &Dots) -> Markup {
    html! {
        div.cell.axis aria-hidden="true" {
            span.label {}
            span.track { @for (place, label) in &dots.ticks { em style=(format!("left:{:.1}%", place * 100.0)) { (label) } } }
            span.values {}
            span.factor-of {}
        }
    }
}
