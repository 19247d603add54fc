//! A signal that ends a run early: what was measured until then is still reported.

use std::sync::Arc;
use tokio::sync::watch;

/// A signal that ends a run early. Clones share it; it can be given from any thread, once.
#[derive(Debug, Clone)]
pub struct Stop(Arc<watch::Sender<bool>>);

impl Default for Stop {
    fn default() -> Stop {
        Stop(Arc::new(watch::Sender::new(false)))
    }
}

impl Stop {
    /// Gives the signal.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    /// Whether it was given.
    pub fn is_stopped(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is given.
    pub async fn stopped(&self) {
        let mut receiver = self.0.subscribe();
        // The sender lives as long as `self`.
        let _ = receiver.wait_for(|stopped| *stopped).await;
    }
}
