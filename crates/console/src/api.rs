//! The same as the pages, as JSON. Times are milliseconds since 1970, ages milliseconds, sizes bytes; what is not known is
//! `null`. Names are as they are: JSON escapes what must be.

use bytes::Bytes;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use serving::choice::{Row as Placed, Rule};
use serving::lag::arrivals::Behind;
use serving::lag::history::{History, Lag};
use serving::overview::topic::Spread;
use serving::rights::Deed;

use crate::Visit;
use crate::actions::journal;
use crate::answer::{json as answered, json_error};
use crate::lab::{Run, Whole};
use crate::lookups::{self, Described, Setting};
use crate::merged::{self, Merged};
use crate::parts::text::Shown;
use crate::query::Query;
use crate::records::{self, Asked, Found, Row, Unread};
use crate::route::Wanted;
use crate::snapshot::{
    BrokerState, BrokerView, GroupRow, GroupView, PartitionView, Snapshot, TopicView,
};

/// Rows of one answer.
const ROWS_MAX: usize = 1000;

/// Why a request is refused: a status, the code of the gateway's errors, and words.
type Refused = (StatusCode, u32, String);

/// Answers with JSON.
pub(crate) async fn answer(visit: &Visit<'_>, wanted: &Wanted) -> Response<Bytes> {
    match value(visit, wanted).await {
        Ok(value) => answered(StatusCode::OK, &value),
        Err((status, code, message)) => json_error(status, code, &message),
    }
}

fn distribution(topic: &str, rows: &[Placed]) -> Value {
    let row = |row: &Placed| {
        let pair = match row.rule {
            Rule::Given => None,
            Rule::Chosen(pair) => Some(pair),
        };
        json!({
            "broker_strategy": pair.and_then(|pair| pair.broker).map_or("none", |broker| broker.name()),
            "partitioner": pair.map_or("partition", |pair| pair.partition.name()),
            "broker": row.broker, "partition": row.partition, "records": row.records,
        })
    };
    json!({ "topic": topic, "counts": rows.iter().map(row).collect::<Vec<_>>() })
}

fn missing(code: u32, message: &str) -> Refused {
    (StatusCode::NOT_FOUND, code, message.to_owned())
}

fn invalid(message: String) -> Refused {
    (StatusCode::UNPROCESSABLE_ENTITY, 42201, message)
}

