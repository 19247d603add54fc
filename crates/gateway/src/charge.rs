//! Memory that a request is charged for: bodies that arrive, and records on their way out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use pools::{Lease, LeasePool};
use serving::error::{ApiError, Kind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::share_owner::ShareOwner;

/// A holder without progress for this long loses its part while clients with less wait.
const PATIENCE: Duration = Duration::from_secs(1);

/// Memory that requests share.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    bytes: usize,
    /// A permit for each byte.
    whole: Arc<Semaphore>,
    /// Shares of the owners; of a half, if this is a half.
    part: Option<Arc<LeasePool<ShareOwner>>>,
    /// The owner of charges of the part.
    owner: ShareOwner,
}

impl Room {
    /// Of so many bytes.
    pub(crate) fn new(bytes: usize) -> Room {
        let bytes = bytes.min(Semaphore::MAX_PERMITS);
        Room {
            bytes,
            whole: Arc::new(Semaphore::new(bytes)),
            part: None,
            owner: ShareOwner::Unknown,
        }
    }

    /// Of so many bytes, with a share for each owner.
    pub(crate) fn with_shares(bytes: usize) -> Room {
        let whole = Room::new(bytes);
        let shares = Arc::new(LeasePool::new(whole.bytes));
        Room { part: Some(shares), ..whole }
    }

    /// A half of this room: what is charged to it is charged to the whole as well, and never takes the other half.
    pub(crate) fn half(&self) -> Room {
        let half = Arc::new(LeasePool::new(self.bytes / 2));
        Room { part: Some(half), ..self.clone() }
    }

    /// The same room for charges of this owner.
    pub(crate) fn of(&self, owner: ShareOwner) -> Room {
        Room { owner, ..self.clone() }
    }

    /// Bytes that may be charged here: of the whole, or of the part that this is.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.part.as_ref().map_or(self.bytes, |part| part.units_max())
    }

    fn is_half(&self) -> bool {
        self.limit_bytes() < self.bytes
    }

    /// Bytes of the whole.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes that are charged, of the whole.
    pub(crate) fn held_bytes(&self) -> usize {
        self.bytes - self.whole.available_permits().min(self.bytes)
    }

    /// Bytes that are free, of the whole.
    pub(crate) fn free_bytes(&self) -> usize {
        self.bytes - self.held_bytes()
    }
}

/// Bytes that are charged until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    room: Room,
    held: Option<OwnedSemaphorePermit>,
    /// As many, of the part.
    held_of_part: Option<Lease<ShareOwner>>,
}

impl Charge {
    /// Nothing yet, of this room.
    pub(crate) fn new(room: &Room) -> Charge {
        let open = |part: &Arc<LeasePool<ShareOwner>>| {
            let lease = part.open(room.owner.clone(), Instant::now());
            lease.set_revocable(false);
            lease
        };
        let held_of_part = room.part.as_ref().map(open);
        Charge { room: room.clone(), held: None, held_of_part }
    }

    /// Nothing yet, of the same room.
    pub(crate) fn beside(&self) -> Charge {
        Charge::new(&self.room)
    }

    /// Bytes that may be charged to this room.
    pub(crate) fn limit_bytes(&self) -> usize {
        self.room.limit_bytes()
    }

