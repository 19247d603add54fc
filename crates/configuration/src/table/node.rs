//! Who this node is, and how it takes part in a cluster. Facts only: what the broker makes of a
//! value is in `broker_config`.

use super::RAFT;
use crate::key::{Key, Kind};

/// The keys of this area, in the order in which they are explained.
pub(super) const KEYS: &[Key] = &[
    Key::null("node.id", Kind::Int)
        .at_least(0)
        .doc("The number of this node in its cluster. Unset: broker.id, or else 1."),
    Key::int("broker.id", "-1").doc("The old name of node.id; if both are set they must agree."),
    Key::null("broker.rack", Kind::String)
        .doc("The rack or availability zone of this broker: replicas are spread over racks."),
    Key::null("process.roles", Kind::List).one_of(&["broker", "controller"]).not_empty().doc(
        "What this process does: a voter is both, any other node a broker. Unset: \
         broker,controller.",
    ),
    Key::null("controller.listener.names", Kind::List).not_empty().doc(
        "Listeners of the controller. They belong to the quorum and are not opened to \
         clients.",
    ),
    Key::list("controller.quorum.voters", "").doc(
        "The voters of the metadata quorum: id@host:port, separated by commas. Unset: this \
         node alone.",
    ),
    Key::list("controller.quorum.bootstrap.servers", "")
        .ignored("voters come from controller.quorum.voters")
        .doc("Where a new node finds the metadata quorum: host:port, separated by commas."),
    Key::boolean("controller.quorum.auto.join.enable", "false")
        .ignored("the voters of a cluster do not change")
        .doc("Whether a new controller makes itself a voter."),
    Key::int("controller.quorum.append.linger.ms", "25")
        .at_least(0)
        .ignored(RAFT)
        .doc("How long the metadata leader gathers writes before it syncs them."),
    Key::int("controller.quorum.election.backoff.max.ms", "1000")
        .at_least(0)
        .ignored(RAFT)
        .doc("Longest wait between two tries to be elected metadata leader."),
    Key::int("controller.quorum.election.timeout.ms", "1000")
        .at_least(0)
        .ignored(super::QUORUM_TIMES)
        .doc("Without word from the metadata leader for this long, a voter stands for election."),
    Key::int("controller.quorum.fetch.max.bytes", "1048576")
        .at_least(1)
        .ignored(RAFT)
        .doc("Bytes of metadata that a voter fetches at a time."),
    Key::int("controller.quorum.fetch.snapshot.max.bytes", "1048576")
        .at_least(1)
        .ignored(RAFT)
        .doc("Bytes of a metadata snapshot that are fetched at a time."),
    Key::int("controller.quorum.fetch.timeout.ms", "2000").at_least(0).ignored(RAFT).doc(
        "Without a successful fetch from the metadata leader for this long, a voter stands \
         for election.",
    ),
    Key::int("controller.quorum.request.timeout.ms", "2000")
        .at_least(0)
        .ignored(super::QUORUM_TIMES)
        .doc("How long a voter waits for another's answer."),
    Key::int("controller.quorum.retry.backoff.ms", "20")
        .at_least(0)
        .ignored(RAFT)
        .doc("Pause before a request to the quorum is sent again."),
    Key::int("controller.socket.timeout.ms", "30000")
        .ignored("controller.quorum.request.timeout.ms bounds requests between nodes")
        .doc("How long a channel to the controller may be silent."),
    Key::long("controller.performance.always.log.threshold.ms", "2000")
        .at_least(0)
        .ignored(RAFT)
        .internal()
        .doc("Controller events that take longer than this are logged."),
    Key::long("controller.performance.sample.period.ms", "60000")
        .at_least(100)
        .ignored(RAFT)
        .internal()
        .doc("How often the controller logs how it performs."),
    Key::int("broker.heartbeat.interval.ms", "2000")
        .at_least(1)
        .doc("How often a broker tells the controller that it lives."),
    Key::int("broker.session.timeout.ms", "9000").at_least(1).doc(
        "A broker that was silent for this long is fenced. One whose process ended is fenced at \
         once.",
    ),
    Key::int("initial.broker.registration.timeout.ms", "60000")
        .at_least(1)
        .doc("How long a starting broker tries to register before it gives up."),
    Key::boolean("controlled.shutdown.enable", "true")
        .doc("Whether a stopping broker first hands its leaderships over."),
    Key::long("server.max.startup.time.ms", "9223372036854775807")
        .at_least(0)
        .ignored("each step of the start has its own bound")
        .internal()
        .doc("How long the start may take."),
    Key::boolean("unstable.feature.versions.enable", "false")
        .ignored("there are no feature levels under development")
        .internal()
        .doc("Allow feature levels under development."),
    Key::null("metadata.log.dir", Kind::String)
        .doc("Where the metadata log is kept; unset: in the first of log.dirs."),
    Key::long("metadata.log.max.record.bytes.between.snapshots", "20971520")
        .at_least(1)
        .ignored(RAFT)
        .doc("A metadata snapshot is written after this many bytes of new records."),
    Key::long("metadata.log.max.snapshot.interval.ms", "3600000")
        .at_least(0)
        .ignored(RAFT)
        .doc("A metadata snapshot is written at least this often."),
    Key::int("metadata.log.segment.bytes", "1073741824")
        .at_least(8388608)
        .ignored(RAFT)
        .doc("Size of one segment of the metadata log."),
    Key::long("metadata.log.segment.ms", "604800000")
        .ignored(RAFT)
        .doc("Age at which a segment of the metadata log is closed."),
    Key::int("metadata.max.idle.interval.ms", "500")
        .at_least(0)
        .ignored("an idle quorum writes nothing")
        .doc("How often an idle metadata leader writes a record that says nothing."),
    Key::long("metadata.max.retention.bytes", "104857600")
        .ignored(RAFT)
        .doc("Size of metadata log and snapshots above which old ones are removed."),
    Key::long("metadata.max.retention.ms", "604800000")
        .ignored(RAFT)
        .doc("Age at which old metadata segments and snapshots are removed."),
    Key::long("internal.metadata.delete.delay.millis", "60000")
        .ignored(RAFT)
        .internal()
        .doc("Delay before a file of the metadata log is removed."),
    Key::null("internal.metadata.log.segment.bytes", Kind::Int)
        .ignored(RAFT)
        .internal()
        .doc("Size of one metadata segment in tests."),
    Key::int("internal.metadata.max.batch.size.in.bytes", "8388608")
        .ignored(RAFT)
        .internal()
        .doc("Largest batch of the metadata log in tests."),
];
