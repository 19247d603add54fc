//! The console: what an operator sees of a cluster. It is a Kafka client like any other, in front of Highwater or Apache
//! Kafka, and it only reads, unless it is told that it may act: then each action is a form, a review, and a line in a log.
//!
//! Every list is drawn from one [`snapshot`], so that a page costs the brokers nothing, however many look at it. Read
//! `look` (how a snapshot comes about), then `snapshot`, then one of `pages`, then `actions`. The formulas are in `serving::overview` and
//! `serving::lag`, what an action is in `serving::operation`.
//!
//! Not here: sockets, HTTP and who may ask. The console answers paths ([`Console::answer`]) and takes forms
//! ([`Console::take`]); the gateway's listener brings them, and is what records are sent over ([`Front`]).

mod actions;
mod answer;
mod api;
mod exact;
mod front;
mod lab;
mod look;
mod lookups;
mod merged;
mod pages;
mod parts;
mod query;
mod records;
mod route;
mod snapshot;

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use client::{Cluster, ClusterConfig};
use hyper::{Response, StatusCode};
use serving::operation::{By, Fields};

pub use crate::front::{Front, Sending};

use crate::actions::Desk;
use crate::exact::Exact;
use crate::lab::Lab;
use crate::look::Looker;
use crate::query::Query;
use crate::route::{Route, route};

/// What a console is told.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Whether anything may be changed.
    pub write: bool,
    /// Where it keeps what a restart shall not lose; it exists. `None`: nowhere.
    pub state_dir: Option<PathBuf>,
    /// The file of properties that leads into the cluster, as it stands in the command lines that are shown. `None`: none is
    /// needed.
    pub command_config: Option<String>,
    /// A folder with a folder for each run of the laboratory. `None`: there is no page for them.
    pub lab_dir: Option<PathBuf>,
}

/// A console in front of one cluster. Nothing is asked of the cluster, and no task begins, before the first request.
#[derive(Debug)]
pub struct Console {
    looker: Looker,
    desk: Desk,
    exact: Exact,
    lab: Lab,
}

impl Console {
    /// A console in front of the cluster that is reached so. Reads what an earlier one has kept.
    pub fn new(cluster: ClusterConfig, settings: Settings) -> Console {
        Console {
            desk: Desk::new(&settings, cluster.bootstrap.join(",")),
            looker: Looker::new(Cluster::new(cluster), settings.state_dir.as_deref()),
            exact: Exact::default(),
            lab: Lab::new(settings.lab_dir),
        }
    }

    /// Whether this path is one of the console's.
    pub fn has(&self, path: &str) -> bool {
        route(path).is_some()
    }

    /// Whether this path takes a form.
    pub fn takes(&self, path: &str) -> bool {
        matches!(route(path), Some(Route::Do(_)))
    }

    /// Ends looking at the cluster, and writes what a restart shall not lose.
    pub fn stop(&self) {
        self.looker.stop();
    }

    fn visit<'a>(
        &'a self,
        by: By<'a>,
        front: &'a dyn Front,
        snapshot: Arc<snapshot::Snapshot>,
        query: Query,
    ) -> Visit<'a> {
        let Console { looker, desk, exact, lab } = self;
        Visit { looker, desk, exact, lab, by, front, snapshot, is_newest: false, query }
    }

    /// The page, or the JSON, under a path. Paths that are not the console's are answered with 404.
    pub async fn answer(
        &self,
        path: &str,
        query: Option<&str>,
        by: By<'_>,
        front: &dyn Front,
    ) -> Response<Bytes> {
        let Some(route) = route(path) else { return answer::nothing_here() };
        let query = Query::of(query);
        if let Route::Asset(asset) = route {
            return answer::asset(asset);
        }
        if let Route::Document(document) = route {
            return lab::serve::answer(&self.lab, document, &query).await;
        }
        let snapshot = match self.looker.snapshot().await {
            Ok(snapshot) => snapshot,
            Err(reason) => return answer::no_snapshot(&route, &reason),
        };
        let mut visit = self.visit(by, front, snapshot, query);
        let answer = shown(&visit, route).await;
        if answer.status() != StatusCode::NOT_FOUND || !route.is_about_one_thing() {
            return answer;
        }
        // It may have been made, or have gone, since the last look.
        let Some(newer) = self.looker.newer().await else { return answer };
        (visit.snapshot, visit.is_newest) = (newer, true);
        shown(&visit, route).await
    }

    /// Takes a form that was sent to a path, and answers with a page. What it asks for is done before this returns.
    pub async fn take(
        &self,
        path: &str,
        form: &[u8],
        by: By<'_>,
        front: &dyn Front,
    ) -> Response<Bytes> {
        let Some(Route::Do(kind)) = route(path) else { return answer::nothing_here() };
        let snapshot = match self.looker.snapshot().await {
            Ok(snapshot) => snapshot,
            Err(reason) => return answer::no_snapshot(&Route::Do(kind), &reason),
        };
        let query = Query::default();
        let visit = self.visit(by, front, snapshot, query);
        let fields = Fields::new(form_urlencoded::parse(form).map(|(name, text)| {
            let text = query::as_typed(&name, &text);
            (name.into_owned(), text)
        }));
        actions::take(&visit, kind, &fields).await
    }
}

/// The answer to a route, for a visitor with the right to see it.
async fn shown(visit: &Visit<'_>, route: Route) -> Response<Bytes> {
    match route {
        Route::Api(wanted) => api::answer(visit, &wanted).await,
        Route::Page(wanted) => pages::answer(visit, &wanted).await,
        Route::Do(kind) => {
            let page = actions::form(visit, kind).await;
            pages::whole(visit, "Actions", None, page)
        }
        Route::Asset(_) | Route::Document(_) => answer::nothing_here(),
    }
}

/// One request: what is known, and what is asked besides the path.
pub(crate) struct Visit<'a> {
    pub(crate) looker: &'a Looker,
    pub(crate) desk: &'a Desk,
    pub(crate) exact: &'a Exact,
    pub(crate) lab: &'a Lab,
    pub(crate) by: By<'a>,
    pub(crate) front: &'a dyn Front,
    pub(crate) snapshot: Arc<snapshot::Snapshot>,
    /// Whether the cluster was looked at for this very request: what the snapshot has is there, and what it lacks is not.
    pub(crate) is_newest: bool,
    pub(crate) query: Query,
}
