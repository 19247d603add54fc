//! The HTTP side of telemetry: `/metrics`, `/public_metrics` and `/healthz`. Runs on the control
//! threads; looking at the broker happens on two threads of its own, one for metrics, one for health.

use std::future::{Future, IntoFuture};
use std::io;
use std::sync::Arc;

use ::metrics::Source;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::json;
use tokio::sync::watch;

use super::door::Door;
use super::observed::Trouble;
use super::scrape::{Depth, Telemetry};
use super::worker::Worker;

/// What the routes share.
#[derive(Debug, Clone)]
struct Looks {
    metrics: Worker<Depth, Bytes>,
    health: Worker<(), Vec<Trouble>>,
}

fn router(telemetry: Telemetry) -> io::Result<Router> {
    let of_health = telemetry.clone();
    let looks = Looks {
        metrics: Worker::start("metrics", move |depth| telemetry.metrics(depth).into())?,
        health: Worker::start("health", move |()| of_health.troubles())?,
    };
    Ok(Router::new()
        .route("/metrics", get(|State(looks)| metrics(looks, Depth::All)))
        .route("/public_metrics", get(|State(looks)| metrics(looks, Depth::Public)))
        .route("/healthz", get(healthz))
        .route("/readyz", get(healthz))
        .with_state(looks))
}

/// Serves the routes to those that come through one of the doors until told to stop, then lets answers under way finish. All doors
/// share the looks at the broker.
pub async fn serve(
    doors: Vec<Door>,
    telemetry: Telemetry,
    stopped: watch::Receiver<bool>,
) -> io::Result<()> {
    let router = router(telemetry)?;
    let serving = doors.into_iter().map(|door| {
        let mut stopped = stopped.clone();
        let stop = async move { stopped.wait_for(|stopping| *stopping).await.map_or((), drop) };
        tokio::spawn(axum::serve(door, router.clone()).with_graceful_shutdown(stop).into_future())
    });
    for served in serving.collect::<Vec<_>>() {
        served.await.map_err(io::Error::other)??;
    }
    Ok(())
}

/// Serves the metrics of another program than a broker, and that it is alive, as [`serve`] does.
pub async fn serve_only_metrics(
    door: Door,
    source: Arc<dyn Source>,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let look = Worker::start("metrics", move |()| Bytes::from(::metrics::text(&source)))?;
    let router = Router::new()
        .route("/metrics", get(|State(look)| shown(look, ())))
        .route("/healthz", get(|| async { Json(json!({ "status": "ok" })) }))
        .with_state(look);
    axum::serve(door, router).with_graceful_shutdown(stop).await
}

async fn metrics(looks: Looks, depth: Depth) -> Response {
    shown(looks.metrics, depth).await
}

async fn shown<K: Copy + PartialEq + Send + 'static>(
    look: Worker<K, Bytes>,
    question: K,
) -> Response {
    match look.ask(question).await {
        Some(text) => ([(header::CONTENT_TYPE, ::metrics::CONTENT_TYPE)], text).into_response(),
        None => StatusCode::TOO_MANY_REQUESTS.into_response(),
    }
}

/// 200 if clients may come; else 503 with every reason.
async fn healthz(State(looks): State<Looks>) -> Response {
    let Some(troubles) = looks.health.ask(()).await else {
        return StatusCode::TOO_MANY_REQUESTS.into_response();
    };
    if troubles.is_empty() {
        return Json(json!({ "status": "ok" })).into_response();
    }
    let (code, status) = match troubles.iter().any(Trouble::is_serious) {
        true => (StatusCode::SERVICE_UNAVAILABLE, "unavailable"),
        false => (StatusCode::OK, "degraded"),
    };
    (code, Json(json!({ "status": status, "reasons": troubles }))).into_response()
}
