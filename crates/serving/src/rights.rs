//! What a visitor may do, by its role and the topics that are its own: [`Rights::may`]. One table ([`Deed::needs`]) holds for every
//! route of the gateway and for every action of the console, so that no page can offer what the API refuses.
//!
//! Names, sizes, configurations and lag are seen by everybody who may look at all; records are read and written within one's
//! topics only, and what touches the cluster as a whole, a group for example, is for those whose topics are all of them.
//!
//! Not here: who a visitor is ([`crate::users`]), and whether a page may send the request ([`crate::visitors`]).

use std::fmt;

/// What a user is trusted with. Each may do what those before it may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Looks, and reads records.
    Read,
    /// Sends records, and reads as a member of groups.
    Produce,
    /// Makes topics, and says where groups go on: what adds, and what can be set back.
    Write,
    /// What loses records or moves load as well.
    Admin,
}

impl Role {
    /// Every one, the weakest first.
    pub const ALL: [Role; 4] = [Role::Read, Role::Produce, Role::Write, Role::Admin];

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Produce => "produce",
            Role::Write => "write",
            Role::Admin => "admin",
        }
    }

    /// The role of this name; `None` for any other text.
    pub fn from_name(name: &str) -> Option<Role> {
        Role::ALL.into_iter().find(|role| role.name() == name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a request would do, with the topic that it would do it to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Deed<'a> {
    /// To hear whether the gateway is well, what it counts, and what can be asked. Everybody may.
    Greet,
    /// To see names, sizes, offsets, configurations and lag.
    Look,
    /// To read records of this topic.
    Read(&'a str),
    /// To send records to this topic.
    Produce(&'a str),
    /// To read as a member of a group, which takes partitions from other members and commits.
    Join,
    /// To make this topic.
    CreateTopic(&'a str),
    /// To give this topic more partitions.
    AddPartitions(&'a str),
    /// To change the configuration of this topic, how long it keeps records for example.
    AlterTopic(&'a str),
    /// To delete this topic and its records.
    DeleteTopic(&'a str),
    /// To say where a group goes on.
    MoveGroup,
    /// To delete a group with its offsets.
    DeleteGroup,
    /// To have preferred replicas lead.
    ElectLeaders,
    /// To move replicas, to end such moves, and to lift the limits of copying.
    Reassign,
    /// To begin or end a run of the laboratory.
    RunLab,
}

/// What a deed touches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touches<'a> {
    Nothing,
    Topic(&'a str),
    Cluster,
}

impl<'a> Deed<'a> {
    /// The weakest role that may; `None`: no role is needed.
    pub const fn needs(self) -> Option<Role> {
        self.row().0
    }

    const fn row(self) -> (Option<Role>, Touches<'a>) {
        match self {
            Deed::Greet => (None, Touches::Nothing),
            Deed::Look => (Some(Role::Read), Touches::Nothing),
            Deed::Read(topic) => (Some(Role::Read), Touches::Topic(topic)),
            Deed::Produce(topic) => (Some(Role::Produce), Touches::Topic(topic)),
            Deed::Join => (Some(Role::Produce), Touches::Cluster),
            Deed::CreateTopic(topic) | Deed::AddPartitions(topic) => {
                (Some(Role::Write), Touches::Topic(topic))
            }
            Deed::MoveGroup => (Some(Role::Write), Touches::Cluster),
            Deed::AlterTopic(topic) | Deed::DeleteTopic(topic) => {
                (Some(Role::Admin), Touches::Topic(topic))
            }
            Deed::DeleteGroup | Deed::ElectLeaders | Deed::Reassign | Deed::RunLab => {
                (Some(Role::Admin), Touches::Cluster)
            }
        }
    }

    /// The topic that it touches, if it is one topic.
    pub const fn topic(self) -> Option<&'a str> {
        match self.row().1 {
            Touches::Topic(topic) => Some(topic),
            Touches::Nothing | Touches::Cluster => None,
        }
    }
}

/// Which topics are somebody's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Topics {
    /// Every one.
    #[default]
    All,
    /// Those whose names begin with one of these.
    Under(Vec<String>),
    /// These.
    Named(Vec<String>),
}

impl Topics {
    /// Whether this topic is one of them.
    pub fn have(&self, topic: &str) -> bool {
        match self {
            Topics::All => true,
            Topics::Under(prefixes) => prefixes.iter().any(|prefix| topic.starts_with(&**prefix)),
            Topics::Named(names) => names.iter().any(|name| name == topic),
        }
    }
}

/// What somebody may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rights {
    /// `None`: has no role, and may greet.
    pub role: Option<Role>,
    /// The topics that the role holds for.
    pub topics: Topics,
}

/// What is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Lack {
    /// This role.
    Role(Role),
    /// This topic is not one of the visitor's.
    Topic(String),
    /// Its topics are not all topics.
    Cluster,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lack::Role(role) => write!(f, "this needs the role {role}"),
            Lack::Topic(topic) => write!(f, "the topic {topic:?} is not one of yours"),
            Lack::Cluster => f.write_str(
                "this touches the cluster as a whole, and your role holds for some topics only",
            ),
        }
    }
}

impl Rights {
    /// May greet.
    pub const NONE: Rights = Rights { role: None, topics: Topics::All };

    /// This role, for all topics.
    pub const fn of(role: Role) -> Rights {
        Rights { role: Some(role), topics: Topics::All }
    }

    /// Whether this may be done to some topic, if it is one that is done to a topic.
    ///
    /// # Errors
    /// It may not: this is missing.
    pub fn may_somewhere(&self, deed: Deed<'_>) -> Result<(), Lack> {
        match self.may(deed) {
            Err(Lack::Topic(_)) => Ok(()),
            other => other,
        }
    }

    /// Whether this may be done.
    ///
    /// # Errors
    /// It may not: this is missing.
    pub fn may(&self, deed: Deed<'_>) -> Result<(), Lack> {
        let (needed, touches) = deed.row();
        let Some(needed) = needed else { return Ok(()) };
        if self.role.is_none_or(|role| role < needed) {
            return Err(Lack::Role(needed));
        }
        match touches {
            Touches::Topic(topic) if !self.topics.have(topic) => Err(Lack::Topic(topic.to_owned())),
            Touches::Cluster if self.topics != Topics::All => Err(Lack::Cluster),
            Touches::Nothing | Touches::Topic(_) | Touches::Cluster => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOPIC: &str = "orders.eu";
    const DEEDS: [Deed<'_>; 14] = [
        Deed::Greet,
        Deed::Look,
        Deed::Read(TOPIC),
        Deed::Produce(TOPIC),
        Deed::Join,
        Deed::CreateTopic(TOPIC),
        Deed::AddPartitions(TOPIC),
        Deed::MoveGroup,
        Deed::AlterTopic(TOPIC),
        Deed::DeleteTopic(TOPIC),
        Deed::DeleteGroup,
        Deed::ElectLeaders,
        Deed::Reassign,
        Deed::RunLab,
    ];

    /// How many of the deeds above somebody may do; they stand in the order of what they need.
    fn first(rights: &Rights) -> usize {
        let may = DEEDS.map(|deed| rights.may(deed).is_ok());
        let count = may.iter().take_while(|may| **may).count();
        assert!(may[count..].iter().all(|may| !may), "{rights:?}: {may:?}");
        count
    }

    #[test]
    fn each_role_may_do_what_the_weaker_ones_may_and_more() {
        assert_eq!(first(&Rights::NONE), 1);
        let counts = Role::ALL.map(|role| first(&Rights::of(role)));
        assert_eq!(counts, [3, 5, 8, DEEDS.len()]);
    }

    #[test]
    fn a_role_for_some_topics_holds_for_those_and_not_for_the_cluster() {
        let under = |prefixes: &[&str]| Rights {
            role: Some(Role::Admin),
            topics: Topics::Under(prefixes.iter().map(|prefix| (*prefix).to_owned()).collect()),
        };
        let (ours, others) = (under(&["logs.", "orders."]), under(&["order.", "orders.eu."]));
        for deed in DEEDS {
            let needs_all = deed.needs().is_some() && deed.topic().is_none() && deed != Deed::Look;
            let lacks = if needs_all { Err(Lack::Cluster) } else { Ok(()) };
            assert_eq!(ours.may(deed), lacks, "{deed:?}");
            let somewhere = if needs_all { Err(Lack::Cluster) } else { Ok(()) };
            assert_eq!(others.may_somewhere(deed), somewhere, "{deed:?}");
            let of_topic = deed.topic().map(|topic| Err(Lack::Topic(topic.to_owned())));
            assert_eq!(others.may(deed), of_topic.unwrap_or(lacks), "{deed:?}");
        }
        let named = Topics::Named(vec!["orders".to_owned()]);
        assert!(named.have("orders") && !named.have("orders.eu") && !named.have(""));
        assert!(!Topics::Under(Vec::new()).have(""), "without a prefix there is nothing");
    }

    #[test]
    fn roles_have_names() {
        for role in Role::ALL {
            assert_eq!(Role::from_name(role.name()), Some(role));
        }
        for name in ["", "Read", "root", "none"] {
            assert_eq!(Role::from_name(name), None, "{name}");
        }
    }
}
