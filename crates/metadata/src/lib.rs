//! Cluster records, image and delta; the controller's decisions.
//!
//! A record machine: [`ClusterImage::decide`] turns a request into records and an answer and
//! changes nothing; [`ClusterImage::replay`] takes one record in and is the only thing that
//! changes an image, on every node, live and at start-up. Nothing here knows how records are
//! replicated, stored or sent, what time it is, or what a file is.
//!
//! Read [`record`] (the facts), [`image`] (all of them), then [`decide`] (where they come from).

pub mod decide;
pub mod delta;
pub mod forwarded;
pub mod image;
mod json;
pub mod mutants;
pub mod record;
pub mod shared_map;
pub mod topic_config;

pub use decide::{Answer, ControllerSettings, Decision, Draft, Refusal, Request, Response};
pub use delta::{ImageDelta, ImageUpdate, LocalChange, LocalChangeKind, TopicChange};
pub use forwarded::ForwardedError;
pub use image::{BrokerImage, ClusterImage, Contradiction, PartitionImage, TopicImage};
pub use record::{ConfigResource, DecodeError, MetadataRecord};
