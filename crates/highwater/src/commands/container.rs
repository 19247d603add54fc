//! Configuration and ready lines of a broker in a container image, as images of Kafka have them.

use std::path::{Path, PathBuf};

use configuration::Sources;
use model::BrokerId;

/// Name of the configuration file in the mounted folder.
const FILE: &str = "server.properties";

/// The configuration file in the folder that a container mounts, if the user put one there.
pub fn mounted_file(folder: &Path) -> Option<PathBuf> {
    Some(folder.join(FILE)).filter(|file| file.exists())
}

/// Adds the settings of the image for keys that no source names: the folder that images of Kafka declare as a volume, and
/// listeners on all interfaces.
pub fn with_defaults(sources: Sources) -> Sources {
    sources
        .listen_where_advertised()
        .default_of_image("log.dirs", &["log.dir"], "/var/lib/kafka/data")
        .default_of_image("http.listener", &[], ":8080")
        .default_of_image("gateway.listener", &[], ":8082")
}

/// Lines of Kafka's log by which test suites recognise a broker that serves: of KRaft (two wordings), and of ZooKeeper's time.
pub fn ready_lines(node: BrokerId) -> String {
    format!(
        "[BrokerLifecycleManager id={node}] Transitioning from RECOVERY to RUNNING.\n\
         [KafkaServer id={node}] started\n\
         [KafkaRaftServer nodeId={node}] Kafka Server started\n"
    )
}
