//! Requests in the form in which Confluent's documentation of its REST API (v2 and v3) has them for curl, with our names.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use peer::process;
use serde_json::Value;

const LIMIT: Duration = Duration::from_secs(60);
/// `curl`'s arguments, a line each but for the target; what the answer must have in it; `{CLUSTER}` and `{BASE}` are known by then.
const EXAMPLES: &[Example] = &[
    Example { what: "v2: topics", arguments: &[], target: "/topics", has: &["\"events\""] },
    Example {
        what: "v2: a record in JSON",
        arguments: &[
            "-X",
            "POST",
            "-H",
            "Content-Type: application/vnd.kafka.json.v2+json",
            "-H",
            "Accept: application/vnd.kafka.v2+json",
            "--data",
            r#"{"records":[{"value":{"name":"testUser"}}]}"#,
        ],
        target: "/topics/jsontest",
        has: &[
            "\"offsets\":[{\"partition\":0,\"offset\":0,\"error_code\":null,\"error\":null}]",
            "\"key_schema_id\":null",
        ],
    },
    Example {
        what: "v2: a consumer for JSON",
        arguments: &[
            "-X",
            "POST",
            "-H",
            "Content-Type: application/vnd.kafka.v2+json",
            "--data",
            r#"{"name": "my_consumer_instance", "format": "json", "auto.offset.reset": "earliest"}"#,
        ],
        target: "/consumers/my_json_consumer",
        has: &[
            "\"instance_id\":\"my_consumer_instance\"",
            "/consumers/my_json_consumer/instances/my_consumer_instance\"",
        ],
    },
    Example {
        what: "v2: its subscription",
        arguments: &[
            "-X",
            "POST",
            "-H",
            "Content-Type: application/vnd.kafka.v2+json",
            "--data",
            r#"{"topics":["jsontest"]}"#,
        ],
        target: "/consumers/my_json_consumer/instances/my_consumer_instance/subscription",
        has: &["HTTP 204"],
    },
    Example {
        what: "v2: its records",
        arguments: &["-X", "GET", "-H", "Accept: application/vnd.kafka.json.v2+json"],
        target: "/consumers/my_json_consumer/instances/my_consumer_instance/records?timeout=20000",
        has: &["\"key\":null,\"value\":{\"name\":\"testUser\"},\"partition\":0,\"offset\":0"],
    },
    Example {
        what: "v2: its offsets are committed",
        arguments: &[
            "-X",
            "POST",
            "-H",
            "Content-Type: application/vnd.kafka.v2+json",
            "--data",
            r#"{"offsets":[{"topic":"jsontest","partition":0,"offset":1}]}"#,
        ],
        target: "/consumers/my_json_consumer/instances/my_consumer_instance/offsets",
        has: &["HTTP 204"],
    },
    Example {
        what: "v2: it goes",
        arguments: &["-X", "DELETE", "-H", "Content-Type: application/vnd.kafka.v2+json"],
        target: "/consumers/my_json_consumer/instances/my_consumer_instance",
        has: &["HTTP 204"],
    },
    Example {
        what: "v2: a record in base64 to a partition",
        arguments: &[
            "-X",
            "POST",
            "-H",
            "Content-Type: application/vnd.kafka.binary.v2+json",
            "--data",
            r#"{"records":[{"key":"a2V5","value":"S2Fma2E="}]}"#,
        ],
        target: "/topics/jsontest/partitions/0",
        has: &["\"partition\":0,\"offset\":1"],
    },
    Example {
        what: "v2: a topic",
        arguments: &[],
        target: "/topics/jsontest",
        has: &[
            "\"name\":\"jsontest\"",
            "\"configs\":{",
            "\"partitions\":[{\"partition\":0,\"leader\":",
        ],
    },
    Example { what: "v2: brokers", arguments: &[], target: "/brokers", has: &["{\"brokers\":["] },
    Example {
        what: "v3: clusters",
        arguments: &[],
        target: "/v3/clusters",
        has: &["\"kind\":\"KafkaClusterList\"", "\"cluster_id\":\"{CLUSTER}\""],
    },
    Example {
        what: "v3: a record",
        arguments: &[
            "-X",
            "POST",
            "-H",
            "Content-Type: application/json",
            "--data",
            r#"{"partition_id":0,"headers":[{"name":"Header-1","value":"SGVhZGVyLTE="}],"key":{"type":"BINARY","data":"Zm9vYmFy"},"value":{"type":"JSON","data":{"foo":"bar"}},"timestamp":"2021-02-05T19:14:42Z"}"#,
        ],
        target: "/v3/clusters/{CLUSTER}/topics/jsontest/records",
        has: &[
            "\"error_code\":200",
            "\"partition_id\":0,\"offset\":2",
            "\"timestamp\":\"2021-02-05T19:14:42Z\"",
            "\"key\":{\"type\":\"BINARY\",\"size\":6}",
        ],
    },
    Example {
        what: "v3: a stream of records",
        arguments: &[
            "-X",
            "POST",
            "-H",
            "Transfer-Encoding: chunked",
            "-H",
            "Content-Type: application/json",
            "--data",
            r#"{"value":{"type":"STRING","data":"one"}} {"value":{"type":"STRING","data":"two"}}"#,
        ],
        target: "/v3/clusters/{CLUSTER}/topics/jsontest/records",
        has: &["\"offset\":3", "\"offset\":4"],
    },
];

struct Example {
    what: &'static str,
    arguments: &'static [&'static str],
    target: &'static str,
    has: &'static [&'static str],
}

/// Runs all of them in their order; fails at the first that is answered otherwise.
pub fn run(address: &str) -> Result<()> {
    if !process::is_installed("curl") {
        println!("skipped: there is no curl");
        return Ok(());
    }
    let create = r#"{"topic_name":"jsontest"}"#;
    let created = curl(
        address,
        &["-H", "Content-Type: application/json", "--data", create],
        "/admin/topics",
    )?;
    ensure!(created.contains("HTTP 201"), "{created}");
    let clusters = curl(address, &[], "/v3/clusters")?;
    let body = clusters.rsplit_once("HTTP ").context("no status")?.0;
    let clusters: Value = serde_json::from_str(body)?;
    let cluster = clusters["data"][0]["cluster_id"].as_str().context("no cluster")?;
    for example in EXAMPLES {
        let known = |text: &str| text.replace("{CLUSTER}", cluster);
        let said = curl(address, example.arguments, &known(example.target))?;
        for part in example.has {
            ensure!(said.contains(&known(part)), "{}: no {part} in {said}", example.what);
        }
    }
    println!("ok  curl: {} examples of Confluent's documentation", EXAMPLES.len());
    Ok(())
}

/// The body of the answer, and behind it the status.
fn curl(address: &str, arguments: &[&str], target: &str) -> Result<String> {
    let mut command = process::command(Path::new("curl"));
    command.args([
        "--silent",
        "--show-error",
        "--max-time",
        "40",
        "--write-out",
        "HTTP %{http_code}",
    ]);
    command.args(arguments).arg(format!("http://{address}{target}"));
    let outcome = process::run(&mut command, None, LIMIT)?;
    ensure!(outcome.success(), "{target}: {}", outcome.story());
    Ok(outcome.text())
}
