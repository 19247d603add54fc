//! The life of brokers: register, unfence, be about to stop, fence, unregister.
//!
//! Each of these is one record; what it means for partitions is for the sweep ([`super::sweep`]). The
//! exception is a broker that starts again and has lost something: it is given its epoch when its
//! replicas have left all that they are not fit for any more. Unclean (R11): out of ISR and ELR, but
//! where the partition is durable still eligible; in any case what it led is in another leader epoch,
//! even if it is elected again, because followers may hold records that its log has lost, and the same
//! offset of the same epoch must never have two contents (KAFKA-18106). On another disk (R12): it
//! is not the old replica, and nothing of it is counted. What its log directories are worth is in [`super::directories`].
//!
//! A registration names the one that it follows, so that a message that was long on its way does not replace a
//! newer process.
//!
//! Where there are no eligible replicas (`highwater.version` 0) everything is decided at once
//! ([`super::departures`]).

use super::departures::Departure;
use super::directories::Directories;
use super::eligibility::Loss;
use super::{
    Answer, BrokerRef, ControllerSettings, CreateCluster, Draft, KnownDirectories, Refusal,
    RegisterBroker, RegisterBroker3,
};
use crate::mutants::{Mutant, is_planted};
use crate::record::{BrokerRecord, BrokerSoftware, GROUP_PLACEMENT_LEVEL, MetadataRecord};
use model::partitioner::GroupPlacement;
use model::{BrokerEpoch, BrokerId, ErrorCode};

fn refuse<T>(error: ErrorCode, message: impl Into<String>) -> Answer<T> {
    Err(Refusal::new(error, message))
}

/// A registration, with the fields that its form has.
#[derive(Clone, Copy)]
pub(super) struct Registration<'a> {
    pub(super) request: &'a RegisterBroker,
    /// State of the log directories; `None` in the form of earlier releases.
    pub(super) told: Option<&'a KnownDirectories>,
    pub(super) software: Option<&'a BrokerSoftware>,
    /// Marks of the log directories; `None` in forms of levels below 4.
    pub(super) marks: Option<&'a [u64]>,
}

impl<'a> Registration<'a> {
    pub(super) fn of(request: &'a RegisterBroker) -> Registration<'a> {
        Registration { request, told: None, software: None, marks: None }
    }
}

impl<'a> From<&'a RegisterBroker3> for Registration<'a> {
    fn from(RegisterBroker3 { request, software }: &'a RegisterBroker3) -> Registration<'a> {
        let (told, software) = (Some(&request.directories), Some(software));
        Registration { told, software, ..Registration::of(&request.register) }
    }
}

impl Draft {
    pub(super) fn create_cluster(
        &mut self,
        settings: &ControllerSettings,
        request: &CreateCluster,
    ) -> Answer<()> {
        if self.image().cluster_id().is_some() {
            return refuse(ErrorCode::InvalidRequest, "The cluster exists already.");
        }
        let cluster_id = request.cluster_id.clone();
        self.push(MetadataRecord::ClusterCreated { cluster_id });
        for (name, level) in &request.features {
            self.push(MetadataRecord::FeatureLevelSet { name: name.clone(), level: *level });
        }
        if self.image().highwater_version() >= GROUP_PLACEMENT_LEVEL {
            let placement = GroupPlacement::Abs;
            self.push(MetadataRecord::GroupPlacementSet { placement });
        }
        if self.image().has_eligible_replicas() {
            self.agree_on_settings(settings);
        }
        Ok(())
    }

    /// Refuses what another incarnation of a broker asks.
    pub(super) fn check_epoch(&self, broker: &BrokerRef) -> Answer<()> {
        let Some(known) = self.image().broker(broker.broker) else {
            let message = format!("Broker {} is not registered.", broker.broker);
            return refuse(ErrorCode::BrokerIdNotRegistered, message);
        };
        if known.epoch != broker.epoch {
            let (id, epoch, current) = (broker.broker, broker.epoch, known.epoch);
            let message = format!("Broker {id} has epoch {current} now, not {epoch}.");
            return refuse(ErrorCode::StaleBrokerEpoch, message);
        }
        Ok(())
    }

    pub(super) fn register_broker(
        &mut self,
        settings: &ControllerSettings,
        registration: &Registration<'_>,
    ) -> Answer<BrokerEpoch> {
        let Registration { request, told, software, marks } = *registration;
        self.check_cluster(request)?;
        self.check_levels_of(request.broker, software)?;
        let known = self.image().broker(request.broker).cloned();
        if let Some(same) = known.as_ref().filter(|known| known.incarnation == request.incarnation)
        {
            self.push_registration(request, software, same.epoch, same.fenced);
            if same.in_controlled_shutdown {
                self.push(MetadataRecord::ControlledShutdownBegun { broker: request.broker });
            }
            return Ok(same.epoch);
        }
        let recorded =
            request.log_dirs.iter().map(|dir| self.image().directory_mark(request.broker, *dir));
        let recorded: Vec<u64> = recorded.collect();
        let directories = known.as_ref().map(|known| {
            let recorded = &recorded[..];
            Directories { known, request, told, marks, recorded }
        });
        if let Some(directories) = &directories {
            check_successor(directories)?;
        }
        // Of a broker that was unregistered nothing tells that the disk is the same.
        let loss = directories.as_ref().map_or(Some(Loss::Everything), Directories::loss);
        let epoch = self.image().next_broker_epoch();
        if !self.image().has_eligible_replicas() {
            self.push_registration(request, software, epoch, request.fenced);
            // Nothing is known against a broker that comes for the first time.
            let unclean = !request.clean || known.is_some() && loss.is_some();
            self.settle_at_once(settings, request, unclean);
            return Ok(epoch);
        }
        if let Some(loss) = loss {
            self.withdraw(request.broker, loss)?;
        }
        self.push_registration(request, software, epoch, request.fenced);
        if !request.fenced {
            self.sweep(self.piece_max());
        }
        Ok(epoch)
    }