async fn value(visit: &Visit<'_>, wanted: &Wanted) -> Result<Value, Refused> {
    let (snapshot, query, admin) = (&visit.snapshot, &visit.query, visit.looker.admin());
    match wanted {
        Wanted::Overview => Ok(cluster(snapshot)),
        Wanted::Brokers => Ok(json!({ "brokers": list(snapshot.brokers.values(), broker) })),
        Wanted::Broker => {
            let id = query.number("id").and_then(|id| i32::try_from(id).ok());
            let id = id.ok_or_else(|| invalid("id: expected the number of a broker".to_owned()))?;
            let known = snapshot
                .brokers
                .get(&id)
                .ok_or_else(|| missing(40408, "the broker is not known"))?;
            let mut value = broker(known);
            value["configuration"] = configuration(lookups::broker_settings(admin, id).await);
            Ok(value)
        }
        Wanted::Topics => Ok(page("topics", snapshot.topics.values(), query, topic)),
        Wanted::Topic => {
            let name = query
                .get("name")
                .ok_or_else(|| invalid("name: expected the name of a topic".to_owned()))?;
            let known = snapshot
                .topics
                .get(name)
                .ok_or_else(|| missing(40401, "the topic is not known"))?;
            let settings = lookups::topic_settings(admin, name).await;
            if !visit.is_newest && settings.as_ref().is_err_and(lookups::is_gone) {
                return Err(missing(40401, "the topic is not known"));
            }
            let mut value = topic(known);
            value["partitions"] = list(&*known.partitions, partition);
            value["configuration"] = configuration(settings);
            Ok(value)
        }
        Wanted::Groups => Ok(page("groups", snapshot.groups.values(), query, group)),
        Wanted::Group => {
            let id = query
                .get("id")
                .ok_or_else(|| invalid("id: expected the id of a group".to_owned()))?;
            let known =
                snapshot.groups.get(id).ok_or_else(|| missing(40407, "the group is not known"))?;
            let described = lookups::group(admin, id, &known.kind).await;
            if !visit.is_newest && lookups::is_no_group(&described) {
                return Err(missing(40407, "the group is not known"));
            }
            let rows = known.rows.as_deref().unwrap_or_default();
            let oldest = visit.exact.of(visit.looker, rows).await;
            let mut value = group(known);
            value["partitions"] = list(rows, |row| {
                let mut value = group_row(row, described.as_ref().ok());
                let partition = model::TopicPartition::new(&*row.topic, row.partition);
                value["oldest_unread_ms"] = json!(oldest.get(&partition));
                value
            });
            value["members"] = described.as_ref().map_or(Value::Null, members);
            value["history"] = history(&known.history());
            Ok(value)
        }
        Wanted::Actions => {
            let entries = visit.desk.journal.entries();
            let told = entries.into_iter().take(ROWS_MAX).map(|one| one.told_to(visit.by.rights));
            let entries: Vec<Value> = told.map(|one| journal::value(&one)).collect();
            Ok(json!({ "actions": entries }))
        }
        Wanted::Moves => crate::actions::moves_value(visit)
            .await
            .map_err(|why| (StatusCode::SERVICE_UNAVAILABLE, 50003, why)),
        Wanted::Gateway => Ok(visit.front.counts()),
        Wanted::Runs => {
            let (runs, _) = visit.lab.runs().await.map_err(|why| no_runs(visit, &why))?;
            Ok(json!({ "runs": list(&runs, run) }))
        }
        Wanted::Run => {
            let found = visit.lab.run(query.get("name").unwrap_or_default()).await;
            let found = found.map_err(|why| no_runs(visit, &why))?;
            Ok(whole_run(&found.ok_or_else(|| missing(40409, "the run is not known"))?))
        }
        Wanted::Tail => Err(missing(404, "read the stream: GET /topics/{topic}/events")),
        Wanted::Distribution => {
            let topic = query.get("topic");
            let topic =
                topic.ok_or_else(|| invalid("topic: expected the name of a topic".to_owned()))?;
            Ok(distribution(topic, &visit.front.distribution(topic)))
        }
        Wanted::Records => {
            let asked = Asked::of(query).map_err(invalid)?;
            if let Err(lack) = visit.by.rights.may(Deed::Read(&asked.topic)) {
                return Err((StatusCode::FORBIDDEN, 40301, lack.to_string()));
            }
            let topic = snapshot.topics.get(&*asked.topic);
            let topic = topic.ok_or_else(|| missing(40401, "the topic is not known"))?;
            let unread = |unread| match unread {
                Unread::Gone => missing(40401, "the topic is not known"),
                Unread::Because(why) => (StatusCode::SERVICE_UNAVAILABLE, 50301, why),
            };
            let Some(index) = asked.partition else {
                if let Some(why) = merged::too_many(topic.partitions.len()) {
                    return Err(invalid(why));
                }
                let read = merged::read(visit.looker, &asked, topic.partitions.len()).await;
                return read.map(|found| of_all(&found)).map_err(unread);
            };
            if snapshot.partition(&asked.topic, index).is_none() {
                return Err(missing(40402, "the partition is not known"));
            }
            let read = records::read(visit.looker, &asked, index).await;
            read.map(|found| records(&found)).map_err(unread)
        }
    }
}

/// Why no run is known: there is no laboratory, or its folder cannot be read now.
fn no_runs(visit: &Visit<'_>, why: &str) -> Refused {
    match visit.lab.is_open() {
        true => (StatusCode::SERVICE_UNAVAILABLE, 50301, why.to_owned()),
        false => missing(40409, why),
    }
}

