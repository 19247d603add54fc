//! Listeners, connections, requests and threads. Facts only: what the broker makes of a value is
//! in `broker_config`.

use super::{PURGE, SECURE};
use crate::key::{Key, Kind};

/// The keys of this area, in the order in which they are explained.
pub(super) const KEYS: &[Key] = &[
    Key::null("advertised.listeners", Kind::List).not_empty().doc(
        "Where clients are told to connect, listener by listener; unset: the listeners \
         themselves.",
    ),
    Key::null("early.start.listeners", Kind::List)
        .ignored("there is no authorizer to wait for")
        .doc("Listeners that open before the authorizer is ready."),
    Key::list("listeners", "PLAINTEXT://:9092").not_empty().doc(
        "Where the broker listens: NAME://host:port, separated by commas. No host: all \
         interfaces; port 0: any free one.",
    ),
    Key::string(
        "listener.security.protocol.map",
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    )
    .doc(
        "Which security protocol each listener name stands for. Only PLAINTEXT is served \
         yet.",
    ),
    Key::null("inter.broker.listener.name", Kind::String).doc(
        "The listener over which brokers talk to each other; unset: the one of \
         security.inter.broker.protocol.",
    ),
    Key::string("security.inter.broker.protocol", "PLAINTEXT")
        .one_of(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
        .doc(
            "The security protocol between brokers, where no inter.broker.listener.name is set. \
             Only PLAINTEXT is served yet.",
        ),
    Key::int("connection.failed.authentication.delay.ms", "100").at_least(0).ignored(SECURE).doc(
        "How long a connection that failed to authenticate is kept waiting before it is \
         closed.",
    ),
    Key::long("connections.max.idle.ms", "600000")
        .doc("A connection without a request for this long is closed."),
    Key::long("connections.max.reauth.ms", "0")
        .ignored(SECURE)
        .doc("How long an authentication lasts before the client has to repeat it; 0: for ever."),
    Key::int("max.connection.creation.rate", "2147483647")
        .at_least(0)
        .cluster_wide()
        .ignored("connections are limited by number, not by rate")
        .doc("New connections a second that the broker accepts."),
    Key::int("max.connections", "2147483647").at_least(0).cluster_wide().doc(
        "Connections open at a time, all listeners together, at most what the limit of open \
             files leaves beside the files of logs; more are closed on arrival.",
    ),
    Key::int("max.connections.per.ip", "2147483647")
        .at_least(0)
        .cluster_wide()
        .doc("Connections open at a time from one address; more are closed on arrival."),
    Key::string("max.connections.per.ip.overrides", "")
        .cluster_wide()
        .doc("Exceptions to max.connections.per.ip: address:number, separated by commas."),
    Key::int("num.network.threads", "3")
        .at_least(1)
        .doc("Threads of the data path. Unset, Highwater takes one for each core."),
    Key::int("num.io.threads", "8")
        .at_least(1)
        .cluster_wide()
        .ignored("requests are served on the threads that read them (num.network.threads)")
        .doc("Threads that carry requests out."),
    Key::int("background.threads", "10").at_least(1).cluster_wide().ignored("each kind of work has threads of its own: log.cleaner.threads, num.recovery.threads.per.data.dir")
        .doc(
        "Threads of Kafka for work that may block.",
    ),
    Key::int("queued.max.requests", "500")
        .at_least(1)
        .ignored(
            "each connection bounds its own requests in flight, and queued.max.request.bytes \
             bounds all",
        )
        .doc("Requests waiting for a thread before the network threads stop reading."),
    Key::long("queued.max.request.bytes", "-1").doc(
        "Bytes of requests that have arrived and were not taken in yet, all connections together, \
         before the broker stops reading; -1: 104 MiB, or one request if that is more.",
    ),
    Key::int("request.timeout.ms", "30000")
        .ignored(super::LINK_TIMES)
        .doc("How long the broker itself waits for the answer to a request that it sent."),
    Key::int("max.request.partition.size.limit", "2000")
        .at_least(1)
        .doc("Partitions that one DescribeTopicPartitions answer holds at most."),
    Key::long("socket.connection.setup.timeout.max.ms", "30000").ignored(super::LINK_TIMES)
        .doc(
        "Upper bound of the time that the broker's own connections may take to open, after \
         repeated failures.",
    ),
    Key::long("socket.connection.setup.timeout.ms", "10000")
        .ignored(super::LINK_TIMES)
        .doc("How long the broker's own connections may take to open."),
    Key::int("socket.listen.backlog.size", "1024")
        .at_least(1)
        .doc("Connections that the system keeps waiting until the broker accepts them."),
    Key::int("socket.receive.buffer.bytes", "102400")
        .doc("Receive buffer of each client socket (SO_RCVBUF); -1: the system's choice."),
    Key::int("socket.request.max.bytes", "104857600").at_least(1).doc(
        "The largest request that is read; a longer one closes the connection before any \
         memory is set aside.",
    ),
    Key::int("socket.send.buffer.bytes", "102400")
        .doc("Send buffer of each client socket (SO_SNDBUF); -1: the system's choice."),
    Key::int("fetch.max.bytes", "57671680")
        .at_least(1024)
        .doc("Bytes that one answer to a fetch holds at most, whatever the client asks for."),
    Key::int("max.incremental.fetch.session.cache.slots", "1000")
        .at_least(0)
        .doc("Incremental fetch sessions (KIP-227) of clients kept at a time."),
    Key::int("fetch.purgatory.purge.interval.requests", "1000")
        .ignored(PURGE)
        .doc("How often finished fetches are cleared out of the purgatory."),
    Key::int("producer.purgatory.purge.interval.requests", "1000")
        .ignored(PURGE)
        .doc("How often finished produce requests are cleared out of the purgatory."),
    Key::int("delete.records.purgatory.purge.interval.requests", "1")
        .ignored(PURGE)
        .doc("How often finished record deletions are cleared out of the purgatory."),
    Key::int("share.fetch.purgatory.purge.interval.requests", "1000")
        .ignored(PURGE)
        .doc("How often finished share fetches are cleared out of the purgatory."),
    Key::boolean("unstable.api.versions.enable", "false")
        .ignored("versions that Kafka has not released are not served")
        .internal()
        .doc("Serve API versions under development."),
];
