//! A produce request in pieces: the batches are sent from the memory that they were built in.

use super::batch::Batch;
use super::queue::PartitionQueue;
use crate::error::ClientError;
use bytes::Bytes;
use model::TopicId;
use std::sync::Arc;
use wire::{ApiKey, EncodeError, Writer, frame};

/// A batch on its way.
pub(super) struct Sent {
    pub(super) queue: Arc<PartitionQueue>,
    /// The topic's when it was sent.
    pub(super) topic_id: TopicId,
    pub(super) batch: Batch,
}

impl Sent {
    /// What a request names once for all batches of a topic.
    pub(super) fn topic(&self) -> (&str, TopicId) {
        (&self.queue.topic, self.topic_id)
    }
}

/// The part of a request that is not batches.
pub(super) struct Envelope<'a> {
    pub(super) version: i16,
    pub(super) correlation_id: i32,
    pub(super) client_id: &'a str,
    pub(super) transactional_id: Option<&'a str>,
    pub(super) acks: i16,
    pub(super) timeout_ms: i32,
}

/// The frame, length included. Batches of one topic must stand together in `sent`.
pub(super) fn pieces(envelope: &Envelope<'_>, sent: &[Sent]) -> Result<Vec<Bytes>, ClientError> {
    let mut encoder = Encoder {
        writer: Writer::new(),
        flexible: ApiKey::Produce.is_flexible(envelope.version),
        version: envelope.version,
        splices: Vec::with_capacity(sent.len()),
    };
    encoder.head(envelope)?;
    let topics: Vec<&[Sent]> = sent.chunk_by(|a, b| a.topic() == b.topic()).collect();
    encoder.writer.count(topics.len(), encoder.flexible)?;
    for topic in topics {
        encoder.topic(topic)?;
    }
    encoder.tags();
    encoder.finish(sent)
}

struct Encoder {
    writer: Writer,
    flexible: bool,
    version: i16,
    /// Where the batches belong, in their order.
    splices: Vec<usize>,
}

impl Encoder {
    fn head(&mut self, envelope: &Envelope<'_>) -> Result<(), EncodeError> {
        let w = &mut self.writer;
        frame::begin(w);
        let (version, id) = (envelope.version, envelope.correlation_id);
        frame::write_request_head(w, ApiKey::Produce, version, id, Some(envelope.client_id))?;
        w.nullable_string(envelope.transactional_id, self.flexible)?;
        w.i16(envelope.acks);
        w.i32(envelope.timeout_ms);
        Ok(())
    }

    fn topic(&mut self, batches: &[Sent]) -> Result<(), EncodeError> {
        let queue = &batches[0].queue;
        match self.version {
            13.. => self.writer.uuid(batches[0].topic_id),
            _ => self.writer.string(&queue.topic, self.flexible)?,
        }
        self.writer.count(batches.len(), self.flexible)?;
        for sent in batches {
            self.writer.i32(sent.queue.partition);
            self.writer.count(sent.batch.bytes.len(), self.flexible)?;
            self.splices.push(self.writer.bytes().len());
            self.tags();
        }
        self.tags();
        Ok(())
    }

    fn tags(&mut self) {
        if self.flexible {
            self.writer.uvarint(0);
        }
    }

    fn finish(self, sent: &[Sent]) -> Result<Vec<Bytes>, ClientError> {
        let mut encoded = self.writer.into_bytes();
        let batches: usize = sent.iter().map(|s| s.batch.bytes.len()).sum();
        let size = encoded.len() - frame::LENGTH_BYTES + batches;
        let length = i32::try_from(size).map_err(|_| EncodeError::TooLong(size))?;
        encoded[..frame::LENGTH_BYTES].copy_from_slice(&length.to_be_bytes());
        let mut encoded = Bytes::from(encoded);
        let mut pieces = Vec::with_capacity(2 * sent.len() + 1);
        let mut taken = 0;
        for (at, sent) in self.splices.iter().zip(sent) {
            pieces.push(encoded.split_to(at - taken));
            pieces.push(sent.batch.bytes.clone());
            taken = *at;
        }
        pieces.push(encoded);
        pieces.retain(|piece| !piece.is_empty());
        Ok(pieces)
    }
}
