//! Many streams of one gateway, to which little comes or nothing.

use std::io::{Read, Write};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use client::{Cluster, ClusterConfig, Producer, ProducerConfig, Record};
use perf::web::{Connection, EventParser, WebError};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use crate::Told;
use crate::cluster::raise_open_files;

/// How long the last subscriber may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two records.
const PAUSE: Duration = Duration::from_millis(300);

fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

fn request(gateway: &str, topic: &str) -> String {
    format!("GET /topics/{topic}/events HTTP/1.1\r\nhost: {gateway}\r\n\r\n")
}

/// Opens streams, says so by a line of its own, and holds them until the input ends.
pub fn idle(gateway: &str, topic: &str, subscribers: u32) -> Told<Value> {
    raise_open_files();
    let runtime = runtime()?;
    let open = runtime.block_on(async {
        let (request, mut open) = (request(gateway, topic), Vec::new());
        for _ in 0..subscribers {
            let mut connection = Connection::open(gateway).await?;
            first_id(&mut connection, &request).await?;
            open.push(connection);
        }
        Ok::<_, WebError>(open)
    })?;
    println!("{}", json!({ "open": open.len() }));
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(json!({ "subscribers": open.len() }))
}

/// Begins a stream and waits for its first id: from then on it has a place in every log.
async fn first_id(connection: &mut Connection, request: &str) -> Result<(), WebError> {
    let mut reading = connection.begin(request.as_bytes()).await?;
    let (mut parser, mut body) = (EventParser::default(), Vec::new());
    while parser.id().is_empty() {
        body.clear();
        if !reading.piece(|piece| body.extend(piece)).await? {
            return Err(WebError::Closed);
        }
        parser.take(&body, |_| {})?;
    }
    Ok(())
}

/// When the subscribers had a record.
struct Arrivals {
    missing: u32,
    last: Instant,
}

/// Sends single records; how long after its sending the last subscriber has each.
pub fn fan_out(
    (bootstrap, gateway): (&str, &str),
    topic: &str,
    subscribers: u32,
    records: u32,
) -> Told<Value> {
    raise_open_files();
    runtime()?.block_on(async {
        let arrivals = Arc::new(Mutex::new(Arrivals { missing: 0, last: Instant::now() }));
        let (all_have, mut told) = watch::channel(0u32);
        let (ready, mut opened) = mpsc::unbounded_channel();
        let (all_have, request) = (Arc::new(all_have), Arc::new(request(gateway, topic)));
        for number in 0..subscribers {
            let (gateway, request) = (gateway.to_owned(), request.clone());
            let (arrivals, all_have, ready) = (arrivals.clone(), all_have.clone(), ready.clone());
            tokio::spawn(async move {
                if let Err(error) = follow(&gateway, &request, &arrivals, &all_have, ready).await {
                    eprintln!("subscriber {number}: {error}");
                }
            });
            // A gateway's queue of those that come is not what is measured.
            if opened.recv().await.is_none() {
                return Err("a subscriber has no stream".into());
            }
        }
        let cluster = Cluster::connect(ClusterConfig::new(bootstrap)).await?;
        let config = ProducerConfig { linger: Duration::ZERO, ..ProducerConfig::default() };
        let producer = Producer::new(cluster, config).await?;
        let producer = producer.topic(topic).await?;
        let mut took_ms = Vec::new();
        for number in 0..=records {
            let began = Instant::now();
            *arrivals.lock().expect("no code under it panics") =
                Arrivals { missing: subscribers, last: began };
            let value = Some(&b"one record for everybody"[..]);
            producer.send(&Record { value, ..Record::default() }).await?.wait().await?;
            let all = told.wait_for(|seen| *seen > number);
            tokio::time::timeout(PATIENCE, all).await.map_err(|_| "a subscriber got nothing")??;
            let last = arrivals.lock().expect("no code under it panics").last;
            // The first one meets cold sockets.
            if number > 0 {
                took_ms.push(last.duration_since(began).as_secs_f64() * 1e3);
            }
            tokio::time::sleep(PAUSE).await;
        }
        took_ms.sort_by(f64::total_cmp);
        let median = took_ms[took_ms.len() / 2];
        Ok(json!({ "last_ms": median, "last_max_ms": took_ms.last() }))
    })
}

async fn follow(
    gateway: &str,
    request: &str,
    arrivals: &Mutex<Arrivals>,
    all_have: &watch::Sender<u32>,
    ready: mpsc::UnboundedSender<()>,
) -> Result<(), WebError> {
    let mut connection = Connection::open(gateway).await?;
    let mut reading = connection.begin(request.as_bytes()).await?;
    let (mut parser, mut body, mut ready) = (EventParser::default(), Vec::new(), Some(ready));
    loop {
        body.clear();
        if !reading.piece(|piece| body.extend(piece)).await? {
            return Err(WebError::Closed);
        }
        let mut events = 0;
        parser.take(&body, |_| events += 1)?;
        if !parser.id().is_empty()
            && let Some(ready) = ready.take()
        {
            // Whoever waits for it has gone only if all is over.
            let _ = ready.send(());
        }
        for _ in 0..events {
            let mut arrivals = arrivals.lock().expect("no code under it panics");
            arrivals.missing -= 1;
            arrivals.last = Instant::now();
            if arrivals.missing == 0 {
                all_have.send_modify(|records| *records += 1);
            }
        }
    }
}
