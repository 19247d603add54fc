//! Fault rules of a proxy: read from a file or a journal, and changed over HTTP.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::to_bytes;
use axum::extract::{DefaultBodyLimit, Path as PathPart, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::{any, get};
use proxy::FaultInjector;
use proxy::fault_injection::{
    BrokerControl, FORMS, FaultEngine, FaultFileError, FaultPlan, RefusedRule, parse_journal,
    parse_plan, parse_plan_and_seed, parse_rule,
};
use serde_json::{Value, json};
use tracing::warn;

use super::fault_warnings;
use crate::arguments::FaultFiles;
use crate::failure::Failure;

/// Bytes of a body: a plan or a rule.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Time of a request after its header.
const REQUEST_MAX: Duration = Duration::from_secs(10);

/// Fault injection by the files that were typed; `None` if none was.
///
/// # Errors
/// A file cannot be read or written, or holds an invalid rule.
pub fn injector(
    typed: &FaultFiles,
    control: Option<Box<dyn BrokerControl>>,
) -> Result<Option<Arc<FaultInjector>>, Failure> {
    let is_wanted = typed.faults.is_some() || typed.replay.is_some() || typed.journal.is_some();
    if typed.seed.is_some() && !is_wanted {
        return Err(Failure::new("cannot use --seed without faults")
            .hint("name a file of fault rules: --faults FILE"));
    }
    if is_wanted { injector_with(typed, control).map(Some) } else { Ok(None) }
}

/// Fault injection by the files that were typed, or without rules.
///
/// # Errors
/// As [`injector`].
pub fn injector_with(
    typed: &FaultFiles,
    control: Option<Box<dyn BrokerControl>>,
) -> Result<Arc<FaultInjector>, Failure> {
    for (option, read) in [("--replay", &typed.replay), ("--faults", &typed.faults)] {
        if let (Some(journal), Some(read)) = (&typed.journal, read)
            && is_same_file(journal, read)
        {
            return Err(Failure::new(format!(
                "cannot write the journal into the file of {option}"
            ))
            .hint("name another file: --journal FILE"));
        }
    }
    let engine = match (&typed.faults, &typed.replay) {
        (_, Some(journal)) => replayed(journal)?,
        (Some(file), None) => FaultEngine::new(seeded(plan(file)?, typed.seed)),
        (None, None) => FaultEngine::new(seeded(FaultPlan::default(), typed.seed)),
    };
    let injector = FaultInjector::new(engine, control)
        .map_err(|error| Failure::new("cannot inject these faults").detail(error))?;
    warn_of(&injector);
    if let Some(path) = &typed.journal {
        let file = File::create(path).map_err(|error| {
            Failure::new(format!("cannot write the journal {}", path.display())).detail(error)
        })?;
        injector.write_journal(Box::new(file));
    }
    Ok(Arc::new(injector))
}

/// Reports rules that never fire.
fn warn_of(faults: &FaultInjector) {
    fault_warnings::warnings(&faults.plan().rules).iter().for_each(|warning| warn!("{warning}"));
}

/// Whether both paths lead to one file, also by links.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let identity = |path: &Path| path.metadata().map(|file| (file.dev(), file.ino()));
    matches!((identity(one), identity(other)), (Ok(one), Ok(other)) if one == other)
}

fn seeded(plan: FaultPlan, seed: Option<u64>) -> FaultPlan {
    FaultPlan { seed: seed.unwrap_or(plan.seed), ..plan }
}

fn text_of(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path)
        .map_err(|error| Failure::new(format!("cannot read {}", path.display())).detail(error))
}

fn plan(path: &Path) -> Result<FaultPlan, Failure> {
    parse_plan(&text_of(path)?).map_err(|error| {
        Failure::new(format!("cannot use the fault rules of {}", path.display()))
            .detail(error)
            .hint(FORMS)
    })
}

fn replayed(path: &Path) -> Result<FaultEngine, Failure> {
    let (plan, events) = parse_journal(&text_of(path)?).map_err(|error| {
        Failure::new(format!("cannot play back the journal {}", path.display()))
            .detail(error)
            .hint("a journal is written by --journal FILE")
    })?;
    Ok(FaultEngine::new(plan).replaying(events))
}

/// Routes that show and change the rules.
pub fn routes(faults: Arc<FaultInjector>) -> Router {
    Router::new()
        .route("/faults", get(show).put(replace).delete(clear))
        .route("/faults/{name}", get(show_one).put(put).delete(remove))
        .route("/faults/", any(unknown_path))
        .route("/faults/{name}/{*further}", any(unknown_path))
        .layer(middleware::from_fn(limit_time))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .layer(middleware::from_fn(report_errors_in_json))
        .with_state(faults)
}

/// Answers 408 if the body of a request does not arrive in time: a half-sent request keeps no connection.
async fn limit_time(request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(REQUEST_MAX, next.run(request)).await;
    answer.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}

