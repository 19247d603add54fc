//! Ids come back as they were written, in every form; no text makes one that leads nowhere. Values go through an event
//! stream and come out of a reader, written here after the HTML standard (9.2.6), byte by byte.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use serde_json::{Value, json};
use serving::events::encoding::{Written, write, write_within};
use serving::events::filter::FilterError;
use serving::events::id::{self, ID_BYTES_MAX, IdError, PARTITIONS_MAX, Place};
use serving::events::notice::{
    End, PING, write_end, write_error, write_gap, write_id, write_retry, write_waiting,
};
use serving::events::pace::Slow;
use serving::events::query::QueryError;
use serving::events::{
    Event, Filter, Form, Gap, IdStyle, Passed, Position, Projection, Query, Reason, ResumeId,
    Start, TopicHash,
};

fn written(style: IdStyle, passed: &[Passed<'_>]) -> String {
    let mut out = Vec::new();
    id::write(style, passed.iter().copied(), &mut out);
    String::from_utf8(out).unwrap()
}

fn passed(topic: &str, partition: i32, offset: i64, leader_epoch: i32) -> Passed<'_> {
    let position = Position { offset, leader_epoch };
    Passed { topic, topic_hash: TopicHash(0x1a2b_3c4d), partition, position }
}

/// Whether a log can have it, and a record behind it.
fn is_in_a_log(place: Place) -> bool {
    match place {
        Place::Behind(Position { offset, leader_epoch }) => {
            (-1..i64::MAX).contains(&offset) && leader_epoch >= -1
        }
        Place::Time(time) => time >= 0,
    }
}

fn behind(offset: i64, leader_epoch: i32) -> Place {
    Place::Behind(Position { offset, leader_epoch })
}

proptest! {
    #[test]
    fn ids_lead_back_to_where_they_were_written(
        topics in prop::collection::btree_map(
            "[a-zA-Z0-9._-]{1,40}",
            (any::<u32>(), prop::collection::btree_map(
                0..=i32::MAX, (-1..i64::MAX, -1..=i32::MAX), 1..12)),
            1..6,
        ),
    ) {
        let passed: Vec<_> = topics.iter().flat_map(|(topic, (hash, partitions))| {
            partitions.iter().map(|(partition, (offset, leader_epoch))| Passed {
                topic,
                topic_hash: TopicHash(*hash),
                partition: *partition,
                position: Position { offset: *offset, leader_epoch: *leader_epoch },
            })
        }).take(PARTITIONS_MAX).collect();
        for style in [IdStyle::Short, IdStyle::Json] {
            let id = written(style, &passed);
            prop_assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "{id}");
            let read = ResumeId::read(&id).unwrap();
            for one in &passed {
                let found = read.find(one.topic, one.partition);
                prop_assert_eq!(found, Some((Place::Behind(one.position), Some(one.topic_hash))));
            }
            prop_assert_eq!(read.find("a topic that cannot be", 0), None);
        }
    }

    #[test]
    fn no_text_leads_to_a_place_that_no_log_has(
        text in "\\PC{0,200}",
        place in "-?[0-9]{1,20}(\\.-?[0-9]{1,11}(\\.[0-9a-f]{7,9})?)?",
        offset in prop_oneof![-5i128..5, (1i128 << 63) - 5..(1i128 << 63) + 5],
        leader_epoch in prop_oneof![-5i64..5, (1i64 << 31) - 5..(1i64 << 31) + 5],
    ) {
        let list = format!(
            "[{{\"topic\":\"t\",\"partition\":0,\"offset\":{offset},\"leader_epoch\":{leader_epoch}}}]"
        );
        let texts = [
            text.clone(),
            format!("[{text}]"),
            format!("t/0@{text}"),
            format!("t/0@{place}"),
            format!("t/0@{offset}.{leader_epoch}"),
            list,
        ];
        for text in texts {
            if let Ok(id) = ResumeId::read(&text) {
                prop_assert!(id.find("t", 0).is_none_or(|(place, _)| is_in_a_log(place)), "{text}");
            }
        }
    }

    #[test]
    fn a_damaged_id_is_refused_or_has_places_that_logs_can_have(
        offsets in prop::collection::vec(-1..i64::MAX, 2..5),
        at in any::<prop::sample::Index>(),
        with in any::<[u8; 3]>(),
    ) {
        let partitions: Vec<_> =
            (0..).zip(&offsets).map(|(number, offset)| passed("t", number, *offset, 7)).collect();
        let base64 = base64::prelude::BASE64_URL_SAFE_NO_PAD;
        let mut bytes = base64.decode(written(IdStyle::Short, &partitions)).unwrap();
        let at = at.index(bytes.len());
        bytes.iter_mut().skip(at).zip(with).for_each(|(byte, with)| *byte ^= with);
        if let Ok(id) = ResumeId::read(&base64.encode(&bytes)) {
            let places = (0..100).filter_map(|partition| id.find("t", partition));
            for (place, _) in places {
                prop_assert!(is_in_a_log(place), "{place:?}");
            }
        }
    }

    #[test]
    fn a_value_comes_out_of_the_stream_as_it_went_in(
        value in prop::option::of(prop_oneof![
            prop::collection::vec(any::<u8>(), 0..80),
            "[a\r\n :é\u{feff}]{0,40}".prop_map(String::into_bytes),
        ]),
        base64 in any::<bool>(),
    ) {
        let projection = Projection { base64, ..Projection::default() };
        let events = read(&encoded(&projection, Some(b"k"), value.as_deref(), &[]));
        prop_assert_eq!(events.len(), 1);
        let (kind, data) = (&*events[0].kind, &events[0].data);
        let came = match (kind, base64) {
            ("tombstone", _) => None,
            ("base64", _) | (_, true) => Some(BASE64_STANDARD.decode(data).unwrap()),
            _ => Some(data.clone().into_bytes()),
        };
        prop_assert_eq!(came, value);
    }

    #[test]
    fn no_query_panics(name in "from|partitions|filter|limit|maxLag", value in "[-0-9:,*ts\\\\=keyhadr]{0,30}") {
        let _ = Query::read([(&*name, &*value)].into_iter());
    }
}

