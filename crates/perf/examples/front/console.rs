//! The console's pages of a cluster that [`crate::cluster::fill`] has filled, and its looks at that cluster.

use std::time::{Duration, Instant};

use perf::web::Connection;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::Told;
use crate::cluster::{PARTITIONS, block_on, group_id, topic_name, topics_of_group};

/// How long a console may take until it shows all that was made.
const SHOWN_MAX: Duration = Duration::from_secs(120);
/// Between two questions whether it does.
const ASKED_EVERY: Duration = Duration::from_millis(500);
/// Between two questions whether the console has looked again, which keep it looking.
const WATCHED_EVERY: Duration = Duration::from_secs(2);
/// How long a look may be waited for.
const LOOK_MAX: Duration = Duration::from_secs(60);
/// Rows of a page of the console, and of an answer of its API.
const ROWS: usize = 100;
const ROWS_OF_ANSWER: usize = 1000;

/// What was made.
#[derive(Clone, Copy)]
pub struct Made {
    pub topics: usize,
    pub groups: usize,
}

/// A page, and how often something must stand in it that each of its rows has.
struct PageOf {
    name: &'static str,
    path: String,
    mark: &'static str,
    times: usize,
}

impl Made {
    /// Partitions in which each group has committed.
    fn partitions_of_group(self) -> usize {
        topics_of_group(self.topics) * PARTITIONS as usize
    }

    /// Every kind of page that is drawn of many things, and those that come from the end of a list or sort it.
    fn pages(self) -> Vec<PageOf> {
        let page =
            |name, path: &str, mark, times| PageOf { name, path: path.to_owned(), mark, times };
        let topics = |times: usize| self.topics.min(times);
        let groups = self.groups.min(ROWS);
        let last = format!("/console/topics?page={}", self.topics.div_ceil(ROWS));
        let topic = format!("/console/topic?name={}", topic_name(self.topics - 1));
        let group = format!("/console/group?id={}", group_id(self.groups - 1));
        let (of_topic, of_group) = ("/console/topic?name=", "/console/group?id=");
        let of_row = "\"partition_count\":";
        vec![
            page("overview", "/console", of_group, self.groups.min(8)),
            page("topics", "/console/topics", of_topic, topics(ROWS)),
            page("topics_last", &last, of_topic, 1),
            page("topics_by_offsets", "/console/topics?sort=offsets", of_topic, topics(ROWS)),
            page("topics_found", "/console/topics?q=9", of_topic, topics(10) / 10),
            page("topic", &topic, "/console/records?topic=", PARTITIONS as usize),
            page("brokers", "/console/brokers", "/console/broker?id=", 1),
            page("broker", "/console/broker?id=1", of_topic, topics(ROWS)),
            page("groups", "/console/groups", of_group, groups),
            page("groups_by_lag", "/console/groups?sort=lag", of_group, groups),
            page("group", &group, of_topic, self.partitions_of_group()),
            page("api_topics", "/api/v1/topics", of_row, topics(ROWS_OF_ANSWER)),
            page("api_groups", "/api/v1/groups", of_row, self.groups.min(ROWS_OF_ANSWER)),
        ]
    }
}

/// A console that is asked over one connection.
struct Asking {
    gateway: String,
    connection: Connection,
}

impl Asking {
    async fn open(gateway: &str) -> Told<Asking> {
        Ok(Asking { gateway: gateway.to_owned(), connection: Connection::open(gateway).await? })
    }

    async fn get(&mut self, path: &str) -> Told<Vec<u8>> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: {}\r\n\r\n", self.gateway);
        let answer = self.connection.ask(request.as_bytes()).await?;
        match answer.head.status {
            200 => Ok(answer.body),
            status => Err(format!("{path}: {status}").into()),
        }
    }

    async fn value(&mut self, path: &str) -> Told<Value> {
        Ok(serde_json::from_slice(&self.get(path).await?)?)
    }

    /// All rows of a list of the API.
    async fn list(&mut self, name: &str) -> Told<Vec<Value>> {
        let (mut rows, mut page) = (Vec::new(), 1);
        loop {
            let mut answer = self.value(&format!("/api/v1/{name}?page={page}")).await?;
            let Value::Array(some) = answer[name].take() else {
                return Err(format!("the API lists no {name}").into());
            };
            rows.extend(some);
            if answer["pages"].as_u64().is_none_or(|pages| page >= pages) {
                return Ok(rows);
            }
            page += 1;
        }
    }

    /// Waits until the console's lists are of all that was made.
    async fn wait_for(&mut self, made: Made) -> Told<()> {
        let began = Instant::now();
        loop {
            let lack = match self.lack(made).await {
                Ok(None) => return Ok(()),
                Ok(Some(lack)) => lack,
                // The first answer may be that there is no look yet.
                Err(error) => error.to_string(),
            };
            if began.elapsed() > SHOWN_MAX {
                let seconds = SHOWN_MAX.as_secs();
                return Err(
                    format!("after {seconds} s the console does not show all: {lack}").into()
                );
            }
            sleep(ASKED_EVERY).await;
        }
    }

    /// What the last look lacks of what was made.
    async fn lack(&mut self, made: Made) -> Told<Option<String>> {
        let cluster = self.value("/api/v1/cluster").await?;
        if cluster["gaps"].as_array().is_none_or(|gaps| !gaps.is_empty()) {
            return Ok(Some(format!("gaps: {}", cluster["gaps"])));
        }
        let (topics, groups) = (self.list("topics").await?, self.list("groups").await?);
        Ok(lacking_topics(&topics, made).or_else(|| lacking_groups(&groups, made)))
    }
}

