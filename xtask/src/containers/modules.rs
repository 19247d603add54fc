//! Kafka modules of test suites: the start script of each module in an image, and its ready line.

/// A way in which a module starts Kafka.
pub(super) struct Module {
    pub(super) name: &'static str,
    /// Variables besides [`COMMON`].
    pub(super) variables: &'static [(&'static str, &'static str)],
    /// Command of the container. It waits for the start script.
    pub(super) command: &'static [&'static str],
    /// Path of the start script, which the module writes when the container runs.
    pub(super) script_path: &'static str,
    pub(super) script: &'static str,
    /// Part of the line by which the module recognises a broker that serves.
    pub(super) ready: &'static str,
    /// Port of clients.
    pub(super) port: u16,
}

/// Variables of all modules.
pub(super) const COMMON: &[(&str, &str)] = &[
    ("KAFKA_BROKER_ID", "1"),
    ("KAFKA_INTER_BROKER_LISTENER_NAME", "BROKER"),
    ("KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR", "1"),
    ("KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS", "1"),
    ("KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR", "1"),
    ("KAFKA_TRANSACTION_STATE_LOG_MIN_ISR", "1"),
    ("KAFKA_LOG_FLUSH_INTERVAL_MESSAGES", "9223372036854775807"),
    ("KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0"),
];

const RUNNING: &str = "Transitioning from RECOVERY to RUNNING";

