//! Markers and whiskers. A series' shape says the same as its colour.

use super::{Area, Drawn, rgb};
use crate::palette::{self, Colour};
use plotters::element::{Circle, PathElement, Polygon, Rectangle};
use plotters::style::{Color, ShapeStyle, WHITE};

/// The marker of a series at a place; hollow for published values.
pub(super) fn marker(area: &Area<'_>, at: (i32, i32), series: usize, hollow: bool) -> Drawn {
    let colour = palette::series(series);
    let outline = outline(at, series);
    if outline.is_empty() {
        return circle(area, at, colour, hollow);
    }
    if hollow {
        let closed: Vec<(i32, i32)> = outline.iter().chain(outline.first()).copied().collect();
        area.draw(&PathElement::new(closed, line(colour, 2)))
    } else {
        area.draw(&Polygon::new(outline, rgb(colour).filled()))
    }
}

fn circle(area: &Area<'_>, at: (i32, i32), colour: Colour, hollow: bool) -> Drawn {
    if hollow {
        area.draw(&Circle::new(at, 5, line(colour, 2)))
    } else {
        area.draw(&Circle::new(at, 4, rgb(colour).filled()))
    }
}

/// A published value on a bar: white inside, so that it shows on any colour.
pub(super) fn on_bar(area: &Area<'_>, (x, y): (i32, i32)) -> Drawn {
    let outline = vec![(x, y - 5), (x + 5, y), (x, y + 5), (x - 5, y)];
    let closed: Vec<(i32, i32)> = outline.iter().chain(outline.first()).copied().collect();
    area.draw(&Polygon::new(outline, WHITE.filled()))?;
    area.draw(&PathElement::new(closed, line(palette::OUTLINE, 2)))
}

/// The corners of the shape; none: a circle.
fn outline((x, y): (i32, i32), series: usize) -> Vec<(i32, i32)> {
    match series % 4 {
        1 => vec![(x - 5, y + 4), (x + 5, y + 4), (x, y - 5)],
        2 => vec![(x - 4, y - 4), (x + 4, y - 4), (x + 4, y + 4), (x - 4, y + 4)],
        3 => vec![(x, y - 6), (x + 5, y), (x, y + 6), (x - 5, y)],
        _ => Vec::new(),
    }
}

/// An interval from `low` to `high`, pixels from the top.
pub(super) fn whisker(area: &Area<'_>, x: i32, low: i32, high: i32, colour: Colour) -> Drawn {
    let path = [(x - 3, low), (x + 3, low), (x, low), (x, high), (x - 3, high), (x + 3, high)];
    area.draw(&PathElement::new(path.to_vec(), line(colour, 1)))
}

/// A rectangle full of colour.
pub(super) fn block(area: &Area<'_>, from: (i32, i32), to: (i32, i32), colour: Colour) -> Drawn {
    area.draw(&Rectangle::new([from, to], rgb(colour).filled()))
}

/// A line's style.
pub(super) fn line(colour: Colour, width_px: u32) -> ShapeStyle {
    rgb(colour).stroke_width(width_px)
}
