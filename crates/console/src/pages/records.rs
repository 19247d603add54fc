//! Records of one partition by offset or time, or of all partitions by time.

use hyper::StatusCode;
use maud::{Markup, html};
use serving::rights::Deed;

use super::{Page, no_rows, table, topic_choice};
use crate::Visit;
use crate::merged::{self, Merged};
use crate::parts::number::{bytes, count, time};
use crate::parts::text::{Shown, visible};
use crate::query::link;
use crate::records::{self, Asked, Found, From, Row, Unread};

/// What was found in one partition, or in all.
enum Read {
    One(i32, Found),
    All(Merged),
}

/// Why nothing is shown: the status of the page, and words.
type Refused = (StatusCode, String);

pub(super) async fn page(visit: &Visit<'_>) -> Page {
    let Some(topic) = visit.query.get("topic") else {
        let body = html! { h1 { "Records" } (form(visit, "all")) p.quiet { "Choose a topic." } };
        return Page::new("Records", body);
    };
    let asked = Asked::of(&visit.query).map_err(|why| (StatusCode::UNPROCESSABLE_ENTITY, why));
    let result = match &asked {
        Ok(asked) => read(visit, asked).await,
        Err(refused) => Err(refused.clone()),
    };
    let status = result.as_ref().err().map_or(StatusCode::OK, |(status, _)| *status);
    let body = html! {
        p.crumbs { a href=(link("/console/topic", &[("name", topic)])) { (visible(topic)) } }
        h1 { "Records" }
        (form(visit, "0"))
        @match (&asked, &result) {
            (Ok(asked), Ok(Read::One(index, found))) => (records(asked, *index, found)),
            (Ok(asked), Ok(Read::All(found))) => (of_all(asked, found)),
            (_, Err((_, why))) | (Err((_, why)), _) => div.notice.bad role="alert" { p { (visible(why)) } },
        }
    };
    Page { status, title: format!("Records of {topic}"), body }
}

