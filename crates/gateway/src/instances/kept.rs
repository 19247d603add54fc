//! The instances of this process: made, found, deleted, and swept when no request comes for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use client::Cluster;
use pools::LeasePool;
use serving::error::{ApiError, Kind};
use tokio::task::JoinSet;
use tokio::time::sleep;
use tracing::debug;

use super::InstanceSettings;
use super::names::Names;
use super::seat::Instance;
use crate::request::instances::Creation;
use crate::share_owner::ShareOwner;

/// The longest pause between two looks at all instances; a rebalance of a group waits for its members so long.
const SWEEP_MAX: Duration = Duration::from_millis(250);

/// As many instances leave holes that are worth giving back to the system: tens of KiB each.
const MANY: usize = 100;
/// How long behind the last of them that is done: they may still be leaving their groups.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(6);

/// Who made an instance, its group, and its name. One user's instances are not there for another.
type Name = (String, String, String);

/// All instances.
pub(crate) struct Instances {
    settings: InstanceSettings,
    names: Arc<Names>,
    /// Places of instances. A place bounds the memory of an idle instance to 64 KiB, outside `gateway.memory.bytes`
    /// (`tests/instance_memory.rs`), so idle instances take no memory from producers.
    places: Arc<LeasePool<ShareOwner>>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    by_name: HashMap<Name, Arc<Instance>>,
    /// The most that there were since there was none.
    most: usize,
    /// Whether a task looks after them.
    is_swept: bool,
    /// Whether the gateway has stopped.
    is_closed: bool,
}

impl Instances {
    /// None yet, of this cluster.
    pub(crate) fn new(settings: InstanceSettings, cluster: Cluster) -> Instances {
        let places = Arc::new(LeasePool::new(settings.max));
        Instances { settings, names: Arc::new(Names::new(cluster)), places, kept: Mutex::default() }
    }

    /// The names of the cluster's topics.
    pub(super) fn names(&self) -> &Names {
        &self.names
    }

    pub(super) fn settings(&self) -> &InstanceSettings {
        &self.settings
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.kept().by_name.len()
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no code under it panics")
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.kept().by_name.len()
    }

    /// Makes one, and tells its name. Where there are as many as there may be, a client with more of them than this one
    /// loses the one that was not used for the longest time.
    ///
    /// # Errors
    /// Its name is taken, or there are as many as there may be and no client has more.
    pub(super) fn make(
        self: &Arc<Self>,
        cluster: &Cluster,
        (owner, share_owner): (&str, ShareOwner),
        group: &str,
        creation: Creation,
    ) -> Result<String, ApiError> {
        let made_up = || format!("instance-{:032x}", fastrand::u128(..));
        let name = creation.name.clone().unwrap_or_else(made_up);
        let mut kept = self.kept();
        if kept.is_closed {
            return Err(ApiError::new(Kind::Unavailable, "the gateway stops"));
        }
        let key = (owner.to_owned(), group.to_owned(), name.clone());
        if kept.by_name.contains_key(&key) {
            let words = format!(
                "group {group:?} has an instance {name:?} already: delete it, or take another name"
            );
            return Err(ApiError::new(Kind::NameTaken, words));
        }
        let place = self.places.admit(share_owner, 1, Instant::now()).ok_or_else(|| {
            let words = format!(
                "this gateway has {} consumer instances, as many as it may (gateway.instances.max), and no other client has \
                 more of them: delete one",
                self.settings.max
            );
            ApiError::new(Kind::Full, words)
        })?;
        let timeout = self.settings.timeout;
        let instance = Instance::new(cluster, group, creation, timeout, place);
        kept.by_name.insert(key, Arc::new(instance));
        kept.most = kept.most.max(kept.by_name.len());
        if !std::mem::replace(&mut kept.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self), SWEEP_MAX.min(timeout / 4)));
        }
        Ok(name)
    }

    /// The one of this name.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn find(
        &self,
        owner: &str,
        group: &str,
        name: &str,
    ) -> Result<Arc<Instance>, ApiError> {
        let key = (owner.to_owned(), group.to_owned(), name.to_owned());
        self.kept().by_name.get(&key).cloned().ok_or_else(no_instance)
    }

    /// Forgets one: its name is free, and it is to be closed.
    ///
    /// # Errors
    /// There is none of this name.
    pub(super) fn take(
        &self,
        owner: &str,
        group: &str,
        name: &str,
    ) -> Result<Arc<Instance>, ApiError> {
        let key = (owner.to_owned(), group.to_owned(), name.to_owned());
        self.kept().by_name.remove(&key).ok_or_else(no_instance)
    }

    /// Closes all, and takes no more.
    pub(crate) async fn close_all(&self) {
        let all = {
            let mut kept = self.kept();
            kept.is_closed = true;
            std::mem::take(&mut kept.by_name)
        };
        let mut closing: JoinSet<()> =
            all.into_values().map(|instance| async move { instance.close().await }).collect();
        while closing.join_next().await.is_some() {}
    }

    /// Looks after all once; whether that is to go on.
    fn look_after(&self) -> bool {
        if self.names.is_due() {
            let names = Arc::clone(&self.names);
            tokio::spawn(async move {
                if let Err(error) = names.renew().await {
                    debug!(error = %error.message, "patterns match what was known before");
                }
            });
        }
        let mut kept = self.kept();
        let expired =
            |_: &Name, instance: &mut Arc<Instance>| instance.must_end(self.settings.timeout);
        for (_, instance) in kept.by_name.extract_if(expired) {
            tokio::spawn(async move { instance.close().await });
        }
        for instance in kept.by_name.values() {
            instance.keep_place(&self.names);
        }
        kept.is_swept = !kept.by_name.is_empty();
        if !kept.is_swept && std::mem::take(&mut kept.most) >= MANY {
            tokio::spawn(give_memory_back());
        }
        kept.is_swept
    }
}

async fn sweep(instances: Weak<Instances>, pause: Duration) {
    loop {
        sleep(pause).await;
        let Some(instances) = instances.upgrade() else { return };
        if !instances.look_after() {
            return;
        }
    }
}

async fn give_memory_back() {
    sleep(GIVE_BACK_AFTER).await;
    // It takes milliseconds. A runtime that ends does without.
    let _ = tokio::task::spawn_blocking(heap::release_unused).await;
}

pub(super) fn no_instance() -> ApiError {
    let words = "there is no such consumer instance in this process: it was never made, was deleted, or had no \
                 request for too long (gateway.instance.timeout.ms)";
    ApiError::new(Kind::NoInstance, words)
}
