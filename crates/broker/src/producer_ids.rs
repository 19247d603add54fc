//! Ids for idempotent producers, out of blocks that the controller allocates: no id is ever given
//! twice, whatever happens to this broker in the middle of a block.

use ::metadata::decide::{BrokerRef, ProducerIdBlock};
use ::metadata::{Request, Response};
use model::{BrokerEpoch, BrokerId, ErrorCode, ProducerId};
use tokio::sync::Mutex;

use crate::server::Server;

/// What is left of the block in use.
#[derive(Debug)]
pub struct ProducerIds {
    broker: BrokerRef,
    block: Mutex<Option<ProducerIdBlock>>,
}

impl ProducerIds {
    /// For this incarnation of the broker; the first block is allocated when the first id is asked
    /// for.
    pub fn new(broker: BrokerId, epoch: BrokerEpoch) -> ProducerIds {
        ProducerIds { broker: BrokerRef { broker, epoch }, block: Mutex::new(None) }
    }

    /// An id that nobody has had before.
    pub async fn next(&self, server: &Server) -> Result<ProducerId, ErrorCode> {
        // Held over the await: whoever comes meanwhile wants the same new block.
        let mut block = self.block.lock().await;
        let left = match block.take().filter(|block| block.count > 0) {
            Some(left) => left,
            None => self.allocate(server).await?,
        };
        let rest = ProducerIdBlock { first: ProducerId(left.first.0 + 1), count: left.count - 1 };
        *block = Some(rest);
        Ok(left.first)
    }

    async fn allocate(&self, server: &Server) -> Result<ProducerIdBlock, ErrorCode> {
        match server.decide(Request::AllocateProducerIds(self.broker)).await? {
            Response::AllocateProducerIds(Ok(block)) => Ok(block),
            Response::AllocateProducerIds(Err(refusal)) => Err(refusal.error),
            other => unreachable!("the answer to another request: {other:?}"),
        }
    }
}