    fn push_registration(
        &mut self,
        request: &RegisterBroker,
        software: Option<&BrokerSoftware>,
        epoch: BrokerEpoch,
        fenced: bool,
    ) {
        self.push(MetadataRecord::BrokerRegistered(BrokerRecord {
            broker: request.broker,
            incarnation: request.incarnation,
            epoch,
            endpoints: request.endpoints.clone(),
            rack: request.rack.clone(),
            log_dirs: request.log_dirs.clone(),
            fenced,
            software: software.cloned(),
        }));
    }

    /// What a new incarnation means where there are no eligible replicas.
    fn settle_at_once(
        &mut self,
        settings: &ControllerSettings,
        request: &RegisterBroker,
        unclean: bool,
    ) {
        if request.fenced {
            // Unclean or not: whatever it led is in another leader epoch when it leads again.
            self.depart(settings, request.broker, Departure::Fenced);
            return;
        }
        if unclean {
            self.depart(settings, request.broker, Departure::Unclean);
        }
        self.arrive(settings, request.broker);
    }

    fn check_cluster(&self, request: &RegisterBroker) -> Answer<()> {
        let cluster = self.image().cluster_id().map(|id| id.to_string());
        if cluster.as_deref().is_some_and(|cluster| cluster != request.cluster_id) {
            let (theirs, ours) = (&request.cluster_id, cluster.unwrap_or_default());
            let message = format!("This cluster is {ours}, the broker belongs to {theirs}.");
            return refuse(ErrorCode::InconsistentClusterId, message);
        }
        Ok(())
    }

    pub(super) fn fence(&mut self, settings: &ControllerSettings, who: &BrokerRef) -> Answer<()> {
        self.check_epoch(who)?;
        if self.image().is_active(who.broker) {
            self.push(MetadataRecord::BrokerFenced { broker: who.broker });
            self.depart_at_once(settings, who.broker);
        }
        Ok(())
    }

    fn depart_at_once(&mut self, settings: &ControllerSettings, broker: BrokerId) {
        if !self.image().has_eligible_replicas() {
            self.depart(settings, broker, Departure::Fenced);
        }
    }

    pub(super) fn unfence(&mut self, settings: &ControllerSettings, who: &BrokerRef) -> Answer<()> {
        self.check_epoch(who)?;
        if self.image().is_active(who.broker) {
            return Ok(());
        }
        self.push(MetadataRecord::BrokerUnfenced { broker: who.broker });
        if self.image().has_eligible_replicas() {
            self.sweep(self.piece_max());
        } else {
            self.arrive(settings, who.broker);
        }
        Ok(())
    }

    /// From now on a broker leads nothing new and joins no ISR (KIP-841); sweeps move away what it leads.
    pub(super) fn begin_shutdown(&mut self, who: &BrokerRef) -> Answer<()> {
        self.check_epoch(who)?;
        if !self.image().has_eligible_replicas() {
            let message =
                "Controlled shutdown needs highwater.version 1: fence the broker when it stops.";
            return refuse(ErrorCode::UnsupportedVersion, message);
        }
        let known = self.image().broker(who.broker);
        if known.is_some_and(|known| !known.in_controlled_shutdown) {
            self.push(MetadataRecord::ControlledShutdownBegun { broker: who.broker });
        }
        Ok(())
    }

    pub(super) fn unregister(
        &mut self,
        settings: &ControllerSettings,
        broker: BrokerId,
    ) -> Answer<()> {
        let Some(known) = self.image().broker(broker) else {
            let message = format!("Broker {broker} is not registered.");
            return refuse(ErrorCode::BrokerIdNotRegistered, message);
        };
        // A wrong number must not stop a broker that serves: one that is not registered ends.
        if !known.fenced {
            let message = format!(
                "Broker {broker} serves: stop it first, and unregister it when it is fenced."
            );
            return refuse(ErrorCode::InvalidRequest, message);
        }
        self.push(MetadataRecord::BrokerUnregistered { broker });
        self.depart_at_once(settings, broker);
        Ok(())
    }
}

/// Whether a process may take the place of the one that is registered.
fn check_successor(directories: &Directories<'_>) -> Answer<()> {
    let Directories { known, request, told, .. } = directories;
    let id = request.broker;
    if directories.lacks_marks() {
        let message = format!(
            "Broker {id} registers without the marks of its log directories, because the metadata of its node is of an earlier highwater.version: register again."
        );
        return refuse(ErrorCode::RequestTimedOut, message);
    }
    if let Some(told) = told {
        let is_late = told.instead_of.is_some_and(|epoch| epoch != known.epoch);
        // What its directories are worth can be said only by a process that knows who had them last.
        let needs_last = directories.has_copy() || directories.are_partly_new();
        if is_late || needs_last && told.instead_of.is_none() {
            let epoch = known.epoch;
            let message = format!(
                "Broker {id} was registered with epoch {epoch}, which the metadata of its node does not say yet: register again."
            );
            return refuse(ErrorCode::RequestTimedOut, message);
        }
    }
    let is_dead = directories.has_one_as_left() && !is_planted(Mutant::WaitsForSession);
    if request.earlier_incarnation_alive && !is_dead {
        let message = format!(
            "Another process is registered as broker {id} and alive: stop it, or wait until its session ends."
        );
        return refuse(ErrorCode::DuplicateBrokerRegistration, message);
    }
    Ok(())
}