/// Answers 404 to paths below `/faults` that name no rule.
async fn unknown_path(request: Request) -> Refusal {
    let message = format!("no rule has the path {}; use /faults/NAME", request.uri().path());
    Refusal { code: StatusCode::NOT_FOUND, message }
}

/// Rewrites errors of the HTTP library and of [`limit_time`], which are plain text or empty, as JSON.
pub async fn report_errors_in_json(request: Request, next: Next) -> Response {
    let answer = next.run(request).await;
    let code = answer.status();
    let is_error = code.is_client_error() || code.is_server_error();
    let json = HeaderValue::from_static("application/json");
    if !is_error || answer.headers().get(header::CONTENT_TYPE) == Some(&json) {
        return answer;
    }
    let (mut head, body) = answer.into_parts();
    let text = to_bytes(body, BODY_BYTES_MAX).await.unwrap_or_default();
    let message = match str::from_utf8(&text) {
        Ok(text) if !text.is_empty() => text.to_owned(),
        _ => code.canonical_reason().unwrap_or("error").to_lowercase(),
    };
    // These describe the replaced body. `Allow` of 405 stays.
    head.headers.remove(header::CONTENT_TYPE);
    head.headers.remove(header::CONTENT_LENGTH);
    (head.status, head.headers, Refusal { code, message }).into_response()
}

type Faults = State<Arc<FaultInjector>>;

async fn show(State(faults): Faults) -> Json<Value> {
    Json(json!({
        "seed": faults.plan().seed,
        "rules": faults.status(),
        "records": faults.records(),
    }))
}

async fn show_one(State(faults): Faults, PathPart(name): PathPart<String>) -> Response {
    match faults.status().into_iter().find(|status| status.rule.name == name) {
        Some(status) => Json(status).into_response(),
        None => Refusal::unknown(&name).into_response(),
    }
}

async fn replace(State(faults): Faults, body: String) -> Result<Json<Value>, Refusal> {
    let (plan, seed) = parse_plan_and_seed(&body).map_err(Refusal::of_text)?;
    faults.replace(plan.rules, seed).map_err(Refusal::of_rule)?;
    warn_of(&faults);
    Ok(show(State(faults)).await)
}

async fn clear(State(faults): Faults) -> Result<StatusCode, Refusal> {
    faults.replace(Vec::new(), None).map_err(Refusal::of_rule)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn put(
    State(faults): Faults,
    PathPart(name): PathPart<String>,
    body: String,
) -> Result<Response, Refusal> {
    let rule = parse_rule(&named(&body, &name)?).map_err(Refusal::of_text)?;
    faults.put(rule).map_err(Refusal::of_rule)?;
    warn_of(&faults);
    Ok(show_one(State(faults), PathPart(name)).await)
}

async fn remove(
    State(faults): Faults,
    PathPart(name): PathPart<String>,
) -> Result<StatusCode, Refusal> {
    match faults.remove(&name) {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Refusal::unknown(&name)),
    }
}

/// The rule with the name of its path. A body without a valid object is returned as it is: reading the rule reports where it
/// is malformed.
fn named(body: &str, name: &str) -> Result<String, Refusal> {
    let Ok(Value::Object(mut rule)) = serde_json::from_str(body) else {
        return Ok(body.to_owned());
    };
    let in_body = rule.entry("name").or_insert_with(|| json!(name));
    if in_body != name {
        let message = format!("name: the path names rule {name:?}, the body names {in_body}");
        return Err(Refusal { code: StatusCode::BAD_REQUEST, message });
    }
    Ok(Value::Object(rule).to_string())
}

/// A request over HTTP that changed nothing.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    /// Status of the answer.
    pub code: StatusCode,
    /// The field `error` of the answer.
    pub message: String,
}

impl Refusal {
    fn of_text(error: FaultFileError) -> Refusal {
        Refusal { code: StatusCode::BAD_REQUEST, message: format!("{error}; {FORMS}") }
    }

    fn of_rule(error: RefusedRule) -> Refusal {
        Refusal { code: StatusCode::BAD_REQUEST, message: error.to_string() }
    }

    fn unknown(name: &str) -> Refusal {
        let message = format!("no rule has the name {name:?}");
        Refusal { code: StatusCode::NOT_FOUND, message }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        (self.code, Json(json!({ "error": self.message }))).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_the_name_of_its_path() {
        let named = |body: &str| named(body, "x").map_err(|refusal| refusal.code);
        assert_eq!(named(r#"{"action":"close"}"#).unwrap(), r#"{"action":"close","name":"x"}"#);
        assert!(named(r#"{"name":"x"}"#).is_ok());
        assert_eq!(named(r#"{"name":"y"}"#), Err(StatusCode::BAD_REQUEST));
        assert_eq!(named("{").unwrap(), "{");
    }
}