fn run(run: &Run) -> Value {
    json!({
        "name": run.name, "changed_ms": run.changed_ms, "has_report": run.has_report,
        "rounds": run.rounds, "planned_rounds": run.planned,
    })
}

fn whole_run(found: &Whole) -> Value {
    let mut value = run(&found.run);
    value["charts"] = json!(found.charts);
    value["findings"] = found.judged.as_ref().map_or(Value::Null, |judged| {
        list(judged.shown(), |finding| {
            let verdict = &finding.verdict;
            json!({
                "experiment": verdict.experiment, "claim": verdict.claim, "target": finding.target,
                "outcome": verdict.outcome, "because": verdict.because,
            })
        })
    });
    value
}

fn list<T>(items: impl IntoIterator<Item = T>, value: impl Fn(T) -> Value) -> Value {
    Value::Array(items.into_iter().map(value).collect())
}

/// One page of a list, so that no answer is unbounded.
fn page<T>(
    name: &str,
    items: impl ExactSizeIterator<Item = T>,
    query: &Query,
    value: impl Fn(T) -> Value,
) -> Value {
    let pages = items.len().div_ceil(ROWS_MAX).max(1);
    let page = usize::try_from(query.number("page").unwrap_or(1).max(1)).unwrap_or(1);
    let rows = items.skip((page - 1).saturating_mul(ROWS_MAX)).take(ROWS_MAX);
    json!({ name: list(rows, value), "page": page, "pages": pages })
}

fn cluster(snapshot: &Snapshot) -> Value {
    let (under_replicated, offline) = snapshot.troubles();
    json!({
        "cluster_id": snapshot.cluster_id,
        "controller": snapshot.controller,
        "taken_ms": snapshot.taken_ms,
        "took_ms": snapshot.took_ms,
        "brokers": snapshot.brokers.len(),
        "brokers_up": snapshot.brokers.values().filter(|broker| broker.state == BrokerState::Up).count(),
        "topics": snapshot.topics.len(),
        "partitions": snapshot.partitions().count(),
        "under_replicated_partitions": under_replicated,
        "offline_partitions": offline,
        "groups": snapshot.groups.len(),
        "records_per_second": serving::overview::rate::sum(snapshot.topics.values().map(TopicView::per_second)),
        "gaps": list(&snapshot.gaps, |gap| json!({ "what": gap.what, "why": gap.why })),
    })
}

fn broker(broker: &BrokerView) -> Value {
    json!({
        "id": broker.id,
        "state": broker.state.name(),
        "address": broker.address,
        "rack": broker.rack,
        "leaders": broker.load.leaders,
        "preferred_leaders": broker.load.preferred,
        "replicas": broker.load.replicas,
        "in_sync_replicas": broker.load.in_sync,
        "leader_skew_percent": broker.leader_skew_percent,
        "replica_skew_percent": broker.replica_skew_percent,
        "records_per_second": broker.per_second,
        "size_bytes": broker.size_bytes(),
        "log_dirs": broker.dirs.as_ref().map(|dirs| list(dirs, |dir| json!({
            "path": dir.path,
            "size_bytes": dir.size_bytes,
            "partitions": dir.partitions,
            "disk_bytes": dir.disk_bytes.map(|(total, _)| total),
            "free_bytes": dir.disk_bytes.map(|(_, free)| free),
            "error": dir.error,
        }))),
    })
}

