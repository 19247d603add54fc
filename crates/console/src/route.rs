//! From a path to what is shown. Names of topics and groups are arbitrary text, on other brokers than ours at least: they
//! stand in the query, so that no name can be taken for a path.

use crate::answer::Asset;

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// A page.
    Page(Wanted),
    /// The same as JSON.
    Api(Wanted),
    /// A file of the pages.
    Asset(Asset),
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
    let name = path.strip_prefix("/console")?;
    match name.strip_prefix('/') {
        Some(name) if !name.is_empty() => wanted(name).map(Route::Page),
        _ => name.is_empty().then_some(Route::Page(Wanted::Overview)),
    }
}

fn wanted(name: &str) -> Option<Wanted> {
    use Wanted::{Broker, Brokers, Group, Groups, Overview, Records, Topic, Topics};
    let all = [Overview, Brokers, Broker, Topics, Topic, Groups, Group, Records];
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
            "/console/topics/x",
            "/console/assets/../lib.rs",
            "/api/v1",
            "/api/v1/",
            "/api/v1/gateway/distribution",
            "/topics/t",
            "/api/v1/topics/t",
        ] {
            assert_eq!(route(path), None, "{path}");
        }
    }
}
