//! Memory that a request is charged for: bodies that arrive, and records on their way out.

use std::sync::Arc;

use bytes::Bytes;
use serving::error::{ApiError, Kind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Memory that requests share.
#[derive(Debug, Clone)]
pub(crate) struct Room {
    bytes: usize,
    /// A permit for each byte.
    whole: Arc<Semaphore>,
    /// The same for the part that this is, if it is one.
    part: Option<Arc<Semaphore>>,
}

impl Room {
    /// Of so many bytes.
    pub(crate) fn new(bytes: usize) -> Room {
        let bytes = bytes.min(Semaphore::MAX_PERMITS);
        Room { bytes, whole: Arc::new(Semaphore::new(bytes)), part: None }
    }

    /// A half of this room: what is charged to it is charged to the whole as well, and never takes the other half.
    pub(crate) fn half(&self) -> Room {
        let half = Arc::new(Semaphore::new(self.bytes / 2));
        Room { part: Some(half), ..self.clone() }
    }

    /// Bytes that may be charged here: of the whole, or of the part that this is.
    pub(crate) fn limit_bytes(&self) -> usize {
        if self.part.is_some() { self.bytes / 2 } else { self.bytes }
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
    held_of_part: Option<OwnedSemaphorePermit>,
}

impl Charge {
    /// Nothing yet, of this room.
    pub(crate) fn new(room: &Room) -> Charge {
        Charge { room: room.clone(), held: None, held_of_part: None }
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
        let of_part = self.room.part.as_ref().map(|part| take(part, bytes)).transpose()?;
        let of_whole = take(&self.room.whole, bytes)?;
        if let Some(of_part) = of_part {
            put(&mut self.held_of_part, of_part);
        }
        put(&mut self.held, of_whole);
        Ok(())
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
                for held in [&mut self.held, &mut self.held_of_part] {
                    drop(held.as_mut().and_then(|held| held.split(surplus)));
                }
                Ok(())
            }
        }
    }

    /// Takes some of what is charged off, all of it at most: it is charged as long as the part is there.
    pub(crate) fn split(&mut self, bytes: usize) -> Charge {
        let bytes = bytes.min(self.bytes());
        let part = |held: &mut Option<OwnedSemaphorePermit>| {
            held.as_mut().and_then(|held| held.split(bytes))
        };
        let (held, held_of_part) = (part(&mut self.held), part(&mut self.held_of_part));
        Charge { room: self.room.clone(), held, held_of_part }
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
    let full = |_| ApiError::new(Kind::Full, "the gateway has no memory for this request now");
    Arc::clone(room).try_acquire_many_owned(count).map_err(full)
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
