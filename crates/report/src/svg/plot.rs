//! Lines and bars.

use super::marks::{block, line, marker, on_bar, whisker};
use super::{Area, Drawn, WIDTH, rows_for, width_of, write, write_in};
use crate::palette;
use crate::picture::axis::{Axis, Scale};
use crate::picture::{Plot, Point, Role, Series};
use plotters::element::PathElement;
use plotters::style::text_anchor::{HPos, VPos};

const LINE_PX: i32 = 18;
const FIELD_PX: i32 = 270;

/// The rectangle of the data, pixels.
struct Field<'p> {
    plot: &'p Plot,
    left: i32,
    right: i32,
    top: i32,
    bottom: i32,
}

/// Height of the whole picture.
pub(super) fn height(plot: &Plot) -> u32 {
    (top(plot) + FIELD_PX + (label_rows(plot) + 1) * LINE_PX + 12) as u32
}

/// Rows of labels below the field: categories may need several, levels have room (see `axis`).
fn label_rows(plot: &Plot) -> i32 {
    if plot.x.scale != Scale::Category {
        return 1;
    }
    let room = (WIDTH as i32 - 80) / plot.x.ticks.len().max(1) as i32;
    rows_for(plot.x.ticks.iter().map(|(_, label)| label), room)
}

/// The axes' titles and the legend stand above the field.
fn top(plot: &Plot) -> i32 {
    LINE_PX + legend_rows(plot).len() as i32 * LINE_PX + 14
}

/// Draws all of it.
pub(super) fn draw(plot: &Plot, area: &Area<'_>) -> Drawn {
    let widest =
        |axis: &Axis| axis.ticks.iter().map(|(_, label)| width_of(label)).max().unwrap_or(0);
    let right = plot.right.as_ref().map_or(12, |axis| widest(axis) + 14);
    let field = Field {
        plot,
        left: widest(&plot.y) + 14,
        right: WIDTH as i32 - right,
        top: top(plot),
        bottom: top(plot) + FIELD_PX,
    };
    titles(&field, area)?;
    legend(&field, area)?;
    grid(&field, area)?;
    bars(&field, area)?;
    for series in plot.series.iter().filter(|series| !series.bars) {
        curve(&field, series, area)?;
    }
    Ok(())
}

impl Field<'_> {
    fn x(&self, value: f64) -> i32 {
        let axis = &self.plot.x;
        let share = (axis.within(value) - axis.bounds.0) / (axis.bounds.1 - axis.bounds.0);
        self.left + (share * f64::from(self.right - self.left)).round() as i32
    }

    fn y(&self, value: f64, axis: &Axis) -> i32 {
        let share = (axis.within(value) - axis.bounds.0) / (axis.bounds.1 - axis.bounds.0);
        self.bottom - (share * f64::from(self.bottom - self.top)).round() as i32
    }

    /// Of one bar: seven tenths of a place are bars.
    fn bar_width(&self) -> f64 {
        let bars = self.plot.series.iter().filter(|series| series.bars).count().max(1);
        let room = f64::from(self.right - self.left) / self.plot.x.ticks.len().max(1) as f64;
        (room * 0.7 / bars as f64).clamp(3.0, 56.0)
    }

    /// From the middle of a place to the middle of one of its bars.
    fn bar_offset(&self, bar: Option<usize>) -> i32 {
        let bars = self.plot.series.iter().filter(|series| series.bars).count();
        let middle = |bar: usize| (bar as f64 + 0.5 - bars as f64 / 2.0) * self.bar_width();
        bar.map_or(0, |bar| middle(bar).round() as i32)
    }

    fn axis(&self, series: &Series) -> &Axis {
        self.plot.right.as_ref().filter(|_| series.right).unwrap_or(&self.plot.y)
    }

    /// Where a coordinate of an axis lies, whatever its scale.
    fn tick_y(&self, at: f64, axis: &Axis) -> i32 {
        let share = (at - axis.bounds.0) / (axis.bounds.1 - axis.bounds.0);
        self.bottom - (share * f64::from(self.bottom - self.top)).round() as i32
    }

    fn tick_x(&self, at: f64) -> i32 {
        let bounds = self.plot.x.bounds;
        let share = (at - bounds.0) / (bounds.1 - bounds.0);
        self.left + (share * f64::from(self.right - self.left)).round() as i32
    }
}

fn titles(field: &Field<'_>, area: &Area<'_>) -> Drawn {
    write(area, &field.plot.heading(), (0, 2), HPos::Left, VPos::Top)?;
    if let Some(right) = &field.plot.right {
        write(area, &right.title, (WIDTH as i32, 2), HPos::Right, VPos::Top)?;
    }
    let middle = (field.left + field.right) / 2;
    let below = field.bottom + label_rows(field.plot) * LINE_PX + 8;
    write(area, &field.plot.x.title, (middle, below), HPos::Center, VPos::Top)
}

/// The series in rows that fit, if there is more than one.
fn legend_rows(plot: &Plot) -> Vec<Vec<&Series>> {
    let mut rows: Vec<Vec<&Series>> = Vec::new();
    let mut used = i32::MAX;
    for series in plot.named() {
        let width = entry_width(series);
        if used.saturating_add(width) > WIDTH as i32 {
            rows.push(Vec::new());
            used = 0;
        }
        used += width;
        rows.last_mut().expect("the first series opens a row").push(series);
    }
    rows
}

