//! Memory that a request is charged for: bodies that arrive, and records on their way out.

use std::sync::Arc;

use bytes::Bytes;
use serving::error::{ApiError, Kind};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes that are charged until this is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    /// A permit for each byte.
    room: Arc<Semaphore>,
    held: Option<OwnedSemaphorePermit>,
}

impl Charge {
    /// Nothing yet, of this room.
    pub(crate) fn new(room: &Arc<Semaphore>) -> Charge {
        Charge { room: Arc::clone(room), held: None }
    }

    fn bytes(&self) -> usize {
        self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits)
    }

    /// Charges some bytes more.
    ///
    /// # Errors
    /// There is no room for them.
    pub(crate) fn add(&mut self, bytes: usize) -> Result<(), ApiError> {
        let count = u32::try_from(bytes).unwrap_or(u32::MAX);
        let full = |_| ApiError::new(Kind::Full, "the gateway has no memory for this request now");
        let permit = Arc::clone(&self.room).try_acquire_many_owned(count).map_err(full)?;
        match &mut self.held {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
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
                drop(self.held.as_mut().and_then(|held| held.split(surplus)));
                Ok(())
            }
        }
    }

    /// Bytes that are charged, no more and no fewer, until the last clone of them is gone.
    ///
    /// # Errors
    /// There is no room for them.
    pub(crate) fn hold(mut self, bytes: Vec<u8>) -> Result<Bytes, ApiError> {
        self.set(bytes.len())?;
        Ok(Bytes::from_owner(Charged { bytes, _charge: self }))
    }
}

/// Bytes that are charged as long as they are there.
struct Charged {
    bytes: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_charged_is_free_again_when_it_is_gone() {
        let room = Arc::new(Semaphore::new(100));
        let mut charge = Charge::new(&room);
        charge.add(30).unwrap();
        charge.add(30).unwrap();
        assert_eq!(charge.add(41).unwrap_err().kind, Kind::Full);
        assert_eq!(room.available_permits(), 40);
        charge.set(10).unwrap();
        assert_eq!(room.available_permits(), 90);
        let bytes = charge.hold(vec![7; 80]).unwrap();
        assert_eq!((bytes.len(), room.available_permits()), (80, 20));
        drop(bytes.clone());
        assert_eq!(room.available_permits(), 20);
        drop(bytes);
        assert_eq!(room.available_permits(), 100);
        assert!(Charge::new(&room).hold(vec![0; 101]).is_err());
        assert_eq!(room.available_permits(), 100);
    }
}
