//! Why two nodes do not talk, as a kind for programs and in words for people. Both sides log the same words.

use super::CodecError;
use super::fields::{Reader, Writer, cut};
use super::hello::{ANY_GENERATION, Hello};
use std::fmt;

/// Bytes of the words that go over the wire.
const WORDS_BYTES_MAX: usize = 1024;

/// Why a peer is not talked to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// What it said is not a Hello.
    Malformed,
    /// It belongs to another cluster.
    Cluster,
    /// Both speak versions of which none is the same.
    Version,
    /// It has another `inter.broker.secret`, or none, or this node has none.
    Secret,
    /// It has this node's id.
    SameNode,
    /// It is not the node that was to be reached.
    OtherNode,
    /// It is on another machine, and there is no secret.
    NotLoopback,
    /// What it wants the connection for is not served.
    Purpose,
    /// Too many connections have not proven anything yet.
    Busy,
    /// It has the metadata of another generation of the quorum.
    Generation,
    /// Of a kind that a newer release has.
    Other(u8),
}

impl Refusal {
    /// The kind on the wire. Numbers are never given to another kind.
    fn code(self) -> u8 {
        match self {
            Refusal::Malformed => 1,
            Refusal::Cluster => 2,
            Refusal::Version => 3,
            Refusal::Secret => 4,
            Refusal::SameNode => 5,
            Refusal::OtherNode => 6,
            Refusal::NotLoopback => 7,
            Refusal::Purpose => 8,
            Refusal::Busy => 9,
            Refusal::Generation => 10,
            Refusal::Other(code) => code,
        }
    }

    fn from_code(code: u8) -> Refusal {
        match code {
            1 => Refusal::Malformed,
            2 => Refusal::Cluster,
            3 => Refusal::Version,
            4 => Refusal::Secret,
            5 => Refusal::SameNode,
            6 => Refusal::OtherNode,
            7 => Refusal::NotLoopback,
            8 => Refusal::Purpose,
            9 => Refusal::Busy,
            10 => Refusal::Generation,
            other => Refusal::Other(other),
        }
    }

    /// Whether only a person can do something about it: asking again soon is useless.
    pub fn is_lasting(self) -> bool {
        !matches!(self, Refusal::Busy | Refusal::Other(_))
    }
}

/// A refusal with its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// For programs.
    pub why: Refusal,
    /// For people: what is wrong, with both sides' values. Never a secret.
    pub words: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.words)
    }
}

impl Refused {
    /// Refused for a reason, in words.
    pub fn new(why: Refusal, words: impl Into<String>) -> Refused {
        Refused { why, words: words.into() }
    }

    pub(super) fn write(&self, out: &mut Writer) {
        out.u8(self.why.code());
        out.text(cut(&self.words, WORDS_BYTES_MAX));
    }

    pub(super) fn read(fields: &mut Reader<'_>) -> Result<Refused, CodecError> {
        let why = Refusal::from_code(fields.u8()?);
        // The words of a stranger: they go into logs.
        let words = fields.text()?.chars().filter(|c| !c.is_control()).collect();
        Ok(Refused { why, words })
    }
}

/// The refusal of somebody else's machine where there is no secret.
pub(crate) fn not_loopback(node: impl fmt::Display) -> Refused {
    let words = format!(
        "node {node} has no inter.broker.secret, so it talks to brokers on its own machine only: set the \
         same inter.broker.secret on every broker"
    );
    Refused::new(Refusal::NotLoopback, words)
}

/// The refusal of a proof that does not fit.
pub(crate) fn other_secret(mine: &Hello, theirs: &Hello) -> Refused {
    let words = format!(
        "nodes {} and {} have different values of inter.broker.secret",
        mine.node, theirs.node
    );
    Refused::new(Refusal::Secret, words)
}

/// Judges what the peer said of itself, as either side does: the version to speak, or why not. What a
/// secret proves is not judged here.
pub fn judge(mine: &Hello, theirs: &Hello, is_loopback: bool) -> Result<u16, Refused> {
    check_cluster(mine, theirs)?;
    let version = check_version(mine, theirs)?;
    check_nodes(mine, theirs)?;
    check_generation(mine, theirs)?;
    check_secrets(mine, theirs, is_loopback)?;
    Ok(version)
}

fn check_cluster(mine: &Hello, theirs: &Hello) -> Result<(), Refused> {
    if mine.cluster_id == theirs.cluster_id {
        return Ok(());
    }
    let words = format!(
        "node {} belongs to cluster {}, node {} to cluster {}",
        mine.node, mine.cluster_id, theirs.node, theirs.cluster_id
    );
    Err(Refused::new(Refusal::Cluster, words))
}

fn check_version(mine: &Hello, theirs: &Hello) -> Result<u16, Refused> {
    if let Some(version) = mine.versions.newest_common(theirs.versions) {
        return Ok(version);
    }
    let words = format!(
        "node {} speaks versions {} of the link between brokers, node {} versions {}: upgrade one release at a time",
        mine.node, mine.versions, theirs.node, theirs.versions
    );
    Err(Refused::new(Refusal::Version, words))
}

