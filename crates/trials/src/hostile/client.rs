//! The hostile client: a task for each attack, all within one share of a core.

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::pace::Pace;
use super::{kafka, web};
use crate::requests::runtime;

/// The client's own address: shares of honest clients are those of another one.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
/// Time for a connection, for a request that a server does not read, and for an answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Pause of an attack behind a refusal.
const REFUSED: Duration = Duration::from_millis(10);

/// Addresses of the attacked servers, or of a port that refuses.
#[derive(clap::Args)]
pub struct Targets {
    #[arg(long)]
    broker: SocketAddr,
    #[arg(long)]
    gateway: SocketAddr,
    #[arg(long)]
    proxy: SocketAddr,
    /// Length of the attack
    #[arg(long)]
    seconds: f64,
    /// Part of the names of the attacks that run
    #[arg(long)]
    only: String,
}

/// One way to take a server's memory or places.
#[derive(Clone, Copy)]
pub(super) struct Attack {
    pub(super) name: &'static str,
    /// The bytes of one connection's requests. The number differs for each connection of the attack.
    pub(super) requests: fn(u64) -> Result<Vec<u8>>,
    pub(super) end: End,
}

/// The end of a connection of an attack.
#[derive(Clone, Copy)]
pub(super) enum End {
    /// The client reads the first bytes of the answer, and closes.
    Answered,
    /// The client reads nothing, and closes when it holds so many newer connections.
    Held(usize),
}

/// Names of all attacks.
pub(super) fn attack_names() -> impl Iterator<Item = &'static str> {
    kafka::ATTACKS.into_iter().chain(web::ATTACKS).map(|attack| attack.name)
}

/// Attacks until the time is over, then prints how often each attack ran.
pub fn serve(targets: &Targets) -> Result<()> {
    raise_descriptor_limit()?;
    let until = Instant::now() + Duration::from_secs_f64(targets.seconds);
    let pace = Pace::begin();
    runtime()?.block_on(async {
        let mut attacks = JoinSet::new();
        let chosen = |attack: &Attack| attack.name.contains(&targets.only);
        for attack in kafka::ATTACKS.into_iter().filter(chosen) {
            attacks.spawn(repeat("broker", targets.broker, attack, pace, until));
            attacks.spawn(repeat("proxy", targets.proxy, attack, pace, until));
        }
        for attack in web::ATTACKS.into_iter().filter(chosen) {
            attacks.spawn(repeat("gateway", targets.gateway, attack, pace, until));
        }
        while let Some(line) = attacks.join_next().await {
            println!("{}", line.context("an attack panicked")??);
        }
        Ok(())
    })
}

/// Runs one attack again and again. The line of the report.
async fn repeat(
    server: &str,
    address: SocketAddr,
    attack: Attack,
    pace: Pace,
    until: Instant,
) -> Result<String> {
    let (mut served, mut refused, mut held) = (0_u64, 0_u64, VecDeque::new());
    while Instant::now() < until {
        pace.wait().await;
        let requests = (attack.requests)(served + refused)?;
        match strike(address, &requests, attack.end).await {
            Ok(connection) => {
                served += 1;
                held.push_back(connection);
            }
            Err(_) => {
                refused += 1;
                sleep(REFUSED).await;
            }
        }
        let kept = match attack.end {
            End::Answered => 0,
            End::Held(count) => count,
        };
        while held.len() > kept {
            held.pop_front();
        }
    }
    Ok(format!("hostile: {server}: {}: {served} times, {refused} refused", attack.name))
}

/// One connection of an attack.
async fn strike(address: SocketAddr, requests: &[u8], end: End) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from((SOURCE, 0)))?;
    let mut connection = timeout(ANSWER_LIMIT, socket.connect(address)).await??;
    timeout(ANSWER_LIMIT, connection.write_all(requests)).await??;
    if let End::Answered = end {
        let read = timeout(ANSWER_LIMIT, connection.read(&mut [0; 4096])).await??;
        ensure!(read > 0, "the server closed the connection");
    }
    Ok(connection)
}

fn raise_descriptor_limit() -> Result<()> {
    let limit = getrlimit(Resource::Nofile);
    Ok(setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })?)
}