async fn read(visit: &Visit<'_>, asked: &Asked) -> Result<Read, Refused> {
    if !may_read(visit, &asked.topic) {
        return Err((StatusCode::FORBIDDEN, "the topic is not one of yours".to_owned()));
    }
    let missing = |what: &str| (StatusCode::NOT_FOUND, format!("the cluster has no such {what}"));
    let topic = visit.snapshot.topics.get(&*asked.topic).ok_or_else(|| missing("topic"))?;
    let unread = |unread| match unread {
        Unread::Gone => missing("topic"),
        Unread::Because(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    };
    let Some(index) = asked.partition else {
        if let Some(why) = merged::too_many(topic.partitions.len()) {
            return Err((StatusCode::UNPROCESSABLE_ENTITY, why));
        }
        let read = merged::read(visit.looker, asked, topic.partitions.len()).await;
        return read.map(Read::All).map_err(unread);
    };
    if visit.snapshot.partition(&asked.topic, index).is_none() {
        return Err(missing("partition"));
    }
    let read = records::read(visit.looker, asked, index).await;
    read.map(|found| Read::One(index, found)).map_err(unread)
}

fn may_read(visit: &Visit<'_>, topic: &str) -> bool {
    visit.by.rights.may(Deed::Read(topic)).is_ok()
}

/// What can be asked. A form of GET: its address can be kept.
fn form(visit: &Visit<'_>, partition: &str) -> Markup {
    let value = |name: &str| visible(visit.query.get(name).unwrap_or_default()).into_owned();
    html! {
        (topic_choice(&visit.snapshot))
        form.search method="get" action="/console/records" {
            div.field { label for="topic" { "Topic" } input #topic type="text" name="topic" value=(value("topic")) list="topics" required autocomplete="off" spellcheck="false"; }
            div.field { label for="partition" { "Partition, or all" } input.short #partition type="text" name="partition" value=(visible(visit.query.get("partition").unwrap_or(partition))) autocomplete="off"; }
            div.field { label for="offset" { "Offset, earliest or latest" } input #offset type="text" name="offset" value=(value("offset")) autocomplete="off"; }
            div.field { label for="at" { "or time (UTC)" } input #at type="text" name="at" value=(value("at")) placeholder="2026-01-31T12:00" autocomplete="off"; }
            div.field { label for="limit" { "At most" } input #limit type="number" name="limit" min="1" max="500" value=(visible(visit.query.get("limit").unwrap_or("50"))); }
            label { input type="checkbox" name="committed" value="1" checked[visit.query.is("committed")]; " committed only" }
            button type="submit" { "Read" }
        }
    }
}

fn records(asked: &Asked, index: i32, found: &Found) -> Markup {
    let caption = format!(
        "Offsets {} to {} (exclusive) are there; shown from {}",
        count(found.start),
        count(found.end),
        count(found.from)
    );
    html! {
        (rows(&caption, &found.rows, None))
        (neighbours(asked, index, found))
    }
}

/// Records of all partitions. The way on is the partition of each.
fn of_all(asked: &Asked, found: &Merged) -> Markup {
    let caption = match (found.newest_first, asked.from) {
        (true, _) => "All partitions, the newest first",
        (false, From::Time(_)) => "All partitions, from this time on",
        (false, _) => "All partitions, from this offset of each on, by time",
    };
    html! {
        @if !found.lacking.is_empty() {
            section.notice aria-label="Missing" {
                h2 { "Not every partition could be read" }
                ul { @for (index, why) in &found.lacking { li { "partition " (index) ": " (visible(why)) } } }
            }
        }
        (rows(caption, &found.rows, Some(&asked.topic)))
    }
}

/// A table of records; of several partitions if a topic is given.
fn rows(caption: &str, rows: &[Row], topic: Option<&str>) -> Markup {
    let columns = if topic.is_some() { 7 } else { 6 };
    table(
        "Records",
        html! {
            table.records {
                caption { (caption) }
                thead { tr {
                    @if topic.is_some() { th.number scope="col" { "Partition" } }
                    th.number scope="col" { "Offset" } th scope="col" { "Time" } th scope="col" { "Key" } th scope="col" { "Value" }
                    th scope="col" { "Headers" } th.number scope="col" { "Size" }
                } }
                tbody {
                    @if rows.is_empty() { (no_rows(columns, "No record is there.")) }
                    @for row in rows { (record(row, topic)) }
                }
            }
        },
    )
}

/// The way to records before and behind.
fn neighbours(asked: &Asked, index: i32, found: &Found) -> Markup {
    let (index, limit) = (index.to_string(), asked.count.to_string());
    let committed = if asked.read_committed { "1" } else { "" };
    let at = |offset: i64| {
        let offset = offset.to_string();
        let parameters = [
            ("topic", &*asked.topic),
            ("partition", &*index),
            ("offset", &*offset),
            ("limit", &*limit),
            ("committed", committed),
        ];
        link("/console/records", &parameters)
    };
    html! {
        nav.pager aria-label="Other records" {
            @if found.from > found.start {
                a rel="prev" href=(at(found.from.saturating_sub(asked.count as i64).max(found.start))) { "Earlier" }
            }
            @if found.next < found.end { a rel="next" href=(at(found.next)) { "Later" } }
            a href=(at(found.start)) { "First" }
            a href=(at(found.end.saturating_sub(asked.count as i64).max(found.start))) { "Last" }
        }
    }
}

fn record(row: &Row, topic: Option<&str>) -> Markup {
    let (index, at) = (row.partition.to_string(), row.offset.to_string());
    html! {
        tr {
            @if let Some(topic) = topic {
                td.number {
                    a href=(link("/console/records", &[("topic", topic), ("partition", &index), ("offset", &at)])) { (index) }
                }
            }
            th.number scope="row" { (count(row.offset)) }
            td.time { (time(row.timestamp_ms)) }
            td { (text(&row.key)) }
            td.value { (text(&row.value)) }
            td {
                @if row.headers.is_empty() { span.quiet { "–" } }
                @else { ul.headers { @for (name, value) in &row.headers { li { (name) ": " (text(value)) } } } }
            }
            td.number { (bytes(row.size_bytes as u64)) }
        }
    }
}

fn text(shown: &Shown) -> Markup {
    html! {
        @if matches!(shown.form, "null" | "empty") { span.form-of { (shown.form) } }
        @else {
            pre { (shown.text) }
            @if matches!(shown.form, "json" | "hex") { span.form-of { (shown.form) } }
            @if shown.cut_bytes > 0 { span.form-of { " … " (count(shown.cut_bytes as i64)) " bytes more" } }
        }
    }
}
