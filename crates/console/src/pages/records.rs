//! Records of one partition, by offset or time.

use hyper::StatusCode;
use maud::{Markup, html};
use serving::rights::Deed;

use super::{Page, no_rows, table};
use crate::Visit;
use crate::parts::number::{bytes, count, time};
use crate::parts::text::{Shown, visible};
use crate::query::link;
use crate::records::{Asked, Found, Row, read};

pub(super) async fn page(visit: &Visit<'_>) -> Page {
    let query = &visit.query;
    let Some(topic) = query.get("topic") else {
        let body =
            html! { h1 { "Records" } (form(visit)) p.quiet { "Choose a topic and a partition." } };
        return Page::new("Records", body);
    };
    let asked = Asked::of(query);
    let (status, result) = match &asked {
        Err(reason) => (StatusCode::UNPROCESSABLE_ENTITY, Err(reason.clone())),
        Ok(asked) if !may_read(visit, &asked.partition.topic) => {
            (StatusCode::FORBIDDEN, Err("the topic is not one of yours".to_owned()))
        }
        Ok(asked) if visit.snapshot.partition(topic, asked.partition.partition.0).is_none() => {
            (StatusCode::NOT_FOUND, Err("the cluster has no such partition".to_owned()))
        }
        Ok(asked) => match read(visit.looker, asked).await {
            Ok(found) => (StatusCode::OK, Ok((asked, found))),
            Err(error) => (StatusCode::SERVICE_UNAVAILABLE, Err(error)),
        },
    };
    let body = html! {
        p.crumbs { a href=(link("/console/topic", &[("name", topic)])) { (visible(topic)) } }
        h1 { "Records" }
        (form(visit))
        @match &result {
            Ok((asked, found)) => (records(asked, found)),
            Err(reason) => div.notice.bad role="alert" { p { (visible(reason)) } },
        }
    };
    Page { status, title: format!("Records of {topic}"), body }
}

fn may_read(visit: &Visit<'_>, topic: &str) -> bool {
    visit.by.rights.may(Deed::Read(topic)).is_ok()
}

/// What can be asked. A form of GET: its address can be kept.
fn form(visit: &Visit<'_>) -> Markup {
    let value = |name: &str| visible(visit.query.get(name).unwrap_or_default()).into_owned();
    html! {
        form.search method="get" action="/console/records" {
            div.field { label for="topic" { "Topic" } input #topic type="text" name="topic" value=(value("topic")) required autocomplete="off" spellcheck="false"; }
            div.field { label for="partition" { "Partition" } input #partition type="number" name="partition" min="0" value=(visible(visit.query.get("partition").unwrap_or("0"))); }
            div.field { label for="offset" { "Offset, earliest or latest" } input #offset type="text" name="offset" value=(value("offset")) autocomplete="off"; }
            div.field { label for="at" { "or time (UTC)" } input #at type="text" name="at" value=(value("at")) placeholder="2026-01-31T12:00" autocomplete="off"; }
            div.field { label for="limit" { "At most" } input #limit type="number" name="limit" min="1" max="500" value=(visible(visit.query.get("limit").unwrap_or("50"))); }
            label { input type="checkbox" name="committed" value="1" checked[visit.query.is("committed")]; " committed only" }
            button type="submit" { "Read" }
        }
    }
}

fn records(asked: &Asked, found: &Found) -> Markup {
    let caption = format!(
        "Offsets {} to {} (exclusive) are there; shown from {}",
        count(found.start),
        count(found.end),
        count(found.from)
    );
    html! {
        (table("Records", html! {
            table.records {
                caption { (caption) }
                thead { tr {
                    th.number scope="col" { "Offset" } th scope="col" { "Time" } th scope="col" { "Key" } th scope="col" { "Value" }
                    th scope="col" { "Headers" } th.number scope="col" { "Size" }
                } }
                tbody {
                    @if found.rows.is_empty() { (no_rows(6, "No record is there.")) }
                    @for row in &found.rows { (record(row)) }
                }
            }
        }))
        (neighbours(asked, found))
    }
}

/// The way to records before and behind.
fn neighbours(asked: &Asked, found: &Found) -> Markup {
    let (index, limit) = (asked.partition.partition.0.to_string(), asked.count.to_string());
    let committed = if asked.read_committed { "1" } else { "" };
    let at = |offset: i64| {
        let offset = offset.to_string();
        let parameters = [
            ("topic", &*asked.partition.topic),
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

fn record(row: &Row) -> Markup {
    html! {
        tr {
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
