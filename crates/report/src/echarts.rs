//! A picture as ECharts' options, for the interactive report, and beside it what options cannot say without a
//! program: the labels of ticks and the intervals, which the page's script adds. Colours of text and lines are the
//! page's, so that they follow its light or dark.

use crate::palette;
use crate::picture::axis::{Axis, Scale};
use crate::picture::{Body, Heat, Picture, Plot, Role, Series};
use charming::Chart;
use charming::component::{self, Legend, VisualMap, VisualMapChannel, VisualMapType};
use charming::datatype::CompositeValue;
use charming::element::{
    AxisType, Color, ItemStyle, Label, LineStyle, NameLocation, Symbol, Tooltip, Trigger,
};
use charming::series::{Bar, Heatmap, Line};
use serde::Serialize;
use serde_json::Value;

/// What the script needs to show a picture.
#[derive(Debug, Serialize)]
pub(crate) struct Live {
    /// ECharts' options.
    options: Value,
    /// For x, y and the right axis: values and labels of their ticks.
    ticks: Vec<Vec<(f64, String)>>,
    /// Series, x, low, high.
    intervals: Vec<(usize, f64, f64, f64)>,
    /// Series that are bars: the script must know where each of them stands.
    bars: Vec<usize>,
    /// Published series upon bars, and on which of the bars; -1: between them.
    upon: Vec<(usize, i64)>,
    /// What stands above the field, left and right.
    headings: Vec<String>,
    /// Height in pixels.
    pub(crate) height_px: u32,
}

/// The options, and what goes with them.
pub(crate) fn live(picture: &Picture) -> Live {
    match &picture.body {
        Body::Plot(plot) => of_plot(plot),
        Body::Heat(heat) => of_heat(heat),
    }
}

fn of_plot(plot: &Plot) -> Live {
    let mut chart = Chart::new()
        .tooltip(Tooltip::new().trigger(Trigger::Axis))
        .x_axis(axis(&plot.x).name(plot.x.title.as_str()).name_location(NameLocation::Middle))
        .y_axis(axis(&plot.y));
    if let Some(right) = &plot.right {
        chart = chart.y_axis(axis(right));
    }
    let named: Vec<&str> = plot.named().iter().map(|series| series.name.as_str()).collect();
    if !named.is_empty() {
        chart = chart.legend(Legend::new().left(0).item_width(16).item_height(9).data(named));
    }
    for series in &plot.series {
        chart = if series.bars { chart.series(bar(series)) } else { chart.series(line(series)) };
    }
    let axes = [Some(&plot.x), Some(&plot.y), plot.right.as_ref()];
    Live {
        options: options(&chart),
        ticks: axes.into_iter().flatten().map(ticks).collect(),
        intervals: intervals(plot),
        bars: (0..plot.series.len()).filter(|place| plot.series[*place].bars).collect(),
        upon: upon(plot),
        headings: std::iter::once(plot.heading())
            .chain(plot.right.iter().map(|right| right.title.clone()))
            .collect(),
        height_px: 350,
    }
}

fn options(chart: &Chart) -> Value {
    serde_json::to_value(chart).expect("options are numbers and texts under names")
}

/// Published series where there are bars, and the bars that they belong to.
fn upon(plot: &Plot) -> Vec<(usize, i64)> {
    let published = |(_, series): &(usize, &Series)| series.role == Role::Published;
    let bar = |series: &Series| plot.bar_of(series).map_or(-1, |bar| bar as i64);
    let all = plot.series.iter().enumerate().filter(published);
    if plot.has_bars() {
        all.map(|(place, series)| (place, bar(series))).collect()
    } else {
        Vec::new()
    }
}

fn axis(axis: &Axis) -> component::Axis {
    let kind = match axis.scale {
        Scale::Linear => AxisType::Value,
        Scale::Logarithmic => AxisType::Log,
        Scale::Category => AxisType::Category,
    };
    let shown = component::Axis::new().type_(kind);
    let value = |at: f64| if axis.scale == Scale::Logarithmic { 10f64.powf(at) } else { at };
    match axis.scale {
        Scale::Category => {
            let labels: Vec<&str> = axis.ticks.iter().map(|(_, label)| label.as_str()).collect();
            shown.data(labels)
        }
        _ => shown.min(trimmed(value(axis.bounds.0))).max(trimmed(value(axis.bounds.1))),
    }
}

/// Twelve digits: what a power of a logarithm is sure of.
fn trimmed(value: f64) -> f64 {
    format!("{value:.11e}").parse().expect("a number that was just written")
}