/// Each topic has its partitions, and the one record of which the end of its log is known.
fn lacking_topics(topics: &[Value], made: Made) -> Option<String> {
    let is_whole = |topic: &&Value| {
        topic["partition_count"] == PARTITIONS
            && topic["summed_offsets"] == 1
            && topic["size_bytes"].as_i64().is_some_and(|bytes| bytes > 0)
    };
    let ours =
        |topic: &&Value| topic["name"].as_str().is_some_and(|name| name.starts_with("many-"));
    let whole = topics.iter().filter(ours).filter(is_whole).count();
    (whole != made.topics).then(|| {
        let first = topics.iter().filter(ours).find(|topic| !is_whole(topic));
        format!("{whole} of {} topics are whole; one that is not: {first:?}", made.topics)
    })
}

/// Each group has committed in all of its partitions, and is as far behind as it is.
fn lacking_groups(groups: &[Value], made: Made) -> Option<String> {
    let lag = topics_of_group(made.topics);
    let is_whole = |group: &&Value| {
        group["partition_count"] == made.partitions_of_group() && group["lag"] == lag
    };
    let whole = groups.iter().filter(is_whole).count();
    (whole != made.groups).then(|| {
        let first = groups.iter().find(|group| !is_whole(group));
        let partitions = made.partitions_of_group();
        format!(
            "{whole} of {} groups have {partitions} partitions and a lag of {lag}; one that has not: {first:?}",
            made.groups
        )
    })
}

/// Waits until all that was made is shown, then fetches each page so often; the longest time of each, and of all.
pub fn pages(gateway: &str, made: Made, times: u32) -> Told<Value> {
    block_on(async {
        let mut asking = Asking::open(gateway).await?;
        asking.wait_for(made).await?;
        let mut line = serde_json::Map::new();
        let mut longest_ms: f64 = 0.0;
        for page in made.pages() {
            let slowest_ms = slowest_ms(&mut asking, &page, times).await?;
            line.insert(format!("{}_ms", page.name), slowest_ms.into());
            longest_ms = longest_ms.max(slowest_ms);
        }
        line.insert("page_ms".to_owned(), longest_ms.into());
        Ok(Value::Object(line))
    })
}

async fn slowest_ms(asking: &mut Asking, page: &PageOf, times: u32) -> Told<f64> {
    let mut slowest = Duration::ZERO;
    for _ in 0..times {
        let began = Instant::now();
        let body = asking.get(&page.path).await?;
        slowest = slowest.max(began.elapsed());
        let found = String::from_utf8_lossy(&body).matches(page.mark).count();
        if found < page.times {
            let PageOf { path, mark, times, .. } = page;
            return Err(format!("{path}: {mark} stands there {found} times, not {times}").into());
        }
    }
    Ok(slowest.as_secs_f64() * 1e3)
}

/// Keeps the console looking until so many looks have ended: how long that was, and the longest of the looks.
pub fn watch(gateway: &str, looks: u32) -> Told<Value> {
    block_on(async {
        let mut asking = Asking::open(gateway).await?;
        let began = Instant::now();
        let mut last = asking.value("/api/v1/cluster").await?["taken_ms"].take();
        let mut longest_ms = 0;
        for _ in 0..looks {
            let look = next_look(&mut asking, &last).await?;
            longest_ms = longest_ms.max(look["took_ms"].as_u64().unwrap_or(0));
            last = look["taken_ms"].clone();
        }
        Ok(json!({ "seconds": began.elapsed().as_secs_f64(), "look_ms": longest_ms }))
    })
}

/// The look behind the one of that time.
async fn next_look(asking: &mut Asking, last: &Value) -> Told<Value> {
    let began = Instant::now();
    while began.elapsed() < LOOK_MAX {
        sleep(WATCHED_EVERY).await;
        let look = asking.value("/api/v1/cluster").await?;
        if look["taken_ms"] != *last {
            return Ok(look);
        }
    }
    Err(format!("the console has not looked for {} s", LOOK_MAX.as_secs()).into())
}
