//! A console that somebody looks at, or nobody, while a round's load runs: what a browser does that has a page open.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use experiment::workload::Console;

use super::ground::Ground;
use super::measured::Measured;
use super::post;

/// How often an open page is fetched anew, as its script does.
const EVERY: Duration = Duration::from_secs(15);

/// How long the pages took that were fetched.
#[derive(Debug, Default)]
struct Pages {
    count: u32,
    longest: Duration,
}

/// Runs the load beside a console that has begun to look at the cluster, or begins with the load where a page is open.
pub fn beside(ground: &Ground<'_>, load: impl FnOnce() -> Result<Measured>) -> Result<Measured> {
    let topic = ground.topics.first().context("a round has a topic")?;
    let (gateway, page) = (ground.gateway()?, format!("/console/topic?name={topic}"));
    if ground.workload.console == Console::PageOpen {
        return with_page_open(gateway, &page, load);
    }
    let mut pages = Pages::default();
    pages.fetch(gateway, &page)?;
    let measured = load()?;
    Ok(pages.put(measured))
}

/// Fetches the page when the load begins, and then as often as a browser does until it has ended.
fn with_page_open(
    gateway: &str,
    page: &str,
    load: impl FnOnce() -> Result<Measured>,
) -> Result<Measured> {
    let (measured, pages) = thread::scope(|scope| {
        let (ended, end) = mpsc::channel::<()>();
        let looking = scope.spawn(move || {
            let mut pages = Pages::default();
            loop {
                pages.fetch(gateway, page)?;
                if end.recv_timeout(EVERY) != Err(RecvTimeoutError::Timeout) {
                    return Ok(pages);
                }
            }
        });
        let measured = load();
        drop(ended);
        let panicked = |_| Err(anyhow!("the look at the console panicked"));
        (measured, looking.join().unwrap_or_else(panicked))
    });
    Ok(pages.context("the console")?.put(measured?))
}

impl Pages {
    fn fetch(&mut self, gateway: &str, page: &str) -> Result<()> {
        let began = Instant::now();
        post::get(gateway, page)?;
        self.count += 1;
        self.longest = self.longest.max(began.elapsed());
        Ok(())
    }

    fn put(&self, mut measured: Measured) -> Measured {
        measured.put("pages", f64::from(self.count));
        measured.put("page_max_ms", self.longest.as_secs_f64() * 1e3);
        measured
    }
}
