//! A broker that comes back: its log directories, compared with those that it was registered with last.

use configuration::BrokerConfig;
use metadata::ClusterImage;
use metadata::decide::{RELIEF_LEVEL, RegisterBroker2};
use model::{BrokerId, Uuid};

use super::losses::{self, Losses};
use crate::logs::{Assigned, Directory, Logs, LogsError};
use crate::start::partitions_of;
use crate::start_error::StartError;

/// The log directories of a broker that starts.
pub struct Returning<'a> {
    /// Its configuration.
    pub config: &'a BrokerConfig,
    /// What it has.
    pub logs: &'a Logs,
    /// Whether other brokers may have its replicas: then it starts without a log directory that is missing.
    pub has_others: bool,
}

impl Returning<'_> {
    /// Fails if a directory is missing that was registered last, and partitions with it.
    pub fn check(&self, image: &ClusterImage) -> Result<(), StartError> {
        let last = assigned(image, None, self.config.node_id);
        match self.is_another_disk(&last.log_dirs) {
            true => Ok(()),
            false => {
                // An earlier release would take an empty folder for a new directory at its start.
                if self.has_others && image.highwater_version() >= RELIEF_LEVEL {
                    self.logs.start_without_missing(&last).map_err(LogsError::from)?;
                }
                Ok(self.logs.check_directories(&last)?)
            }
        }
    }

    /// Whether something is to be done about directories that were away, if this metadata has the last registration.
    pub fn has_been_away(&self, image: &ClusterImage) -> bool {
        let registered = self.registered(image);
        self.logs.has_any_of(&registered) && self.logs.has_away(&registered)
    }

    /// What is to be done about directories that were away: replicas that others of them have as well are put aside. Returns
    /// those that the broker cannot answer for. Only by metadata that has the last registration: by an older one the newer
    /// replica would be put aside.
    pub fn settle_away(&self, image: &ClusterImage) -> Result<Losses, StartError> {
        let registered = self.registered(image);
        self.logs.put_aside_outdated(&registered).map_err(LogsError::from)?;
        Ok(losses::away_replicas(image, self.logs, self.config.node_id, &registered))
    }

    /// Registers without directories that are offline.
    pub fn leave_out_offline(&self, register: &mut RegisterBroker2) {
        let (ids, known) = self.logs.known_before().into_iter().unzip();
        (register.register.log_dirs, register.directories.directories) = (ids, known);
    }

    fn registered(&self, image: &ClusterImage) -> Vec<Uuid> {
        let known = image.broker(self.config.node_id);
        known.map(|broker| broker.log_dirs.clone()).unwrap_or_default()
    }

    /// Whether the directory that holds the metadata is not one of those that were registered: the whole disk is another
    /// one, the metadata came from other nodes since, and there is nothing that could have been forgotten to be mounted. Its
    /// replicas are reported as empty.
    fn is_another_disk(&self, registered: &[Uuid]) -> bool {
        let holds_metadata = |directory: &&Directory| directory.path() == self.config.metadata_dir;
        let directory = self.logs.directories().find(holds_metadata);
        directory.is_some_and(|directory| !registered.contains(&directory.id()))
    }
}

/// What the metadata wants of a broker, if it last changed at this index.
pub fn assigned(image: &ClusterImage, changed_at: Option<u64>, me: BrokerId) -> Assigned {
    let image_index = image.cluster_id().and(changed_at);
    let log_dirs = image.broker(me).map(|broker| broker.log_dirs.clone()).unwrap_or_default();
    Assigned { partitions: partitions_of(image, me), image_index, log_dirs }
}
