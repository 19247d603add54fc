//! Runs of the laboratory on the console: what folders hold, and what they may hold instead.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use gateway::{Access, Settings};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::fixture::{PATIENCE, World, ask, open_changed};

const PLAN: &str = r#"{"profile":"quick","seed":42,"targets":["highwater"],"cells":[],"steps":[{"cost":1},{"cost":2},{"cost":3}],"waiting":[]}"#;
const RESULT: &str = r#"{
    "format":1,"title":"Highwater: 1 experiment","profile":"quick","seed":42,"commit":"abc1234","rounds":3,
    "analysis":{"cells":[],"floors":{}},
    "findings":[
        {"target":"","finding":{"experiment":"x-push","claim":"PU1","outcome":"reproduced","because":"as printed"}},
        {"target":"highwater","finding":{"experiment":"x-push","claim":"PU1","outcome":"contradicted","because":"<b>1 < 2</b>"}}
    ],
    "explanations":[{"experiment":"x-push","target":"highwater","cause":"timer","cells":[],"sentence":"It waits.","numbers":{}}],
    "waiting":[]
}"#;

fn round(throughput: &str) -> String {
    format!(
        r#"{{"experiment":"x-push","cell":{{}},"target":"highwater","round":0,"metrics":{{"throughput":{throughput}}},"failure":null}}"#
    ) + "\n"
}

/// A run that was measured and judged.
fn run(dir: &Path, name: &str) {
    let folder = dir.join(name);
    fs::create_dir_all(folder.join("charts")).unwrap();
    fs::write(folder.join("plan.json"), PLAN).unwrap();
    fs::write(folder.join("rounds.jsonl"), round("10.5") + &round("20") + &round("30")).unwrap();
    fs::write(folder.join("result.json"), RESULT).unwrap();
    fs::write(folder.join("report.html"), "<script>alert(1)</script>").unwrap();
    for chart in ["x-push-10.svg", "x-push-2.svg"] {
        fs::write(folder.join("charts").join(chart), "<svg xmlns='http://www.w3.org/2000/svg'/>")
            .unwrap();
    }
}