#[test]
fn ids_have_the_forms_that_are_written_down() {
    let one = [passed("orders", 3, 41, 7)];
    assert_eq!(written(IdStyle::Short, &one), "orders/3@41.7.1a2b3c4d");
    let json = written(IdStyle::Json, &one);
    let expected = json!([{"topic": "orders", "partition": 3, "offset": 41, "leader_epoch": 7,
        "topic_hash": 0x1a2b_3c4d}]);
    assert_eq!(serde_json::from_str::<Value>(&json).unwrap(), expected);
    let two = [passed("orders", 0, -1, -1), passed("orders", 2, 300, 0)];
    let short = written(IdStyle::Short, &two);
    // Written down, because ids outlive versions.
    assert_eq!(short, SHORT_OF_TWO);
    assert_eq!(ResumeId::read(&short).unwrap().find("orders", 2).unwrap().0, behind(300, 0));
}

#[test]
fn an_id_leads_to_a_time_where_a_partition_has_no_offset() {
    let all = [(passed("t", 0, 41, 7), None), (passed("t", 1, -1, -1), Some(1_500_000_000_000))];
    let mut out = Vec::new();
    id::write_with_times(all.into_iter(), &mut out);
    let id = ResumeId::read(std::str::from_utf8(&out).unwrap()).unwrap();
    let hash = Some(TopicHash(0x1a2b_3c4d));
    assert_eq!(id.find("t", 0), Some((behind(41, 7), hash)));
    assert_eq!(id.find("t", 1), Some((Place::Time(1_500_000_000_000), hash)));
    assert!(out.len() < id::bytes_max(IdStyle::Json, [("t", 0), ("t", 1)].into_iter()));
}

const SHORT_OF_TWO: &str = "AawXNWwaKzxNAQAAAq0CAQA";