    /// Bytes that are charged.
    pub(crate) fn bytes(&self) -> usize {
        self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Charges some bytes more.
    ///
    /// # Errors
    /// There is no room for them.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), ApiError> {
        let before = self.bytes();
        if let Some(part) = &self.held_of_part
            && !part.try_set(before + bytes, Instant::now())
        {
            part.reclaim(bytes, Instant::now(), PATIENCE, Duration::MAX);
            return Err(full());
        }
        match take(&self.room.whole, bytes) {
            Ok(of_whole) => put(&mut self.held, of_whole),
            Err(error) => {
                self.set_of_part(before);
                if let Some(shares) = self.held_of_part.as_ref().filter(|_| !self.room.is_half()) {
                    // The other half uses memory that the shares do not count.
                    shares.reclaim_beside(bytes, Instant::now(), PATIENCE);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn set_of_part(&self, bytes: usize) {
        if let Some(part) = &self.held_of_part {
            part.set(bytes);
        }
    }

    /// Waits until clients with less need the memory: the holder must drop it. Never, for a charge of no part.
    pub(crate) async fn revoked(&self) {
        match &self.held_of_part {
            Some(part) => {
                part.set_revocable(true);
                part.revoked().await;
            }
            None => std::future::pending().await,
        }
    }

    /// Keeps the bytes until the holder drops them, whatever other clients need. Returns false if the bytes are revoked
    /// already: the holder must drop them, because no other charge is revoked while these count as leaving.
    #[must_use]
    pub(crate) fn keep(&self) -> bool {
        self.held_of_part.as_ref().is_none_or(Lease::keep)
    }

    /// Notes that the holder sent something or received something.
    pub(crate) fn advance(&self) {
        if let Some(part) = &self.held_of_part {
            part.advance(Instant::now());
        }
    }

    /// Charges this many bytes, no more and no fewer.
    ///
    /// # Errors
    /// There is no room for them; what was charged stays so.
    pub(crate) fn set(&mut self, bytes: usize) -> Result<(), ApiError> {
        match bytes.checked_sub(self.bytes()) {
            Some(more) => self.add(more),
            None => {
                let surplus = self.bytes() - bytes;
                drop(self.held.as_mut().and_then(|held| held.split(surplus)));
                self.set_of_part(bytes);
                Ok(())
            }
        }
    }

    /// Takes some of what is charged off, all of it at most: it is charged as long as the part is there.
    pub(crate) fn split(&mut self, bytes: usize) -> Charge {
        let bytes = bytes.min(self.bytes());
        let held = self.held.as_mut().and_then(|held| held.split(bytes));
        self.set_of_part(self.bytes());
        let part = Charge { held, ..self.beside() };
        part.set_of_part(part.bytes());
        part
    }

    /// Bytes that are charged, no more and no fewer, until the last clone of them is gone.
    ///
    /// # Errors
    /// There is no room for them.
    pub(crate) fn hold<B>(mut self, bytes: B) -> Result<Bytes, ApiError>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        self.set(bytes.as_ref().len())?;
        Ok(Bytes::from_owner(Charged { bytes, _charge: self }))
    }
}

fn take(room: &Arc<Semaphore>, bytes: usize) -> Result<OwnedSemaphorePermit, ApiError> {
    let count = u32::try_from(bytes).unwrap_or(u32::MAX);
    Arc::clone(room).try_acquire_many_owned(count).map_err(|_| full())
}

fn full() -> ApiError {
    ApiError::new(Kind::Full, "the gateway has no memory for this request now")
}

fn put(held: &mut Option<OwnedSemaphorePermit>, more: OwnedSemaphorePermit) {
    match held {
        Some(held) => held.merge(more),
        none => *none = Some(more),
    }
}

/// Bytes that are charged as long as they are there.
struct Charged<B> {
    bytes: B,
    _charge: Charge,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for Charged<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn what_is_charged_is_free_again_when_it_is_gone() {
        let room = Room::new(100);
        let mut charge = Charge::new(&room);
        charge.add(30).unwrap();
        charge.add(30).unwrap();
        assert_eq!(charge.add(41).unwrap_err().kind, Kind::Full);
        assert_eq!(room.free_bytes(), 40);
        charge.set(10).unwrap();
        assert_eq!(room.free_bytes(), 90);
        let bytes = charge.hold(vec![7; 80]).unwrap();
        assert_eq!((bytes.len(), room.free_bytes()), (80, 20));
        drop(bytes.clone());
        assert_eq!(room.free_bytes(), 20);
        drop(bytes);
        assert_eq!(room.free_bytes(), 100);
        assert!(Charge::new(&room).hold(vec![0; 101]).is_err());
        assert_eq!(room.free_bytes(), 100);
    }

    #[test]
    fn what_is_charged_to_a_half_leaves_the_other() {
        let room = Room::new(100);
        let half = room.half();
        let (mut one, mut other) = (Charge::new(&half), Charge::new(&half));
        one.add(40).unwrap();
        assert_eq!(other.add(11).unwrap_err().kind, Kind::Full, "more than the half");
        other.add(10).unwrap();
        assert_eq!((room.free_bytes(), half.held_bytes()), (50, 50));
        let mut body = Charge::new(&room);
        body.add(50).unwrap();
        one.set(10).unwrap();
        // The half has room, and the whole has less.
        body.add(25).unwrap();
        assert_eq!(other.add(10).unwrap_err().kind, Kind::Full);
        other.add(5).unwrap();
        drop(body);
        other.add(25).unwrap();
        assert!(
            other.add(1).is_err(),
            "what was refused has taken nothing of the half, or given any back"
        );
        drop((one, other));
        assert_eq!(room.free_bytes(), 100);
        Charge::new(&half).add(50).unwrap();
    }

    #[test]
    fn a_revoked_charge_cannot_be_kept() {
        let room = Room::with_shares(100);
        let [mut large, mut small] =
            ["large", "small"].map(|name| Charge::new(&room.of(ShareOwner::User(Arc::from(name)))));
        large.add(90).unwrap();
        assert!(large.keep(), "no client waits");
        assert!(large.revoked().now_or_never().is_none());
        while large.revoked().now_or_never().is_none() {
            // The large charge has had progress until a moment ago.
            assert_eq!(small.add(20).unwrap_err().kind, Kind::Full);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!large.keep());
        drop(large);
        small.add(20).unwrap();
    }

    #[test]
    fn a_part_of_a_charge_is_charged_until_it_is_gone() {
        let room = Room::new(100);
        let half = room.half();
        assert_eq!((room.limit_bytes(), half.limit_bytes()), (100, 50));
        let mut whole = Charge::new(&half);
        assert_eq!(whole.split(7).bytes(), 0, "of nothing");
        whole.add(40).unwrap();
        let part = whole.split(30);
        assert_eq!((whole.bytes(), part.bytes(), room.free_bytes()), (10, 30, 60));
        let rest = whole.split(30);
        assert_eq!((whole.bytes(), rest.bytes()), (0, 10));
        assert!(whole.beside().add(11).is_err(), "the half is charged with both");
        drop(part);
        assert_eq!(room.free_bytes(), 90);
        drop(rest);
        assert_eq!(room.free_bytes(), 100);
        whole.add(50).unwrap();
    }
}
