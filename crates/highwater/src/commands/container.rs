//! Configuration and ready lines of a broker in a container image, as images of Kafka have them.

use std::io;
use std::path::{Path, PathBuf};

use configuration::Sources;
use model::BrokerId;
use rustix::process::geteuid;

use crate::failure::Failure;

/// Name of the configuration file in the mounted folder.
const FILE: &str = "server.properties";

/// The configuration file in the folder that a container mounts, if the user put one there.
///
/// # Errors
/// The file system does not show whether the file exists, for example because this user may not enter the folder.
pub fn mounted_file(folder: &Path) -> Result<Option<PathBuf>, Failure> {
    let file = folder.join(FILE);
    match file.try_exists() {
        Ok(exists) => Ok(exists.then_some(file)),
        Err(error) => Err(unreadable(&file, &error)),
    }
}

/// Report of a configuration file in a container that cannot be read.
pub fn unreadable(file: &Path, error: &io::Error) -> Failure {
    let user = geteuid().as_raw();
    let hint = match error.kind() {
        io::ErrorKind::IsADirectory => {
            "mount a file there: a mount of a file that does not exist makes a folder".to_owned()
        }
        _ => {
            format!("let user {user}, which runs this program, enter the folder and read the file")
        }
    };
    Failure::new(format!("cannot read the configuration file {}", file.display()))
        .detail(error)
        .hint(hint)
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
