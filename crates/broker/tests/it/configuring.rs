//! Configurations that act at run time, those that contradict each other, and those that ask for
//! more replicas than there are.

use model::ErrorCode;
use model::level::{
    HIGHWATER_JOURNAL, HIGHWATER_VERSION, HIGHWATER_VERSION_MAX, JOURNAL_LEVEL_MAX,
};
use wire::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use wire::{
    ApiVersionsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    IncrementalAlterConfigsRequest, MetadataRequest,
};

use crate::fixture::{batch as batch_of, *};

pub const BROKER: i8 = 4;
pub const SET: i8 = 0;
pub const DELETE: i8 = 1;
const APPEND: i8 = 2;

/// Changes keys of all brokers (`name` empty) or of one; returns the code and the message.
pub async fn change(
    conn: &mut Conn,
    name: &str,
    changes: &[(&str, i8, Option<&str>)],
) -> (ErrorCode, String) {
    let configs = changes.iter().map(|(name, operation, value)| AlterableConfig {
        name: (*name).to_owned(),
        config_operation: *operation,
        value: value.map(str::to_owned),
    });
    let resource = AlterConfigsResource {
        resource_type: BROKER,
        resource_name: name.to_owned(),
        configs: configs.collect(),
    };
    let request =
        IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    let mut answer = conn.call(&request, 1).await;
    let answer = answer.responses.remove(0);
    (answer.error(), answer.error_message.unwrap_or_default())
}

/// The value of a key of broker 1, as DescribeConfigs shows it.
pub async fn described(conn: &mut Conn, key: &str) -> Option<String> {
    let resource = wire::describe_configs::DescribeConfigsResource {
        resource_type: BROKER,
        resource_name: "1".to_owned(),
        configuration_keys: Some(vec![key.to_owned()]),
    };
    let request = DescribeConfigsRequest { resources: vec![resource], ..Default::default() };
    let mut answer = conn.call(&request, 4).await;
    answer.results.remove(0).configs.remove(0).value
}

#[tokio::test]
async fn min_insync_replicas_asks_for_at_most_the_replicas_that_there_are() {
    let broker = Broker::start(&[("min.insync.replicas", "2")]).await;
    let mut conn = broker.connect().await;
    conn.create_topic("inherits", &[]).await;
    conn.create_topic("own", &[("min.insync.replicas", "3")]).await;
    for topic in ["inherits", "own"] {
        assert_eq!(conn.append(topic, batch_of(&["acks=all"])).await, 0);
    }
    broker.stop().await;
}

/// Waits until the broker closes all but `left` of these connections.
async fn close_down_to(conns: Vec<Conn>, left: usize) {
    let mut closing = tokio::task::JoinSet::new();
    for mut conn in conns {
        // An answer may still come before the end.
        closing.spawn(async move { while conn.receive_frame_or_wait().await.is_some() {} });
    }
    while closing.len() > left {
        let closed = tokio::time::timeout(PATIENCE, closing.join_next()).await;
        closed.expect("the broker closes what is above the limit").expect("one is left").unwrap();
    }
    closing.abort_all();
}

#[tokio::test]
async fn limits_of_connections_act_at_run_time_and_after_a_restart() {
    let broker = Broker::start(&[]).await;
    let mut admin = broker.connect().await;
    let (code, _) = change(&mut admin, "", &[("max.connections.per.ip", SET, Some("3"))]).await;
    assert_eq!(code, ErrorCode::None);
    let mut second = broker.connect().await;
    second.call(&wire::ApiVersionsRequest::default(), 0).await;
    let mut third = broker.connect().await;
    third.call(&wire::ApiVersionsRequest::default(), 0).await;
    let reserve = broker.take_reserve().await;
    broker.assert_refuses().await;
    let exception = [("max.connections.per.ip.overrides", SET, Some("127.0.0.1:4"))];
    assert_eq!(change(&mut admin, "", &exception).await.0, ErrorCode::None);
    broker.assert_serves().await;

    drop((admin, second, third, reserve));
    let broker = broker.restart().await;
    let mut conns = Vec::new();
    for _ in 0..4 {
        let mut conn = broker.connect().await;
        conn.call(&wire::ApiVersionsRequest::default(), 0).await;
        conns.push(conn);
    }
    let _reserve = broker.take_reserve().await;
    broker.assert_refuses().await;
    broker.stop().await;
}

