//! Bytes that a proxy keeps for connections are at most the bytes that it charges. A process of its own: the allocator's
//! count is of all threads. Clients and broker allocate nothing for a connection but a thread's own few bytes.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use proxy::{Proxy, ProxyConfig};

/// An API that no code knows: its body is the size of its answer. With a negative size it has no answer.
const SIZED: i16 = 99;
const METADATA: i16 = 3;
const API_VERSIONS: i16 = 18;
const PRODUCE: i16 = 0;
/// Connections of each kind.
const COUNT: usize = 24;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A request: the front, and `size_bytes` behind it, of which `sent_bytes` are sent.
fn send(client: &mut TcpStream, api: i16, version: i16, size_bytes: usize, sent: &[u8]) {
    let mut front = [0; 12];
    front[..4].copy_from_slice(&(8 + size_bytes as i32).to_be_bytes());
    front[4..6].copy_from_slice(&api.to_be_bytes());
    front[6..8].copy_from_slice(&version.to_be_bytes());
    front[8..].copy_from_slice(&7i32.to_be_bytes());
    client.write_all(&front).unwrap();
    client.write_all(sent).unwrap();
}

fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    loop {
        let (mut front, mut body) = ([0; 12], [0; 64]);
        stream.read_exact(&mut front)?;
        let body_bytes = i32::from_be_bytes(front[..4].try_into().unwrap()) as usize - 8;
        stream.read_exact(&mut body[..body_bytes])?;
        let size = match i16::from_be_bytes([front[4], front[5]]) {
            // Neither brokers nor topics.
            METADATA => 8,
            _ => i32::from_be_bytes(body[..4].try_into().unwrap()),
        };
        let Ok(mut left) = usize::try_from(size) else { continue };
        let mut head = [0; 8];
        head[..4].copy_from_slice(&(4 + size).to_be_bytes());
        head[4..].copy_from_slice(&front[8..]);
        stream.write_all(&head)?;
        while left > 0 {
            left -= stream.write(&ZEROS[..left.min(ZEROS.len())])?;
        }
    }
}

/// A way to have the proxy keep memory for a connection.
type Attack = fn(&mut TcpStream);

const ATTACKS: [(&str, Attack); 7] = [
    ("idle behind one answer", |client| {
        send(client, SIZED, 0, 4, &10i32.to_be_bytes());
        client.read_exact(&mut [0; 18]).unwrap();
    }),
    ("idle behind a large answer", |client| {
        send(client, SIZED, 0, 4, &3_000_000i32.to_be_bytes());
        for _ in 0..30 {
            client.read_exact(&mut [0; 100_000]).unwrap();
        }
        client.read_exact(&mut [0; 8]).unwrap();
    }),
    ("large unread answers", |client| {
        (0..8).for_each(|_| send(client, SIZED, 0, 4, &2_000_000i32.to_be_bytes()));
    }),
    ("small unread answers", |client| {
        // The sockets between take some megabytes, and the proxy the rest.
        client.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        (0..7000).for_each(|_| send(client, SIZED, 0, 4, &900i32.to_be_bytes()));
        (0..900).for_each(|_| send(client, METADATA, 0, 4, &[0; 4]));
    }),
    ("requests that are not answered", |client| {
        (0..8000).for_each(|_| send(client, SIZED, 0, 4, &(-1i32).to_be_bytes()));
    }),
    ("half a question for versions", |client| {
        send(client, API_VERSIONS, 99, 65_000, &ZEROS[..64_000]);
    }),
    ("half the front of a produce request", |client| {
        let mut id = [0; 30_002];
        id[..2].copy_from_slice(&32_000i16.to_be_bytes());
        send(client, PRODUCE, 9, 40_000, &id);
    }),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_keeps_more_than_it_is_charged_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let broker = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        for stream in listener.incoming() {
            thread::spawn(move || serve(stream.unwrap()));
        }
    });
    for (name, attack) in ATTACKS {
        let proxy = Proxy::start(ProxyConfig::new(&broker)).await.unwrap();
        let memory = proxy.memory();
        // The runtime's and the listener's own.
        drop(run(&proxy, attack, 1).await);
        while memory.used_bytes() > 0 {
            tokio::task::yield_now().await;
        }
        let before = heap::allocated_bytes();
        let clients = run(&proxy, attack, COUNT).await;
        let (mut last, mut same) = (0, 0);
        while same < 20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let used = memory.used_bytes();
            same = if used == last { same + 1 } else { 0 };
            last = used;
        }
        let kept = heap::allocated_bytes().saturating_sub(before);
        println!(
            "{name}: {} bytes kept, {} charged, for each connection",
            kept / COUNT,
            last / COUNT
        );
        assert!(kept <= last, "{name}: {kept} bytes are kept, and {last} charged");
        drop(clients);
        proxy.stop().await;
    }
}

/// Clients that attack, each on a thread of its own; they stay connected.
async fn run(proxy: &Proxy, attack: Attack, count: usize) -> Vec<TcpStream> {
    let bootstrap = proxy.bootstrap().to_owned();
    let attacking = move || {
        let attackers: Vec<_> = (0..count)
            .map(|_| {
                let mut client = TcpStream::connect(&bootstrap).unwrap();
                client.set_nodelay(true).unwrap();
                thread::spawn(move || {
                    attack(&mut client);
                    client
                })
            })
            .collect();
        attackers.into_iter().map(|attacker| attacker.join().unwrap()).collect()
    };
    tokio::task::spawn_blocking(attacking).await.unwrap()
}