fn entry_width(series: &Series) -> i32 {
    width_of(&series.name) + 36
}

fn legend(field: &Field<'_>, area: &Area<'_>) -> Drawn {
    for (number, row) in legend_rows(field.plot).into_iter().enumerate() {
        let y = LINE_PX + number as i32 * LINE_PX + LINE_PX / 2 + 2;
        let mut x = 0;
        for series in row {
            swatch(area, series, (x + 8, y), field.plot.has_bars())?;
            write(area, &series.name, (x + 20, y), HPos::Left, VPos::Center)?;
            x += entry_width(series);
        }
    }
    Ok(())
}

fn swatch(area: &Area<'_>, series: &Series, (x, y): (i32, i32), beside_bars: bool) -> Drawn {
    let colour = palette::series(series.colour);
    match series.role {
        Role::Ideal => {
            area.draw(&PathElement::new(vec![(x - 8, y), (x + 8, y)], line(palette::INK, 1)))
        }
        _ if series.bars => block(area, (x - 5, y - 5), (x + 5, y + 5), colour),
        Role::Published if beside_bars => on_bar(area, (x, y)),
        role => marker(area, (x, y), series.colour, role == Role::Published),
    }
}

fn grid(field: &Field<'_>, area: &Area<'_>) -> Drawn {
    for (at, label) in &field.plot.y.ticks {
        let y = field.tick_y(*at, &field.plot.y);
        let path = vec![(field.left, y), (field.right, y)];
        area.draw(&PathElement::new(path, line(palette::LINE, 1)))?;
        write(area, label, (field.left - 8, y), HPos::Right, VPos::Center)?;
    }
    if let Some(right) = &field.plot.right {
        for (at, label) in &right.ticks {
            let at = (field.right + 8, field.tick_y(*at, right));
            write(area, label, at, HPos::Left, VPos::Center)?;
        }
    }
    let rows = label_rows(field.plot);
    for (place, (at, label)) in field.plot.x.ticks.iter().enumerate() {
        let down = place as i32 % rows * LINE_PX;
        let at = (field.tick_x(*at), field.bottom + 7 + down);
        write(area, label, at, HPos::Center, VPos::Top)?;
    }
    Ok(())
}

fn bars(field: &Field<'_>, area: &Area<'_>) -> Drawn {
    let all: Vec<&Series> = field.plot.series.iter().filter(|series| series.bars).collect();
    let places = field.plot.x.ticks.len().max(1);
    let width = field.bar_width();
    for (number, series) in all.iter().enumerate() {
        let offset = (number as f64 - all.len() as f64 / 2.0) * width;
        for point in &series.points {
            let left = field.x(point.x) + offset.round() as i32;
            let right = left + width.round() as i32 - 1;
            let axis = field.axis(series);
            let top = field.y(point.y, axis);
            block(area, (left, top), (right, field.bottom), palette::series(series.colour))?;
            error_bar(field, area, series, point, (left + right) / 2)?;
            if all.len() * places <= 8 {
                let label = crate::number::tick(rounded(point.y));
                write_in(
                    area,
                    &label,
                    ((left + right) / 2, top - 4),
                    palette::INK,
                    HPos::Center,
                    VPos::Bottom,
                )?;
            }
        }
    }
    Ok(())
}

/// A bar's label needs no more than three digits.
fn rounded(value: f64) -> f64 {
    let digits = 10f64.powf(2.0 - value.abs().max(f64::MIN_POSITIVE).log10().floor());
    if value == 0.0 { 0.0 } else { (value * digits).round() / digits }
}

fn error_bar(field: &Field<'_>, area: &Area<'_>, series: &Series, point: &Point, x: i32) -> Drawn {
    let Some(interval) = point.interval else { return Ok(()) };
    let axis = field.axis(series);
    let (low, high) = (field.y(interval.low, axis), field.y(interval.high, axis));
    if low - high < 4 {
        return Ok(());
    }
    let colour = if series.bars { palette::INK } else { palette::series(series.colour) };
    whisker(area, x, low, high, colour)
}

fn curve(field: &Field<'_>, series: &Series, area: &Area<'_>) -> Drawn {
    let axis = field.axis(series);
    let at = |point: &Point| (field.x(point.x), field.y(point.y, axis));
    let path: Vec<(i32, i32)> = series.points.iter().map(at).collect();
    let (colour, width) = match series.role {
        Role::Measured => (palette::series(series.colour), 2),
        Role::Published => (palette::series(series.colour), 1),
        Role::Ideal => (palette::INK, 1),
    };
    if series.role == Role::Published && field.plot.has_bars() {
        let offset = field.bar_offset(field.plot.bar_of(series));
        return path.iter().try_for_each(|(x, y)| on_bar(area, (x + offset, *y)));
    }
    if path.len() > 1 {
        area.draw(&PathElement::new(path.clone(), line(colour, width)))?;
    }
    if series.role == Role::Ideal {
        return Ok(());
    }
    for (point, place) in series.points.iter().zip(path) {
        error_bar(field, area, series, point, place.0)?;
        marker(area, place, series.colour, series.role == Role::Published)?;
    }
    Ok(())
}
