//! A published report as data: its experiments, their factors, rows and claims. One TOML file a report.

use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

/// What a factor is set to.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Level {
    /// On or off.
    Flag(bool),
    /// A size, a count, a rate.
    Number(f64),
    /// A name.
    Text(String),
}

/// Factors and what they are set to: what tells one cell from another.
pub type Levels = BTreeMap<String, Level>;

impl Level {
    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Level::Number(number) => Some(*number),
            _ => None,
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Level::Flag(_) => 0,
            Level::Number(_) => 1,
            Level::Text(_) => 2,
        }
    }
}

impl Ord for Level {
    fn cmp(&self, other: &Level) -> Ordering {
        match (self, other) {
            (Level::Flag(a), Level::Flag(b)) => a.cmp(b),
            (Level::Number(a), Level::Number(b)) => a.total_cmp(b),
            (Level::Text(a), Level::Text(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }
}

impl PartialOrd for Level {
    fn partial_cmp(&self, other: &Level) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Level {
    fn eq(&self, other: &Level) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Level {}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Level::Flag(flag) => flag.fmt(f),
            Level::Number(number) => number.fmt(f),
            Level::Text(text) => f.write_str(text),
        }
    }
}

/// A report: where it is from, and its experiments.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// `ibm`, `ali`, `cs6`, `mif` or `x`.
    pub id: String,
    /// Its title.
    pub title: String,
    /// When it was published.
    pub year: u32,
    /// Where the numbers are from, what the report leaves out and what was inferred.
    pub source: String,
    /// The machines and programs of its time.
    pub setting: String,
    /// Its experiments.
    #[serde(rename = "experiment")]
    pub experiments: Vec<Experiment>,
}

/// What is missing until an experiment, or some of its cells, can run on a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// As many brokers as the cell asks for.
    Cluster,
    /// A gateway: HTTP, server-sent events, the console.
    Gateway,
    /// A gateway that speaks WebSocket.
    WebSocket,
}

/// One experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Such as `ali-producer`.
    pub id: String,
    /// What it is called.
    pub title: String,
    /// What it asks, in a sentence.
    pub question: String,
    /// What the reader should know: what the report did otherwise, what was inferred.
    #[serde(default)]
    pub notes: Vec<String>,
    /// The factors, in the order of the tables' columns. Each is a field of [`Workload`](crate::workload::Workload), or one of its text-valued
    /// settings written `broker_settings.KEY`.
    pub factors: Vec<String>,
    /// Levels of the factors whose product makes the cells; without it, the published rows do.
    #[serde(default)]
    pub grid: BTreeMap<String, Vec<Level>>,
    /// Further cells beyond the grid or the published rows.
    #[serde(default)]
    pub extra_cells: Vec<Levels>,
    /// What all cells share.
    #[serde(default)]
    pub workload: toml::Table,
    /// What the profiles change: `quick`, `standard`, `full`.
    #[serde(default)]
    pub profile: BTreeMap<String, Profile>,
    /// Broker settings at Kafka's defaults, written out where the lab starts the brokers of a cell that does not set
    /// them. So the cells without settings get a cluster of their own too, as old as the others', and not one that has
    /// been at work for minutes.
    #[serde(default)]
    pub written_out: BTreeMap<String, String>,
    /// Whether a target with fewer brokers may run it with those that it has; the report then says so.
    #[serde(default)]
    pub fewer_brokers: bool,
    /// What it needs of a target beside one broker.
    #[serde(default)]
    pub needs: Vec<Need>,
    /// The experiment whose runs it shows from another side; it has no cells of its own then and is never run.
    #[serde(default)]
    pub same_runs_as: Option<String>,
    /// The published rows: factors and metrics together, under their names. A factor that a row leaves out is at the
    /// level that all cells share. `counts` is text: records per partition from the first, with spaces between.
    #[serde(default)]
    pub published: Vec<Levels>,
    /// What was observed, as predicates.
    #[serde(default, rename = "claim")]
    pub claims: Vec<Claim>,
    /// The tables' metric columns, in order.
    pub columns: Vec<String>,
    /// The pictures.
    #[serde(default, rename = "chart")]
    pub charts: Vec<Chart>,
}

/// How much time a profile gives an experiment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// Rounds; 0: the profile's default.
    pub rounds: u32,
    /// What is changed in the workload.
    pub workload: toml::Table,
    /// Levels that stand in place of the grid's.
    pub grid: BTreeMap<String, Vec<Level>>,
}

/// A picture of an experiment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Chart {
    /// Such as `p95 latency, acks=all`.
    pub title: String,
    /// How it is drawn.
    pub form: Form,
    /// The factor along the x axis.
    pub x: String,
    /// The metrics: one, or two for [`Form::TwoAxes`].
    pub y: Vec<String>,
    /// The factor that makes several lines, bars or rows.
    #[serde(default)]
    pub series: Option<String>,
    /// Which cells.
    #[serde(default)]
    pub only: Levels,
    /// Whether the y axis is logarithmic.
    #[serde(default)]
    pub logarithmic: bool,
    /// The published chart's bounds of y, if they are known: drawn only from fixtures.
    #[serde(default)]
    pub published_bounds: Option<(f64, f64)>,
}

/// How a chart is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Lines with markers over a numeric axis.
    Line,
    /// The same over equally spaced categories.
    CategoryLine,
    /// Bars beside one another.
    Bar,
    /// Bars with a line of what linear scaling would give.
    BarWithIdeal,
    /// Colour over x and `series`.
    HeatMap,
    /// The first metric on the left axis, logarithmic; the second on the right.
    TwoAxes,
    /// A round's counts: bars over partitions.
    Counts,
}

/// One published observation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Claim {
    /// Such as `A1`.
    pub id: String,
    /// In words.
    pub says: String,
    /// Whether the report says it; else it is ours.
    #[serde(default)]
    pub ours: bool,
    /// How it is tested.
    pub test: toml::Table,
}
