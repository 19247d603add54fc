//! What kind of run a seed makes: who takes part, what goes wrong, and how often.

use fastrand::Rng;

/// Partitions of the topic that producers write to.
pub(crate) const PARTITIONS: usize = 2;

/// The shape of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// How many producers there are; every other one is idempotent.
    pub producers: usize,
    /// How many consumers there are, each a group of its own.
    pub consumers: usize,
    /// Batches that each producer sends.
    pub batches: u32,
    /// When the faults end and everything must come to rest, in milliseconds.
    pub faults_until_ms: i64,
    /// The mean time between two crashes of the machine or the process; 0 for none.
    pub crash_every_ms: i64,
    /// Of a thousand messages so many are lost, with their connection.
    pub lost_per_mille: u32,
    /// Whether syncs lie. Then nothing is promised but that the broker stays honest about it.
    pub syncs_lie: bool,
    /// Whether a sync may fail.
    pub syncs_fail: bool,
    /// Whether the disk may fill up.
    pub disk_fills: bool,
}

impl Plan {
    /// For producers: nothing but how many batches each sends.
    pub(crate) fn of_batches(batches: u32) -> Plan {
        Plan {
            producers: 0,
            consumers: 0,
            batches,
            faults_until_ms: 0,
            crash_every_ms: 0,
            lost_per_mille: 0,
            syncs_lie: false,
            syncs_fail: false,
            disk_fills: false,
        }
    }

    pub(crate) fn choose(random: &mut Rng) -> Plan {
        Plan {
            producers: random.usize(1..5),
            consumers: random.usize(1..4),
            batches: random.u32(10..80),
            faults_until_ms: random.i64(2_000..12_000),
            crash_every_ms: [0, 300, 1_000, 3_000][random.usize(0..4)],
            lost_per_mille: [0, 5, 50][random.usize(0..3)],
            syncs_lie: random.u8(0..10) == 0,
            syncs_fail: random.u8(0..4) == 0,
            disk_fills: random.u8(0..6) == 0,
        }
    }
}
