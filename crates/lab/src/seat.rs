//! The targets of a run, each with the cluster that serves it now.

use anyhow::{Context, Result};
use experiment::plan::Shape;

use crate::target::{Cluster, Target};

/// The targets of a run.
pub struct Seats(Vec<Seat>);

struct Seat {
    target: Target,
    /// Whether the cluster that runs was started and has not been asked for anything.
    cold: bool,
    running: Option<(Shape, Cluster)>,
}

impl Seats {
    /// Seats for these targets; nothing runs yet.
    pub fn new(targets: Vec<Target>) -> Seats {
        Seats(
            targets.into_iter().map(|target| Seat { target, cold: false, running: None }).collect(),
        )
    }

    /// A cluster of this shape of the target of this name: the one that runs, or a fresh one. Other targets' clusters
    /// of another shape are stopped: idle brokers take CPU from whoever is measured.
    pub fn cluster(&mut self, name: &str, shape: &Shape) -> Result<&Cluster> {
        for seat in &mut self.0 {
            let other_shape = seat.running.as_ref().is_some_and(|(running, _)| running != shape);
            let dead = seat.running.as_mut().is_some_and(|(_, cluster)| !cluster.is_running());
            if dead && let Some((_, cluster)) = &seat.running {
                tracing::warn!(
                    target = seat.target.name(),
                    "its brokers died:\n{}",
                    cluster.last_words()
                );
            }
            if other_shape || dead {
                seat.running = None;
            }
        }
        let seat = self.0.iter_mut().find(|seat| seat.target.name() == name);
        let seat =
            seat.with_context(|| format!("the plan names {name}, which is no target of this run"))?;
        if seat.running.is_none() {
            seat.running = Some((shape.clone(), seat.target.start(shape)?));
            seat.cold = !matches!(seat.target, Target::Address(_));
        }
        Ok(&seat.running.as_ref().expect("started just above").1)
    }

    /// Whether the cluster of this name was just started; says so once.
    pub fn take_cold(&mut self, name: &str) -> bool {
        let seat = self.0.iter_mut().find(|seat| seat.target.name() == name);
        seat.is_some_and(|seat| std::mem::take(&mut seat.cold))
    }

    /// Whether the lab starts the brokers of this name, here.
    pub fn starts(&self, name: &str) -> bool {
        self.0.iter().any(|seat| seat.target.name() == name && seat.target.is_started_here())
    }

    /// Stops the cluster of this name.
    pub fn stop(&mut self, name: &str) {
        let named = self.0.iter_mut().filter(|seat| seat.target.name() == name);
        named.for_each(|seat| seat.running = None);
    }

    /// Stops all clusters but the one of this name.
    pub fn stop_others(&mut self, name: &str) {
        let others = self.0.iter_mut().filter(|seat| seat.target.name() != name);
        others.for_each(|seat| seat.running = None);
    }

    /// Stops all clusters that the lab started.
    pub fn stop_all(&mut self) {
        self.0.iter_mut().for_each(|seat| seat.running = None);
    }
}
