//! The console: what an operator sees of a cluster. It is a Kafka client like any other, in front of Highwater or Apache
//! Kafka, and it only reads: no request to it changes anything.
//!
//! Every list is drawn from one [`snapshot`], so that a page costs the brokers nothing, however many look at it. Read
//! `look` (how a snapshot comes about), then `snapshot`, then one of `pages`. The formulas are in `serving::overview` and
//! `serving::lag`.
//!
//! Not here: sockets, HTTP and who may ask. The console answers paths ([`Console::answer`]); the gateway's listener brings
//! them.

mod answer;
mod api;
mod look;
mod lookups;
mod pages;
mod parts;
mod query;
mod records;
mod route;
mod snapshot;

use std::sync::Arc;

use bytes::Bytes;
use client::{Cluster, ClusterConfig};
use hyper::Response;

use crate::look::Looker;
use crate::query::Query;
use crate::route::{Route, route};

/// A console in front of one cluster. Nothing is asked of the cluster, and no task begins, before the first request.
#[derive(Debug)]
pub struct Console {
    looker: Looker,
}

impl Console {
    /// A console in front of the cluster that is reached so.
    pub fn new(cluster: ClusterConfig) -> Console {
        Console { looker: Looker::new(Cluster::new(cluster)) }
    }

    /// Whether this path is one of the console's.
    pub fn has(&self, path: &str) -> bool {
        route(path).is_some()
    }

    /// The page, or the JSON, under a path. Paths that are not the console's are answered with 404.
    pub async fn answer(&self, path: &str, query: Option<&str>) -> Response<Bytes> {
        let Some(route) = route(path) else { return answer::nothing_here() };
        let query = Query::of(query);
        if let Route::Asset(asset) = route {
            return answer::asset(asset);
        }
        let snapshot = match self.looker.snapshot().await {
            Ok(snapshot) => snapshot,
            Err(reason) => return answer::no_snapshot(&route, &reason),
        };
        let visit = Visit { looker: &self.looker, snapshot, query };
        match route {
            Route::Api(wanted) => api::answer(&visit, &wanted).await,
            Route::Page(wanted) => pages::answer(&visit, &wanted).await,
            Route::Asset(asset) => answer::asset(asset),
        }
    }
}

/// One request: what is known, and what is asked besides the path.
pub(crate) struct Visit<'a> {
    pub(crate) looker: &'a Looker,
    pub(crate) snapshot: Arc<snapshot::Snapshot>,
    pub(crate) query: Query,
}
