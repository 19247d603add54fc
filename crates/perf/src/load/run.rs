//! Runs loads: threads, who waits for whom, and when all begin.

use super::clock::Clock;
use super::config::{ConsumeLoad, ProduceLoad, Sizes};
use super::consume::{self, ASSIGNED_MAX, Common, ConsumerOutcome};
use super::produce::{self, ProducerOutcome};
use super::recorder::RUN_MAX;
use super::report::{ConsumeReport, ProduceReport};
use super::stop::Stop;
use super::{LoadError, merge};
use std::sync::atomic::Ordering;
use std::thread::{Scope, ScopedJoinHandle};
use std::time::Duration;
use tokio::sync::{mpsc, watch};

/// Producers or consumers that are under way.
type Threads<'scope, T> = Vec<ScopedJoinHandle<'scope, Result<T, LoadError>>>;
/// The answers of those who get ready.
type Ready = mpsc::UnboundedReceiver<Result<(), LoadError>>;

/// Produces, and says how it went. Blocks until the end; [`Stop`] brings it about earlier.
pub fn produce(load: &ProduceLoad, stop: &Stop) -> Result<ProduceReport, LoadError> {
    check_produce(load)?;
    std::thread::scope(|scope| {
        let outcomes = Producers::begin(scope, load, stop, Clock::start)?.finish()?;
        Ok(merge::produced(load, outcomes))
    })
}

/// Consumes, and says how it went. Blocks until the end; [`Stop`] brings it about earlier.
pub fn consume(load: &ConsumeLoad, stop: &Stop) -> Result<ConsumeReport, LoadError> {
    check_consume(load)?;
    let common = Common::new(load, stop, true);
    std::thread::scope(|scope| {
        let (threads, _ready) = consumers(scope, load, &common)?;
        let outcomes = threads.into_iter().map(join).collect::<Result<Vec<_>, _>>()?;
        Ok(merge::consumed(outcomes, 0, stop))
    })
}

/// Both together: producers begin when every consumer has partitions, and consumers end when they
/// have read as many records as were acknowledged, or nothing comes for `idle` after that.
///
/// With more consumers in a group than partitions some never get one; then producers begin when
/// `idle` has passed without another consumer getting partitions.
pub fn both(
    produce: &ProduceLoad,
    consume: &ConsumeLoad,
    stop: &Stop,
) -> Result<(ProduceReport, ConsumeReport), LoadError> {
    check_produce(produce)?;
    check_consume(consume)?;
    let common = Common::new(consume, stop, false);
    std::thread::scope(|scope| {
        let (threads, ready) = consumers(scope, consume, &common)?;
        let produced = assigned(ready, consume).and_then(|()| {
            common.last_ns.fetch_max(common.clock.now_ns(), Ordering::Relaxed);
            Producers::begin(scope, produce, stop, || common.clock.later())?.finish()
        });
        let acknowledged = produced.as_ref().map_or(0, |outcomes| merge::acknowledged(outcomes));
        let read = common.records.load(Ordering::Relaxed);
        common.producers_ended(acknowledged);
        let consumed: Result<Vec<_>, _> = threads.into_iter().map(join).collect();
        let report = merge::produced(produce, produced?);
        let lag_records = acknowledged.saturating_sub(read);
        Ok((report, merge::consumed(consumed?, lag_records, stop)))
    })
}

pub(super) fn check_produce(load: &ProduceLoad) -> Result<(), LoadError> {
    let usage = |text: &str| Err(LoadError::Usage(text.to_owned()));
    let mix = |sizes: &Sizes| match sizes {
        Sizes::Mix(mix) => mix.iter().map(|(share, _)| share.max(0.0)).sum::<f64>() > 0.0,
        _ => true,
    };
    match load {
        load if load.topics.is_empty() => usage("a load needs a topic"),
        load if load.producers == 0 => usage("a load needs a producer"),
        load if load.records == 0 && load.time.is_zero() => {
            usage("a load needs a number of records or a time")
        }
        load if load.warmup + load.time > RUN_MAX => usage("a load may last 19 hours at most"),
        load if !mix(&load.sizes) => usage("the shares of the sizes are all 0"),
        load if !(load.offered.is_finite() && load.offered >= 0.0) => {
            usage("what is offered is a rate, or 0")
        }
        _ => Ok(()),
    }
}

