//! From a path to what is shown. Names of topics and groups are arbitrary text, on other brokers than ours at least: they
//! stand in the query, so that no name can be taken for a path.

use serving::operation::Kind;

use crate::answer::Asset;
use crate::lab::serve::Document;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// A page.
    Page(Wanted),
    /// The same as JSON.
    Api(Wanted),
    /// An action: its form, and where that is sent.
    Do(Kind),
    /// A file of the pages.
    Asset(Asset),
    /// A document of a run of the laboratory.
    Document(Document),
}

impl Route {
    /// Whether it is about one thing of the cluster, which the last look may not have seen.
    pub(crate) fn is_about_one_thing(&self) -> bool {
        use Wanted::{Broker, Group, Records, Tail, Topic};
        match self {
            Route::Page(wanted) => matches!(wanted, Broker | Group | Records | Tail | Topic),
            Route::Api(wanted) => matches!(wanted, Broker | Group | Records | Topic),
            Route::Do(_) | Route::Asset(_) | Route::Document(_) => false,
        }
    }
}

/// What is to be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The cluster as a whole.
    Overview,
    /// All brokers.
    Brokers,
    /// One broker: `?id=`.
    Broker,
    /// All topics.
    Topics,
    /// One topic: `?name=`.
    Topic,
    /// All groups.
    Groups,
    /// One group: `?id=`.
    Group,
    /// Records of a partition: `?topic=&partition=`.
    Records,
    /// Where records went that were sent over this gateway: `?topic=`.
    Distribution,
    /// Records as they come: `?topic=`.
    Tail,
    /// What the gateway counts.
    Gateway,
    /// Replicas that move.
    Moves,
    /// The log of actions; one of them: `?id=`.
    Actions,
    /// Runs of the laboratory.
    Runs,
    /// One run: `?name=`.
    Run,
}

impl Wanted {
    /// The last part of its path under `/api/v1`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Wanted::Overview => "cluster",
            Wanted::Brokers => "brokers",
            Wanted::Broker => "broker",
            Wanted::Topics => "topics",
            Wanted::Topic => "topic",
            Wanted::Groups => "groups",
            Wanted::Group => "group",
            Wanted::Records => "records",
            Wanted::Distribution => "distribution",
            Wanted::Tail => "tail",
            Wanted::Gateway => "gateway",
            Wanted::Moves => "moves",
            Wanted::Actions => "actions",
            Wanted::Runs => "runs",
            Wanted::Run => "run",
        }
    }
}

/// What stands under a path; `None` if nothing of ours does.
pub(crate) fn route(path: &str) -> Option<Route> {
    let path = path.strip_suffix('/').unwrap_or(path);
    if let Some(asset) = path.strip_prefix("/console/assets/") {
        return Asset::named(asset).map(Route::Asset);
    }
    if let Some(name) = path.strip_prefix("/api/v1/") {
        return wanted(name).filter(|_| !name.is_empty()).map(Route::Api);
    }
    if let Some(name) = path.strip_prefix("/api/status/") {
        return status(name).map(Route::Api);
    }
    if let Some(name) = path.strip_prefix("/console/do/") {
        return Kind::from_name(name).map(Route::Do);
    }
    match path {
        "/console/run/report" => return Some(Route::Document(Document::Report)),
        "/console/run/chart" => return Some(Route::Document(Document::Chart)),
        _ => {}
    }
    let name = path.strip_prefix("/console")?;
    match name.strip_prefix('/') {
        Some(name) if !name.is_empty() => wanted(name).map(Route::Page),
        _ => name.is_empty().then_some(Route::Page(Wanted::Overview)),
    }
}

/// Paths of CMAK, whose scripts find here what they asked there for: `/api/status/CLUSTER/topics`. There is one cluster, by any
/// name.
fn status(path: &str) -> Option<Wanted> {
    let (cluster, name) = path.split_once('/').unwrap_or(("", path));
    match (cluster, name) {
        ("", "clusters") => Some(Wanted::Overview),
        ("", _) => None,
        (_, "brokers") => Some(Wanted::Brokers),
        (_, "topics" | "topicIdentities") => Some(Wanted::Topics),
        (_, "consumersSummary") => Some(Wanted::Groups),
        _ => None,
    }
}

fn wanted(name: &str) -> Option<Wanted> {
    use Wanted::{
        Actions, Broker, Brokers, Distribution, Gateway, Group, Groups, Moves, Overview, Records,
        Run, Runs, Tail, Topic, Topics,
    };
    let all = [
        Overview,
        Brokers,
        Broker,
        Topics,
        Topic,
        Groups,
        Group,
        Records,
        Distribution,
        Tail,
        Gateway,
        Moves,
        Actions,
        Runs,
        Run,
    ];
    all.into_iter().find(|wanted| wanted.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_pages_and_to_the_same_as_json() {
        assert_eq!(route("/console"), Some(Route::Page(Wanted::Overview)));
        assert_eq!(route("/console/"), Some(Route::Page(Wanted::Overview)));
        assert_eq!(route("/console/topics"), Some(Route::Page(Wanted::Topics)));
        assert_eq!(route("/console/group/"), Some(Route::Page(Wanted::Group)));
        assert_eq!(route("/api/v1/brokers"), Some(Route::Api(Wanted::Brokers)));
        assert_eq!(route("/console/do/create-topic"), Some(Route::Do(Kind::CreateTopic)));
        assert_eq!(route("/api/status/any/topics"), Some(Route::Api(Wanted::Topics)));
        assert_eq!(route("/api/status/clusters"), Some(Route::Api(Wanted::Overview)));
        assert!(matches!(route("/console/assets/console.css"), Some(Route::Asset(_))));
    }

    #[test]
    fn everything_else_is_left_to_others() {
        for path in [
            "",
            "/",
            "/consoles",
            "/consolex/topics",
            "/console/no",
            "/console//topics",
            "/console/do",
            "/console/do/",
            "/console/do/nothing",
            "/api/v1/do/create-topic",
            "/api/status",
            "/api/status/",
            "/api/status/topics",
            "/api/status/any/topics/more",
            "/console/topics/x",
            "/console/assets/../lib.rs",
            "/api/v1",
            "/api/v1/",
            "/api/v1/gateway/distribution",
            "/api/v1/run/report",
            "/console/run/other",
            "/console/run/report/x",
            "/topics/t",
            "/api/v1/topics/t",
        ] {
            assert_eq!(route(path), None, "{path}");
        }
    }
}
