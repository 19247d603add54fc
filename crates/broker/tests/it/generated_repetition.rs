//! Requests of every advertised API and version, built from the schemas: each list of a request repeats one item, and the
//! answer holds at most the answer for one item plus as many bytes as the request.
//!
//! `repetition.rs` has the cases with content that a default value does not reach.

use std::collections::BTreeSet;

use tokio::time::timeout;
use wire::request_schemas::request_fields;
use wire::schema::{FieldKind, FieldSchema, has_version};
use wire::{ApiKey, Writer, frame};

use crate::fixture::*;
use crate::repetition::{NAME, populate};

/// Times that an item is repeated in the last version, and in each earlier one.
const REPEATS: usize = 10_000;
const EARLIER_REPEATS: usize = 1_000;

/// APIs that a request of default values does not fit: a fetch waits, and each item of Produce carries a batch. Other tests have
/// them: `a_fetch_of_more_partitions_than_there_can_be_closes_its_connection`.
const EXCEPTED: [ApiKey; 2] = [ApiKey::Fetch, ApiKey::Produce];

/// Names of the lists that lead to a field, the outermost first.
type ListPath = Vec<&'static str>;

/// The lists of a request in a version. Tagged lists are left out.
fn lists(fields: &'static [FieldSchema], version: i16) -> Vec<ListPath> {
    let mut paths = Vec::new();
    collect(fields, version, &mut Vec::new(), &mut paths);
    paths
}

fn collect(
    fields: &'static [FieldSchema],
    version: i16,
    path: &mut ListPath,
    paths: &mut Vec<ListPath>,
) {
    for field in fields.iter().filter(|field| is_plain(field, version)) {
        let within = match field.kind {
            FieldKind::Array(element) => {
                path.push(field.name);
                paths.push(path.clone());
                *element
            }
            kind => kind,
        };
        if let FieldKind::Struct(fields) = within {
            collect(fields, version, path, paths);
        }
        if matches!(field.kind, FieldKind::Array(_)) {
            path.pop();
        }
    }
}

/// Whether a version has the field, and not as a tagged one.
fn is_plain(field: &FieldSchema, version: i16) -> bool {
    has_version(field.versions, version) && !has_version(field.tagged, version)
}

/// A request with one item in each list, and `count` in the one at `path`.
struct GeneratedRequest<'a> {
    api: ApiKey,
    version: i16,
    path: &'a [&'static str],
    count: usize,
    /// Different in each request.
    number: usize,
}

impl GeneratedRequest<'_> {
    fn frame(&self) -> Vec<u8> {
        let mut writer = Writer::new();
        let start = frame::begin(&mut writer);
        frame::write_request_head(&mut writer, self.api, self.version, 1, Some("generated"))
            .unwrap();
        self.write_fields(&mut writer, request_fields(self.api), &mut Vec::new());
        frame::end(&mut writer, start).unwrap();
        writer.into_bytes()
    }

    fn is_flexible(&self) -> bool {
        self.api.is_flexible(self.version)
    }

    fn write_fields(&self, writer: &mut Writer, fields: &[FieldSchema], path: &mut ListPath) {
        for field in fields.iter().filter(|field| is_plain(field, self.version)) {
            self.write_value(writer, field, &field.kind, path);
        }
        if self.is_flexible() {
            writer.uvarint(0);
        }
    }

    fn write_value(
        &self,
        writer: &mut Writer,
        field: &FieldSchema,
        kind: &FieldKind,
        path: &mut ListPath,
    ) {
        let is_flexible = self.is_flexible();
        let is_nullable = has_version(field.nullable, self.version);
        let number = self.number_of(field);
        match kind {
            FieldKind::Bool => writer.bool(number != 0),
            FieldKind::I8 => writer.i8(number as i8),
            FieldKind::I16 => writer.i16(number as i16),
            FieldKind::U16 => writer.u16(number as u16),
            FieldKind::I32 => writer.i32(number as i32),
            FieldKind::U32 => writer.u32(number as u32),
            FieldKind::I64 => writer.i64(number),
            FieldKind::F64 => writer.f64(0.0),
            FieldKind::Uuid => writer.uuid(model::Uuid::ZERO),
            FieldKind::String => match self.text_of(field) {
                None if is_nullable => writer.nullable_string(None, is_flexible).unwrap(),
                text => writer.string(&text.unwrap_or_default(), is_flexible).unwrap(),
            },
            FieldKind::Bytes => writer.byte_slice(b"", is_flexible).unwrap(),
            FieldKind::Struct(fields) => {
                if is_nullable && !matches!(field.kind, FieldKind::Array(_)) {
                    // The byte of null.
                    return writer.i8(-1);
                }
                self.write_fields(writer, fields, path);
            }
            FieldKind::Array(element) => {
                path.push(field.name);
                let count = if path.as_slice() == self.path { self.count } else { 1 };
                writer.count(count, is_flexible).unwrap();
                for _ in 0..count {
                    self.write_value(writer, field, element, path);
                }
                path.pop();
            }
        }
    }

    /// A number that lets the request get as far as it can, and that changes nothing that other requests need.
    fn number_of(&self, field: &FieldSchema) -> i64 {
        match (self.api, field.name) {
            (_, "validate_only" | "include_synonyms" | "include_documentation") => 1,
            (_, "allow_auto_topic_creation") => 0,
            (ApiKey::DescribeConfigs | ApiKey::AlterConfigs, "resource_type") => 2,
            (ApiKey::IncrementalAlterConfigs, "resource_type") => 2,
            (_, "num_partitions" | "replication_factor" | "count") => 1,
            (_, "timeout_ms") => 1_000,
            (_, "session_timeout_ms" | "rebalance_timeout_ms") => 30_000,
            (_, "replica_id" | "timestamp" | "generation_id_or_member_epoch") => -1,
            (_, "current_leader_epoch" | "committed_leader_epoch" | "leader_epoch") => -1,
            (_, "response_partition_limit") => 2_000,
            _ => match field.default {
                "true" => 1,
                number => number.parse().unwrap_or(0),
            },
        }
    }

    /// A text for the same; `None` where null is better.
    fn text_of(&self, field: &FieldSchema) -> Option<String> {
        let name = match (self.api, field.name) {
            // Nothing is deleted that other requests need.
            (ApiKey::DeleteTopics | ApiKey::DeleteGroups | ApiKey::DeleteRecords, _) => "absent",
            (ApiKey::OffsetDelete, "group_id") => "g",
            // A member that does not come back would delay the next one.
            (ApiKey::JoinGroup, "group_id") => return Some(format!("joined{:06}", self.number)),
            (_, "member_id") => "",
            (_, "group_instance_id" | "transactional_id" | "reason" | "rack_id") => return None,
            _ if field.default == "null" && !field.name.contains("name") => return None,
            _ => NAME,
        };
        Some(name.to_owned())
    }
}

