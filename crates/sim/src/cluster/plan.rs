//! What kind of cluster a seed makes, and what goes wrong there.

use fastrand::Rng;
use model::Durability;

/// Time after which a follower that lacks records leaves the ISR, in milliseconds.
pub(super) const LAG_MS: u64 = 250;

/// The shape of one run with several brokers.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    /// How many brokers there are.
    pub brokers: usize,
    /// Replicas of each partition.
    pub replicas: i16,
    /// `min.insync.replicas`, at first.
    pub min_insync: usize,
    /// What counts as stored.
    pub durability: Durability,
    /// How many producers there are; every other one is idempotent.
    pub producers: usize,
    /// How many consumers there are.
    pub consumers: usize,
    /// Batches that each producer sends.
    pub batches: u32,
    /// When the faults end, in milliseconds.
    pub faults_until_ms: i64,
    /// The mean time between two stops of a broker; 0 for none.
    pub stop_every_ms: i64,
    /// Of a thousand stops so many take the power from all brokers at once.
    pub blackouts_per_mille: u32,
    /// The longest that a device takes for one sync, in milliseconds.
    pub sync_ms_max: i64,
    /// Of a thousand messages so many are lost.
    pub lost_per_mille: u32,
    /// The finalized `highwater.version`: from 1 on there are eligible leader replicas (KIP-966).
    pub version: i16,
    /// `unclean.leader.election.enable`.
    pub unclean: bool,
    /// Of a thousand stops so many cost what the broker's replicas had: a power failure under `page-cache`, a new
    /// disk, one that was put back from an older copy, or a folder. Never what every complete replica has.
    pub losses_per_mille: u32,
    /// Instead of a thousand stops so many times the disk of one replica fails, sometimes of two of them at once, while the
    /// broker runs. All is there when it is started again.
    pub failures_per_mille: u32,
    /// Of a thousand messages between brokers so many take up to 400 ms.
    pub slow_per_mille: u32,
    /// Of a thousand messages between brokers so many come twice.
    pub doubled_per_mille: u32,
    /// The mean time between two cuts of the network; 0 for none.
    pub cut_every_ms: i64,
    /// The mean time between two pauses of a broker; 0 for none.
    pub pause_every_ms: i64,
    /// Time after which a follower that lacks records leaves the ISR, in milliseconds.
    pub lag_ms: u64,
    /// The longest that a broker takes to act upon what is decided, in milliseconds.
    pub image_ms_max: i64,
    /// Whether a clean stop begins with asking the controller to move leaders away (KIP-841).
    pub controlled_shutdown: bool,
    /// The mean time between two changes of `min.insync.replicas`; 0 for none. Not where replicas are lost: then it is always two.
    pub configure_every_ms: i64,
}

impl ClusterPlan {
    pub(crate) fn choose(random: &mut Rng) -> ClusterPlan {
        let brokers = [3, 3, 3, 4, 5][random.usize(0..5)];
        // With page-cache a power failure may lose what is acknowledged: processes die there, machines do not.
        let durability = [Durability::Fsync, Durability::Fsync, Durability::PageCache];
        let version = [0, 1, 1, 2, 2][random.usize(0..5)];
        let min_insync = random.usize(1..3);
        // What is lost with a replica is on another one only if at least two were asked for, and known to be only
        // where there are eligible replicas.
        let losses_per_mille = match (version, min_insync) {
            (1.., 2) => [0, 400, 800][random.usize(0..3)],
            _ => 0,
        };
        let durability = durability[random.usize(0..3)];
        // The process goes on, and is killed in the end: what is not synced is not there any more, as far as the controller
        // knows.
        let failures_per_mille = match (version, durability) {
            (1.., Durability::Fsync) => [0, 200, 500][random.usize(0..3)],
            _ => 0,
        };
        ClusterPlan {
            brokers,
            replicas: random.i16(2..4),
            min_insync,
            durability,
            producers: random.usize(1..5),
            consumers: random.usize(1..3),
            batches: random.u32(10..60),
            faults_until_ms: random.i64(1_000..6_000),
            stop_every_ms: [0, 200, 500, 1_500][random.usize(0..4)],
            blackouts_per_mille: [0, 200, 700][random.usize(0..3)],
            sync_ms_max: [12, 12, 80][random.usize(0..3)],
            lost_per_mille: [0, 5, 30][random.usize(0..3)],
            version,
            unclean: random.u8(0..10) == 0,
            losses_per_mille,
            failures_per_mille,
            slow_per_mille: [0, 10, 60][random.usize(0..3)],
            doubled_per_mille: [0, 10, 60][random.usize(0..3)],
            cut_every_ms: [0, 300, 1_000][random.usize(0..3)],
            pause_every_ms: [0, 300, 1_000][random.usize(0..3)],
            lag_ms: LAG_MS,
            image_ms_max: [8, 8, 400][random.usize(0..3)],
            controlled_shutdown: version > 0 && random.bool(),
            configure_every_ms: match losses_per_mille {
                0 => [0, 100, 400][random.usize(0..3)],
                _ => 0,
            },
        }
    }
}
