//! Producer ids are handed out in blocks (KIP-730), so that one commit serves a thousand producers.

use super::{Answer, BrokerRef, ControllerSettings, Draft, ProducerIdBlock, Refusal};
use crate::record::MetadataRecord;
use model::{ErrorCode, ProducerId};

/// How many ids a block has, as in Kafka.
pub const PRODUCER_ID_BLOCK_COUNT: i32 = 1000;

impl Draft {
    pub(super) fn allocate_producer_ids(
        &mut self,
        settings: &ControllerSettings,
        to: &BrokerRef,
    ) -> Answer<ProducerIdBlock> {
        self.check_epoch(to)?;
        let first = self.image().next_producer_id().max(ProducerId(settings.producer_ids_from));
        if first.0 > i64::MAX - PRODUCER_ID_BLOCK_COUNT as i64 {
            let message = "All producer ids are allocated.";
            return Err(Refusal::new(ErrorCode::UnknownServerError, message));
        }
        let count = PRODUCER_ID_BLOCK_COUNT;
        self.push(MetadataRecord::ProducerIdsAllocated { broker: to.broker, first, count });
        Ok(ProducerIdBlock { first, count })
    }
}
