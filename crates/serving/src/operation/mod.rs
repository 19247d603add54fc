//! What an operator may have done to a cluster, as a value: read from the fields of a form ([`read`]), told as the command that
//! does the same ([`command`]), and worked out where it takes several values of the cluster: where a group goes ([`reset`]),
//! which replicas move ([`reassign`]).
//!
//! Not here: whether somebody may, and the doing of it.

pub mod command;
pub mod fields;
pub mod read;
pub mod reassign;
pub mod reset;

use crate::choice::{Pair, Rule};
use crate::rights::{Deed, Rights};
pub use fields::{Fields, Invalid};
use reassign::Move;
use reset::{Row, Target};

/// The operations by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Sends records.
    Produce,
    /// Makes a topic.
    CreateTopic,
    /// Gives a topic more partitions.
    AddPartitions,
    /// Changes a topic's configuration.
    AlterTopic,
    /// Deletes a topic and its records.
    DeleteTopic,
    /// Sets a group's offsets.
    MoveGroup,
    /// Deletes a group and its offsets.
    DeleteGroup,
    /// Has preferred replicas lead.
    ElectLeaders,
    /// Moves replicas.
    Reassign,
    /// Ends moves of replicas that are under way.
    CancelMoves,
    /// Takes the limits of copying back.
    LiftThrottle,
}

impl Kind {
    /// Every one.
    pub const ALL: [Kind; 11] = [
        Kind::Produce,
        Kind::CreateTopic,
        Kind::AddPartitions,
        Kind::AlterTopic,
        Kind::DeleteTopic,
        Kind::MoveGroup,
        Kind::DeleteGroup,
        Kind::ElectLeaders,
        Kind::Reassign,
        Kind::CancelMoves,
        Kind::LiftThrottle,
    ];

    /// The name in a path.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Produce => "produce",
            Kind::CreateTopic => "create-topic",
            Kind::AddPartitions => "add-partitions",
            Kind::AlterTopic => "alter-topic",
            Kind::DeleteTopic => "delete-topic",
            Kind::MoveGroup => "move-group",
            Kind::DeleteGroup => "delete-group",
            Kind::ElectLeaders => "elect-leaders",
            Kind::Reassign => "reassign",
            Kind::CancelMoves => "cancel-moves",
            Kind::LiftThrottle => "lift-throttle",
        }
    }

    /// The operation of this name; `None` for any other text.
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// In words, as a heading.
    pub const fn title(self) -> &'static str {
        match self {
            Kind::Produce => "Produce records",
            Kind::CreateTopic => "Create a topic",
            Kind::AddPartitions => "Add partitions",
            Kind::AlterTopic => "Change a topic's configuration",
            Kind::DeleteTopic => "Delete a topic",
            Kind::MoveGroup => "Reset a group's offsets",
            Kind::DeleteGroup => "Delete a group",
            Kind::ElectLeaders => "Elect preferred leaders",
            Kind::Reassign => "Move replicas",
            Kind::CancelMoves => "Cancel moves of replicas",
            Kind::LiftThrottle => "Lift the throttle",
        }
    }
}

/// Who asks.
#[derive(Debug, Clone, Copy)]
pub struct By<'a> {
    /// As it stands in logs.
    pub name: &'a str,
    /// What it may do.
    pub rights: &'a Rights,
}

/// One operation, with all that it needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Sends records.
    Produce(Produce),
    /// Makes a topic.
    CreateTopic {
        /// Its name.
        topic: String,
        /// `None`: the brokers' default.
        partitions: Option<i32>,
        /// `None`: the brokers' default.
        replicas: Option<i16>,
        /// Its configuration, where that is not the default.
        settings: Vec<(String, String)>,
    },
    /// Gives a topic more partitions.
    AddPartitions {
        /// Its name.
        topic: String,
        /// How many it has afterwards.
        total: i32,
    },
    /// Changes a topic's configuration.
    AlterTopic {
        /// Its name.
        topic: String,
        /// What is set.
        set: Vec<(String, String)>,
        /// What goes back to its default.
        delete: Vec<String>,
    },
    /// Deletes a topic.
    DeleteTopic {
        /// Its name.
        topic: String,
    },
    /// Sets a group's offsets.
    MoveGroup {
        /// The group.
        group: String,
        /// Only of this topic.
        topic: Option<String>,
        /// Where to.
        target: Target,
        /// What was reviewed; empty before.
        rows: Vec<Row>,
    },
    /// Deletes a group.
    DeleteGroup {
        /// The group.
        group: String,
    },
    /// Has preferred replicas lead.
    ElectLeaders {
        /// Only of this topic.
        topic: Option<String>,
    },
    /// Moves replicas.
    Reassign {
        /// Where to.
        moves: Vec<Move>,
        /// How fast they are copied, in bytes a second for each broker; `None`: as fast as they can.
        throttle: Option<u64>,
    },
    /// Ends moves that are under way.
    CancelMoves {
        /// Only of this topic.
        topic: Option<String>,
    },
    /// Takes the limits of copying back.
    LiftThrottle,
}

/// Records that are to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Produce {
    /// Where to.
    pub topic: String,
    /// `None`: null. `{n}` stands for the number of the record, from 0.
    pub key: Option<String>,
    /// `None`: null. `{n}` stands for the number of the record, from 0.
    pub value: Option<String>,
    /// Of every record.
    pub headers: Vec<(String, String)>,
    /// How many.
    pub count: u32,
    /// How the partition is chosen.
    pub rule: Rule,
    /// The partition, if it was named.
    pub partition: Option<i32>,
}

