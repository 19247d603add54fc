//! The HTTP side of telemetry: `/metrics`, `/public_metrics`, `/livez`, `/readyz` and `/healthz`.
//! Runs on a thread of its own, so that it answers while the control thread waits for a disk; two more
//! threads read the broker's state, one for metrics, one for health.

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
use serving::health::{BrokerHealth, ProbeAnswer, report};
use tokio::sync::watch;

use super::door::Door;
use super::scrape::{Depth, Telemetry};
use super::worker::Worker;

/// What the routes share.
#[derive(Debug, Clone)]
struct Looks {
    metrics: Worker<Depth, Bytes>,
    health: Worker<(), BrokerHealth>,
    telemetry: Telemetry,
}

fn router(telemetry: Telemetry) -> io::Result<Router> {
    let (of_health, of_metrics) = (telemetry.clone(), telemetry.clone());
    let looks = Looks {
        metrics: Worker::start("metrics", move |depth| of_metrics.metrics(depth).into())?,
        health: Worker::start("health", move |()| of_health.health())?,
        telemetry,
    };
    Ok(Router::new()
        .route("/metrics", get(|State(looks)| metrics(looks, Depth::All)))
        .route("/public_metrics", get(|State(looks)| metrics(looks, Depth::Public)))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/healthz", get(healthz))
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

/// Serves the metrics of another program than a broker, and that it is alive, as [`serve`] does, and further routes of that
/// program.
pub async fn serve_only_metrics(
    door: Door,
    source: Arc<dyn Source>,
    further: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let look = Worker::start("metrics", move |()| Bytes::from(::metrics::text(&source)))?;
    let router = Router::new()
        .route("/metrics", get(|State(look)| shown(look, ())))
        .route("/healthz", get(|| async { Json(json!({ "status": "ok" })) }))
        .with_state(look)
        .merge(further);
    axum::serve(door, router).with_graceful_shutdown(stop).await
}

async fn metrics(looks: Looks, depth: Depth) -> Response {
    if !looks.telemetry.is_started() {
        return (StatusCode::SERVICE_UNAVAILABLE, "the broker starts\n").into_response();
    }
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

/// 503 if the control or data threads do not run: a supervisor may restart the process.
async fn livez(State(looks): State<Looks>) -> Response {
    to_response(&looks.telemetry.livez())
}

/// 503 if no clients should be sent to this broker.
async fn readyz(State(looks): State<Looks>) -> Response {
    probe(looks, BrokerHealth::readyz).await
}

/// 503 if the broker itself is not well.
async fn healthz(State(looks): State<Looks>) -> Response {
    probe(looks, BrokerHealth::healthz).await
}

async fn probe(looks: Looks, answer: fn(&BrokerHealth) -> ProbeAnswer) -> Response {
    match looks.health.ask(()).await {
        Some(health) => to_response(&answer(&health)),
        None => StatusCode::TOO_MANY_REQUESTS.into_response(),
    }
}

fn to_response(answer: &ProbeAnswer) -> Response {
    let code = if answer.is_ok { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(report::to_json(answer.status, &answer.reasons))).into_response()
}