#[tokio::test]
async fn a_lower_limit_closes_the_connections_above_it() {
    let broker = Broker::start(&[]).await;
    let mut conns = Vec::new();
    for _ in 0..5 {
        let mut conn = broker.connect().await;
        conn.call(&wire::ApiVersionsRequest::default(), 0).await;
        conns.push(conn);
    }
    // The connection that asks may be among those that are closed: its answer may not come.
    let mut admin = conns.pop().unwrap();
    let resource = AlterConfigsResource {
        resource_type: BROKER,
        configs: vec![AlterableConfig {
            name: "max.connections".to_owned(),
            value: Some("2".to_owned()),
            ..Default::default()
        }],
        ..Default::default()
    };
    let request =
        IncrementalAlterConfigsRequest { resources: vec![resource], ..Default::default() };
    admin.send(&request, 1).await;
    conns.push(admin);
    close_down_to(conns, 2).await;
    broker.stop().await;
}

#[tokio::test]
async fn contradictions_are_refused_when_they_are_made_and_sets_are_checked_as_a_whole() {
    let broker = Broker::start(&[]).await;
    let mut conn = broker.connect().await;
    let (threads, buffer) = ("log.cleaner.threads", "log.cleaner.dedupe.buffer.size");
    let both = [(threads, SET, Some("64")), (buffer, SET, Some("1048577"))];
    let (code, message) = change(&mut conn, "", &both).await;
    assert_eq!(code, ErrorCode::InvalidRequest);
    assert!(message.contains("each of 64 cleaner threads"), "{message}");
    assert_eq!(described(&mut conn, threads).await.as_deref(), Some("1"), "nothing was stored");
    // Alone the number of threads would need a larger buffer; together they hold.
    let both = [(threads, SET, Some("64")), (buffer, SET, Some("268435456"))];
    assert_eq!(change(&mut conn, "1", &both).await.0, ErrorCode::None);
    assert_eq!(described(&mut conn, threads).await.as_deref(), Some("64"));
    let smaller = [(buffer, SET, Some("1048577"))];
    assert_eq!(change(&mut conn, "1", &smaller).await.0, ErrorCode::InvalidRequest);
    let gone = [(threads, DELETE, None), (buffer, DELETE, None)];
    assert_eq!(change(&mut conn, "1", &gone).await.0, ErrorCode::None);
    assert_eq!(described(&mut conn, threads).await.as_deref(), Some("1"));
    // A list grows by items, and its whole is checked.
    let bad = [("log.cleanup.policy", APPEND, Some("shrink"))];
    assert_eq!(change(&mut conn, "1", &bad).await.0, ErrorCode::InvalidRequest);
    let good = [("log.cleanup.policy", APPEND, Some("compact"))];
    assert_eq!(change(&mut conn, "1", &good).await.0, ErrorCode::None);
    let policy = described(&mut conn, "log.cleanup.policy").await;
    assert_eq!(policy.as_deref(), Some("delete,compact"));
    broker.stop().await;
}