fn ticks(axis: &Axis) -> Vec<(f64, String)> {
    if axis.scale == Scale::Category {
        return Vec::new();
    }
    let value = |at: f64| if axis.scale == Scale::Logarithmic { 10f64.powf(at) } else { at };
    axis.ticks.iter().map(|(at, label)| (trimmed(value(*at)), label.clone())).collect()
}

fn colour(series: &Series) -> Color {
    let of = if series.role == Role::Ideal { palette::INK } else { palette::series(series.colour) };
    Color::Value(palette::hex(of))
}

fn points(series: &Series) -> Vec<CompositeValue> {
    let pair = |x: f64, y: f64| CompositeValue::from(vec![digits(x), digits(y)]);
    series.points.iter().map(|point| pair(point.x, point.y)).collect()
}

/// Six digits are more than a screen shows, and keep the file small.
fn digits(value: f64) -> f64 {
    format!("{value:.5e}").parse().expect("a number that was just written")
}

fn bar(series: &Series) -> Bar {
    Bar::new()
        .name(series.name.as_str())
        .item_style(ItemStyle::new().color(colour(series)))
        .data(points(series))
}

fn line(series: &Series) -> Line {
    let published = series.role == Role::Published;
    let symbol = match (series.role, series.colour % 4) {
        (Role::Ideal, _) => Symbol::None,
        (_, 1) => Symbol::Custom(if published { "emptyTriangle" } else { "triangle" }.to_owned()),
        (_, 2) => Symbol::Custom(if published { "emptyRect" } else { "rect" }.to_owned()),
        (_, 3) => Symbol::Custom(if published { "emptyDiamond" } else { "diamond" }.to_owned()),
        _ => Symbol::Custom(if published { "emptyCircle" } else { "circle" }.to_owned()),
    };
    let width = if series.role == Role::Measured { 2.0 } else { 1.0 };
    Line::new()
        .name(series.name.as_str())
        .symbol(symbol)
        .symbol_size(if published { 9 } else { 7 })
        .y_axis_index(if series.right { 1 } else { 0 })
        .line_style(LineStyle::new().width(width).color(colour(series)))
        .item_style(ItemStyle::new().color(colour(series)))
        .data(points(series))
}

fn intervals(plot: &Plot) -> Vec<(usize, f64, f64, f64)> {
    let of = |(place, series): (usize, &Series)| {
        let points = series.points.clone();
        points.into_iter().filter_map(move |point| {
            let interval = point.interval?;
            Some((place, point.x, digits(interval.low), digits(interval.high)))
        })
    };
    plot.series.iter().enumerate().filter(|(_, series)| !series.right).flat_map(of).collect()
}

fn of_heat(heat: &Heat) -> Live {
    let colours = (0..=4).map(|step| palette::hex(palette::heat(f64::from(step) / 4.0)));
    let steps: Vec<Color> = colours.map(Color::Value).collect();
    let cell = |(column, row, value): &(usize, usize, f64)| {
        let shade = digits(heat.share(*value));
        CompositeValue::from(vec![*column as f64, *row as f64, shade, digits(*value)])
    };
    let chart = Chart::new()
        .tooltip(Tooltip::new().trigger(Trigger::Item))
        .x_axis(
            component::Axis::new()
                .type_(AxisType::Category)
                .name(heat.x_title.as_str())
                .name_location(NameLocation::Middle)
                .data(heat.columns.iter().map(String::as_str).collect()),
        )
        .y_axis(
            component::Axis::new()
                .type_(AxisType::Category)
                .inverse(true)
                .data(heat.rows.iter().map(String::as_str).collect()),
        )
        .visual_map(
            VisualMap::new()
                .type_(VisualMapType::Continuous)
                .show(false)
                .dimension(2)
                .min(0)
                .max(1)
                .in_range(VisualMapChannel::new().color(steps)),
        )
        .series(
            Heatmap::new()
                .name(heat.value_title.as_str())
                .label(Label::new().show(true))
                .data(vec![heat.cells.iter().map(|c| cell(c).into()).collect::<Vec<_>>()]),
        );
    let labels = heat.cells.iter().map(|(_, _, value)| (digits(*value), crate::svg::label(*value)));
    let mut options = options(&chart);
    // The crate nests a heat map's points once more than ECharts wants.
    if let Some(nested) = options.pointer_mut("/series/0/data") {
        *nested = nested[0].take();
    }
    Live {
        options,
        ticks: vec![labels.collect()],
        intervals: Vec::new(),
        bars: Vec::new(),
        upon: Vec::new(),
        headings: vec![heat.y_title.clone(), heat.value_title.clone()],
        height_px: 80 + 34 * heat.rows.len() as u32,
    }
}
