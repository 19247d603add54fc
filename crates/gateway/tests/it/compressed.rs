//! Bodies that are compressed by gzip: expanded within the limits of a body.

use compression::compress;
use gateway::Settings;
use model::Compression;

use crate::fixture::World;

const JSON: &str = "application/vnd.kafka.json.v2+json";

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    compress(Compression::Gzip, None, plain, &mut out);
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn records_in_a_compressed_body_are_those_of_the_plain_one() {
    let world = World::start().await;
    world.create("t", 1, &[]).await;
    let v3 = crate::version3::path(&world, "t").await;
    let mut connection = world.connect().await;
    let v2 = br#"{"records":[{"value":"one"},{"value":"two"}]}"#;
    let whole = br#"{"value":{"type":"STRING","data":"three"}}"#;
    for (path, kind, body) in [
        ("/topics/t", JSON, &v2[..]),
        (&v3, "application/json", whole),
        ("/topics/t/raw", "text/plain", b"four"),
    ] {
        for coding in ["gzip", "X-GZIP"] {
            let headers = [("content-encoding", coding), ("content-type", kind)];
            let answer = connection.ask("POST", path, &headers, &gzip(body)).await;
            assert_eq!(answer.status, 200, "{path}: {answer:?}");
        }
    }
    let values: Vec<_> =
        world.read("t").await.into_iter().filter_map(|record| record.value).collect();
    let texts: Vec<_> = values.iter().map(|value| String::from_utf8_lossy(value)).collect();
    let once = ["\"one\"", "\"two\"", "\"one\"", "\"two\"", "three", "three", "four", "four"];
    assert_eq!(texts, once);
    // The key is of the request as it was sent.
    let keyed =
        [("content-encoding", "gzip"), ("content-type", "text/plain"), ("idempotency-key", "k")];
    for replayed in [None, Some("true")] {
        let answer = connection.ask("POST", "/topics/t/raw", &keyed, &gzip(b"five")).await;
        assert_eq!(
            (answer.status, answer.header("idempotency-replayed")),
            (200, replayed),
            "{answer:?}"
        );
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bomb_is_refused_and_its_memory_is_free_again() {
    let world = World::start_with(|settings| Settings {
        memory_bytes: 8 << 20,
        request_bytes_max: 1 << 20,
        ..settings
    })
    .await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let headers = [("content-encoding", "gzip"), ("content-type", "text/plain")];
    let bomb = gzip(&vec![0; 64 << 20]);
    assert!(bomb.len() < 128 << 10, "{} bytes", bomb.len());
    for _ in 0..20 {
        let answer = connection.ask("POST", "/topics/t/raw", &headers, &bomb).await;
        assert_eq!(answer.status, 413, "{answer:?}");
        assert!(answer.body.contains("expands to more than 1048576 bytes"), "{answer:?}");
    }
    for broken in [&b""[..], b"plain", &gzip(b"cut")[..12]] {
        let answer = connection.ask("POST", "/topics/t/raw", &headers, broken).await;
        assert_eq!(answer.status, 400, "{answer:?}");
    }
    assert_eq!(world.body_bytes().await, 0);
    assert_eq!(world.ends("t").await, [0]);
    // As large as a body may be.
    let fits = gzip(&vec![b'v'; 900 << 10]);
    assert_eq!(connection.ask("POST", "/topics/t/raw", &headers, &fits).await.status, 200);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_compressed_body_takes_little_memory() {
    // The memory of bodies has room for one body of the greatest size, and for nothing beside it.
    let world = World::start_with(|settings| Settings {
        memory_bytes: 2 << 20,
        request_bytes_max: 1 << 20,
        ..settings
    })
    .await;
    world.create("t", 1, &[]).await;
    let headers = [("content-encoding", "gzip"), ("content-type", "text/plain")];
    let answer =
        world.connect().await.ask("POST", "/topics/t/raw", &headers, &gzip(b"small")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    world.stop().await;
}