fn check_consume(load: &ConsumeLoad) -> Result<(), LoadError> {
    let usage = |text: &str| Err(LoadError::Usage(text.to_owned()));
    match load {
        load if load.topics.is_empty() => usage("a load needs a topic"),
        load if load.consumers == 0 => usage("a load needs a consumer"),
        _ => Ok(()),
    }
}

/// Producers that are under way.
pub(super) struct Producers<'scope> {
    threads: Threads<'scope, ProducerOutcome>,
}

impl<'scope> Producers<'scope> {
    /// Starts them all, waits until each is connected, and lets them begin at one moment, when the
    /// clock is started.
    pub(super) fn begin<'env>(
        scope: &'scope Scope<'scope, 'env>,
        load: &'env ProduceLoad,
        stop: &'env Stop,
        clock: impl FnOnce() -> Clock,
    ) -> Result<Producers<'scope>, LoadError> {
        let (gate, closed) = watch::channel(None);
        let (sender, mut ready) = mpsc::unbounded_channel();
        let mut threads = Vec::new();
        for number in 0..load.producers {
            let (sender, gate) = (sender.clone(), closed.clone());
            let builder = std::thread::Builder::new().name(format!("producer-{number}"));
            let spawned = builder
                .spawn_scoped(scope, move || produce::run(load, number, &sender, gate, stop));
            threads.push(spawned.map_err(|error| LoadError::System(error.to_string()))?);
        }
        drop(sender);
        for _ in 0..load.producers {
            // When one fails the gate is dropped, and all others give up.
            ready.blocking_recv().unwrap_or(Err(LoadError::GivenUp))?;
        }
        gate.send_replace(Some(clock()));
        Ok(Producers { threads })
    }

    pub(super) fn finish(self) -> Result<Vec<ProducerOutcome>, LoadError> {
        self.threads.into_iter().map(join).collect()
    }
}

fn consumers<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    load: &'env ConsumeLoad,
    common: &'env Common,
) -> Result<(Threads<'scope, ConsumerOutcome>, Ready), LoadError> {
    let (sender, ready) = mpsc::unbounded_channel();
    let mut threads = Vec::new();
    for number in 0..load.consumers {
        let sender = sender.clone();
        let builder = std::thread::Builder::new().name(format!("consumer-{number}"));
        let spawned =
            builder.spawn_scoped(scope, move || consume::run(load, number, &sender, common));
        threads.push(spawned.map_err(|error| LoadError::System(error.to_string()))?);
    }
    Ok((threads, ready))
}

/// Waits until all consumers have partitions, or no further one gets any.
fn assigned(mut ready: Ready, load: &ConsumeLoad) -> Result<(), LoadError> {
    super::runtime()?.block_on(async {
        for number in 0..load.consumers {
            let limit =
                if number == 0 { ASSIGNED_MAX } else { load.idle.max(Duration::from_secs(1)) };
            match tokio::time::timeout(limit, ready.recv()).await {
                Ok(Some(told)) => told?,
                Ok(None) => return Err(LoadError::GivenUp),
                Err(_) if number > 0 => return Ok(()),
                Err(_) => {
                    let text = format!("no consumer got a partition within {ASSIGNED_MAX:?}");
                    return Err(LoadError::System(text));
                }
            }
        }
        Ok(())
    })
}

fn join<T>(thread: ScopedJoinHandle<'_, Result<T, LoadError>>) -> Result<T, LoadError> {
    // A panic has been reported where it happened.
    thread.join().unwrap_or_else(|_| Err(LoadError::System("a thread panicked".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::super::Sink;
    use super::*;

    #[test]
    fn of_few_records_some_producers_get_none() {
        let sink = Sink::start(1).expect("a sink starts");
        // Far more than two records take: however late the producers begin, they have not missed the end.
        let time = Duration::from_secs(30);
        let load = ProduceLoad { producers: 3, records: 2, time, ..ProduceLoad::new("", "t") };
        let load = ProduceLoad { bootstrap: sink.bootstrap(), ..load };
        let report = produce(&load, &Stop::default()).expect("the sink takes all");
        assert_eq!((report.sent, report.acknowledged), (2, 2));
    }

    #[test]
    fn a_run_that_is_too_long_for_its_clock_is_refused() {
        let hours = |hours: u64| ProduceLoad {
            time: Duration::from_secs(hours * 3600),
            ..ProduceLoad::new("x:1", "t")
        };
        assert_eq!(check_produce(&hours(19)), Ok(()));
        let refused = check_produce(&hours(20)).unwrap_err().to_string();
        assert!(refused.contains("19 hours"), "{refused}");
    }
}
