//! The HTTP side of telemetry: `/metrics`, `/public_metrics` and `/healthz`. Runs on the control
//! threads; reading what is shown happens on threads that may block.

use std::future::Future;
use std::io;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use serde_json::json;
use tokio::net::TcpListener;

use super::scrape::{Depth, Telemetry};

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The routes, for a server of one's own.
pub fn router(telemetry: Telemetry) -> Router {
    Router::new()
        .route("/metrics", get(|State(telemetry)| metrics(telemetry, Depth::All)))
        .route("/public_metrics", get(|State(telemetry)| metrics(telemetry, Depth::Public)))
        .route("/healthz", get(healthz))
        .with_state(telemetry)
}

/// Serves the routes on `listener` until `stop` is ready, then lets answers under way finish.
pub async fn serve(
    listener: TcpListener,
    telemetry: Telemetry,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router(telemetry)).with_graceful_shutdown(stop).await
}

async fn metrics(telemetry: Telemetry, depth: Depth) -> Response {
    match tokio::task::spawn_blocking(move || telemetry.metrics(depth)).await {
        Ok(text) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// 200 if clients may come; else 503 with every reason.
async fn healthz(State(telemetry): State<Telemetry>) -> Response {
    let Ok(troubles) = tokio::task::spawn_blocking(move || telemetry.troubles()).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    if troubles.is_empty() {
        return Json(json!({ "status": "ok" })).into_response();
    }
    let body = Json(json!({ "status": "unavailable", "reasons": troubles }));
    (StatusCode::SERVICE_UNAVAILABLE, body).into_response()
}
