//! A picture before it is drawn: axes with their ticks, series with their points. `svg` draws it with plotters,
//! `echarts` says it in ECharts' options; both show the same because all choices are made here.

pub(crate) mod axis;
mod build;
mod counts;
mod heat;

pub(crate) use build::pictures;

use axis::Axis;
use experiment::analysis::Interval;

/// The subject of a panel that shows published values only, where targets have panels too.
pub(crate) const PUBLISHED: &str = "published";

/// One panel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Picture {
    /// The chart's title, as the definition has it.
    pub(crate) title: String,
    /// Whose numbers it shows, where panels stand beside one another; else empty.
    pub(crate) subject: String,
    /// What the reader must know: a truncated axis, levels held fixed. Sentences; often empty.
    pub(crate) notes: Vec<String>,
    pub(crate) body: Body,
}

/// What is in the panel.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Body {
    Plot(Plot),
    Heat(Heat),
}

/// Lines or bars.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Plot {
    pub(crate) x: Axis,
    pub(crate) y: Axis,
    /// The axis at the right.
    pub(crate) right: Option<Axis>,
    /// What the colours mean, with its unit, where they are levels of a factor; else empty.
    pub(crate) by: String,
    pub(crate) series: Vec<Series>,
}

/// Points of one kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) role: Role,
    /// Place in the palette, and of the marker's shape.
    pub(crate) colour: usize,
    /// Drawn as bars.
    pub(crate) bars: bool,
    /// Measured on the axis at the right.
    pub(crate) right: bool,
    /// Sorted by x.
    pub(crate) points: Vec<Point>,
}

/// What a series is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Ours: filled markers.
    Measured,
    /// The report's: hollow markers, a thin line.
    Published,
    /// A reference such as linear scaling: a thin grey line without markers.
    Ideal,
}

/// One value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Point {
    pub(crate) x: f64,
    pub(crate) y: f64,
    /// 95 % confidence interval of y.
    pub(crate) interval: Option<Interval>,
}

/// Colours over two categories.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Heat {
    pub(crate) x_title: String,
    pub(crate) columns: Vec<String>,
    pub(crate) y_title: String,
    pub(crate) rows: Vec<String>,
    /// What the colours mean, with its unit.
    pub(crate) value_title: String,
    /// Column, row, value.
    pub(crate) cells: Vec<(usize, usize, f64)>,
    /// The values of the palest and the darkest colour.
    pub(crate) bounds: (f64, f64),
    pub(crate) logarithmic: bool,
}

impl Plot {
    /// Above the field: what is drawn, and what the colours mean.
    pub(crate) fn heading(&self) -> String {
        let of = &self.y.title;
        if self.by.is_empty() { of.clone() } else { format!("{of}, by {}", self.by) }
    }

    /// The series that the legend names: where colours are levels, hollow markers repeat the colours of filled ones.
    pub(crate) fn named(&self) -> Vec<&Series> {
        let told = |series: &&Series| self.by.is_empty() || series.role != Role::Published;
        let named: Vec<&Series> = self.series.iter().filter(told).collect();
        if named.len() > 1 || !self.by.is_empty() { named } else { Vec::new() }
    }

    /// The bars that a series of published values stands on: its place among them; none: between them all.
    pub(crate) fn bar_of(&self, series: &Series) -> Option<usize> {
        let mut bars = self.series.iter().filter(|series| series.bars);
        if self.by.is_empty() { None } else { bars.position(|bar| bar.colour == series.colour) }
    }

    /// Whether there are any bars.
    pub(crate) fn has_bars(&self) -> bool {
        self.series.iter().any(|series| series.bars)
    }
}

impl Heat {
    /// Where between the ends of the colours a value lies, 0 to 1.
    pub(crate) fn share(&self, value: f64) -> f64 {
        let scale = |v: f64| if self.logarithmic { v.max(f64::MIN_POSITIVE).ln() } else { v };
        let (low, high) = (scale(self.bounds.0), scale(self.bounds.1));
        if high > low { ((scale(value) - low) / (high - low)).clamp(0.0, 1.0) } else { 0.5 }
    }
}

impl Picture {
    /// Says below the field of measured values what must go with the picture wherever it is shown.
    fn mark(&mut self, mark: &str) {
        if self.subject == PUBLISHED {
            return;
        }
        let title = match &mut self.body {
            Body::Plot(plot) => &mut plot.x.title,
            Body::Heat(heat) => &mut heat.x_title,
        };
        *title = format!("{title} · {mark}");
    }

    fn shows_something(&self) -> bool {
        match &self.body {
            Body::Plot(plot) => !plot.series.is_empty(),
            Body::Heat(heat) => !heat.cells.is_empty(),
        }
    }

    /// Whether hollow markers stand in it.
    pub(crate) fn has_published(&self) -> bool {
        let Body::Plot(plot) = &self.body else { return false };
        plot.series.iter().any(|series| series.role == Role::Published)
    }

    /// One line for people who cannot see it: what is drawn over what, and whose values.
    pub(crate) fn description(&self) -> String {
        let (what, over, names) = match &self.body {
            Body::Plot(plot) => {
                let names: Vec<&str> = plot.series.iter().map(|s| s.name.as_str()).collect();
                (plot.heading(), plot.x.title.clone(), names.join("; "))
            }
            Body::Heat(heat) => {
                let over = format!("{} and {}", heat.x_title, heat.y_title);
                (heat.value_title.clone(), over, String::new())
            }
        };
        let subject =
            if self.subject.is_empty() { String::new() } else { format!(" ({})", self.subject) };
        let names = if names.is_empty() { String::new() } else { format!(": {names}") };
        format!("{}{subject}. {what} over {over}{names}", self.title)
    }
}
