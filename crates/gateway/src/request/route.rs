//! From a method and a path to what is asked, by one table: [`TABLE`].

use std::borrow::Cow;
use std::fmt;

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
    /// What the gateway counts of itself.
    Metrics,
    /// The OpenAPI document.
    Document,
    /// Who asks, and what it may do.
    Me,
    /// A ticket for streams.
    Ticket,
    /// The page with the form of the login.
    LoginPage,
    /// To log in.
    LogIn,
    /// To log out.
    LogOut,
    /// To create a topic.
    CreateTopic,
    /// To produce records.
    Produce {
        /// The topic, as it was named.
        topic: Cow<'a, str>,
        /// The partition, if the path names one.
        partition: Option<i32>,
        /// Whether the body is the value of one record.
        raw: bool,
    },
    /// To produce records in the words of version 3.
    ProduceV3 {
        /// The id of the cluster.
        cluster: Cow<'a, str>,
        /// The topic, as it was named.
        topic: Cow<'a, str>,
    },
    /// Which clusters there are, in the words of version 3.
    Clusters {
        /// This one, or all.
        id: Option<Cow<'a, str>>,
    },
    /// How many records went where.
    Distribution,
    /// To be sent the records of topics as they come.
    Events {
        /// The topics, as they were named, with commas between them.
        topics: Cow<'a, str>,
    },
    /// To be sent the records of topics as they come, over a WebSocket.
    Socket {
        /// The topics, as they were named, with commas between them.
        topics: Cow<'a, str>,
    },
    /// The same of one topic, in Pulsar's words.
    SocketReader {
        /// The topic, as it was named.
        topic: Cow<'a, str>,
    },
    /// To be sent the records of a topic as a consumer of a subscription, in Pulsar's words.
    SocketConsumer {
        /// The topic, as it was named.
        topic: Cow<'a, str>,
        /// The subscription: a group of this name.
        subscription: Cow<'a, str>,
    },
    /// To acknowledge what an event stream has sent to a member of a group.
    AckInGroup {
        /// The group, as it was named.
        group: Cow<'a, str>,
    },
    /// To produce records over a WebSocket, in Pulsar's words.
    SocketProducer {
        /// The topic, as it was named.
        topic: Cow<'a, str>,
    },
    /// What is known of event streams.
    EventCounts,
    /// What is known of requests with an `Idempotency-Key`.
    KeyCounts,
    /// A new consumer instance.
    NewInstance {
        /// The group, as it was named.
        group: Cow<'a, str>,
    },
    /// Something of a consumer instance.
    Instance {
        /// The group, as it was named.
        group: Cow<'a, str>,
        /// The instance, as it was named.
        name: Cow<'a, str>,
        /// What of it.
        wish: Wish,
    },
    /// What the cluster has: this.
    Cluster(Part<'a>),
    /// Records of a partition.
    Records {
        /// The topic, as it was named.
        topic: Cow<'a, str>,
        /// The partition.
        partition: i32,
    },
}

/// What is asked of a consumer instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// To leave its group and be gone.
    Delete,
    /// To read topics as a member of its group.
    Subscribe,
    /// Which topics it has subscribed to.
    Subscription,
    /// To read nothing more.
    Unsubscribe,
    /// To read certain partitions.
    Assign,
    /// Which partitions it reads.
    Assignment,
    /// To commit offsets.
    Commit,
    /// Which offsets its group has committed.
    Committed,
    /// The next records.
    Records,
    /// To go on at certain offsets.
    Seek,
    /// To go on at the first records of partitions.
    SeekToBeginning,
    /// To go on behind the last records of partitions.
    SeekToEnd,
}