/// Variables of a broker without ZooKeeper, with clients at port 9092.
const APACHE: &[(&str, &str)] = &[
    ("CLUSTER_ID", "4L6g3nShT-eMCtK--X86sw"),
    ("KAFKA_NODE_ID", "1"),
    ("KAFKA_PROCESS_ROLES", "broker,controller"),
    ("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:9092,BROKER://0.0.0.0:9093,CONTROLLER://0.0.0.0:9094"),
    (
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
        "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    ),
    ("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER"),
    ("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@localhost:9094"),
];

/// The same with clients at port 9093.
const CONFLUENT: &[(&str, &str)] = &[
    // Python's base64 has a padding.
    ("CLUSTER_ID", "PB6eC2QhQFa7qJp1p5lRkg=="),
    ("KAFKA_NODE_ID", "1"),
    ("KAFKA_PROCESS_ROLES", "broker,controller"),
    ("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092,CONTROLLER://0.0.0.0:9094"),
    (
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP",
        "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    ),
    ("KAFKA_CONTROLLER_LISTENER_NAMES", "CONTROLLER"),
    ("KAFKA_CONTROLLER_QUORUM_VOTERS", "1@localhost:9094"),
];

/// Variables of a broker with ZooKeeper.
const ZOOKEEPER: &[(&str, &str)] = &[
    ("KAFKA_LISTENERS", "PLAINTEXT://0.0.0.0:9093,BROKER://0.0.0.0:9092"),
    ("KAFKA_LISTENER_SECURITY_PROTOCOL_MAP", "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT"),
];

const BITNAMI: &[(&str, &str)] = &[
    ("ALLOW_PLAINTEXT_LISTENER", "yes"),
    ("KAFKA_ENABLE_KRAFT", "yes"),
    ("KAFKA_KRAFT_CLUSTER_ID", "4L6g3nShT-eMCtK--X86sw"),
    ("KAFKA_CFG_NODE_ID", "1"),
    ("KAFKA_CFG_PROCESS_ROLES", "broker,controller"),
    ("KAFKA_CFG_LISTENERS", "PLAINTEXT://:9092,BROKER://:9093,CONTROLLER://:9094"),
    (
        "KAFKA_CFG_LISTENER_SECURITY_PROTOCOL_MAP",
        "BROKER:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    ),
    ("KAFKA_CFG_CONTROLLER_LISTENER_NAMES", "CONTROLLER"),
    ("KAFKA_CFG_CONTROLLER_QUORUM_VOTERS", "1@localhost:9094"),
];

pub(super) const MODULES: &[Module] = &[
    Module {
        name: "java",
        variables: APACHE,
        command: &["sh", "-c", "while [ ! -f /tmp/start.sh ]; do sleep 0.1; done; /tmp/start.sh"],
        script_path: "/tmp/start.sh",
        script: "#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092,BROKER://$(hostname):9093\n\
                 /etc/kafka/docker/run\n",
        ready: RUNNING,
        port: 9092,
    },
    Module {
        name: "java-confluent",
        variables: CONFLUENT,
        command: &["sh", "-c", "while [ ! -f /tmp/start.sh ]; do sleep 0.1; done; /tmp/start.sh"],
        script_path: "/tmp/start.sh",
        script: "#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9093,BROKER://$(hostname):9092\n\
                 /etc/confluent/docker/run\n",
        ready: RUNNING,
        port: 9093,
    },
    Module {
        name: "java-zookeeper",
        variables: ZOOKEEPER,
        command: &["sh", "-c", "while [ ! -f /start.sh ]; do sleep 0.1; done; /start.sh"],
        script_path: "/start.sh",
        script: "#!/bin/bash\nexport KAFKA_ZOOKEEPER_CONNECT='localhost:2181'\n\
                 echo 'clientPort=2181' > zookeeper.properties\n\
                 zookeeper-server-start zookeeper.properties &\n\
                 export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9093,BROKER://$(hostname):9092\n\
                 echo '' > /etc/confluent/docker/ensure\n/etc/confluent/docker/run\n",
        ready: "[KafkaServer id=1] started",
        port: 9093,
    },
    Module {
        name: "go",
        variables: CONFLUENT,
        command: &[
            "sh",
            "-c",
            "while [ ! -f /usr/sbin/start.sh ]; do sleep 0.1; done; bash /usr/sbin/start.sh",
        ],
        script_path: "/usr/sbin/start.sh",
        script: "#!/bin/bash\nsource /etc/confluent/docker/bash-config\n\
                 export KAFKA_ADVERTISED_LISTENERS=\"PLAINTEXT://localhost:9093,BROKER://$(hostname):9092${MORE:+,${MORE}}\"\n\
                 sed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure\n\
                 echo 'kafka-storage format --ignore-formatted -t \"$(kafka-storage random-uuid)\" -c f' >> /etc/confluent/docker/configure\n\
                 echo '' > /etc/confluent/docker/ensure\n\
                 /etc/confluent/docker/configure\n/etc/confluent/docker/launch\n",
        ready: RUNNING,
        port: 9093,
    },
    Module {
        name: "node",
        variables: CONFLUENT,
        command: &[
            "sh",
            "-c",
            "echo Waiting; while [ ! -f /tmp/start.sh ]; do sleep 0.1; done; bash /tmp/start.sh",
        ],
        script_path: "/tmp/start.sh",
        script: "#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9093,BROKER://$(hostname):9092\n\
                 /etc/confluent/docker/run\n",
        ready: RUNNING,
        port: 9093,
    },
    Module {
        name: "python",
        variables: CONFLUENT,
        command: &["sh", "-c", "while [ ! -f /tc-start.sh ]; do sleep 0.1; done; sh /tc-start.sh"],
        script_path: "/tc-start.sh",
        script: "#!/bin/bash\nsed -i '/KAFKA_ZOOKEEPER_CONNECT/d' /etc/confluent/docker/configure\n\
                 echo 'kafka-storage format --ignore-formatted -t x -c f' >> /etc/confluent/docker/configure\n\
                 export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9093,BROKER://$(hostname -i):9092\n\
                 . /etc/confluent/docker/bash-config\n/etc/confluent/docker/configure\n/etc/confluent/docker/launch\n",
        ready: "Kafka Server started",
        port: 9093,
    },
    Module {
        name: "python-zookeeper",
        variables: ZOOKEEPER,
        command: &["sh", "-c", "while [ ! -f /tc-start.sh ]; do sleep 0.1; done; sh /tc-start.sh"],
        script_path: "/tc-start.sh",
        script: "#!/bin/bash\necho 'dataDir=/var/lib/zookeeper/data' > zookeeper.properties\n\
                 zookeeper-server-start zookeeper.properties &\nexport KAFKA_ZOOKEEPER_CONNECT='localhost:2181'\n\
                 export KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9093,BROKER://$(hostname -i):9092\n\
                 . /etc/confluent/docker/bash-config\n/etc/confluent/docker/configure\n/etc/confluent/docker/launch\n",
        ready: "[KafkaServer id=1] started",
        port: 9093,
    },
    Module {
        name: "dotnet",
        variables: APACHE,
        command: &[
            "/bin/sh",
            "-c",
            "while [ ! -f /testcontainers.sh ]; do sleep 0.1; done; /testcontainers.sh",
        ],
        script_path: "/testcontainers.sh",
        script: "#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092,BROKER://$(hostname):9093,\n\
                 exec /etc/kafka/docker/run\n",
        ready: RUNNING,
        port: 9092,
    },
    Module {
        name: "dotnet-bitnami",
        variables: BITNAMI,
        command: &[
            "/bin/sh",
            "-c",
            "while [ ! -f /testcontainers.sh ]; do sleep 0.1; done; /testcontainers.sh",
        ],
        script_path: "/testcontainers.sh",
        script: "#!/bin/bash\nexport KAFKA_CFG_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092,BROKER://$(hostname):9093,\n\
                 exec /opt/bitnami/scripts/kafka/entrypoint.sh /opt/bitnami/scripts/kafka/run.sh\n",
        ready: RUNNING,
        port: 9092,
    },
    Module {
        name: "rust",
        variables: APACHE,
        command: &[
            "bash",
            "-c",
            "while [ ! -f /opt/kafka/start.sh ]; do sleep 0.1; done; chmod 755 /opt/kafka/start.sh; /opt/kafka/start.sh",
        ],
        script_path: "/opt/kafka/start.sh",
        script: "#!/usr/bin/env bash\nexport KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092,BROKER://localhost:9093\n\
                 /etc/kafka/docker/run\n",
        ready: "Kafka Server started",
        port: 9092,
    },
    Module {
        name: "quarkus",
        variables: APACHE,
        command: &["sh", "-c", "while [ ! -x /tmp/run.sh ]; do sleep 0.1; done; /tmp/run.sh"],
        script_path: "/tmp/run.sh",
        script: "#!/bin/bash\nexport KAFKA_ADVERTISED_LISTENERS=PLAINTEXT://localhost:9092,BROKER://localhost:9093\n\
                 if [ -f /opt/kafka/kafka.Kafka ]; then /opt/kafka/kafka.Kafka; else /etc/kafka/docker/run; fi\n",
        ready: RUNNING,
        port: 9092,
    },
];
