//! The table of metrics that `--print-metrics` asks for, in the form of Kafka's tools.

use super::console::Console;
use super::number::fixed;

/// A metric's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Written with three places.
    Number(f64),
    /// Written as it is.
    Text(String),
}

/// Metrics of one client.
#[derive(Debug, Default)]
pub struct Metrics {
    rows: Vec<(String, Value)>,
}

impl Metrics {
    /// Adds a number under `group:name:{client-id=…}`.
    pub fn number(&mut self, group: &str, name: &str, client_id: &str, value: f64) {
        self.add(group, name, client_id, Value::Number(value));
    }

    /// Adds a text.
    pub fn text(&mut self, group: &str, name: &str, client_id: &str, value: &str) {
        self.add(group, name, client_id, Value::Text(value.to_owned()));
    }

    fn add(&mut self, group: &str, name: &str, client_id: &str, value: Value) {
        self.rows.push((format!("{group}:{name}:{{client-id={client_id}}}"), value));
    }

    /// Writes the table, sorted by name.
    pub fn print(mut self, console: &Console) {
        self.rows.sort_by(|(a, _), (b, _)| a.cmp(b));
        let width = self.rows.iter().map(|(name, _)| name.len()).max().unwrap_or_default();
        console.line("");
        console.line(format_args!("{:width$}   Value", "Metric Name"));
        for (name, value) in &self.rows {
            let value = match value {
                Value::Number(number) => fixed(*number, 3),
                Value::Text(text) => text.clone(),
            };
            console.line(format_args!("{name:width$} : {value}"));
        }
    }
}
