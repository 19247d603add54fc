//! The life of brokers: register, unfence, fence, unregister, and what it means for partitions.
//!
//! A fenced broker leads nothing and is in no ISR, but for the ISRs whose last member it is
//! (R5): those partitions wait for it without a leader. An unclean registration (R11) may have
//! lost the end of its logs, so it leaves every ISR that has another live member, and where it is
//! the only one, its term ends and a new one begins.

use super::isr::Departure;
use super::{Answer, BrokerRef, ControllerSettings, CreateCluster, Draft, Refusal, RegisterBroker};
use crate::record::{BrokerRecord, MetadataRecord};
use model::{BrokerEpoch, BrokerId, ErrorCode};

fn refuse<T>(error: ErrorCode, message: impl Into<String>) -> Answer<T> {
    Err(Refusal::new(error, message))
}

impl Draft {
    pub(super) fn create_cluster(&mut self, request: &CreateCluster) -> Answer<()> {
        if self.image().cluster_id().is_some() {
            return refuse(ErrorCode::InvalidRequest, "The cluster exists already.");
        }
        let cluster_id = request.cluster_id.clone();
        self.push(MetadataRecord::ClusterCreated { cluster_id });
        for (name, level) in &request.features {
            self.push(MetadataRecord::FeatureLevelSet { name: name.clone(), level: *level });
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
        request: &RegisterBroker,
    ) -> Answer<BrokerEpoch> {
        self.check_registration(request)?;
        let known = self.image().broker(request.broker).cloned();
        let same = known.filter(|known| known.incarnation == request.incarnation);
        let epoch = same.as_ref().map_or(self.image().next_broker_epoch(), |known| known.epoch);
        let fenced = same.as_ref().map_or(request.fenced, |known| known.fenced);
        self.push(MetadataRecord::BrokerRegistered(BrokerRecord {
            broker: request.broker,
            incarnation: request.incarnation,
            epoch,
            endpoints: request.endpoints.clone(),
            rack: request.rack.clone(),
            log_dirs: request.log_dirs.clone(),
            fenced,
        }));
        if same.is_none() {
            self.settle_partitions(settings, request);
        }
        Ok(epoch)
    }

    /// What a new incarnation means for the partitions of the one before.
    fn settle_partitions(&mut self, settings: &ControllerSettings, request: &RegisterBroker) {
        if request.fenced {
            self.depart(settings, request.broker, Departure::Fenced);
        } else {
            if !request.clean {
                self.depart(settings, request.broker, Departure::Unclean);
            }
            self.arrive(settings, request.broker);
        }
    }

    fn check_registration(&self, request: &RegisterBroker) -> Answer<()> {
        let cluster = self.image().cluster_id().map(|id| id.to_string());
        if cluster.as_deref().is_some_and(|cluster| cluster != request.cluster_id) {
            let (theirs, ours) = (&request.cluster_id, cluster.unwrap_or_default());
            let message = format!("This cluster is {ours}, the broker belongs to {theirs}.");
            return refuse(ErrorCode::InconsistentClusterId, message);
        }
        let known = self.image().broker(request.broker);
        let other = known.is_some_and(|known| known.incarnation != request.incarnation);
        if other && request.earlier_incarnation_alive {
            let message = format!(
                "Another process is registered as broker {} and alive: stop it, or wait until its session ends.",
                request.broker
            );
            return refuse(ErrorCode::DuplicateBrokerRegistration, message);
        }
        Ok(())
    }

    pub(super) fn fence(&mut self, settings: &ControllerSettings, who: &BrokerRef) -> Answer<()> {
        self.check_epoch(who)?;
        if self.image().is_active(who.broker) {
            self.push(MetadataRecord::BrokerFenced { broker: who.broker });
            self.depart(settings, who.broker, Departure::Fenced);
        }
        Ok(())
    }

    pub(super) fn unfence(&mut self, settings: &ControllerSettings, who: &BrokerRef) -> Answer<()> {
        self.check_epoch(who)?;
        if !self.image().is_active(who.broker) {
            self.push(MetadataRecord::BrokerUnfenced { broker: who.broker });
            self.arrive(settings, who.broker);
        }
        Ok(())
    }

    pub(super) fn unregister(
        &mut self,
        settings: &ControllerSettings,
        broker: BrokerId,
    ) -> Answer<()> {
        if self.image().broker(broker).is_none() {
            let message = format!("Broker {broker} is not registered.");
            return refuse(ErrorCode::BrokerIdNotRegistered, message);
        }
        self.push(MetadataRecord::BrokerUnregistered { broker });
        self.depart(settings, broker, Departure::Fenced);
        Ok(())
    }
}
