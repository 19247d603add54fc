//! Health of this broker: collects the facts that `serving::health` decides upon.
//!
//! ```text
//! pulse        a thread that checks whether the control and data threads run
//! closed_port  the controller port of a node whose file lists no other voter
//! levels       features that can be finalized
//! ```

mod closed_port;
mod levels;
mod pulse;

pub use closed_port::watch_closed_port;
pub use pulse::watch_threads;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use metadata::ClusterImage;
use model::{BrokerId, LeaderEpoch, Moment, Offset};
use parking_lot::Mutex;
use partition::RefusedTruncation;
use serving::health::broker::{
    AcknowledgerFacts, BrokerFacts, BrokerPhase, DirectoryFacts, RegistrationState, VoterFacts,
};
use serving::health::{BrokerHealth, Condition};
use tracing::{info, warn};

use crate::cluster::count_superseded;
use crate::logs::Directory;
use crate::server::Server;

/// Silence of a voter after which a cut-off leader of the quorum counts it as not answering: two election time-outs, the
/// shortest silence of a majority after which a leader is cut off.
const VOTER_SILENCE_MAX: Duration = Duration::from_millis(1_200);
/// How long a connection of an unlisted node is reported.
const UNINVITED_REPORTED: Duration = Duration::from_secs(300);

/// Health facts that no other part of the broker keeps.
#[derive(Debug, Default)]
pub struct HealthState {
    control_stalled: AtomicBool,
    data_stalled: AtomicBool,
    /// Whether the broker serves clients: set once, at the end of the start.
    is_started: AtomicBool,
    /// Moment of the last answer of an active controller, in microseconds; 0 before the first.
    controller_heard_us: AtomicU64,
    /// Node that connected to the closed controller port last, and when.
    uninvited: Mutex<Option<(String, Moment)>>,
}

impl HealthState {
    /// The start ended: clients are served from now on.
    pub fn note_started(&self) {
        self.is_started.store(true, Ordering::Release);
    }

    /// Whether the start ended.
    pub fn is_started(&self) -> bool {
        self.is_started.load(Ordering::Acquire)
    }

    /// An active controller answered at this moment.
    pub fn note_controller(&self, now: Moment) {
        self.controller_heard_us.fetch_max(now.0.max(1), Ordering::Release);
    }

    /// Thread groups that are stalled.
    pub fn stalled_threads(&self) -> Vec<&'static str> {
        let groups = [("control", &self.control_stalled), ("data", &self.data_stalled)];
        let stalled = groups.into_iter().filter(|(_, stalled)| stalled.load(Ordering::Relaxed));
        stalled.map(|(name, _)| name).collect()
    }

    /// Health by the threads alone.
    fn of_threads(&self) -> BrokerHealth {
        let stalled_threads = self.stalled_threads();
        BrokerHealth::of(&BrokerFacts { stalled_threads, ..BrokerFacts::well() })
    }

    /// The health of a broker that has not finished its start.
    pub fn of_start(&self) -> BrokerHealth {
        let stalled_threads = self.stalled_threads();
        BrokerHealth::of(&BrokerFacts { stalled_threads, ..BrokerFacts::default() })
    }

    fn controller_silent_for(&self, now: Moment, session: Duration) -> Option<Duration> {
        let heard = Moment(self.controller_heard_us.load(Ordering::Acquire));
        let silence = now.since(heard);
        (heard > Moment::START && silence >= session).then_some(silence)
    }

    fn uninvited(&self, now: Moment) -> Option<String> {
        let uninvited = self.uninvited.lock();
        let (address, at) = uninvited.as_ref()?;
        (now.since(*at) < UNINVITED_REPORTED).then(|| address.clone())
    }
}

/// Health of a running broker, for threads that are none of its own.
#[derive(Debug, Clone)]
pub struct HealthSource(Weak<Server>);

impl HealthSource {
    /// Of this broker, which it does not keep alive.
    pub(crate) fn of(server: &Arc<Server>) -> HealthSource {
        HealthSource(Arc::downgrade(server))
    }

    /// Whether `/livez` returns 200: the control and data threads run, or wait for a disk. Waits for nothing.
    pub fn is_live(&self) -> bool {
        self.0.upgrade().is_some_and(|server| server.health.of_threads().livez().is_ok)
    }

    /// The broker's health; `None` once the broker has stopped. May wait for locks of the broker.
    pub fn health(&self) -> Option<BrokerHealth> {
        self.0.upgrade().map(|server| check(&server))
    }
}