#[test]
fn ids_of_others_are_read_too() {
    let find = |id: &str| ResumeId::read(id).unwrap().find("t", 0);
    assert_eq!(find("t/0@7"), Some((behind(7, -1), None)));
    assert_eq!(find("t/0@-1"), Some((behind(-1, -1), None)));
    assert_eq!(find("t/0@7.3"), Some((behind(7, 3), None)));
    assert_eq!(find(r#"[{"topic":"t","partition":0,"offset":7}]"#), Some((behind(7, -1), None)));
    let timed = r#"[{"topic":"t","partition":0,"timestamp":1500000000000,"more":[1]}]"#;
    assert_eq!(find(timed), Some((Place::Time(1_500_000_000_000), None)));
    assert_eq!(find("[]"), None);
    assert_eq!(find("AQ"), None, "of no partition");
}

#[test]
fn other_texts_are_no_ids() {
    let long = "a".repeat(20_000);
    let many: Vec<_> =
        (0..=256).map(|p| format!(r#"{{"topic":"t","partition":{p},"offset":1}}"#)).collect();
    let many = format!("[{}]", many.join(","));
    for (id, error) in [
        ("", IdError::Damaged),
        ("t/0@", IdError::Damaged),
        ("t/0@+1", IdError::Damaged),
        ("t/0@9223372036854775807", IdError::Damaged),
        ("t/0@-2", IdError::Damaged),
        ("t/-1@1", IdError::Damaged),
        ("/0@1", IdError::Damaged),
        ("t/0@1.2.3", IdError::Damaged),
        ("t/0@1.2.1a2b3c4d.5", IdError::Damaged),
        ("Ag", IdError::Damaged),
        ("!", IdError::Damaged),
        ("[1]", IdError::Damaged),
        (r#"[{"topic":"t","partition":0}]"#, IdError::Damaged),
        (r#"[{"topic":"t","partition":0,"offset":1.5}]"#, IdError::Damaged),
        (r#"[{"topic":"t","partition":0,"timestamp":-1}]"#, IdError::Damaged),
        (
            r#"[{"topic":"t","partition":0,"offset":1},{"topic":"t","partition":0,"offset":2}]"#,
            IdError::Twice,
        ),
        (&SHORT_OF_TWO[..SHORT_OF_TWO.len() - 2], IdError::Damaged),
        (&many, IdError::Many),
        (&long, IdError::Long),
    ] {
        assert_eq!(ResumeId::read(id), Err(error), "{id}");
    }
}

#[test]
fn the_largest_stream_has_an_id_that_fits_into_a_header() {
    let partitions = (0..PARTITIONS_MAX as i32).map(|partition| ("t", partition));
    assert!(id::bytes_max(IdStyle::Short, partitions.clone()) <= ID_BYTES_MAX);
    assert!(
        id::bytes_max(IdStyle::Json, partitions) > ID_BYTES_MAX,
        "refused where streams are opened"
    );
}

type Headers<'a> = &'a [(&'a str, Option<&'a [u8]>)];

fn encoded(
    projection: &Projection,
    key: Option<&[u8]>,
    value: Option<&[u8]>,
    headers: Headers<'_>,
) -> Vec<u8> {
    let mut out = Vec::new();
    let event = Event {
        topic: "t",
        topic_hash: TopicHash(1),
        partition: 2,
        offset: 3,
        leader_epoch: 4,
        timestamp_ms: 5,
        key,
        value,
    };
    write(projection, &event, headers.iter().copied(), &mut out);
    out
}

/// An event as a reader has it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Read {
    kind: String,
    data: String,
    /// The last id at that time.
    id: String,
}

/// Reads a stream as the HTML standard says, 9.2.6.
fn read(stream: &[u8]) -> Vec<Read> {
    let text =
        String::from_utf8(stream.to_vec()).unwrap().replace("\r\n", "\n").replace('\r', "\n");
    let (mut events, mut id) = (Vec::new(), String::new());
    let (mut kind, mut data) = (String::new(), String::new());
    for line in text.split('\n') {
        if line.is_empty() {
            if !data.is_empty() {
                data.pop();
                let kind = if kind.is_empty() { "message".to_owned() } else { kind.clone() };
                events.push(Read { kind, data: data.clone(), id: id.clone() });
            }
            (kind, data) = (String::new(), String::new());
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => kind = value.to_owned(),
            "data" => data += &format!("{value}\n"),
            "id" if !value.contains('\0') => id = value.to_owned(),
            _ => {}
        }
    }
    events
}

#[test]
fn an_event_has_an_id_if_its_projection_has() {
    let projection = Projection { ids: Some(IdStyle::Short), ..Projection::default() };
    let events = read(&encoded(&projection, None, Some(b"a\nb"), &[]));
    let expected =
        Read { kind: "message".into(), data: "a\nb".into(), id: "t/2@3.4.00000001".into() };
    assert_eq!(events, [expected]);
}

#[test]
fn a_record_is_one_json_value() {
    let projection = Projection { form: Form::Record, ..Projection::default() };
    let headers = [("h\n", Some(&b"\"x\"\r"[..])), ("null", None), ("bin", Some(b"\xff"))];
    let events = read(&encoded(&projection, Some(b"k\r\n"), None, &headers));
    let expected = json!({"topic": "t", "partition": 2, "offset": 3, "timestamp": 5, "key": "k\r\n",
        "value": null, "headers": [{"key": "h\n", "value": "\"x\"\r"}, {"key": "null", "value": null},
        {"key": "bin", "value": {"base64": "/w=="}}]});
    assert_eq!(serde_json::from_str::<Value>(&events[0].data).unwrap(), expected);
    let projection = Projection { base64: true, ..projection };
    let events = read(&encoded(&projection, None, Some(b"a"), &[]));
    let record: Value = serde_json::from_str(&events[0].data).unwrap();
    assert_eq!(record["value"], json!({"base64": "YQ=="}));
}

#[test]
fn what_is_said_besides_is_read_as_what_it_is() {
    let mut stream = Vec::new();
    write_retry(2345, &mut stream);
    write_id(&mut stream, |out| out.extend(b"t/0@5"));
    stream.extend(PING);
    let gap = Gap { reason: Reason::Retention, from: 6, to: 9 };
    write_gap("t", 0, &gap, &mut stream);
    write_error("t", 0, 9, "a \"bad\"\r\nbatch", &mut stream);
    write_end(End::Limit, &mut stream);
    write_waiting([("t", 1), ("t", 3)].into_iter(), &mut stream);
    assert!(
        stream.ends_with(
            b": no leader answers for 2 partitions, whose records come later: t-1 t-3\n\n"
        )
    );
    let mut one = Vec::new();
    write_waiting([("t", 1)].into_iter(), &mut one);
    assert_eq!(one, b": no leader answers for 1 partition, whose records come later: t-1\n\n");
    assert!(stream.starts_with(b"retry: 2345\n\nid: t/0@5\n\n: ping\n\n"));
    let events = read(&stream);
    let kinds: Vec<_> = events.iter().map(|event| &*event.kind).collect();
    assert_eq!(kinds, ["gap", "error", "end"], "ids and pings fire nothing");
    let data: Vec<Value> =
        events.iter().map(|event| serde_json::from_str(&event.data).unwrap()).collect();
    assert_eq!(
        data,
        [
            json!({"topic": "t", "partition": 0, "reason": "retention", "from": 6, "to": 9}),
            json!({"topic": "t", "partition": 0, "offset": 9, "message": "a badbatch"}),
            json!({"reason": "limit"}),
        ]
    );
    assert!(events.iter().all(|event| event.id == "t/0@5"));
}

#[test]
fn filters_hold_if_all_conditions_do() {
    let wants = |filter: &str, key: Option<&str>, headers: Headers<'_>| {
        let filter = Filter::read(filter).unwrap();
        filter.wants(key.map(str::as_bytes), headers.iter().copied())
    };
    let headers: Headers<'_> =
        &[("kind", Some(b"order")), ("kind", Some(b"refund")), ("none", None)];
    for (filter, key, wanted) in [
        ("", None, true),
        ("key:a", Some("a"), true),
        ("key:a", Some("ab"), false),
        ("key:a*", Some("ab"), true),
        ("key:*", Some(""), true),
        ("key:*", None, false),
        ("key:", Some(""), true),
        ("header:kind=order", None, true),
        ("header:kind=ref*", None, true),
        ("header:kind=x", None, false),
        ("header:none=", None, true),
        ("header:missing=*", None, false),
        ("key:a,header:kind=order", Some("a"), true),
        ("key:b,header:kind=order", Some("a"), false),
        (r"key:a\,b", Some("a,b"), true),
        (r"key:a\*", Some("a*"), true),
        (r"key:a\*", Some("ab"), false),
        (r"key:\\", Some(r"\"), true),
    ] {
        assert_eq!(wants(filter, key, headers), wanted, "{filter} {key:?}");
    }
    for invalid in ["x", "key", "key:a*b", r"key:a\", "header:a", "header:=a", ",", "key:a,,"] {
        let refused = Filter::read(invalid);
        assert!(matches!(refused, Err(FilterError::Condition(_))), "{invalid}: {refused:?}");
    }
    assert_eq!(Filter::read(&["key:a"; 17].join(",")), Err(FilterError::Many));
}

#[test]
fn queries_say_what_is_asked() {
    let read = |text: &str| {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        Query::read(pairs.map(|pair| pair.split_once('=').unwrap()))
    };
    assert_eq!(read(""), Ok(Query::default()));
    assert_eq!(read("from=ts:17").unwrap().start, Start::Time(17));
    let query = read("from=2:9,0:5&until=end&limit=3&slow=skip&maxLag=4&id=every").unwrap();
    assert_eq!(query.start, Start::Offsets(vec![(0, 5), (2, 9)]));
    assert_eq!(query.partitions, Some(vec![0, 2]));
    assert!(query.until_end && query.id_every && query.slow == Slow::Skip);
    assert_eq!((query.limit, query.lag_max), (Some(3), Some(4)));
    let query = read("from=7&partitions=3,1&data=record&encoding=base64&id=json").unwrap();
    assert_eq!((query.start, query.partitions), (Start::Offset(7), Some(vec![1, 3])));
    assert_eq!((query.projection.form, query.projection.base64), (Form::Record, true));
    for (invalid, part) in [
        ("form=earliest", "unknown parameter"),
        ("from=soon", "from: invalid value"),
        ("from=-1", "from: invalid value"),
        ("from=0:1,0:2", "from: invalid value"),
        ("from=9223372036854775807", "from: invalid value"),
        ("partitions=1,1", "partitions: invalid value"),
        ("partitions=-1", "partitions: invalid value"),
        ("until=later", "expected end"),
        ("limit=0", "limit: invalid value"),
        ("filter=x", "filter: invalid condition"),
        ("limit=1&limit=2", "limit is there twice"),
    ] {
        let said = read(invalid).unwrap_err().to_string();
        assert!(said.contains(part), "{invalid}: {said}");
    }
    assert_eq!(read("group=g&partitions=0"), Err(QueryError::InGroup("partitions")));
    assert_eq!(read("group=g&from=3"), Err(QueryError::InGroup("from")));
    assert_eq!(read("group=g&id=every"), Err(QueryError::InGroup("id")));
    assert_eq!(read("ack=sent"), Err(QueryError::WithoutGroup("ack")));
    let member =
        read("from=earliest&group=g&instance=i&ack=sent&filter=key:k").unwrap().group.unwrap();
    assert!(member.from_earliest && member.acks_sent && member.instance.as_deref() == Some("i"));
}

#[test]
fn an_event_that_would_be_too_large_is_not_written() {
    let escaped = [1_u8; 200];
    let event = |key, value| Event {
        topic: "t",
        topic_hash: TopicHash(0),
        partition: 0,
        offset: 7,
        leader_epoch: 0,
        timestamp_ms: 0,
        key,
        value,
    };
    let write = |form, filter: &str, key, value, bytes_max| {
        let filter = Filter::read(filter).unwrap();
        let projection = Projection { form, filter, ..Projection::default() };
        let headers = [("h", Some(&b"x"[..]))];
        let mut out = b"before".to_vec();
        let event = event(key, value);
        let written = write_within(&projection, &event, headers.into_iter(), bytes_max, &mut out);
        assert_eq!(out.len() > 6, written == Written::Event, "{written:?}");
        assert!(out.starts_with(b"before"));
        written
    };
    let value = Some(&escaped[..]);
    assert_eq!(write(Form::Value, "", None, value, 208), Written::Event);
    assert_eq!(write(Form::Value, "", None, value, 207), Written::TooLarge(208));
    assert_eq!(write(Form::Value, "", None, value, 199), Written::TooLarge(200));
    // Each byte takes six as JSON.
    assert!(matches!(write(Form::Record, "", None, value, 1200), Written::TooLarge(1201..)));
    assert_eq!(write(Form::Record, "", None, value, 1400), Written::Event);
    // Key and headers stand in it, too, and not beside a value.
    assert_eq!(write(Form::Record, "", value, None, 100), Written::TooLarge(202));
    assert_eq!(write(Form::Value, "", value, None, 100), Written::Event);
    assert_eq!(write(Form::Record, "key:other", value, None, 100), Written::LeftOut);
}
