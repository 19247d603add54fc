//! The first screen as one SVG file, for READMEs: bars for each durability and for failover, with the numbers at the
//! bars and the factors. Its colours are readable on white and on dark pages.

use crate::number;
use crate::overview::{DurabilityClass, Failover, Overview, Shown};
use crate::palette;
use std::fmt::Write;

const WIDTH: i32 = 860;
const MARGIN: i32 = 16;
/// Of a bar, with its gap.
const BAR: i32 = 20;
/// Of the line above the bars of a metric.
const HEAD: i32 = 24;
/// Characters of a line of the finding.
const FINDING_CHARS: usize = 86;

/// The file.
pub(crate) fn draw(overview: &Overview) -> String {
    let finding = wrapped(&overview.finding, FINDING_CHARS);
    let columns = overview.classes.len() as i32 + i32::from(overview.failover.is_some());
    let width = (WIDTH - MARGIN * (columns + 1)) / columns.max(1);
    let top = MARGIN + 24 * finding.len() as i32 + 32;
    let bars = overview.targets.len() as i32;
    let height = top + 24 + 4 * (HEAD + bars * BAR) + MARGIN;
    let mut drawing = Drawing { text: String::new(), targets: &overview.targets };
    for (place, line) in finding.iter().enumerate() {
        drawing.write(MARGIN, MARGIN + 18 + 24 * place as i32, "finding", line);
    }
    drawing.legend(MARGIN, top - 18);
    let left = |column: i32| MARGIN + column * (width + MARGIN);
    for (column, class) in overview.classes.iter().enumerate() {
        drawing.class(class, left(column as i32), top, width);
    }
    if let Some(gaps) = &overview.failover {
        drawing.failover(gaps, left(columns - 1), top, width);
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         font-family=\"system-ui, sans-serif\" font-size=\"13\">\n<title>{}</title>\n<style>{STYLE}</style>\n{}</svg>\n",
        escape(&overview.finding),
        drawing.text
    )
}

const STYLE: &str = "text { fill: #5b6570 } .finding { fill: #1d242c; font-size: 16px; font-weight: 600 } \
    .head { fill: #1d242c; font-size: 14px; font-weight: 600 } .number { fill: #1d242c } .factor { font-weight: 600; fill: #1d242c } \
    @media (prefers-color-scheme: dark) { text { fill: #a0a9b3 } .finding, .head, .number, .factor { fill: #e2e6ea } }";

struct Drawing<'a> {
    text: String,
    targets: &'a [Shown],
}

impl Drawing<'_> {
    fn write(&mut self, x: i32, y: i32, class: &str, text: &str) {
        let text = escape(text);
        writeln!(self.text, "<text x=\"{x}\" y=\"{y}\" class=\"{class}\">{text}</text>")
            .expect("writing to memory cannot fail");
    }

    fn write_right(&mut self, x: i32, y: i32, text: &str) {
        let text = escape(text);
        writeln!(
            self.text,
            "<text x=\"{x}\" y=\"{y}\" class=\"factor\" text-anchor=\"end\">{text}</text>"
        )
        .expect("writing to memory cannot fail");
    }

    fn block(&mut self, x: i32, y: i32, (width, height): (i32, i32), target: usize) {
        let colour = palette::hex(palette::series(self.targets[target].colour));
        writeln!(
            self.text,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" rx=\"2\" fill=\"{colour}\"/>"
        )
        .expect("writing to memory cannot fail");
    }

    fn legend(&mut self, mut x: i32, y: i32) {
        for place in 0..self.targets.len() {
            let name = self.targets[place].name.clone();
            self.block(x, y - 10, (12, 12), place);
            self.write(x + 18, y, "number", &name);
            x += 18 + 8 * name.chars().count() as i32 + 20;
        }
    }

    fn class(&mut self, class: &DurabilityClass, left: i32, top: i32, width: i32) {
        self.write(left, top + 14, "head", &class.title);
        let mut y = top + 24;
        for group in &class.bars {
            self.write(left, y + 16, "", &format!("{}, {}", group.name, group.unit));
            if let Some(ratio) = group.ratio() {
                self.write_right(left + width, y + 16, &number::multiple(ratio));
            }
            self.bars(&group.values, (left, y + HEAD), width, &number::short);
            y += HEAD + BAR * self.targets.len() as i32;
        }
    }

    fn failover(&mut self, gaps: &Failover, left: i32, top: i32, width: i32) {
        let title = format!("A broker is killed ({} times)", number::fixed(gaps.kills, 0));
        self.write(left, top + 14, "head", &title);
        let mut y = top + 24;
        for (name, values) in [("median", &gaps.median_ms), ("worst", &gaps.worst_ms)] {
            self.write(left, y + 16, "", &format!("pause of writes, {name}"));
            if let [first, second] = values[..] {
                self.write_right(left + width, y + 16, &number::multiple(first / second));
            }
            self.bars(values, (left, y + HEAD), width, &number::duration);
            y += HEAD + BAR * self.targets.len() as i32;
        }
    }

    /// A bar for each target, the number behind it.
    fn bars(
        &mut self,
        values: &[f64],
        (left, top): (i32, i32),
        width: i32,
        text: &dyn Fn(f64) -> String,
    ) {
        const ROOM_FOR_NUMBER: i32 = 84;
        let most = values.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        for (place, value) in values.iter().enumerate() {
            let y = top + BAR * place as i32;
            let long = (value / most * f64::from(width - ROOM_FOR_NUMBER)).round().max(2.0) as i32;
            self.block(left, y, (long, BAR - 5), place);
            self.write(left + long + 6, y + 12, "number", &text(*value));
        }
    }
}

/// The words of a text in lines of at most so many characters.
fn wrapped(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three four", 9), ["one two", "three", "four"]);
    }
}
