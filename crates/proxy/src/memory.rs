//! Memory and places of connections (decision 0069): charged as buffers grow, waited for when there is none, and taken
//! back from the slowest connection while other connections wait.

use crate::refusals::Refusals;
use pools::{ClientNetwork, Lease, LeasePool};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Bytes that a connection takes beside its buffers: its task, its sockets' registrations, and the answers to come.
pub const CONNECTION_BYTES: usize = 16 * 1024;
/// Buffers are charged in steps of this many bytes.
const STEP_BYTES: usize = 8 * 1024;
/// Bytes that count as progress of a connection whose frame or answer is incomplete.
const PROGRESS_BYTES: usize = 64 * 1024;
/// A connection without progress for this long gives its memory to clients of other addresses that use less.
const PATIENCE: Duration = Duration::from_secs(1);
/// The same for clients of its own address.
const OWN_PATIENCE: Duration = Duration::from_secs(10);
/// Memory of one connection, in bytes, that the proxy does not take back for clients of the same address while a broker waits.
const SMALL_BYTES: usize = CONNECTION_BYTES + 64 * 1024;
/// How often a connection that waits for memory tries again.
pub const RETRY: Duration = Duration::from_millis(100);

/// What all connections of a proxy may use.
#[derive(Debug)]
pub struct Pools {
    places: Arc<LeasePool<ClientNetwork>>,
    memory: Arc<LeasePool<ClientNetwork>>,
    evictions: Refusals,
}

impl Pools {
    /// `connections_max` connections with `bytes_max` bytes together.
    pub fn new(connections_max: usize, bytes_max: usize) -> Pools {
        Pools {
            places: Arc::new(LeasePool::new(connections_max)),
            memory: Arc::new(LeasePool::new(bytes_max)),
            evictions: Refusals::new(
                "a connection was closed so that clients of other addresses, or faster ones, are served: places or \
                 memory are short (--connections-max, --memory-max)",
            ),
        }
    }

    /// Bytes of all buffers.
    pub fn memory(&self) -> &Arc<LeasePool<ClientNetwork>> {
        &self.memory
    }

    /// Room for one connection of this client. `None`: as many connections as there may be are open, or they use all
    /// memory, and no other address has more of them than this one.
    pub fn admit(&self, address: IpAddr) -> Option<ConnectionMemory> {
        let (network, now) = (ClientNetwork::of(address), Instant::now());
        Some(ConnectionMemory {
            place: self.places.admit(network, 1, now)?,
            memory: self.memory.admit(network, CONNECTION_BYTES, now)?,
            held: Default::default(),
        })
    }

    /// Reports that a connection was closed for others.
    pub fn report_eviction(&self, peer: SocketAddr) {
        self.evictions.say(peer);
    }
}

/// Place and memory of one connection.
#[derive(Debug)]
pub struct ConnectionMemory {
    place: Lease<ClientNetwork>,
    memory: Lease<ClientNetwork>,
    /// Bytes of each direction.
    held: [AtomicUsize; 2],
}

impl ConnectionMemory {
    /// The part for requests, and the part for answers.
    pub fn parts(&self) -> [PumpMemory<'_>; 2] {
        [0, 1].map(|at| PumpMemory { connection: self, at, moved_bytes: 0 })
    }

    /// Waits until the connection must end so that others are served.
    pub async fn revoked(&self) {
        tokio::select! {
            () = self.place.revoked() => {}
            () = self.memory.revoked() => {}
        }
    }

    fn units(&self) -> usize {
        CONNECTION_BYTES + self.held.iter().map(|held| held.load(Ordering::Relaxed)).sum::<usize>()
    }
}

/// Memory of one direction of a connection.
#[derive(Debug)]
pub struct PumpMemory<'a> {
    connection: &'a ConnectionMemory,
    at: usize,
    moved_bytes: usize,
}

impl PumpMemory<'_> {
    fn held(&self) -> &AtomicUsize {
        &self.connection.held[self.at]
    }

    /// Charges `bytes` for this direction if there is room for them.
    pub fn try_hold(&self, bytes: usize, now: Instant) -> bool {
        let bytes = bytes.next_multiple_of(STEP_BYTES);
        let before = self.held().load(Ordering::Relaxed);
        if bytes == before {
            return true;
        }
        let all = self.connection.units() - before + bytes;
        let is_held = self.connection.memory.try_set(all, now);
        if is_held {
            self.held().store(bytes, Ordering::Relaxed);
        }
        is_held
    }

    /// Charges `bytes` for this direction, whether there is room or not.
    pub fn hold(&self, bytes: usize) {
        let bytes = bytes.next_multiple_of(STEP_BYTES);
        if self.held().swap(bytes, Ordering::Relaxed) != bytes {
            self.connection.memory.set(self.connection.units());
        }
    }

    /// Ends slower connections so that this one may hold `bytes`.
    pub fn reclaim(&self, bytes: usize, now: Instant) {
        let more = bytes.saturating_sub(self.held().load(Ordering::Relaxed));
        self.connection.memory.reclaim(more, now, PATIENCE, OWN_PATIENCE);
    }

    /// Ends connections of the same address that hold large buffers and have no progress, so that this one may hold `bytes`. A
    /// broker that cannot send an answer holds memory for it, which clients of all addresses wait for.
    pub fn reclaim_own(&self, bytes: usize, now: Instant) {
        let more = bytes.saturating_sub(self.held().load(Ordering::Relaxed));
        self.connection.memory.reclaim_own(more, now, PATIENCE, SMALL_BYTES);
    }

    /// Notes that bytes moved on. `is_whole`: nothing incomplete is left in this direction.
    pub fn was_moved(&mut self, bytes: usize, is_whole: bool, now: Instant) {
        self.moved_bytes += bytes;
        if is_whole || self.moved_bytes >= PROGRESS_BYTES {
            self.moved_bytes = 0;
            self.connection.memory.advance(now);
            self.connection.place.advance(now);
        }
    }
}
