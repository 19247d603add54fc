//! What a gateway is told: plain values.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use client::ClusterConfig;
use serving::choice::OfTopics;
use serving::forwarded::TrustedProxies;
use serving::visitors::Doorkeeper;

pub use crate::events::EventSettings;
use crate::front::Tls;
pub use crate::instances::InstanceSettings;
use crate::pages::Pages;
use crate::who::SigningKey;

/// Limit of [`Settings::write_timeout`] in production.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(30);

/// What everybody may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Ask for the gateway's health.
    Health,
    /// Read.
    Read,
    /// Read and produce.
    Produce,
    /// All that there is to do.
    Everything,
}

impl Settings {
    /// How addresses of this gateway begin: by TLS or without.
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }
}

/// How a gateway works.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How the cluster is reached.
    pub cluster: ClusterConfig,
    /// Threads; `None`: one for each core.
    pub threads: Option<usize>,
    /// Memory for requests: half for bodies, half for records that are not acknowledged.
    pub memory_bytes: usize,
    /// Connections at a time.
    pub connections_max: usize,
    /// Connections at a time from one address.
    pub connections_per_address_max: usize,
    /// Bytes of one body.
    pub request_bytes_max: usize,
    /// How long the head of a request may take from its first byte on.
    pub head_timeout: Duration,
    /// How long its body may take.
    pub body_timeout: Duration,
    /// How long a client may take nothing of an answer.
    pub write_timeout: Duration,
    /// How long a stop waits for requests that are under way.
    pub drain: Duration,
    /// How consumer instances are kept.
    pub instances: InstanceSettings,
    /// How event streams are served.
    pub events: EventSettings,
    /// How records are shared out where a request names no partitioner.
    pub partitioners: Arc<OfTopics>,
    /// What everybody may do.
    pub access: Access,
    /// The file of users, if there are any.
    pub users_file: Option<PathBuf>,
    /// What signs cookies and tickets; `None`: a key of this process.
    pub key: Option<SigningKey>,
    /// What clients are shown, who then come by TLS alone; `None`: they come without.
    pub tls: Option<Arc<Tls>>,
    /// Whether clients come by TLS alone, here or at a proxy in front: cookies are then sent over nothing else.
    pub is_secure: bool,
    /// Proxies in front whose header names the address of the client.
    pub proxies: TrustedProxies,
    /// Which hosts and pages are served.
    pub doorkeeper: Doorkeeper,
    /// What is shown besides, if anything.
    pub pages: Option<Arc<dyn Pages>>,
}
