//! Runs of the laboratory, as folders hold them (`console.lab.dir`): what was planned, what has been measured, what was judged.
//! Read only. Files may be half written, huge, or something else: each is read up to a bound, what is not there is said, and one
//! request reads at a time.

mod files;
pub(crate) mod serve;

use std::path::PathBuf;
use std::sync::Arc;

use serde::Deserialize;
use tokio::sync::Mutex;

use files::Folder;

/// Runs of a list.
const RUNS_MAX: usize = 200;
/// Rounds of a picture.
const ROUNDS_MAX: usize = 2000;
/// Charts of a page.
const CHARTS_MAX: usize = 400;
/// Findings of a page.
const FINDINGS_MAX: usize = 2000;

/// The folder of runs, if the console is told one.
#[derive(Debug, Clone)]
pub(crate) struct Lab {
    dir: Option<PathBuf>,
    turn: Arc<Mutex<()>>,
}

/// One run in the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Run {
    /// Its folder's name.
    pub(crate) name: String,
    /// When something was measured or written last, milliseconds since 1970.
    pub(crate) changed_ms: i64,
    /// Whether there is a report to open.
    pub(crate) has_report: bool,
    /// Rounds that were measured.
    pub(crate) rounds: Option<usize>,
    /// Rounds of the plan.
    pub(crate) planned: Option<usize>,
}

/// A run with all that its folder says.
#[derive(Debug, Clone)]
pub(crate) struct Whole {
    pub(crate) run: Run,
    /// What was judged; the reason if there is nothing.
    pub(crate) judged: Result<Judged, String>,
    /// The newest rounds, oldest first.
    pub(crate) rounds: Vec<Round>,
    /// Names of charts.
    pub(crate) charts: Vec<String>,
}

/// What `result.json` says that is shown here.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Judged {
    pub(crate) title: String,
    pub(crate) profile: String,
    pub(crate) commit: String,
    #[serde(default)]
    pub(crate) findings: Vec<Finding>,
    #[serde(default)]
    pub(crate) explanations: Vec<Explanation>,
}

/// A claim, judged on a target; on the published rows if its name is empty.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Finding {
    pub(crate) target: String,
    #[serde(rename = "finding")]
    pub(crate) verdict: Verdict,
}

#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Verdict {
    pub(crate) experiment: String,
    pub(crate) claim: String,
    pub(crate) outcome: String,
    pub(crate) because: String,
}

/// What limited a measurement.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Explanation {
    pub(crate) experiment: String,
    pub(crate) sentence: String,
}

/// A line of `rounds.jsonl`.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Round {
    pub(crate) target: String,
    pub(crate) experiment: String,
    pub(crate) failure: Option<String>,
    #[serde(default)]
    pub(crate) metrics: Metrics,
}

#[derive(Debug, Clone, Default, Deserialize)]
pub(crate) struct Metrics {
    /// Records a second.
    pub(crate) throughput: Option<f64>,
}

impl Lab {
    pub(crate) fn new(dir: Option<PathBuf>) -> Lab {
        Lab { dir, turn: Arc::default() }
    }

    /// Whether there is one.
    pub(crate) fn is_open(&self) -> bool {
        self.dir.is_some()
    }

    /// All runs, the newest first, and whether there are more.
    ///
    /// # Errors
    /// The folder cannot be read; in words.
    pub(crate) async fn runs(&self) -> Result<(Vec<Run>, bool), String> {
        self.reading(|dir| {
            let mut names = files::folders(&dir)?;
            names.sort_by_key(|(name, changed_ms)| (std::cmp::Reverse(*changed_ms), name.clone()));
            let is_cut = names.len() > RUNS_MAX;
            let runs = names.into_iter().take(RUNS_MAX);
            let runs = runs.filter_map(|(name, _)| Folder::of(&dir, &name)?.run());
            Ok((runs.collect(), is_cut))
        })
        .await?
    }

    /// One run; `None` if there is no such folder, or it holds none.
    ///
    /// # Errors
    /// The folder of runs cannot be read; in words.
    pub(crate) async fn run(&self, name: &str) -> Result<Option<Whole>, String> {
        let name = name.to_owned();
        self.reading(move |dir| {
            let Some(folder) = Folder::of(&dir, &name) else {
                return files::readable(&dir).map(|()| None);
            };
            Ok(folder.run().map(|run| Whole {
                run,
                judged: folder.judged(),
                rounds: folder.rounds(ROUNDS_MAX),
                charts: folder.charts(CHARTS_MAX),
            }))
        })
        .await?
    }

    /// The report of a run, one HTML file.
    pub(crate) async fn report(&self, name: &str) -> Option<Vec<u8>> {
        let name = name.to_owned();
        self.reading(move |dir| Folder::of(&dir, &name)?.report()).await.ok()?
    }

    /// A chart of a run, by the name that [`Whole::charts`] has.
    pub(crate) async fn chart(&self, name: &str, chart: &str) -> Option<Vec<u8>> {
        let (name, chart) = (name.to_owned(), chart.to_owned());
        self.reading(move |dir| Folder::of(&dir, &name)?.chart(&chart)).await.ok()?
    }

    /// Reads files where that holds nothing up, one request at a time.
    async fn reading<T: Send + 'static>(
        &self,
        read: impl FnOnce(PathBuf) -> T + Send + 'static,
    ) -> Result<T, String> {
        let dir = self.dir.clone().ok_or("no folder of runs is set (console.lab.dir)")?;
        let turn = self.turn.clone().lock_owned().await;
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            read(dir)
        });
        done.await.map_err(|error| error.to_string())
    }
}

impl Judged {
    /// How many findings have each outcome, in the order of the first of each.
    pub(crate) fn outcomes(&self) -> Vec<(&str, usize)> {
        let mut outcomes: Vec<(&str, usize)> = Vec::new();
        for finding in &self.findings {
            let outcome = &*finding.verdict.outcome;
            match outcomes.iter_mut().find(|(known, _)| *known == outcome) {
                Some((_, count)) => *count += 1,
                None => outcomes.push((outcome, 1)),
            }
        }
        outcomes
    }

    /// Those that are shown.
    pub(crate) fn shown(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().take(FINDINGS_MAX)
    }
}
