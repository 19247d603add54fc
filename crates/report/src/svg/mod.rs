//! A picture as an SVG file, drawn with plotters: for Markdown, for print, and where no script runs. Its colours are
//! readable on white and on dark pages; where the viewer says that it is dark, text becomes lighter.

mod heat;
mod marks;
mod plot;

pub(crate) use heat::label;

use crate::palette::{self, Colour};
use crate::picture::{Body, Picture};
use plotters::backend::SVGBackend;
use plotters::coord::Shift;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind, IntoDrawingArea};
use plotters::element::Text;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, IntoFont, RGBColor, TextStyle};

/// Where is drawn: a buffer for text.
type Area<'b> = DrawingArea<SVGBackend<'b>, Shift>;
/// What drawing gives. Writing to a buffer cannot fail, so nobody looks at why.
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// Height of all text, pixels of the picture's 640.
const TEXT_PX: f64 = 13.0;
/// plotters divides sizes by this before it writes them.
const PLOTTERS_SIZE: f64 = 1.24;
const WIDTH: u32 = 640;

/// The file.
pub(crate) fn draw(picture: &Picture) -> String {
    let mut text = String::new();
    let height = match &picture.body {
        Body::Plot(plot) => plot::height(plot),
        Body::Heat(heat) => heat::height(heat),
    };
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        let drawn = match &picture.body {
            Body::Plot(plot) => plot::draw(plot, &area),
            Body::Heat(heat) => heat::draw(heat, &area),
        };
        drawn.and_then(|()| area.present()).expect("writing to a buffer cannot fail");
    }
    finish(&text, picture)
}

/// Takes out what says nothing, and adds what plotters cannot say: a title for those who listen, the dark page.
fn finish(text: &str, picture: &Picture) -> String {
    let ink = palette::hex(palette::INK).to_uppercase();
    let line = palette::hex(palette::LINE).to_uppercase();
    let head = format!(
        "<title>{}</title>\n<style>@media (prefers-color-scheme: dark) {{ svg {{ fill: #b9c1ca }} line[stroke=\"{line}\"], polyline[stroke=\"{line}\"] {{ stroke: #454c55 }} }}</style>\n",
        escape(&picture.description())
    );
    let (open, rest) = text.split_once(">\n").expect("plotters opens with the svg element");
    let open = open
        .replacen(&format!("width=\"{WIDTH}\" "), "", 1)
        .replacen(" height", " data-height", 1)
        .replacen("<svg", "<svg role=\"img\"", 1);
    let open = without_attribute(&open, "data-height");
    let open = without_attribute(&open, "height");
    let rest = rest.replace(" opacity=\"1\"", "").replace(" stroke=\"none\"", "");
    let rest =
        rest.replace(" font-family=\"sans-serif\"", "").replace(" text-anchor=\"start\"", "");
    let rest = rest.replace(">\n", ">").replace("\n<", "<").replace("><", ">\n<");
    let rest = rest.replace(&format!(" fill=\"{ink}\""), "");
    let font = "font-family=\"system-ui, sans-serif\" font-size=\"13\"";
    let size = format!(" font-size=\"{}\"", TEXT_PX * PLOTTERS_SIZE / PLOTTERS_SIZE);
    let rest = rest.replace(&size, "").replace(" stroke-width=\"1\"", "").replace(" \"/>", "\"/>");
    format!("{open} {font} fill=\"{ink}\">\n{head}{rest}\n")
}

fn without_attribute(tag: &str, name: &str) -> String {
    let Some(start) = tag.find(&format!(" {name}=\"")) else { return tag.to_owned() };
    let value = start + name.len() + 3;
    let end = tag[value..].find('"').map_or(tag.len(), |at| value + at + 1);
    format!("{}{}", &tag[..start], &tag[end..])
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn rgb(colour: Colour) -> RGBColor {
    RGBColor(colour.0, colour.1, colour.2)
}

/// How wide a text is drawn, pixels: system fonts take a little more than half their height a character.
fn width_of(text: &str) -> i32 {
    (text.chars().count() as f64 * TEXT_PX * 0.55).ceil() as i32
}

/// In how many rows labels must stand, one after the other, not to touch: 1 to 3.
fn rows_for<'l>(labels: impl Iterator<Item = &'l String>, room: i32) -> i32 {
    let widest = labels.map(|label| width_of(label) + 6).max().unwrap_or(0);
    ((widest + room - 1) / room.max(1)).clamp(1, 3)
}

fn style(colour: Colour, across: HPos, down: VPos) -> TextStyle<'static> {
    let font = FontDesc::new(FontFamily::SansSerif, TEXT_PX * PLOTTERS_SIZE, FontStyle::Normal);
    font.into_font().color(&rgb(colour).to_rgba()).pos(Pos::new(across, down))
}

/// Writes a text at a place.
fn write(area: &Area<'_>, text: &str, at: (i32, i32), across: HPos, down: VPos) -> Drawn {
    write_in(area, text, at, palette::INK, across, down)
}

fn write_in(
    area: &Area<'_>,
    text: &str,
    at: (i32, i32),
    colour: Colour,
    across: HPos,
    down: VPos,
) -> Drawn {
    area.draw(&Text::new(text.to_owned(), at, style(colour, across, down)))
}
