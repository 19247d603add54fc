//! What strangers do. Each attack is one connection at a time, made again when the broker closes it,
//! and a step of it costs little processor time: what it makes the broker do is the attack.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use model::{ProducerEpoch, ProducerId, Sequence};
use wire::describe_configs::DescribeConfigsResource;
use wire::join_group::JoinGroupRequestProtocol;
use wire::metadata::MetadataRequestTopic;
use wire::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};

use super::client::{builder, fetch_from, frame_of, produce};
use super::pace::Pace;
use super::server::Server;

/// An attack: runs until told to stop.
pub type Attack = Box<dyn FnOnce(&AtomicBool, &mut Pace) + Send>;

/// Twenty of them.
pub fn all(server: &Server) -> Vec<Attack> {
    let (broker, http) = (server.address, server.http);
    let of =
        |count: usize, make: &dyn Fn() -> Attack| (0..count).map(|_| make()).collect::<Vec<_>>();
    [
        of(4, &|| Box::new(move |stop, pace| drip(broker, stop, pace))),
        of(3, &|| Box::new(move |stop, pace| pipeline(broker, &decoded_monsters(), stop, pace))),
        of(1, &|| Box::new(move |stop, pace| pipeline(broker, &[many_partitions()], stop, pace))),
        of(2, &|| Box::new(move |stop, pace| pipeline(broker, &repeated_names(), stop, pace))),
        of(2, &|| Box::new(move |stop, pace| invent_producers(broker, stop, pace))),
        of(2, &|| Box::new(move |stop, pace| invent_groups(broker, stop, pace))),
        of(3, &|| Box::new(move |stop, pace| storm(broker, stop, pace))),
        of(2, &|| Box::new(move |stop, pace| drip_http(http, stop, pace))),
        of(1, &|| Box::new(move |stop, pace| scrape(http, stop, pace))),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// A connection that never waits long.
fn connect(address: SocketAddr) -> Option<TcpStream> {
    let stream = TcpStream::connect(address).ok()?;
    stream.set_nonblocking(true).ok()?;
    Some(stream)
}

/// Writes what the socket takes; `None` when the broker has closed it.
fn write(stream: &mut TcpStream, bytes: &[u8]) -> Option<usize> {
    match stream.write(bytes) {
        Ok(count) => Some(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        Err(_) => None,
    }
}

/// Throws away what has come; `None` when the broker has closed the connection.
fn drain(stream: &mut TcpStream) -> Option<usize> {
    let mut buffer = [0; 64 * 1024];
    match stream.read(&mut buffer) {
        Ok(0) => None,
        Ok(count) => Some(count),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Some(0),
        Err(_) => None,
    }
}

/// Announces 100 MiB and sends them as slowly as it likes.
fn drip(address: SocketAddr, stop: &AtomicBool, pace: &mut Pace) {
    let part = vec![0; 32 * 1024];
    while !stop.load(Ordering::Relaxed) {
        let Some(mut stream) = connect(address) else { continue };
        let mut alive = write(&mut stream, &(100i32 << 20).to_be_bytes());
        while alive.is_some() && !stop.load(Ordering::Relaxed) {
            alive = write(&mut stream, &part);
            pace.step();
        }
    }
}

/// Sends the frames one behind the other, again and again, and reads what comes back.
fn pipeline(address: SocketAddr, frames: &[Vec<u8>], stop: &AtomicBool, pace: &mut Pace) {
    let bytes = frames.concat();
    while !stop.load(Ordering::Relaxed) {
        let Some(mut stream) = connect(address) else { continue };
        let mut at = 0;
        while !stop.load(Ordering::Relaxed) {
            let Some(written) = write(&mut stream, &bytes[at..]) else { break };
            at = (at + written) % bytes.len();
            let Some(read) = drain(&mut stream) else { break };
            if written + read == 0 {
                std::thread::sleep(Duration::from_millis(5));
            }
            pace.step();
        }
    }
}

/// A long poll, and behind it requests that take many times their size when they are decoded.
fn decoded_monsters() -> Vec<Vec<u8>> {
    let mut frames = vec![frame_of(&fetch_from("strangers", 1 << 40, 60_000), 12)];
    frames.extend([frame_of(&fetch_from("strangers", 0, 60_000), 12)]);
    let topic = |n: usize| MetadataRequestTopic {
        name: Some(format!("{:02x}", n % 256)),
        ..Default::default()
    };
    let request = wire::MetadataRequest {
        topics: Some((0..600_000).map(topic).collect()),
        ..Default::default()
    };
    frames.extend(std::iter::repeat_n(frame_of(&request, 4), 3));
    frames
}

/// A fetch session over 600,000 partitions that there are not.
fn many_partitions() -> Vec<u8> {
    let mut request = fetch_from("nowhere", 0, 0);
    (request.session_epoch, request.session_id) = (0, 0);
    let partition = request.topics[0].partitions[0].clone();
    request.topics[0].partitions = (0..600_000)
        .map(|index| {
            let mut partition = partition.clone();
            partition.partition = index;
            partition
        })
        .collect();
    frame_of(&request, 7)
}

/// One name a hundred thousand times: each time it might be answered.
fn repeated_names() -> Vec<Vec<u8>> {
    let topic = MetadataRequestTopic { name: Some("strangers".to_owned()), ..Default::default() };
    let metadata =
        wire::MetadataRequest { topics: Some(vec![topic; 100_000]), ..Default::default() };
    let resource = DescribeConfigsResource {
        resource_type: 2,
        resource_name: "strangers".to_owned(),
        ..Default::default()
    };
    let configs =
        wire::DescribeConfigsRequest { resources: vec![resource; 30_000], ..Default::default() };
    vec![frame_of(&metadata, 4), frame_of(&configs, 1)]
}

/// Each batch is of a producer that there has never been.
fn invent_producers(address: SocketAddr, stop: &AtomicBool, pace: &mut Pace) {
    let mut number = u64::from(std::process::id()) << 20;
    while !stop.load(Ordering::Relaxed) {
        let Some(mut stream) = connect(address) else { continue };
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            let batch = builder(1, 10)
                .producer(ProducerId(number as i64), ProducerEpoch(0), Sequence(0))
                .finish();
            let frame = frame_of(&produce("strangers", batch), 9);
            if write(&mut stream, &frame) != Some(frame.len()) || drain(&mut stream).is_none() {
                break;
            }
            pace.step();
        }
    }
}

/// Groups that nobody is in: offsets of theirs, and members with much to say.
fn invent_groups(address: SocketAddr, stop: &AtomicBool, pace: &mut Pace) {
    let mut number = 0;
    while !stop.load(Ordering::Relaxed) {
        let Some(mut stream) = connect(address) else { continue };
        while !stop.load(Ordering::Relaxed) {
            number += 1;
            let partition =
                OffsetCommitRequestPartition { committed_offset: 1, ..Default::default() };
            let commit = wire::OffsetCommitRequest {
                group_id: format!("invented-{number}"),
                generation_id_or_member_epoch: -1,
                topics: vec![OffsetCommitRequestTopic {
                    name: "strangers".to_owned(),
                    partitions: vec![partition],
                    ..Default::default()
                }],
                ..Default::default()
            };
            let join = wire::JoinGroupRequest {
                group_id: format!("talkers-{number}"),
                session_timeout_ms: 6_000,
                rebalance_timeout_ms: 60_000,
                protocol_type: "consumer".to_owned(),
                protocols: vec![JoinGroupRequestProtocol {
                    name: "range".to_owned(),
                    metadata: vec![0; 200_000].into(),
                }],
                ..Default::default()
            };
            let frame = [frame_of(&commit, 7), frame_of(&join, 3)].concat();
            if write(&mut stream, &frame) != Some(frame.len()) || drain(&mut stream).is_none() {
                break;
            }
            pace.step();
        }
    }
}

/// Connections made and closed, most of them with half a request.
fn storm(address: SocketAddr, stop: &AtomicBool, pace: &mut Pace) {
    while !stop.load(Ordering::Relaxed) {
        let mut crowd: Vec<_> = (0..20).filter_map(|_| connect(address)).collect();
        for stream in &mut crowd {
            let _ = write(stream, &[0, 0, 1, 0, 0, 3]);
        }
        pace.step();
    }
}

/// Headers that never end.
fn drip_http(address: SocketAddr, stop: &AtomicBool, pace: &mut Pace) {
    while !stop.load(Ordering::Relaxed) {
        let mut crowd: Vec<_> = (0..50).filter_map(|_| connect(address)).collect();
        for stream in &mut crowd {
            let _ = write(stream, b"GET /metrics HTTP/1.1\r\n");
        }
        while !crowd.is_empty() && !stop.load(Ordering::Relaxed) {
            crowd.retain_mut(|stream| write(stream, b"a: b\r\n").is_some());
            pace.step();
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Metrics, as often as they are to be had.
fn scrape(address: SocketAddr, stop: &AtomicBool, pace: &mut Pace) {
    let request = b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n".repeat(20);
    pipeline(address, &[request], stop, pace);
}