/// A part of the cluster that can be looked at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part<'a> {
    /// The brokers' ids.
    Brokers,
    /// The topics' names.
    Topics,
    /// One topic with its configuration and its partitions.
    Topic(Cow<'a, str>),
    /// The partitions of a topic.
    Partitions(Cow<'a, str>),
    /// One partition of a topic.
    Partition(Cow<'a, str>, i32),
    /// The first and the next offset of a partition.
    Offsets(Cow<'a, str>, i32),
}

/// Why nothing is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoRoute {
    /// There is nothing under this path.
    Path,
    /// The path names a partition that no topic can have.
    Partition,
    /// The path is there for other methods: these.
    Method(Allowed),
}

/// Methods of a path, as in the header `Allow`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Allowed {
    get: bool,
    post: bool,
    delete: bool,
}

impl Allowed {
    /// What is only read.
    pub const READ: Allowed = Allowed { get: true, post: false, delete: false };
    /// What is read, and takes a form.
    pub const READ_AND_POST: Allowed = Allowed { get: true, post: true, delete: false };

    fn add(&mut self, verb: Verb) {
        match verb {
            Verb::Get => self.get = true,
            Verb::Post => self.post = true,
            Verb::Delete => self.delete = true,
        }
    }
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = [(self.get, "GET, HEAD, "), (self.post, "POST, "), (self.delete, "DELETE, ")];
        for (_, word) in words.iter().filter(|word| word.0) {
            f.write_str(word)?;
        }
        f.write_str("OPTIONS")
    }
}

/// A method of a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// GET, and HEAD with it.
    Get,
    /// POST.
    Post,
    /// DELETE.
    Delete,
}

impl Verb {
    fn is(self, method: &Method) -> bool {
        match self {
            Verb::Get => matches!(*method, Method::GET | Method::HEAD),
            Verb::Post => *method == Method::POST,
            Verb::Delete => *method == Method::DELETE,
        }
    }
}

/// A row of the table.
#[derive(Debug)]
pub struct Entry {
    /// What the route is called in the OpenAPI document, which has words for it.
    pub id: &'static str,
    /// The method.
    pub verb: Verb,
    /// The path, with `{…}` for a segment of any content.
    pub pattern: &'static str,
    make: for<'a> fn(&Found<'a>) -> Result<Route<'a>, NoRoute>,
}

impl Entry {
    /// Whether version 2 of REST proxies has the route, or one beside it.
    pub fn is_of_proxies(&self) -> bool {
        ["/topics", "/consumers", "/brokers", "/admin"]
            .iter()
            .any(|first| self.pattern.starts_with(first))
    }
}

type Make = for<'a> fn(&Found<'a>) -> Result<Route<'a>, NoRoute>;

const fn get(id: &'static str, pattern: &'static str, make: Make) -> Entry {
    Entry { id, verb: Verb::Get, pattern, make }
}

const fn post(id: &'static str, pattern: &'static str, make: Make) -> Entry {
    Entry { id, verb: Verb::Post, pattern, make }
}

const fn delete(id: &'static str, pattern: &'static str, make: Make) -> Entry {
    Entry { id, verb: Verb::Delete, pattern, make }
}

