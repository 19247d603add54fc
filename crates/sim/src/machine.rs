//! The broker's machine: its disk, its process, and how both fail.

use fastrand::Rng;
use model::Timestamp;
use rustix::io::Errno;
use storage::StorageError;
use storage::disk::SimDisk;

use crate::broker::Broker;
use crate::controller::Controller;
use crate::plan::Plan;
use crate::start;

/// How the broker goes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// Power fails: what was not synced may be lost.
    PowerFailure,
    /// The process dies; the operating system keeps what was written.
    Kill,
    /// It is asked to stop.
    Clean,
}

#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) disk: SimDisk,
    pub(crate) broker: Option<Broker>,
    /// Power failed while syncs lied: nothing that was promised can be asked for any more.
    pub(crate) is_betrayed: bool,
    /// The next stop must be a power failure: a sync has failed, and what is in the page cache is
    /// not what is on the device.
    must_reboot: bool,
    is_full: bool,
    syncs_lie: bool,
}

impl Machine {
    pub(crate) fn new(plan: &Plan) -> Machine {
        let disk = SimDisk::new();
        start::format(&disk);
        disk.lie_about_syncs(plan.syncs_lie);
        Machine {
            disk,
            broker: None,
            is_betrayed: false,
            must_reboot: false,
            is_full: false,
            syncs_lie: plan.syncs_lie,
        }
    }

    /// Starts a process; `Ok(false)` if the disk is full or broken, which is an excuse.
    pub(crate) fn start(
        &mut self,
        controller: &mut Controller,
        now: Timestamp,
        random: &mut Rng,
    ) -> Result<bool, StorageError> {
        assert!(self.broker.is_none(), "one process at a time");
        match Broker::start(&self.disk, controller, now) {
            Ok(broker) => {
                self.broker = Some(broker);
                Ok(true)
            }
            Err(_) if self.must_reboot => {
                self.lose_power(random);
                Ok(false)
            }
            Err(_) if self.is_full => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn stop(&mut self, how: Stop, random: &mut Rng) {
        let broker = self.broker.take();
        match how {
            Stop::Clean if !self.must_reboot => {
                if let Some(broker) = broker
                    && broker.stop_cleanly().is_err()
                {
                    // As good as a kill: there is no marker.
                    assert!(self.is_full, "a healthy disk lets a broker stop");
                }
            }
            Stop::Kill if !self.must_reboot => {}
            _ => self.lose_power(random),
        }
    }

    fn lose_power(&mut self, random: &mut Rng) {
        self.disk = self.disk.after_crash(random.u64(..));
        self.disk.lie_about_syncs(self.syncs_lie);
        self.is_betrayed |= self.syncs_lie;
        self.must_reboot = false;
        if self.is_full {
            self.fill();
        }
    }

    /// Syncs fail until the machine is started again.
    pub(crate) fn break_syncs(&mut self) {
        self.disk.fail_syncs(true);
        self.must_reboot = true;
    }

    /// Leaves only little room on the disk.
    pub(crate) fn fill(&mut self) {
        self.is_full = true;
        self.disk.limit_capacity(Some(self.disk.used_bytes() + 2_000));
    }

    pub(crate) fn make_room(&mut self) {
        self.is_full = false;
        self.disk.limit_capacity(None);
    }

    /// One operation of the disk, soon, fails.
    pub(crate) fn break_one_operation(&mut self, random: &mut Rng) {
        let at = self.disk.operation_count() + random.u64(0..5);
        self.disk.fail_at(at, Errno::IO);
        self.must_reboot = true;
    }
}
