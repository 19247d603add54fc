//! Highwater's own keys, which Kafka does not have.

use crate::key::{Key, Kind};

/// The keys of this area, in the order in which they are explained.
pub(super) const KEYS: &[Key] = &[
    Key::string("durability", "fsync").one_of(&["fsync", "page-cache"]).cluster_wide().doc(
        "When a write with acks=all is acknowledged: once it is synced to the disk of every \
         in-sync replica (fsync), or once it is in their page cache, as Kafka does (page-cache).",
    ),
    Key::int("records.expanded.max.bytes", "134217728").at_least(1).cluster_wide().doc(
        "Bytes that the records of one compressed batch may expand to; a producer's batch that \
         expands to more is refused. For topics that say nothing else.",
    ),
    Key::string("records.validation", "full").one_of(&["full", "header"]).cluster_wide().doc(
        "What is looked into before a batch is stored: every record (full), as in Kafka, or of \
         compressed batches only the header (header). For topics that say nothing else.",
    ),
    Key::long("sync.delay.ms", "20").at_least(0).cluster_wide().doc(
        "With durability=fsync: how long a write that no request waits for (acks=0 or 1, no consumer \
         at the end of the log) may stay unsynced. A loss of power loses at most so much of it.",
    ),
    Key::long("highwater.suspect.after.ms", "1500").at_least(0).doc(
        "A broker that answers none of the controller's probes for this long, while another broker does, loses its leaderships \
         and leaves the in-sync replicas; it stays registered, and its first answer ends that. 0: only \
         broker.session.timeout.ms counts. Set it alike on all voters.",
    ),
    Key::long("highwater.missing.directory.copy.after.ms", "600000").at_least(0).doc(
        "A broker of a cluster starts without a log directory that is missing, for example because its disk is not mounted. \
         Its other directories get copies of the replicas there this long after the start. Mount the disk and start the broker \
         again before, and its replicas are used again.",
    ),
    Key::boolean("highwater.superseded.leader.refuses", "true").doc(
        "A leader that no controller has answered for broker.session.timeout.ms, or that has not acted upon the metadata \
         named in the answers, refuses acks=0 and acks=1 with NOT_LEADER_OR_FOLLOWER, unless every other member of its ISR and ELR has fetched from it meanwhile: another leader may \
         have been elected, and would drop such records. false: it takes them, as Kafka does.",
    ),
    Key::long("highwater.election.wait.ms", "5000").at_least(0).doc(
        "When the complete replicas of a partition without a leader were all started again, the controller elects the one with \
         the greatest log end. It waits at most this long for each complete replica whose broker is registered and fenced, or \
         does not answer, and in all at most twice as long. Without an answer it waits on; the first answer elects after this \
         time, at most 500 ms, while another candidate may answer. Set it alike on all voters.",
    ),
    Key::long("highwater.mark.interval.ms", "10000").at_least(100).doc(
        "How often the marks of log directories that were written to are raised, and how often the controller records marks. A \
         copy of a log directory that is put back is recognised if its broker ran and took records for two such intervals after \
         the copy was made; a younger copy is not. Each costs a sync of the directory's journal. Set it alike on all brokers.",
    ),
    Key::string("http.listener", "127.0.0.1:8080").doc(
        "Where metrics and health are served over HTTP: host:port. No host: all interfaces; \
         port 0: any free one; empty: nowhere. If the default is taken, it moves to a free port and says so.",
    ),
    Key::null("metrics.listener", Kind::String).doc(
        "Another address for metrics and health, for those who scrape them from elsewhere, for example :9644. Nothing else is \
         served there. Unset: none.",
    ),
    Key::string("gateway.listener", "127.0.0.1:8082").doc(
        "Where the gateway listens for HTTP: host:port. No host: all interfaces; port 0: any free one; \
         empty: no gateway. If the default is taken, the gateway moves to a free port and says so.",
    ),
    Key::null("gateway.advertised.url", Kind::String).doc(
        "The URL by which clients reach the gateway. Requests under another host than its own are refused, \
         addresses, names of this machine and gateway.hosts aside.",
    ),
    Key::string("gateway.anonymous", "none").one_of(&["none", "read", "produce"]).doc(
        "What everybody may do over a gateway that listens on another address than this machine's own, or that has users: \
         nothing, read, or read and produce. On this machine's own address, without users, all is allowed.",
    ),
    Key::null("gateway.users.file", Kind::String).doc(
        "The file of users, which `highwater user` makes and changes; it is read again when it changes. With it nobody is let in \
         on any address without a name, gateway.anonymous aside.",
    ),
    Key::null("gateway.tls.certificate.file", Kind::String).doc(
        "The certificate that the gateway shows, in PEM, with what leads to its authority behind it. With it the gateway speaks \
         TLS and nothing else. It is read again when it changes.",
    ),
    Key::null("gateway.tls.key.file", Kind::String).doc(
        "The private key of gateway.tls.certificate.file, in PEM and without a password; it may be in the same file.",
    ),
    Key::list("gateway.hosts", "").doc(
        "Names by which clients reach the gateway, besides addresses, the host name of this machine, and the host of \
         gateway.advertised.url: an alias of a container, or an entry of a hosts file. Requests under other names are \
         refused, because a web page may have them (DNS rebinding).",
    ),
    Key::list("gateway.trusted.proxies", "").doc(
        "Addresses and networks (10.0.0.0/8) of proxies in front of the gateway. Of a connection from one of them the client's \
         address is the last one in the header gateway.trusted.proxies.header that belongs to none of them. It counts for shares of \
         memory and places, and for wrong passwords.",
    ),
    Key::string("gateway.trusted.proxies.header", "x-forwarded-for")
        .one_of(&["x-forwarded-for", "forwarded"])
        .doc(
            "The header that all trusted proxies append the address of their client to. A client's own header of another name \
             is not read.",
        ),
    Key::list("gateway.cors.origins", "").doc(
        "Origins of web pages that may send records and read answers, such as https://app.example.org.",
    ),
    Key::list("gateway.topic.partitioners", "").doc(
        "How records are shared out over a topic's partitions where a request names no partitioner: TOPIC=PARTITIONER, with * at \
         the end of TOPIC for any rest. A topic's own row counts before the longest beginning. Others: murmur2.",
    ),
    Key::null("gateway.threads", Kind::Int)
        .at_least(1)
        .doc("Threads of the gateway, which begin with its first connection. Unset: one for each core."),
    Key::long("gateway.memory.bytes", "134217728").at_least(8_388_608).doc(
        "Memory for requests: half for what arrives, half for records that are not acknowledged. A request \
         for which there is none is answered with 429.",
    ),
    Key::null("gateway.connections.max", Kind::Int).at_least(1).doc(
        "Connections at a time. Unset: a quarter of those for which the limit of open files has room beside \
         a broker, all of them without one.",
    ),
    Key::int("gateway.connections.per.address.max", "2147483647")
        .at_least(1)
        .doc("Connections at a time from one address; of IPv6, from one network of 64 bits."),
    Key::int("gateway.request.bytes.max", "1048576")
        .at_least(1)
        .doc("Bytes of the body of one request; a longer one is answered with 413."),
    Key::int("gateway.head.timeout.ms", "5000")
        .at_least(1)
        .doc("How long the head of a request may take from its first byte on; then its connection is closed."),
    Key::int("gateway.drain.ms", "5000")
        .at_least(0)
        .doc("How long a stop waits for requests that are under way."),
    Key::int("gateway.instances.max", "1000").at_least(1).doc(
        "Consumer instances at a time (POST /consumers/{group}); one more is answered with 429. Each is a member of \
         a group with connections of its own to the brokers.",
    ),
    Key::int("gateway.instance.timeout.ms", "300000").at_least(1).doc(
        "How long a consumer instance stays without a request; then it leaves its group and is forgotten.",
    ),
    Key::boolean("console.write", "false").doc(
        "Whether the console may change the cluster: produce, create, delete, reset, move. Only where the gateway \
         listens on this machine's own address, or knows users.",
    ),
    Key::null("console.state.dir", Kind::String).doc(
        "A folder for what the console keeps over a restart: the log of actions, and groups' lag over a day. Unset: \
         console, in the first log directory of the broker; nothing is kept without a broker. Empty: nothing is kept.",
    ),
    Key::null("console.lab.dir", Kind::String).doc(
        "A folder in which each folder is a run of the laboratory (highwater lab run --out): the console shows how far they are, \
         their verdicts, charts and reports. Unset: there is no such page.",
    ),
    Key::null("console.key.file", Kind::String).doc(
        "The key that signs the cookies of logins and the tickets of streams; a file that is missing is made. Gateways behind one \
         address share it, and the sign-outs in FILE.signed-out beside it. Unset: a new key at each start, which ends all logins.",
    ),
    Key::null("gateway.client.sasl.jaas.config", Kind::Password).doc(
        "Who logs in at the brokers, as sasl.jaas.config of Kafka's clients: PlainLoginModule or ScramLoginModule \
         with username and password.",
    ),
    Key::null("gateway.client.sasl.mechanism", Kind::String)
        .doc("How the gateway logs in at the brokers: PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512."),
    Key::string("gateway.client.security.protocol", "PLAINTEXT")
        .one_of(&["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"])
        .doc("How a gateway alone (highwater gateway) reaches the brokers: with TLS, a login, both or neither."),
    Key::null("gateway.client.ssl.enabled.protocols", Kind::String)
        .doc("Versions of TLS that are offered to the brokers: TLSv1.2, TLSv1.3. Unset: both."),
    Key::string("gateway.client.ssl.endpoint.identification.algorithm", "https").doc(
        "Whether a broker's certificate must be for the host that was dialled (https); empty: any host's will do. \
         Its authority must be trusted in any case.",
    ),
    Key::null("gateway.client.ssl.keystore.certificate.chain", Kind::Password)
        .doc("The gateway's own certificate and what leads to its authority, as PEM in the value."),
    Key::null("gateway.client.ssl.keystore.key", Kind::Password)
        .doc("The key of the gateway's own certificate, as PEM in the value, without a password."),
    Key::null("gateway.client.ssl.keystore.location", Kind::String)
        .doc("A file in PEM with the gateway's own certificate and its key, without a password."),
    Key::null("gateway.client.ssl.keystore.type", Kind::String)
        .doc("The form of the store of the gateway's own certificate: PEM."),
    Key::null("gateway.client.ssl.truststore.certificates", Kind::Password)
        .doc("The authorities that the brokers' certificates may be of, as PEM in the value."),
    Key::null("gateway.client.ssl.truststore.location", Kind::String).doc(
        "A file in PEM with the authorities that the brokers' certificates may be of. Unset: those that this \
         system trusts.",
    ),
    Key::null("gateway.client.ssl.truststore.type", Kind::String)
        .doc("The form of the store of authorities: PEM."),
    Key::null("cluster.id", Kind::String).doc(
        "The cluster's id: any text of 1 to 249 bytes without control characters. Unset: a random id, made with \
         the data folder. A data folder of another cluster is refused.",
    ),
    Key::null("inter.broker.secret", Kind::Password).doc(
        "What brokers of the cluster prove to each other that they belong to it by, the same on all \
         of them. Unset: only brokers on the same machine are talked to.",
    ),
    Key::string("log.format", "text")
        .one_of(&["text", "json"])
        .doc("The form of what the program reports on standard error: lines for people or JSON."),
    Key::string("log.level", "info")
        .one_of(&["error", "warn", "info", "debug", "trace"])
        .doc("How much the program reports on standard error."),
    Key::long("group.coordinator.memory.max.bytes", "33554432").at_least(4_194_304).doc(
        "Memory of members of consumer groups: ids, metadata, assignments. One client address may \
         use all of it; when it is full and other addresses need memory, addresses above an equal \
         share lose members.",
    ),
    Key::long("group.coordinator.offsets.memory.max.bytes", "67108864").at_least(4_194_304).doc(
        "Memory of committed offsets. When it is full, commits for further partitions are \
         refused. A quarter of the free bytes stays free for other client addresses.",
    ),
];