async fn world() -> (World, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let settings = console::Settings {
        lab_dir: Some(dir.path().to_path_buf()),
        ..console::Settings::default()
    };
    (World::start_as(Access::Read, settings).await, dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_shown_with_its_verdicts_charts_and_report() {
    let (world, dir) = world().await;
    run(dir.path(), "whole");
    let list = world.get("/console/runs").await;
    assert_eq!(list.status, 200);
    assert!(list.body.contains("3 of 3") && list.body.contains(">Lab</a>"), "{}", list.body);
    let page = world.get("/console/run?name=whole").await;
    assert_eq!(page.status, 200);
    for part in [
        "1 reproduced, 1 contradicted",
        "&lt;b&gt;1 &lt; 2&lt;/b&gt;",
        "Highwater: 1 experiment",
        "abc1234",
        "It waits.",
        "/console/run/chart?name=whole&amp;chart=x-push-2",
        "Records a second, highwater: now 30.0/s, at most 30.0/s",
    ] {
        assert!(page.body.contains(part), "{part:?}: {}", page.body);
    }
    let at = |part: &str| page.body.find(part).unwrap();
    assert!(at("chart=x-push-2\"") < at("chart=x-push-10\""), "2 stands before 10");
    let json = world.get("/api/v1/run?name=whole").await.json();
    assert_eq!((&json["rounds"], &json["planned_rounds"]), (&3.into(), &3.into()));
    assert_eq!(json["findings"][1]["outcome"], "contradicted");
    assert_eq!(world.get("/api/v1/runs").await.json()["runs"][0]["name"], "whole");
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_shut_into_a_world_of_their_own() {
    let (world, dir) = world().await;
    run(dir.path(), "whole");
    let report = world.get("/console/run/report?name=whole").await;
    assert_eq!((report.status, &*report.body), (200, "<script>alert(1)</script>"));
    let policy = report.head.lines().find(|line| line.starts_with("content-security-policy"));
    let policy = policy.unwrap();
    assert!(policy.contains("sandbox allow-scripts;") && policy.contains("default-src 'none'"));
    assert!(!policy.contains("allow-same-origin"), "{policy}");
    let chart = world.get("/console/run/chart?name=whole&chart=x-push-2").await;
    assert_eq!(chart.status, 200);
    assert!(chart.head.contains("image/svg+xml") && chart.head.contains("sandbox;"));
    assert!(chart.head.contains("nosniff"));
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_goes_on_is_shown_as_far_as_it_is() {
    let (world, dir) = world().await;
    run(dir.path(), "going");
    let folder = dir.path().join("going");
    for file in ["result.json", "report.html"] {
        fs::remove_file(folder.join(file)).unwrap();
    }
    // The last line is being written.
    fs::write(folder.join("rounds.jsonl"), round("10") + "{\"experiment\":\"x-pu").unwrap();
    let page = world.get("/console/run?name=going").await;
    assert!(page.body.contains("1 of 3") && page.body.contains("not whole"), "{}", page.body);
    assert!(page.body.contains("nothing was judged yet"));
    assert!(!page.body.contains("Open the report"));
    assert_eq!(world.get("/console/run/report?name=going").await.status, 404);
    fs::write(folder.join("rounds.jsonl"), round("10") + &round("null")).unwrap();
    let page = world.get("/console/run?name=going").await;
    assert!(page.body.contains("2 of 3"), "{}", page.body);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_shown_but_what_lies_in_the_folder_of_runs() {
    let (world, dir) = world().await;
    let outside = tempfile::tempdir().unwrap();
    run(outside.path(), "secret");
    let inside = outside.path().join("secret");
    symlink(&inside, dir.path().join("linked")).unwrap();
    run(dir.path(), "partly");
    let partly = dir.path().join("partly");
    fs::remove_file(partly.join("report.html")).unwrap();
    symlink(inside.join("report.html"), partly.join("report.html")).unwrap();
    fs::remove_dir_all(partly.join("charts")).unwrap();
    symlink(inside.join("charts"), partly.join("charts")).unwrap();
    fs::create_dir(dir.path().join("empty")).unwrap();
    fs::create_dir(dir.path().join("a b<i>")).unwrap();
    fs::write(dir.path().join("file"), "x").unwrap();
    let list = world.get("/api/v1/runs").await.json();
    let names: Vec<&str> =
        list["runs"].as_array().unwrap().iter().map(|run| run["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["partly"]);
    let up = format!("..%2f{}%2fsecret", outside.path().file_name().unwrap().to_str().unwrap());
    for name in
        ["linked", "empty", "file", "..", ".", "", "a%20b%3Ci%3E", "partly%2f..", "%00", &up]
    {
        for target in ["/console/run", "/console/run/report", "/console/run/chart", "/api/v1/run"] {
            let answer = world.get(&format!("{target}?name={name}&chart=x-push-2")).await;
            assert_eq!(answer.status, 404, "{target} {name}: {}", answer.body);
        }
    }
    for target in [
        "/console/run/report?name=partly",
        "/console/run/chart?name=partly&chart=x-push-2",
        "/console/run/chart?name=partly&chart=..%2fplan",
    ] {
        assert_eq!(world.get(target).await.status, 404, "{target}");
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_something_else_are_said_and_harm_nobody() {
    let (world, dir) = world().await;
    for (name, text) in [
        ("cut", &RESULT[..300]),
        ("list", "[]"),
        ("deep", &"[".repeat(100_000)),
        ("bytes", "\u{0}\u{1}"),
        ("types", r#"{"title":1,"profile":[],"commit":{},"findings":"no"}"#),
    ] {
        run(dir.path(), name);
        let folder = dir.path().join(name);
        fs::write(folder.join("result.json"), text).unwrap();
        fs::write(folder.join("plan.json"), text).unwrap();
        fs::write(folder.join("rounds.jsonl"), format!("{text}\n\n\n")).unwrap();
        let page = world.get(&format!("/console/run?name={name}")).await;
        assert_eq!(page.status, 200, "{name}");
        assert!(page.body.contains("nothing was judged yet"), "{name}: {}", page.body);
    }
    // A file that is nowhere on the disk, but too large to be read.
    run(dir.path(), "huge");
    let huge = fs::File::create(dir.path().join("huge/report.html")).unwrap();
    huge.set_len(1 << 40).unwrap();
    assert_eq!(world.get("/console/run/report?name=huge").await.status, 404);
    assert_eq!(world.get("/console/runs").await.status, 200);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_folder_there_is_no_laboratory() {
    let world = World::start().await;
    for target in
        ["/console/runs", "/console/run?name=x", "/api/v1/runs", "/console/run/report?name=x"]
    {
        assert_eq!(world.get(target).await.status, 404, "{target}");
    }
    assert!(!world.get("/console").await.body.contains(">Lab</a>"));
    world.stop().await;
    let gone = tempfile::tempdir().unwrap().path().join("gone");
    let settings = console::Settings { lab_dir: Some(gone), ..console::Settings::default() };
    let world = World::start_as(Access::Read, settings).await;
    for target in ["/console/runs", "/console/run?name=x", "/api/v1/runs", "/api/v1/run?name=x"] {
        let answer = world.get(target).await;
        assert_eq!(answer.status, 503, "{target}");
        assert!(answer.body.contains("No such file"), "{target}: {}", answer.body);
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_large_documents_and_takes_nothing_leaves_the_memory_of_others() {
    let (world, dir) = world().await;
    run(dir.path(), "whole");
    let report = fs::File::create(dir.path().join("whole/report.html")).unwrap();
    // More than the system keeps for a connection that takes nothing.
    report.set_len(30 << 20).unwrap();
    let bootstrap = world.broker.listeners()[0].to_string();
    let settings = console::Settings {
        lab_dir: Some(dir.path().to_path_buf()),
        ..console::Settings::default()
    };
    // Of 160 MiB what is read may hold a quarter.
    let gateway = open_changed(&bootstrap, settings, |settings| Settings {
        memory_bytes: 160 << 20,
        ..settings
    });
    let target = "/console/run/report?name=whole";
    let mut stuck = TcpStream::connect(gateway.address()).await.unwrap();
    let request = format!("GET {target} HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stuck.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    stuck.read_exact(&mut first).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    let ask = async |target| ask(gateway.address(), "GET", target, "host: localhost\r\n").await;
    for _ in 0..3 {
        let refused = ask(target).await;
        assert_eq!(refused.status, 429, "{}", refused.head);
        assert_eq!(ask("/console/runs").await.status, 200, "small pages go on");
    }
    drop(stuck);
    let free_again = async { while ask(target).await.status != 200 {} };
    timeout(PATIENCE, free_again).await.expect("memory that is free");
    gateway.stop().await;
    world.stop().await;
}
