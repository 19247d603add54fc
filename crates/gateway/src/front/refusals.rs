//! Clients that are one too many, while they are told so: a few at a time, each for a few seconds, so that nobody gets around the
//! limit of connections by being refused.
//!
//! A client that takes its time keeps no place from others: who comes when all are taken has the place of the one that has been
//! there for longest, whose connection is closed then, as all were without this room. Under TLS each refusal costs a handshake, so there
//! are fewer places, and each is kept for a while: that bounds the work of a second.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;

/// How long a refusal may take: the head of the request, the answer, and that it is read.
const REFUSAL_MAX: Duration = Duration::from_secs(5);
/// Refusals at a time.
const PLACES: usize = 32;
/// The same under TLS.
const PLACES_OF_TLS: usize = 8;
/// How long a place is kept under TLS, whether it is used or not: eighty handshakes a second at most.
const KEPT_OF_TLS: Duration = Duration::from_millis(100);
/// Connections that may be on their way out, besides those that have a place.
const LEAVING_MAX: usize = 8;

/// Refusals under way.
pub(super) struct Refusals {
    places: usize,
    kept: Duration,
    /// The oldest first. Invariant: no more than `places`.
    order: VecDeque<Refusal>,
    /// Those of `order`, and those that have lost their place and whose connections are not closed yet. All end with this.
    tasks: JoinSet<()>,
}

struct Refusal {
    began: Instant,
    task: AbortHandle,
}

impl Refusals {
    /// None yet.
    pub(super) fn new(is_tls: bool) -> Refusals {
        match is_tls {
            true => Refusals::within(PLACES_OF_TLS, KEPT_OF_TLS),
            false => Refusals::within(PLACES, Duration::ZERO),
        }
    }

    fn within(places: usize, kept: Duration) -> Refusals {
        Refusals { places, kept, order: VecDeque::new(), tasks: JoinSet::new() }
    }

    /// Carries a refusal out, or drops it, and so its connection, if there is no place.
    pub(super) fn begin(&mut self, refusal: impl Future<Output = ()> + Send + 'static) {
        while self.tasks.try_join_next().is_some() {}
        let (kept, now) = (self.kept, Instant::now());
        let is_kept = |one: &Refusal| now.saturating_duration_since(one.began) < kept;
        self.order.retain(|one| is_kept(one) || !one.task.is_finished());
        if self.tasks.len() >= self.places + LEAVING_MAX {
            return;
        }
        if self.order.len() >= self.places {
            match self.order.pop_front_if(|oldest| !is_kept(oldest)) {
                Some(oldest) => oldest.task.abort(),
                None => return,
            }
        }
        let task = self.tasks.spawn(async move {
            // One that takes too long is closed.
            let _ = timeout(REFUSAL_MAX, refusal).await;
        });
        self.order.push_back(Refusal { began: now, task });
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use super::*;

    /// A refusal that never ends; it holds one of these as long as its connection would be open.
    fn stuck(open: &Arc<()>) -> impl Future<Output = ()> + Send + use<> {
        let held = Arc::clone(open);
        async move {
            let _held = held;
            pending().await
        }
    }

    #[tokio::test]
    async fn who_comes_later_has_the_place_of_the_oldest() {
        let mut refusals = Refusals::within(2, Duration::ZERO);
        let all: [Arc<()>; 4] = Default::default();
        for one in &all {
            refusals.begin(stuck(one));
            // What was told to end has ended when the others have had a turn.
            tokio::task::yield_now().await;
        }
        while Arc::strong_count(&all[0]) + Arc::strong_count(&all[1]) > 2 {
            tokio::task::yield_now().await;
        }
        assert_eq!(all.each_ref().map(Arc::strong_count), [1, 1, 2, 2]);
        drop(refusals);
        while all.iter().any(|one| Arc::strong_count(one) > 1) {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_flood_holds_no_more_than_a_few() {
        let mut refusals = Refusals::within(2, Duration::ZERO);
        let open = Arc::default();
        // Nobody else has a turn: none of those that were told to end has ended.
        for _ in 0..1000 {
            refusals.begin(stuck(&open));
        }
        assert_eq!(Arc::strong_count(&open) - 1, 2 + LEAVING_MAX);
    }

    #[tokio::test]
    async fn a_place_may_be_kept_though_it_is_not_used_any_more() {
        let mut refusals = Refusals::within(2, Duration::from_secs(3600));
        let begun = Arc::new(());
        for _ in 0..4 {
            let held = Arc::clone(&begun);
            refusals.begin(async move { drop(held) });
            while refusals.order.iter().any(|one| !one.task.is_finished()) {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!((refusals.order.len(), Arc::strong_count(&begun)), (2, 1));
        refusals.kept = Duration::ZERO;
        refusals.begin(stuck(&begun));
        assert_eq!((refusals.order.len(), Arc::strong_count(&begun)), (1, 2));
    }
}