/// Everything that can be asked. No path fits two patterns of one method.
pub const TABLE: &[Entry] = &[
    get("about", "/", |_| Ok(Route::About)),
    get("livez", "/livez", |_| Ok(Route::Alive)),
    get("healthz", "/healthz", |_| Ok(Route::Alive)),
    get("healthy", "/healthy", |_| Ok(Route::Alive)),
    get("readyz", "/readyz", |_| Ok(Route::Ready)),
    get("ready", "/ready", |_| Ok(Route::Ready)),
    get("metrics", "/metrics", |_| Ok(Route::Metrics)),
    get("openapi", "/openapi", |_| Ok(Route::Document)),
    get("openapi.json", "/openapi.json", |_| Ok(Route::Document)),
    get("openapi.v3", "/openapi/v3", |_| Ok(Route::Document)),
    post("createTopic", "/admin/topics", |_| Ok(Route::CreateTopic)),
    get("brokers", "/brokers", |_| Ok(Route::Cluster(Part::Brokers))),
    get("topics", "/topics", |_| Ok(Route::Cluster(Part::Topics))),
    get("topic", "/topics/{topic}", |at| Ok(Route::Cluster(Part::Topic(at.name(0)?)))),
    post("produce", "/topics/{topic}", |at| at.produce(None, false)),
    post("produceRaw", "/topics/{topic}/raw", |at| at.produce(None, true)),
    get("partitions", "/topics/{topic}/partitions", |at| {
        Ok(Route::Cluster(Part::Partitions(at.name(0)?)))
    }),
    get("partition", "/topics/{topic}/partitions/{partition}", |at| {
        Ok(Route::Cluster(Part::Partition(at.name(0)?, at.partition(1)?)))
    }),
    post("produceToPartition", "/topics/{topic}/partitions/{partition}", |at| {
        at.produce(Some(at.partition(1)?), false)
    }),
    post("produceRawToPartition", "/topics/{topic}/partitions/{partition}/raw", |at| {
        at.produce(Some(at.partition(1)?), true)
    }),
    get("offsets", "/topics/{topic}/partitions/{partition}/offsets", |at| {
        Ok(Route::Cluster(Part::Offsets(at.name(0)?, at.partition(1)?)))
    }),
    get("records", "/topics/{topic}/partitions/{partition}/records", |at| {
        Ok(Route::Records { topic: at.name(0)?, partition: at.partition(1)? })
    }),
    get("events", "/topics/{topics}/events", |at| Ok(Route::Events { topics: at.name(0)? })),
    get("socket", "/ws/topics/{topics}", |at| Ok(Route::Socket { topics: at.name(0)? })),
    get("socketReader", "/ws/v2/reader/persistent/public/default/{topic}", |at| {
        Ok(Route::SocketReader { topic: at.name(0)? })
    }),
    get(
        "socketConsumer",
        "/ws/v2/consumer/persistent/public/default/{topic}/{subscription}",
        |at| Ok(Route::SocketConsumer { topic: at.name(0)?, subscription: at.name(1)? }),
    ),
    post("ackInGroup", "/groups/{group}/ack", |at| Ok(Route::AckInGroup { group: at.name(0)? })),
    get("socketProducer", "/ws/v2/producer/persistent/public/default/{topic}", |at| {
        Ok(Route::SocketProducer { topic: at.name(0)? })
    }),
    get("clusters", "/v3/clusters", |_| Ok(Route::Clusters { id: None })),
    get("cluster", "/v3/clusters/{cluster}", |at| Ok(Route::Clusters { id: Some(at.name(0)?) })),
    post("produceV3", "/v3/clusters/{cluster}/topics/{topic}/records", |at| {
        Ok(Route::ProduceV3 { cluster: at.name(0)?, topic: at.name(1)? })
    }),
    get("me", "/api/v1/me", |_| Ok(Route::Me)),
    post("createTicket", "/api/v1/tickets", |_| Ok(Route::Ticket)),
    get("loginPage", "/console/login", |_| Ok(Route::LoginPage)),
    post("logIn", "/console/login", |_| Ok(Route::LogIn)),
    post("logOut", "/console/logout", |_| Ok(Route::LogOut)),
    get("distribution", "/api/v1/gateway/distribution", |_| Ok(Route::Distribution)),
    get("eventCounts", "/api/v1/gateway/events", |_| Ok(Route::EventCounts)),
    get("keyCounts", "/api/v1/gateway/idempotency", |_| Ok(Route::KeyCounts)),
    post("createInstance", "/consumers/{group}", |at| {
        Ok(Route::NewInstance { group: at.name(0)? })
    }),
    delete("deleteInstance", "/consumers/{group}/instances/{name}", |at| at.instance(Wish::Delete)),
    post("subscribe", "/consumers/{group}/instances/{name}/subscription", |at| {
        at.instance(Wish::Subscribe)
    }),
    get("subscription", "/consumers/{group}/instances/{name}/subscription", |at| {
        at.instance(Wish::Subscription)
    }),
    delete("unsubscribe", "/consumers/{group}/instances/{name}/subscription", |at| {
        at.instance(Wish::Unsubscribe)
    }),
    post("assign", "/consumers/{group}/instances/{name}/assignments", |at| {
        at.instance(Wish::Assign)
    }),
    get("assignment", "/consumers/{group}/instances/{name}/assignments", |at| {
        at.instance(Wish::Assignment)
    }),
    post("commit", "/consumers/{group}/instances/{name}/offsets", |at| at.instance(Wish::Commit)),
    get("committed", "/consumers/{group}/instances/{name}/offsets", |at| {
        at.instance(Wish::Committed)
    }),
    get("instanceRecords", "/consumers/{group}/instances/{name}/records", |at| {
        at.instance(Wish::Records)
    }),
    post("seek", "/consumers/{group}/instances/{name}/positions", |at| at.instance(Wish::Seek)),
    post("seekToBeginning", "/consumers/{group}/instances/{name}/positions/beginning", |at| {
        at.instance(Wish::SeekToBeginning)
    }),
    post("seekToEnd", "/consumers/{group}/instances/{name}/positions/end", |at| {
        at.instance(Wish::SeekToEnd)
    }),
];

