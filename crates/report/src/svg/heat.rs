//! Heat maps: each cell a rectangle with its value in it.

use super::marks::block;
use super::{Area, Drawn, WIDTH, rows_for, width_of, write, write_in};
use crate::number;
use crate::palette;
use crate::picture::Heat;
use plotters::style::text_anchor::{HPos, VPos};

const ROW_PX: i32 = 34;
const TOP_PX: i32 = 26;
const LINE_PX: i32 = 18;

/// Height of the whole picture.
pub(super) fn height(heat: &Heat) -> u32 {
    (TOP_PX + ROW_PX * heat.rows.len() as i32 + label_rows(heat) * LINE_PX + 28) as u32
}

fn left(heat: &Heat) -> i32 {
    heat.rows.iter().map(|row| width_of(row)).max().unwrap_or(0) + 14
}

fn column_px(heat: &Heat) -> i32 {
    (WIDTH as i32 - left(heat)) / heat.columns.len().max(1) as i32
}

fn label_rows(heat: &Heat) -> i32 {
    rows_for(heat.columns.iter(), column_px(heat))
}

/// Draws all of it.
pub(super) fn draw(heat: &Heat, area: &Area<'_>) -> Drawn {
    let (left, column, rows) = (left(heat), column_px(heat), label_rows(heat));
    let bottom = TOP_PX + ROW_PX * heat.rows.len() as i32;
    write(area, &heat.y_title, (0, 2), HPos::Left, VPos::Top)?;
    write(area, &heat.value_title, (WIDTH as i32, 2), HPos::Right, VPos::Top)?;
    for (number, row) in heat.rows.iter().enumerate() {
        let y = TOP_PX + ROW_PX * number as i32 + ROW_PX / 2;
        write(area, row, (left - 8, y), HPos::Right, VPos::Center)?;
    }
    for (number, name) in heat.columns.iter().enumerate() {
        let x = left + column * number as i32 + column / 2;
        let down = number as i32 % rows * LINE_PX;
        write(area, name, (x, bottom + 6 + down), HPos::Center, VPos::Top)?;
    }
    let middle = (left + WIDTH as i32) / 2;
    write(area, &heat.x_title, (middle, bottom + 8 + rows * LINE_PX), HPos::Center, VPos::Top)?;
    for (across, down, value) in &heat.cells {
        let from = (left + column * *across as i32, TOP_PX + ROW_PX * *down as i32);
        cell(area, heat, from, column, *value)?;
    }
    Ok(())
}

fn cell(area: &Area<'_>, heat: &Heat, from: (i32, i32), column: i32, value: f64) -> Drawn {
    let share = heat.share(value);
    let to = (from.0 + column - 2, from.1 + ROW_PX - 2);
    block(area, from, to, palette::heat(share))?;
    let ink = if share > 0.45 { (0xff, 0xff, 0xff) } else { (0x1c, 0x24, 0x2d) };
    let at = (from.0 + column / 2 - 1, from.1 + ROW_PX / 2 - 1);
    write_in(area, &label(value), at, ink, HPos::Center, VPos::Center)
}

/// A cell's label: a cell has no room for more.
pub(crate) fn label(value: f64) -> String {
    if value.abs() >= 1e6 { number::tick(value) } else { number::measured(value) }
}