fn topic(topic: &TopicView) -> Value {
    let Spread { spread_percent, skew_percent, leader_skew_percent, preferred_percent, .. } =
        topic.spread;
    json!({
        "name": &*topic.name,
        "is_internal": topic.is_internal,
        "partition_count": topic.partitions.len(),
        "replication_factor": topic.spread.replication_factor,
        "brokers": topic.spread.shares.len(),
        "spread_percent": spread_percent,
        "skew_percent": skew_percent,
        "leader_skew_percent": leader_skew_percent,
        "preferred_percent": preferred_percent,
        "under_replicated_percent": topic.spread.under_replicated_percent,
        "under_replicated_partitions": topic.spread.under_replicated,
        "offline_partitions": topic.spread.offline,
        "records_per_second": topic.per_second(),
        "summed_offsets": topic.summed_offsets(),
        "records": topic.records(),
        "size_bytes": topic.size_bytes(),
    })
}

fn partition(partition: &PartitionView) -> Value {
    let log = partition.log();
    json!({
        "partition": partition.index,
        "state": partition.state().name(),
        "leader": partition.leader,
        "replicas": &*partition.replicas,
        "isr": &*partition.isr,
        "start_offset": log.start,
        "end_offset": log.end,
        "records_per_second": log.per_second,
        "size_bytes": log.size_bytes,
    })
}

fn configuration(settings: Result<Vec<Setting>, client::ClientError>) -> Value {
    let row = |s: Setting| json!({ "name": s.name, "value": s.value, "source": s.source, "is_own": s.is_own });
    settings.map_or(Value::Null, |settings| list(settings, row))
}

fn behind(behind: Option<Behind>) -> Value {
    behind.map_or(Value::Null, |behind| json!({ "ms": behind.ms, "at_least": behind.at_least }))
}

fn group(group: &GroupView) -> Value {
    json!({
        "id": group.id,
        "type": group.kind,
        "state": group.state,
        "coordinator": group.coordinator,
        "lag": group.lag(),
        "behind": behind(group.behind()),
        "partition_count": group.rows.as_ref().ok().map(Vec::len),
        "error": group.rows.as_ref().err(),
    })
}

fn group_row(row: &GroupRow, described: Option<&Described>) -> Value {
    let owner = described.and_then(|described| described.owner(&row.topic, row.partition));
    json!({
        "topic": &*row.topic,
        "partition": row.partition,
        "committed_offset": row.committed,
        "end_offset": row.end.get(),
        "lag": row.lag(),
        "behind": behind(row.behind),
        "owner": owner.map(|member| &member.id),
    })
}

fn members(described: &Described) -> Value {
    list(&described.members, |member| {
        json!({
            "id": member.id,
            "client_id": member.client_id,
            "host": member.host,
            "partitions": member.partitions,
        })
    })
}

/// Only what was measured.
fn history(history: &History) -> Value {
    let measured = |points: &mut dyn Iterator<Item = (i64, Option<Lag>)>| {
        list(
            points.filter_map(|(at, lag)| Some((at, lag?))),
            |(at_ms, lag)| json!({ "at_ms": at_ms, "lag": lag.records, "behind_ms": lag.ms }),
        )
    };
    json!({ "hour": measured(&mut history.hour()), "day": measured(&mut history.day()) })
}

fn records(found: &Found) -> Value {
    json!({
        "start_offset": found.start,
        "end_offset": found.end,
        "from_offset": found.from,
        "next_offset": found.next,
        "records": list(&found.rows, record),
    })
}

fn of_all(found: &Merged) -> Value {
    json!({
        "newest_first": found.newest_first,
        "records": list(&found.rows, record),
        "lacking": list(&found.lacking, |(partition, why)| json!({ "partition": partition, "why": why })),
    })
}

fn record(row: &Row) -> Value {
    json!({
        "partition": row.partition,
        "offset": row.offset,
        "timestamp_ms": row.timestamp_ms,
        "key": shown(&row.key),
        "value": shown(&row.value),
        "size_bytes": row.size_bytes,
        "headers": list(&row.headers, |(name, value)| json!({ "name": name, "value": shown(value) })),
    })
}

fn shown(shown: &Shown) -> Value {
    json!({ "form": shown.form, "text": shown.text, "cut_bytes": shown.cut_bytes })
}