/// What a method and a path ask.
///
/// # Errors
/// They ask nothing.
pub fn route<'a>(method: &Method, path: &'a str) -> Result<Route<'a>, NoRoute> {
    routed(method, path).map(|routed| routed.route)
}

/// What is asked, and by which row of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routed<'a> {
    /// The place in [`TABLE`].
    pub at: usize,
    /// What is asked.
    pub route: Route<'a>,
}

/// As [`route`], with the row of the table.
///
/// # Errors
/// They ask nothing.
pub fn routed<'a>(method: &Method, path: &'a str) -> Result<Routed<'a>, NoRoute> {
    let path = path.strip_prefix('/').ok_or(NoRoute::Path)?;
    let mut allowed = Allowed::default();
    for (at, entry) in TABLE.iter().enumerate() {
        let Some(found) = Found::by(&entry.pattern[1..], path) else { continue };
        if entry.verb.is(method) {
            return (entry.make)(&found).map(|route| Routed { at, route });
        }
        allowed.add(entry.verb);
    }
    Err(if allowed == Allowed::default() { NoRoute::Path } else { NoRoute::Method(allowed) })
}

/// The most segments that a pattern leaves open.
const OPEN_MAX: usize = 4;

/// The segments that a pattern leaves open, in their order.
struct Found<'a>([&'a str; OPEN_MAX]);

impl<'a> Found<'a> {
    /// Compares a path with a pattern, both without their first slash; `None` if it does not fit.
    fn by(pattern: &str, path: &'a str) -> Option<Found<'a>> {
        let (mut found, mut count) = (Found([""; OPEN_MAX]), 0);
        let mut segments = path.split('/');
        for wanted in pattern.split('/') {
            let segment = segments.next()?;
            if wanted.starts_with('{') {
                *found.0.get_mut(count)? = segment;
                count += 1;
            } else if wanted != segment {
                return None;
            }
        }
        segments.next().is_none().then_some(found)
    }

    /// A segment as it was meant: a slash that was escaped is part of the name.
    fn name(&self, at: usize) -> Result<Cow<'a, str>, NoRoute> {
        percent_decode_str(self.0[at]).decode_utf8().map_err(|_| NoRoute::Path)
    }