/// Whether this process has a thread of this name.
fn has_thread(name: &str) -> bool {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let names =
        threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.into_iter().any(|found| found.trim() == name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_of_the_cleaner_come_and_go_at_run_time() {
    let broker = Broker::start_alone(&[("log.cleaner.backoff.ms", "20")]).await;
    let mut conn = broker.connect().await;
    for (count, is_there) in [("3", true), ("1", false), ("2", false), ("3", true)] {
        let (error, message) =
            change(&mut conn, "", &[("log.cleaner.threads", SET, Some(count))]).await;
        assert_eq!(error, ErrorCode::None, "{message}");
        let began = std::time::Instant::now();
        while has_thread("cleaner-2") != is_there {
            assert!(began.elapsed() < std::time::Duration::from_secs(120), "{count} threads");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }
    broker.stop().await;
}

#[tokio::test]
async fn a_cluster_id_is_any_text_and_is_answered_byte_for_byte() {
    let ids = ["MkU3OEVBNTcwNTJENDM2Qk", " not a uuid: a=b#c ", &"x".repeat(249)];
    for id in ids {
        let broker = Broker::start(&[("cluster.id", id)]).await;
        answers_with_cluster_id(&mut broker.connect().await, id).await;
        let broker = broker.restart().await;
        answers_with_cluster_id(&mut broker.connect().await, id).await;
        // The directory keeps the id where the configuration names none.
        let Stopped { dir, .. } = broker.stop_and_keep().await;
        let running = run(dir.path(), &[]).await.expect("the broker starts without cluster.id");
        let mut conn = Conn::open(running.listeners()[0]).await;
        answers_with_cluster_id(&mut conn, id).await;
        running.stop_within(PATIENCE).await;
        let other = [("cluster.id".to_owned(), "another".to_owned())];
        let Err(refused) = run(dir.path(), &other).await else { panic!("{id:?}: other cluster") };
        assert!(refused.to_string().contains("belongs to"), "{refused}");
    }
}

async fn answers_with_cluster_id(conn: &mut Conn, id: &str) {
    let described = conn.call(&DescribeClusterRequest::default(), 1).await;
    assert_eq!(described.cluster_id, id);
    let metadata = conn.call(&MetadataRequest::default(), 12).await;
    assert_eq!(metadata.cluster_id.as_deref(), Some(id));
}

fn features_request() -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: "test".to_owned(),
        client_software_version: "1".to_owned(),
        ..Default::default()
    }
}

/// Name and content of every file below a directory.
fn files_below(dir: &std::path::Path) -> std::collections::BTreeMap<std::path::PathBuf, Vec<u8>> {
    let mut files = std::collections::BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => files.extend(files_below(&entry.path())),
            false => drop(files.insert(entry.path(), std::fs::read(entry.path()).unwrap())),
        }
    }
    files
}

#[tokio::test]
async fn a_new_cluster_has_the_newest_levels_and_an_older_release_touches_nothing() {
    let broker = Broker::start(&[]).await;
    let finalized = broker.connect().await.call(&features_request(), 4).await;
    let level = |name: &str| {
        let found = finalized.finalized_features.iter().find(|feature| feature.name == name);
        found.map(|feature| feature.max_version_level)
    };
    assert_eq!(level(HIGHWATER_VERSION), Some(HIGHWATER_VERSION_MAX));
    assert_eq!(level(HIGHWATER_JOURNAL), Some(i16::from(JOURNAL_LEVEL_MAX)));
    let kept = broker.stop_and_keep().await;
    let path = kept.dir.path().join("meta.properties");
    let meta = std::fs::read_to_string(&path).unwrap();
    let lines = [
        format!("highwater.journal={JOURNAL_LEVEL_MAX}\n"),
        format!("highwater.version={HIGHWATER_VERSION_MAX}\n"),
    ];
    for line in lines {
        assert!(meta.contains(&line), "{meta}");
        let (key, _) = line.split_once('=').unwrap();
        std::fs::write(&path, meta.replace(&line, &format!("{key}=200\n"))).unwrap();
        let before = files_below(kept.dir.path());
        // A second directory, as of a release that reads it: nothing of either may change.
        for more in [None, Some(tempfile::tempdir().unwrap())] {
            let mut settings = kept.settings.clone();
            let second = more.as_ref().map(|dir| dir.path().display().to_string());
            let dirs = [second, Some(kept.dir.path().display().to_string())];
            let dirs: Vec<String> = dirs.into_iter().flatten().collect();
            settings.push(("log.dirs".to_owned(), dirs.join(",")));
            let Err(refused) = run(kept.dir.path(), &settings).await else { panic!("{key}") };
            let refused = refused.to_string();
            assert!(refused.contains(&format!("{key} is at level 200")), "{refused}");
            assert_eq!(refused.lines().count(), 1);
            assert_eq!(files_below(kept.dir.path()), before);
        }
    }
    std::fs::write(&path, meta + "highwater.newer=7\n").unwrap();
    run(kept.dir.path(), &kept.settings).await.unwrap().stop_within(PATIENCE).await;
    let meta = std::fs::read_to_string(&path).unwrap();
    assert!(meta.ends_with("highwater.newer=7\n"), "{meta}");
}