/// The health of a broker that has started.
pub fn check(server: &Server) -> BrokerHealth {
    BrokerHealth::of(&facts(server))
}

fn facts(server: &Server) -> BrokerFacts {
    let (image, now) = (server.image(), server.clock.moment());
    let named = |(name, cause): (_, String)| -> (String, String) { (name, cause) };
    let refused = server.logs.unopened().into_iter();
    let failed = server.groups.failed().into_iter();
    let strays = server.logs.strays().into_iter();
    let session = Duration::from_millis(server.config().membership.session_ms);
    BrokerFacts {
        stalled_threads: server.health.stalled_threads(),
        phase: phase(server),
        registration: registration(server, &image),
        directories: directories(server),
        metadata_held_up: server.acting.is_held_up(),
        refused_partitions: refused.map(|(name, it)| named((name.to_string(), it))).collect(),
        failed_coordinators: failed
            .map(|(name, it)| named((name.to_string(), it.to_string())))
            .collect(),
        uncompacted_partitions: server
            .logs
            .uncleanable()
            .into_iter()
            .map(|name| name.to_string())
            .collect(),
        stray_folders: strays
            .map(|stray| named((stray.path.display().to_string(), stray.reason.to_string())))
            .collect(),
        refused_truncations: refused_truncations(server),
        controller_silent_for: server.health.controller_silent_for(now, session),
        quorum: voters(server),
        feature_lags: levels::lags(&image),
        superseded_partitions: count_superseded(server),
        suspected_brokers: suspects(server, &image),
        slowest_acknowledger: server.acknowledgers.lock().slowest(now).map(|it| {
            AcknowledgerFacts { broker: it.broker.0, longest: it.longest, is_slow: it.is_slow }
        }),
        leaderless_partitions: leaderless(&image),
        lost_partitions: lost_partitions(server, &image),
    }
}

/// Partitions of which this follower keeps committed records that the leader lacks.
fn refused_truncations(server: &Server) -> Vec<(String, String)> {
    let topics = server.topics.snapshot();
    let refused = topics.partitions().filter_map(|partition| {
        let refused = partition.refused_truncation()?;
        let RefusedTruncation { leader, to, committed, .. } = refused;
        let cause = match refused.is_of_earlier_generation {
            true => format!(
                "leader {leader} lacks records from {to} to {committed}, which a lost majority of the quorum may have committed"
            ),
            false => format!("leader {leader} lacks committed records from {to} to {committed}"),
        };
        Some((partition.topic_partition().to_string(), cause))
    });
    refused.collect()
}

fn phase(server: &Server) -> BrokerPhase {
    match (server.is_stopping(), server.health.is_started()) {
        (true, _) => BrokerPhase::Stopping,
        (false, true) => BrokerPhase::Running,
        (false, false) => BrokerPhase::Starting,
    }
}

fn registration(server: &Server, image: &ClusterImage) -> RegistrationState {
    match image.broker(server.node_id) {
        None => RegistrationState::Absent,
        Some(own) if own.fenced => RegistrationState::Fenced,
        Some(_) => RegistrationState::Serving,
    }
}

fn directories(server: &Server) -> Vec<DirectoryFacts> {
    let (offline, full) = (server.logs.offline(), server.logs.full());
    let facts = server.logs.directories().enumerate().map(|(at, directory)| {
        let path = directory.path();
        DirectoryFacts {
            path: path.display().to_string(),
            failure: offline.iter().find(|(it, _)| it == path).map(|(_, cause)| cause.clone()),
            is_full: full.iter().any(|it| it == path),
            unfinished_for: server.sick_disks.oldest_operation(at),
            copied: copied(server, directory),
        }
    });
    facts.collect()
}

/// The sentence about a directory that was put back from a copy, until every replica of this broker is in sync.
fn copied(server: &Server, directory: &Directory) -> Option<String> {
    let (mark, recorded) = directory.copied()?;
    let behind = replicas_behind(server);
    (behind > 0).then(|| {
        format!(
            "the directory was put back from a copy (mark {mark}, recorded {recorded}): the controller counts none of its \
             replicas until they have caught up, and {behind} have not"
        )
    })
}

/// Replicas of this broker that are out of sync, by the metadata.
fn replicas_behind(server: &Server) -> usize {
    let (image, me) = (server.image(), server.node_id);
    let states = image.topics().flat_map(|topic| topic.partitions().map(|(_, state)| state));
    states.filter(|it| it.replicas.contains(&me) && !it.isr.contains(&me)).count()
}

