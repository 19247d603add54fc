//! Many consumer instances, each with a client of its own on a connection of its own: made, each given partitions, each reads
//! once; held until the input ends, and deleted.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use client::{Cluster, ClusterConfig, Producer, ProducerConfig, Record};
use perf::web::{Answer, Connection};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Told;
use crate::cluster::raise_open_files;

/// How long all of them may take, for each of the steps.
const PATIENCE: Duration = Duration::from_secs(150);
/// How long a read waits for records, in milliseconds: less than the longest that a request may say.
const READ_MS: u32 = 20_000;
/// Before what was refused for now is asked again.
const PAUSE: Duration = Duration::from_millis(250);
const V2: &str = "content-type: application/vnd.kafka.v2+json\r\n";

/// How many instances there are, and of what.
pub struct Wanted<'a> {
    pub bootstrap: &'a str,
    pub gateway: &'a str,
    pub topic: &'a str,
    pub partitions: i32,
    pub groups: u32,
    /// Instances of a group.
    pub each: u32,
    /// Whether groups share the partitions out; otherwise each instance is assigned one.
    pub subscribes: bool,
}

/// One instance's client.
struct Client {
    connection: Connection,
    host: String,
    group: String,
    name: String,
    /// Requests that were refused for now, and sent again.
    refused: u32,
}

impl Client {
    async fn ask(&mut self, method: &str, path: &str, body: &str) -> Told<Answer> {
        let (host, length) = (&self.host, body.len());
        let type_of_body = if body.is_empty() { "" } else { V2 };
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\n{type_of_body}content-length: {length}\r\n\r\n{body}"
        );
        Ok(self.connection.ask(request.as_bytes()).await?)
    }

    /// Asks until it is answered; what is refused for now is asked again.
    async fn have(&mut self, method: &str, path: &str, body: &str) -> Told<Vec<u8>> {
        loop {
            let answer = self.ask(method, path, body).await?;
            match answer.head.status {
                200 | 204 => return Ok(answer.body),
                429 | 503 => {
                    self.refused += 1;
                    sleep(PAUSE).await;
                }
                status => {
                    let said = String::from_utf8_lossy(&answer.body);
                    return Err(format!("{method} {path}: {status} {said}").into());
                }
            }
        }
    }

    fn path(&self) -> String {
        format!("/consumers/{}/instances/{}", self.group, self.name)
    }

    /// Makes the instance. What it reads is never committed, so that each owner of a partition finds records there.
    async fn make(&mut self) -> Told<()> {
        let body = format!(
            r#"{{"name":"{}","auto.offset.reset":"earliest","auto.commit.enable":"false"}}"#,
            self.name
        );
        let path = format!("/consumers/{}", self.group);
        self.have("POST", &path, &body).await.map(|_| ())
    }

    /// Reads until there is a record.
    async fn read(&mut self) -> Told<()> {
        let path = format!("{}/records?timeout={READ_MS}", self.path());
        while self.have("GET", &path, "").await? == b"[]" {}
        Ok(())
    }
}

/// Does one step with all of them at once.
async fn all<F>(clients: Vec<Client>, step: impl Fn(Client, u32) -> F) -> Told<Vec<Client>>
where
    F: Future<Output = Result<Client, String>> + Send + 'static,
{
    let count = clients.len();
    let mut under_way: JoinSet<_> =
        clients.into_iter().zip(0..).map(|(client, number)| step(client, number)).collect();
    let mut done = Vec::with_capacity(count);
    let ended = async {
        while let Some(one) = under_way.join_next().await {
            done.push(one.map_err(|error| error.to_string())??);
        }
        Ok::<_, String>(())
    };
    match timeout(PATIENCE, ended).await {
        Ok(ended) => ended?,
        Err(_) => return Err(format!("{} of {count} were done in {PATIENCE:?}", done.len()).into()),
    }
    Ok(done)
}

/// Makes them, has each read, says so by a line with the times, waits until the input ends, and deletes them.
pub fn instances(wanted: &Wanted<'_>) -> Told<Value> {
    raise_open_files();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(fill(wanted))?;
    let (clients, times) = runtime.block_on(open(wanted))?;
    println!("{times}");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    let began = Instant::now();
    let delete = |mut client: Client, _| async move {
        let path = client.path();
        client.have("DELETE", &path, "").await.map_err(|error| error.to_string())?;
        Ok(client)
    };
    let deleted = runtime.block_on(all(clients, delete))?.len();
    Ok(json!({ "deleted": deleted, "deleted_s": began.elapsed().as_secs_f64() }))
}

/// A record into each partition.
async fn fill(wanted: &Wanted<'_>) -> Told<()> {
    let cluster = Cluster::connect(ClusterConfig::new(wanted.bootstrap)).await?;
    let producer = Producer::new(cluster, ProducerConfig::default()).await?;
    let producer = producer.topic(wanted.topic).await?;
    for partition in 0..wanted.partitions {
        let value = Some(&b"one record for each partition"[..]);
        let record = Record { value, partition: Some(partition), ..Record::default() };
        producer.send(&record).await?.wait().await?;
    }
    Ok(())
}

async fn open(wanted: &Wanted<'_>) -> Told<(Vec<Client>, Value)> {
    let mut clients = Vec::new();
    for number in 0..wanted.groups * wanted.each {
        clients.push(Client {
            connection: Connection::open(wanted.gateway).await?,
            host: wanted.gateway.to_owned(),
            group: format!("{}-{}", wanted.topic, number / wanted.each),
            name: format!("i-{number}"),
            refused: 0,
        });
    }
    let began = Instant::now();
    let make = |mut client: Client, _| async move {
        client.make().await.map_err(|error| error.to_string())?;
        Ok(client)
    };
    let clients = all(clients, make).await?;
    let made_s = began.elapsed().as_secs_f64();
    let (topic, partitions) = (wanted.topic.to_owned(), wanted.partitions.unsigned_abs());
    let subscribes = wanted.subscribes;
    let place = |mut client: Client, number: u32| {
        let (what, body) = match subscribes {
            true => ("subscription", format!(r#"{{"topics":["{topic}"]}}"#)),
            false => {
                let partition = number % partitions;
                let one = format!(r#"{{"topic":"{topic}","partition":{partition}}}"#);
                ("assignments", format!(r#"{{"partitions":[{one}]}}"#))
            }
        };
        async move {
            let path = format!("{}/{what}", client.path());
            client.have("POST", &path, &body).await.map_err(|error| error.to_string())?;
            Ok(client)
        }
    };
    let clients = all(clients, place).await?;
    let placed_s = began.elapsed().as_secs_f64();
    let read = |mut client: Client, _| async move {
        client.read().await.map_err(|error| error.to_string())?;
        Ok(client)
    };
    let clients = all(clients, read).await?;
    let refused: u32 = clients.iter().map(|client| client.refused).sum();
    let times = json!({
        "made_s": made_s,
        "placed_s": placed_s - made_s,
        "read_s": began.elapsed().as_secs_f64() - placed_s,
        "all_s": began.elapsed().as_secs_f64(),
        "refused": refused,
    });
    Ok((clients, times))
}