/// Bytes of a request and of its answer; `None` if the broker closes the connection without an answer.
async fn exchange(broker: &Broker, request: &GeneratedRequest<'_>) -> (usize, Option<usize>) {
    let frame = request.frame();
    let mut conn = broker.connect().await;
    conn.write(&frame).await;
    let answer = timeout(PATIENCE, conn.receive_frame()).await;
    let GeneratedRequest { api, version, path, .. } = request;
    let answer = answer.unwrap_or_else(|_| panic!("{api} {version} {path:?} is not answered"));
    (frame.len(), answer.map(|answer| answer.len()))
}

#[tokio::test]
async fn answers_to_generated_requests_are_at_most_as_large_as_one_answer_and_the_request() {
    let broker = Broker::start(&[]).await;
    populate(&broker).await;
    let (mut faults, mut tried, mut number) = (Vec::new(), BTreeSet::new(), 0);
    let apis: Vec<_> =
        broker::advertised().into_iter().filter(|it| !EXCEPTED.contains(&it.api)).collect();
    for advertised in &apis {
        let api = advertised.api;
        for version in advertised.min_version..=advertised.max_version {
            let is_last = version == advertised.max_version;
            let count = if is_last { REPEATS } else { EARLIER_REPEATS };
            for path in lists(request_fields(api), version) {
                let case = format!("{api} {version} {path:?}");
                let request = |count: usize, number: usize| GeneratedRequest {
                    api,
                    version,
                    path: &path,
                    count,
                    number,
                };
                number += 2;
                let (_, one) = Box::pin(exchange(&broker, &request(1, number))).await;
                let (sent, many) = Box::pin(exchange(&broker, &request(count, number + 1))).await;
                match (one, many) {
                    (Some(one), Some(many)) if many > one + sent => faults.push(format!(
                        "{case}: {sent} bytes with {count} items get {many} bytes, one item {one}"
                    )),
                    (Some(_), Some(_)) => {}
                    (None, _) => faults.push(format!("{case}: no answer to one item")),
                    // A refusal costs nothing.
                    (Some(_), None) => {}
                }
                tried.insert(api.code());
            }
        }
    }
    assert!(faults.is_empty(), "{faults:#?}");
    let has_lists = |api: ApiKey| {
        (api.min_version()..=api.max_version()).any(|v| !lists(request_fields(api), v).is_empty())
    };
    let missing: Vec<_> =
        apis.iter().filter(|it| has_lists(it.api) && !tried.contains(&it.api.code())).collect();
    assert!(missing.is_empty(), "{missing:?}");
    broker.stop().await;
}