/// Removes the notes about directories that were put back from a copy, once every replica of this broker is in sync. Writes to
/// these directories.
pub fn forget_copies(server: &Server) {
    if server.health.is_started() && server.logs.has_copies() && replicas_behind(server) == 0 {
        server.logs.forget_copies();
    }
}

/// On the active controller: partitions without a complete replica, each with the replica that an unclean election chooses.
fn lost_partitions(server: &Server, image: &ClusterImage) -> Vec<(String, String)> {
    let longest = server.links.iter().flat_map(|links| links.list_longest_replicas());
    let named = longest.filter_map(|of| {
        let topic = image.topic_by_id(of.topic_id)?;
        let (name, at) = (&topic.name, of.partition);
        let is_lost = !topic.partition(at)?.has_leader();
        let lost = match topic.found_epoch(at) {
            Some(found) => format!(
                "a log has records of the partition's election {}, which the metadata does not have: a lost majority of \
                 the quorum decided it",
                found.elections()
            ),
            None => "no complete replica is left".to_owned(),
        };
        let cause = lost + &describe_longest(&format!("{name}:{at}"), of.replica);
        is_lost.then(|| (format!("{name}-{at}"), cause))
    });
    named.collect()
}

/// The replica of a partition that an unclean election chooses, in words behind the cause.
fn describe_longest(partition: &str, longest: Option<(BrokerId, LeaderEpoch, Offset)>) -> String {
    match longest {
        None => ", and no replica answers".to_owned(),
        Some((broker, _, Offset(0))) => format!(
            ", and the replicas that answer are empty: `highwater cluster elect --unclean {partition}` elects broker {broker}, \
             and the partition starts without records"
        ),
        Some((broker, epoch, end)) => format!(
            "; of those that answer, broker {broker} has the greatest log end (leader epoch {epoch}, offset {end}): `highwater \
             cluster elect --unclean {partition}` elects it, without records that only other replicas had"
        ),
    }
}

/// Brokers that this node suspects as the active controller.
fn suspects(server: &Server, image: &ClusterImage) -> Vec<i32> {
    let suspects = server.links.iter().flat_map(|links| links.watching().probes().suspects(image));
    suspects.map(|BrokerId(id)| id).collect()
}

fn voters(server: &Server) -> VoterFacts {
    let quorum = &server.quorum;
    let sorted = |ids: &mut dyn Iterator<Item = i32>| -> Vec<i32> {
        let mut ids: Vec<i32> = ids.collect();
        ids.sort_unstable();
        ids
    };
    VoterFacts {
        node: server.node_id.0,
        leader: quorum.leader().map(|BrokerId(id)| id),
        voters: sorted(&mut quorum.members().0.into_iter().map(|BrokerId(id)| id)),
        answering: quorum.answering_voters(VOTER_SILENCE_MAX),
        listed: sorted(&mut server.config().voters.iter().map(|voter| voter.id)),
        uninvited: server.health.uninvited(server.clock.moment()),
    }
}

fn leaderless(image: &ClusterImage) -> usize {
    let partitions = image.topics().flat_map(|topic| topic.partitions());
    partitions.filter(|(_, state)| state.leader.0 < 0).count()
}

/// Logs, at each start, how the voters of the file differ from those of the metadata quorum.
pub fn log_voters(server: &Server) {
    let config = server.config();
    let voters = voters(server);
    if let Some(difference) = voters.difference() {
        warn!(condition = %Condition::VotersDiffer, "{difference}");
    }
    if let Some(at) = config.controller_listener.as_ref().filter(|_| !config.has_other_voters()) {
        info!(
            "controller.quorum.voters lists no other node: this node decides alone, and no other node can join \
             through {}:{}",
            at.host, at.port
        );
    }
}

/// Shared by the parts of a start that need it before there is a [`Server`].
pub type SharedHealth = Arc<HealthState>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_log_has_no_end_to_compare() {
        let longest = |end| Some((BrokerId(2), LeaderEpoch(end as i32 - 1), Offset(end)));
        let words = describe_longest("few:0", longest(0));
        assert!(words.contains("are empty") && words.contains("elects broker 2"), "{words}");
        assert!(!words.contains("-1"), "{words}");
        let words = describe_longest("few:0", longest(7));
        assert!(words.contains("leader epoch 6, offset 7"), "{words}");
        assert!(describe_longest("few:0", None).contains("no replica answers"));
    }
}
