//! Reading without a group: pieces of partitions ([`records`]), and what the cluster has ([`view`]). Nothing is kept that
//! a client would need again: an answer says at which offset to read on.

mod clusters;
mod fetch;
mod page;
mod records;
mod view;
mod whereabouts;

pub(crate) use clusters::{cluster_id, clusters, other_cluster};
pub(crate) use fetch::Lanes;
pub(crate) use page::Page;
pub(crate) use records::records;
pub(crate) use view::view;
pub(crate) use whereabouts::locate;
