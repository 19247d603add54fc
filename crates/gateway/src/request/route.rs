//! From a method and a path to what is asked.

use std::borrow::Cow;

use hyper::Method;
use percent_encoding::percent_decode_str;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route<'a> {
    /// What runs here.
    About,
    /// Whether the process is alive.
    Alive,
    /// Whether requests can be served.
    Ready,
    /// To produce records.
    Produce {
        /// The topic, as it was named.
        topic: Cow<'a, str>,
        /// The partition, if the path names one.
        partition: Option<i32>,
        /// Whether the body is the value of one record.
        raw: bool,
    },
    /// How many records went where.
    Distribution,
    /// To be sent the records of topics as they come.
    Events {
        /// The topics, as they were named, with commas between them.
        topics: Cow<'a, str>,
    },
    /// What is known of event streams.
    EventCounts,
}

/// Why nothing is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoute {
    /// There is nothing under this path.
    Path,
    /// The path names a partition that no topic can have.
    Partition,
    /// The path is there for other methods: these.
    Method(&'static str),
}

const READ: &str = "GET, HEAD, OPTIONS";
const WRITE: &str = "POST, OPTIONS";

/// What a method and a path ask.
///
/// # Errors
/// They ask nothing.
pub fn route<'a>(method: &Method, path: &'a str) -> Result<Route<'a>, NoRoute> {
    let (route, methods) = by_path(path)?;
    let fits = match methods {
        READ => matches!(*method, Method::GET | Method::HEAD),
        _ => *method == Method::POST,
    };
    if fits { Ok(route) } else { Err(NoRoute::Method(methods)) }
}

fn by_path(path: &str) -> Result<(Route<'_>, &'static str), NoRoute> {
    let path = path.strip_prefix('/').ok_or(NoRoute::Path)?;
    // More than a route has are as good as a path that is not there.
    let mut segments = [""; 6];
    let mut count = 0;
    for segment in path.split('/') {
        *segments.get_mut(count).ok_or(NoRoute::Path)? = segment;
        count += 1;
    }
    let produce = |topic, partition, raw| {
        Ok((Route::Produce { topic: decoded(topic)?, partition, raw }, WRITE))
    };
    match &segments[..count] {
        [""] => Ok((Route::About, READ)),
        ["healthz" | "healthy"] => Ok((Route::Alive, READ)),
        ["readyz" | "ready"] => Ok((Route::Ready, READ)),
        ["topics", topic] => produce(topic, None, false),
        ["topics", topics, "events"] => Ok((Route::Events { topics: decoded(topics)? }, READ)),
        ["api", "v1", "gateway", "events"] => Ok((Route::EventCounts, READ)),
        ["topics", topic, "raw"] => produce(topic, None, true),
        ["topics", topic, "partitions", index] => produce(topic, Some(partition(index)?), false),
        ["topics", topic, "partitions", index, "raw"] => {
            produce(topic, Some(partition(index)?), true)
        }
        ["api", "v1", "gateway", "distribution"] => Ok((Route::Distribution, READ)),
        _ => Err(NoRoute::Path),
    }
}

fn partition(text: &str) -> Result<i32, NoRoute> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| is_number).ok_or(NoRoute::Partition)
}

/// A segment as it was meant: a slash that was escaped is part of the name.
fn decoded(segment: &str) -> Result<Cow<'_, str>, NoRoute> {
    percent_decode_str(segment).decode_utf8().map_err(|_| NoRoute::Path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn produce(topic: &str, partition: Option<i32>, raw: bool) -> Result<Route<'_>, NoRoute> {
        Ok(Route::Produce { topic: Cow::Borrowed(topic), partition, raw })
    }

    #[test]
    fn paths_lead_where_rest_proxies_lead() {
        let post = |path| route(&Method::POST, path);
        assert_eq!(post("/topics/t"), produce("t", None, false));
        assert_eq!(post("/topics/t/raw"), produce("t", None, true));
        assert_eq!(post("/topics/t/partitions/7"), produce("t", Some(7), false));
        assert_eq!(post("/topics/t/partitions/7/raw"), produce("t", Some(7), true));
        assert_eq!(route(&Method::GET, "/healthz"), Ok(Route::Alive));
        assert_eq!(route(&Method::HEAD, "/ready"), Ok(Route::Ready));
        assert_eq!(route(&Method::GET, "/api/v1/gateway/distribution"), Ok(Route::Distribution));
        assert_eq!(route(&Method::GET, "/api/v1/gateway/events"), Ok(Route::EventCounts));
        let events = Route::Events { topics: Cow::Borrowed("a,b") };
        assert_eq!(route(&Method::GET, "/topics/a,b/events"), Ok(events));
        assert_eq!(post("/topics/t/events"), Err(NoRoute::Method(READ)));
    }

    #[test]
    fn names_are_decoded_once_and_within_their_segment() {
        let post = |path| route(&Method::POST, path);
        assert_eq!(post("/topics/a%2Fb"), produce("a/b", None, false));
        assert_eq!(post("/topics/%2e%2e"), produce("..", None, false));
        assert_eq!(post("/topics/%252e"), produce("%2e", None, false));
        assert_eq!(post("/topics/%c3%a9"), produce("é", None, false));
        assert_eq!(post("/topics/"), produce("", None, false));
        assert_eq!(post("/topics/%ff"), Err(NoRoute::Path));
    }

    #[test]
    fn everything_else_is_not_there() {
        for path in [
            "",
            "topics/t",
            "//",
            "/topics",
            "/topics/t/",
            "/topics/t/rawx",
            "/topics/t/partitions",
            "/topics/t/partitions/1/2",
            "/a/b/c/d/e/f/g/h",
            "/healthz/",
            "/TOPICS/t",
        ] {
            assert_eq!(route(&Method::POST, path), Err(NoRoute::Path), "{path}");
        }
        for index in ["-1", "x", "+1", "", "2147483648", "1 "] {
            let path = format!("/topics/t/partitions/{index}");
            assert_eq!(route(&Method::POST, &path), Err(NoRoute::Partition), "{path}");
        }
        assert_eq!(route(&Method::GET, "/topics/t"), Err(NoRoute::Method(WRITE)));
        assert_eq!(route(&Method::POST, "/healthz"), Err(NoRoute::Method(READ)));
    }
}
