//! Consumer instances: members of groups, and readers of assigned partitions, that are used by requests, in the words of
//! version 2 of Confluent's REST proxy and of Strimzi's bridge. They are kept in this one process: bounded in number, and
//! forgotten when no request comes for them.
//!
//! One request at a time uses an instance; others wait for their turn, as in Strimzi's bridge. A request is carried
//! out by a task of its own, so that a client that leaves breaks off no join and no commit; records that were read for it
//! are read again. Read [`kept`] (which there are), [`seat`] (one of them), [`names`] (what subscriptions by pattern follow), [`work`] (what
//! is done), then [`handler`].

mod handler;
mod kept;
mod names;
mod read;
mod seat;
mod work;

use std::time::Duration;

pub(crate) use handler::{Target, answer, create};
pub(crate) use kept::Instances;
pub(crate) use work::check_type;

/// How consumer instances are kept.
#[derive(Debug, Clone)]
pub struct InstanceSettings {
    /// Instances at a time.
    pub max: usize,
    /// How long one stays without a request.
    pub timeout: Duration,
    /// The URL by which clients reach this gateway; `None`: the host that a request names.
    pub advertised_url: Option<String>,
}

impl Default for InstanceSettings {
    fn default() -> InstanceSettings {
        InstanceSettings { max: 1000, timeout: Duration::from_secs(300), advertised_url: None }
    }
}