/// A record that is to be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NewRecord {
    /// The key, or null.
    pub key: Option<Vec<u8>>,
    /// The value, or null.
    pub value: Option<Vec<u8>>,
    /// Its headers.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// Where an acknowledged record is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    /// The partition.
    pub partition: i32,
    /// The broker that was chosen before it, if one was.
    pub broker: Option<i32>,
    /// The offset.
    pub offset: i64,
}

impl Produce {
    /// The pair of strategies; the default where the partition is named.
    pub fn pair(&self) -> Pair {
        match self.rule {
            Rule::Given => Pair::default(),
            Rule::Chosen(pair) => pair,
        }
    }

    /// Key and value of the record of this number.
    pub fn record(&self, number: u32) -> (Option<String>, Option<String>) {
        let filled = |text: &String| text.replace("{n}", &number.to_string());
        (self.key.as_ref().map(filled), self.value.as_ref().map(filled))
    }

    /// All of them.
    pub fn records(&self) -> impl Iterator<Item = NewRecord> {
        let bytes = |text: Option<String>| text.map(String::into_bytes);
        (0..self.count).map(move |number| {
            let (key, value) = self.record(number);
            let headers = self.headers.iter();
            NewRecord {
                key: bytes(key),
                value: bytes(value),
                headers: headers.map(|(name, text)| (name.clone(), text.clone().into())).collect(),
            }
        })
    }
}

impl Operation {
    /// Which one it is.
    pub const fn kind(&self) -> Kind {
        match self {
            Operation::Produce(_) => Kind::Produce,
            Operation::CreateTopic { .. } => Kind::CreateTopic,
            Operation::AddPartitions { .. } => Kind::AddPartitions,
            Operation::AlterTopic { .. } => Kind::AlterTopic,
            Operation::DeleteTopic { .. } => Kind::DeleteTopic,
            Operation::MoveGroup { .. } => Kind::MoveGroup,
            Operation::DeleteGroup { .. } => Kind::DeleteGroup,
            Operation::ElectLeaders { .. } => Kind::ElectLeaders,
            Operation::Reassign { .. } => Kind::Reassign,
            Operation::CancelMoves { .. } => Kind::CancelMoves,
            Operation::LiftThrottle => Kind::LiftThrottle,
        }
    }

    /// What somebody must be allowed for it.
    pub fn deed(&self) -> Deed<'_> {
        let subject = self.subject();
        match self.kind() {
            Kind::Produce => Deed::Produce(subject),
            Kind::CreateTopic => Deed::CreateTopic(subject),
            Kind::AddPartitions => Deed::AddPartitions(subject),
            Kind::AlterTopic => Deed::AlterTopic(subject),
            Kind::DeleteTopic => Deed::DeleteTopic(subject),
            Kind::MoveGroup => Deed::MoveGroup,
            Kind::DeleteGroup => Deed::DeleteGroup,
            Kind::ElectLeaders => Deed::ElectLeaders,
            Kind::Reassign | Kind::CancelMoves | Kind::LiftThrottle => Deed::Reassign,
        }
    }

    /// What it is about: the name of a topic or group; empty for the cluster.
    pub fn subject(&self) -> &str {
        match self {
            Operation::Produce(Produce { topic, .. })
            | Operation::CreateTopic { topic, .. }
            | Operation::AddPartitions { topic, .. }
            | Operation::AlterTopic { topic, .. }
            | Operation::DeleteTopic { topic } => topic,
            Operation::MoveGroup { group, .. } | Operation::DeleteGroup { group } => group,
            Operation::ElectLeaders { topic } | Operation::CancelMoves { topic } => {
                topic.as_deref().unwrap_or_default()
            }
            Operation::Reassign { moves, .. } => {
                moves.first().map(|step| step.topic.as_str()).unwrap_or_default()
            }
            Operation::LiftThrottle => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rights::{Role, Topics};

    #[test]
    fn every_name_leads_to_its_operation() {
        for kind in Kind::ALL {
            assert_eq!(Kind::from_name(kind.name()), Some(kind));
        }
        assert_eq!(Kind::from_name("Produce"), None);
    }

    #[test]
    fn who_may_read_may_do_nothing_and_whose_topics_are_some_keeps_to_them() {
        let topic = || "orders".to_owned();
        let all = [
            Operation::CreateTopic {
                topic: topic(),
                partitions: None,
                replicas: None,
                settings: Vec::new(),
            },
            Operation::AddPartitions { topic: topic(), total: 2 },
            Operation::AlterTopic { topic: topic(), set: Vec::new(), delete: Vec::new() },
            Operation::DeleteTopic { topic: topic() },
            Operation::DeleteGroup { group: topic() },
            Operation::ElectLeaders { topic: Some(topic()) },
            Operation::CancelMoves { topic: Some(topic()) },
            Operation::LiftThrottle,
        ];
        let some = |prefix: &str| Rights {
            role: Some(Role::Admin),
            topics: Topics::Under(vec![prefix.to_owned()]),
        };
        let may = |rights: &Rights| all.iter().filter(|o| rights.may(o.deed()).is_ok()).count();
        assert_eq!(may(&Rights::of(Role::Read)), 0);
        assert_eq!(may(&Rights::of(Role::Write)), 2);
        assert_eq!(may(&Rights::of(Role::Admin)), all.len());
        assert_eq!((may(&some("ord")), may(&some("other"))), (4, 0));
    }
}