fn check_nodes(mine: &Hello, theirs: &Hello) -> Result<(), Refused> {
    if mine.node == theirs.node {
        let words = if mine.incarnation == theirs.incarnation {
            format!(
                "node {} has dialed itself: its address stands where a peer's should",
                mine.node
            )
        } else {
            format!("two brokers have node.id {}", mine.node)
        };
        return Err(Refused::new(Refusal::SameNode, words));
    }
    for (asker, asked) in [(mine, theirs), (theirs, mine)] {
        if let Some(wanted) = asker.wanted.filter(|wanted| *wanted != asked.node) {
            let words = format!(
                "node {} wanted node {wanted}, and node {} answers at that address",
                asker.node, asked.node
            );
            return Err(Refused::new(Refusal::OtherNode, words));
        }
    }
    Ok(())
}

/// A node without metadata takes the generation of the other one.
fn check_generation(mine: &Hello, theirs: &Hello) -> Result<(), Refused> {
    let is_any = mine.generation == ANY_GENERATION || theirs.generation == ANY_GENERATION;
    if mine.generation == theirs.generation || is_any {
        return Ok(());
    }
    let is_older = mine.generation < theirs.generation;
    let (older, newer) = if is_older { (mine, theirs) } else { (theirs, mine) };
    let words = format!(
        "the metadata quorum was regenerated (generation {}, node {}), and node {} has the metadata of generation {}: stop \
         node {}, move its __cluster_metadata-0 away and start it without that folder",
        newer.generation, newer.node, older.node, older.generation, older.node
    );
    Err(Refused::new(Refusal::Generation, words))
}

fn check_secrets(mine: &Hello, theirs: &Hello, is_loopback: bool) -> Result<(), Refused> {
    match (mine.has_secret, theirs.has_secret) {
        (true, true) => Ok(()),
        (false, false) if is_loopback => Ok(()),
        (false, false) => Err(not_loopback(mine.node)),
        (mine_has, _) => {
            let (with, without) = if mine_has { (mine, theirs) } else { (theirs, mine) };
            let words = format!(
                "node {} has an inter.broker.secret, node {} has none",
                with.node, without.node
            );
            Err(Refused::new(Refusal::Secret, words))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::hello::Versions;
    use super::*;
    use model::BrokerId;

    fn hello(node: i32) -> Hello {
        Hello::sample(node)
    }

    fn refused(mine: &Hello, theirs: &Hello) -> Refusal {
        let there = judge(mine, theirs, true).unwrap_err();
        let here = judge(theirs, mine, true).unwrap_err();
        assert_eq!(there.why, here.why, "both sides come to the same");
        there.why
    }

    #[test]
    fn peers_that_fit_agree_on_the_newest_version() {
        let (mine, theirs) = (hello(1), hello(2));
        assert_eq!(judge(&mine, &theirs, true), Ok(1));
        let versions = |min, max| Versions { min, max };
        let old = Hello { versions: versions(1, 3), ..mine };
        let new = Hello { versions: versions(2, 9), ..theirs };
        assert_eq!((judge(&old, &new, true), judge(&new, &old, true)), (Ok(3), Ok(3)));
    }

    #[test]
    fn every_refusal_is_the_same_from_both_sides() {
        let (mine, theirs) = (hello(1), hello(2));
        let other = Hello { cluster_id: "other".into(), ..theirs.clone() };
        assert_eq!(refused(&mine, &other), Refusal::Cluster);
        let newer = Hello { versions: Versions { min: 2, max: 3 }, ..theirs.clone() };
        assert_eq!(refused(&mine, &newer), Refusal::Version);
        let same = Hello { node: BrokerId(1), ..theirs.clone() };
        assert_eq!(refused(&mine, &same), Refusal::SameNode);
        let lost = Hello { wanted: Some(BrokerId(3)), ..theirs.clone() };
        assert_eq!(refused(&mine, &lost), Refusal::OtherNode);
        let regenerated = Hello { generation: 2, ..theirs.clone() };
        assert_eq!(refused(&mine, &regenerated), Refusal::Generation);
        let without_metadata = Hello { generation: ANY_GENERATION, ..theirs.clone() };
        assert_eq!(judge(&mine, &without_metadata, true), Ok(1));
        assert_eq!(
            judge(&regenerated, &Hello { generation: ANY_GENERATION, ..mine.clone() }, true),
            Ok(1)
        );
        let proving = Hello { has_secret: true, ..theirs };
        assert_eq!(refused(&mine, &proving), Refusal::Secret);
    }

    #[test]
    fn without_a_secret_only_the_own_machine_is_talked_to() {
        let (mine, theirs) = (hello(1), hello(2));
        assert_eq!(judge(&mine, &theirs, false).unwrap_err().why, Refusal::NotLoopback);
        let with = |hello: Hello| Hello { has_secret: true, ..hello };
        assert_eq!(judge(&with(mine), &with(theirs), false), Ok(1));
    }

    #[test]
    fn a_refusal_and_back() {
        for code in 0..=u8::MAX {
            assert_eq!(Refusal::from_code(code).code(), code);
        }
        let words = format!("in words\n{}", "é".repeat(2000));
        let mut out = Writer::default();
        Refused::new(Refusal::Cluster, words).write(&mut out);
        let bytes = out.into_bytes();
        let read = Refused::read(&mut Reader::new(&bytes)).unwrap();
        assert_eq!(read.why, Refusal::Cluster);
        assert!(read.words.starts_with("in wordsé") && read.words.len() <= WORDS_BYTES_MAX);
    }
}