    fn partition(&self, at: usize) -> Result<i32, NoRoute> {
        let text = self.0[at];
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|_| is_number).ok_or(NoRoute::Partition)
    }

    fn instance(&self, wish: Wish) -> Result<Route<'a>, NoRoute> {
        Ok(Route::Instance { group: self.name(0)?, name: self.name(1)?, wish })
    }

    fn produce(&self, partition: Option<i32>, raw: bool) -> Result<Route<'a>, NoRoute> {
        Ok(Route::Produce { topic: self.name(0)?, partition, raw })
    }
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
        let v3 = Route::ProduceV3 { cluster: "c/1".into(), topic: "t".into() };
        assert_eq!(post("/v3/clusters/c%2F1/topics/t/records"), Ok(v3));
        let get = |path| route(&Method::GET, path);
        assert_eq!(get("/v3/clusters"), Ok(Route::Clusters { id: None }));
        assert_eq!(get("/v3/clusters/c"), Ok(Route::Clusters { id: Some("c".into()) }));
        assert_eq!(get("/"), Ok(Route::About));
        assert_eq!(get("/healthz"), Ok(Route::Alive));
        assert_eq!(get("/livez"), Ok(Route::Alive));
        assert_eq!(get("/metrics"), Ok(Route::Metrics));
        assert_eq!(get("/openapi"), Ok(Route::Document));
        assert_eq!(post("/admin/topics"), Ok(Route::CreateTopic));
        assert_eq!(route(&Method::HEAD, "/ready"), Ok(Route::Ready));
        assert_eq!(get("/api/v1/gateway/distribution"), Ok(Route::Distribution));
        assert_eq!(get("/topics"), Ok(Route::Cluster(Part::Topics)));
        assert_eq!(get("/topics/t"), Ok(Route::Cluster(Part::Topic("t".into()))));
        let offsets = Part::Offsets("t".into(), 2);
        assert_eq!(get("/topics/t/partitions/2/offsets"), Ok(Route::Cluster(offsets)));
        let records = Route::Records { topic: "t".into(), partition: 2 };
        assert_eq!(get("/topics/t/partitions/2/records"), Ok(records));
        assert_eq!(get("/api/v1/gateway/events"), Ok(Route::EventCounts));
        assert_eq!(get("/api/v1/gateway/idempotency"), Ok(Route::KeyCounts));
        let new = Route::NewInstance { group: "g/1".into() };
        assert_eq!(post("/consumers/g%2F1"), Ok(new));
        let instance = |wish| Ok(Route::Instance { group: "g".into(), name: "i".into(), wish });
        assert_eq!(route(&Method::DELETE, "/consumers/g/instances/i"), instance(Wish::Delete));
        assert_eq!(get("/consumers/g/instances/i/records"), instance(Wish::Records));
        let end = post("/consumers/g/instances/i/positions/end");
        assert_eq!(end, instance(Wish::SeekToEnd));
        let events = Route::Events { topics: Cow::Borrowed("a,b") };
        assert_eq!(get("/topics/a,b/events"), Ok(events));
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
            "/topics/t/",
            "/topics/t/rawx",
            "/topics/t/partitions/1/2",
            "/a/b/c/d/e/f/g/h",
            "/healthz/",
            "/TOPICS/t",
            "/topics/{topic}/x",
        ] {
            assert_eq!(route(&Method::POST, path), Err(NoRoute::Path), "{path}");
        }
        for index in ["-1", "x", "+1", "", "2147483648", "1 "] {
            let path = format!("/topics/t/partitions/{index}");
            assert_eq!(route(&Method::POST, &path), Err(NoRoute::Partition), "{path}");
        }
    }

    #[test]
    fn another_method_is_told_those_that_the_path_has() {
        let allowed = |method, path| match route(&method, path) {
            Err(NoRoute::Method(allowed)) => allowed.to_string(),
            other => panic!("{path}: {other:?}"),
        };
        assert_eq!(allowed(Method::DELETE, "/topics/t"), "GET, HEAD, POST, OPTIONS");
        let subscription = "/consumers/g/instances/i/subscription";
        assert_eq!(allowed(Method::PUT, subscription), "GET, HEAD, POST, DELETE, OPTIONS");
        assert_eq!(allowed(Method::GET, "/topics/t/raw"), "POST, OPTIONS");
        assert_eq!(allowed(Method::POST, "/healthz"), "GET, HEAD, OPTIONS");
        assert_eq!(allowed(Method::POST, "/topics"), "GET, HEAD, OPTIONS");
    }

    #[test]
    fn a_path_fits_one_row() {
        for (at, one) in TABLE.iter().enumerate() {
            for other in &TABLE[at + 1..] {
                let fits = Found::by(&one.pattern[1..], &other.pattern[1..]).is_some()
                    || Found::by(&other.pattern[1..], &one.pattern[1..]).is_some();
                assert!(!fits || one.verb != other.verb, "{} {}", one.pattern, other.pattern);
            }
        }
    }
}
