//! Names of topics by their id, from the metadata answers that a proxy carries: requests of newer versions name topics by id.

use crate::produced::TopicKey;
use model::Uuid;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

/// Topic ids whose names are kept; the names of further ids are not learnt.
const TOPICS_MAX: usize = 100_000;

/// Topic names by id.
#[derive(Debug, Default)]
pub struct TopicNames(Mutex<HashMap<Uuid, String>>);

impl TopicNames {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, String>> {
        self.0.lock().expect("no code under this lock panics")
    }

    /// Learns the name of a topic id.
    pub fn learn(&self, id: Uuid, name: &str) {
        let mut names = self.lock();
        if id != Uuid([0; 16]) && (names.len() < TOPICS_MAX || names.contains_key(&id)) {
            names.insert(id, name.to_owned());
        }
    }

    /// The name of a topic, if it is known.
    pub fn resolve(&self, topic: TopicKey) -> Option<String> {
        match topic {
            TopicKey::Name(name) => Some(name),
            TopicKey::Id(id) => self.lock().get(&id).cloned(),
        }
    }
}
