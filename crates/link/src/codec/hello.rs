//! Hello: the first message both ways, by which two nodes find out whether they talk.
//!
//! ```text
//!  4  magic "HWLK"
//!  4  length of what follows, at most 4,096
//!  2  oldest version      2  newest version
//!  1  whether it has a secret
//!  4  node id             4  node id that is wanted, -1: any
//! 16  incarnation        32  nonce
//!  1  purpose (0 control, 1 fetcher)      2  the fetcher's slot, else 0
//!  1  whether there is a last metadata entry, then if so: 8 term, 8 leader, 8 index
//!  2+ cluster id
//!  2  number of directories, then 16 each
//!  4  generation of the quorum, if it is not 0
//!     what newer releases add behind; older ones pass over it
//! ```
//!
//! This layout stays: it is what versions are agreed by.

use super::fields::{Reader, Writer, cut};
use super::{CodecError, LENGTH_BYTES, checked_length};
use model::{BrokerId, CLUSTER_ID_BYTES_MAX, Uuid};
use std::fmt;

/// What every Hello begins with.
pub const MAGIC: [u8; 4] = *b"HWLK";
/// The most bytes that are read of a peer before it is known: of a Hello, or of a frame before the peer
/// has proven that it belongs here.
pub const HELLO_BYTES_MAX: usize = 4096;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
/// The versions of the link that this code speaks.
pub const VERSIONS: Versions = Versions { min: 1, max: 1 };
/// Directories that a Hello names: the first ones of a node that has more.
const DIRECTORIES_MAX: usize = 200;
/// "Any node", on the wire.
const ANY_NODE: i32 = -1;

/// Generation that a node without metadata names: it takes that of a node with metadata.
pub const ANY_GENERATION: u32 = u32::MAX;

/// Whether bytes that a connection begins with are the link's.
pub fn is_link(first: [u8; 4]) -> bool {
    first == MAGIC
}

/// A range of protocol versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest.
    pub min: u16,
    /// The newest.
    pub max: u16,
}

impl Versions {
    /// The newest version in both ranges.
    pub fn newest_common(self, other: Versions) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.min, self.max)
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Calls: the quorum, heartbeats, forwarded requests.
    Control,
    /// Copying records, by the fetcher of this slot.
    Fetcher {
        /// Which of its fetchers.
        slot: u16,
    },
}

impl Purpose {
    fn fields(self) -> (u8, u16) {
        match self {
            Purpose::Control => (0, 0),
            Purpose::Fetcher { slot } => (1, slot),
        }
    }
}

/// The place of an entry in the metadata log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPoint {
    /// The term in which it was written.
    pub term: u64,
    /// Who led then: the quorum's number of the node.
    pub leader: u64,
    /// Its index.
    pub index: u64,
}

/// What a node says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// What it speaks.
    pub versions: Versions,
    /// Whether it has a secret, and so wants a proof.
    pub has_secret: bool,
    /// Which node it is.
    pub node: BrokerId,
    /// Which node it wants to talk to; `None`: whoever answers. Said by who dials.
    pub wanted: Option<BrokerId>,
    /// This run of it: a process that was started again has another.
    pub incarnation: Uuid,
    /// Chosen anew for each connection, so that no proof can be used again.
    pub nonce: [u8; NONCE_BYTES],
    /// What the connection is for. Said by who dials; the other repeats it.
    pub purpose: Purpose,
    /// The last entry in its metadata log.
    pub last_metadata: Option<LogPoint>,
    /// The cluster that it belongs to.
    pub cluster_id: String,
    /// The ids of its log directories.
    pub directories: Vec<Uuid>,
    /// Generation of the quorum whose metadata the node has; 0 for the quorum that made the cluster, [`ANY_GENERATION`] for a node
    /// without metadata.
    pub generation: u32,
}

impl Hello {
    /// The bytes, magic and length among them.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer::after([MAGIC, [0; LENGTH_BYTES]].concat());
        out.u16(self.versions.min);
        out.u16(self.versions.max);
        out.flag(self.has_secret);
        out.i32(self.node.0);
        out.i32(self.wanted.map_or(ANY_NODE, |node| node.0));
        out.bytes(&self.incarnation.0);
        out.bytes(&self.nonce);
        let (purpose, slot) = self.purpose.fields();
        out.u8(purpose);
        out.u16(slot);
        out.flag(self.last_metadata.is_some());
        if let Some(LogPoint { term, leader, index }) = self.last_metadata {
            [term, leader, index].into_iter().for_each(|number| out.u64(number));
        }
        out.text(cut(&self.cluster_id, CLUSTER_ID_BYTES_MAX));
        let named = self.directories.iter().take(DIRECTORIES_MAX);
        out.u16(named.len() as u16);
        named.for_each(|directory| out.bytes(&directory.0));
        if self.generation > 0 {
            // Earlier releases pass over the field.
            out.u32(self.generation);
        }
        let mut bytes = out.into_bytes();
        let body = bytes.len() - MAGIC.len() - LENGTH_BYTES;
        assert!(body <= HELLO_BYTES_MAX, "its parts are bounded");
        bytes[MAGIC.len()..][..LENGTH_BYTES].copy_from_slice(&(body as u32).to_be_bytes());
        bytes
    }

    /// Reads what follows magic and length.
    pub fn decode(body: &[u8]) -> Result<Hello, CodecError> {
        let mut fields = Reader::new(body);
        let versions = Versions { min: fields.u16()?, max: fields.u16()? };
        let has_secret = fields.flag()?;
        let node = node(fields.i32()?)?;
        let wanted = match fields.i32()? {
            ANY_NODE => None,
            wanted => Some(self::node(wanted)?),
        };
        let incarnation = Uuid(fields.array()?);
        let nonce = fields.array()?;
        let purpose = match (fields.u8()?, fields.u16()?) {
            (0, _) => Purpose::Control,
            (1, slot) => Purpose::Fetcher { slot },
            _ => return Err(CodecError::Value("an unknown purpose")),
        };
        let last_metadata = match fields.flag()? {
            true => {
                let (term, leader, index) = (fields.u64()?, fields.u64()?, fields.u64()?);
                Some(LogPoint { term, leader, index })
            }
            false => None,
        };
        let cluster_id = cluster_id(fields.text()?)?;
        let count = fields.u16()?;
        let directories = fields.bytes(usize::from(count) * 16)?.chunks_exact(16);
        let directories = directories.map(|id| Uuid(id.try_into().expect("16 bytes"))).collect();
        let rest = fields.rest();
        let generation = match rest.first_chunk() {
            Some(bytes) => u32::from_be_bytes(*bytes),
            None if rest.is_empty() => 0,
            None => return Err(CodecError::Value("a generation that is cut off")),
        };
        Ok(Hello {
            versions,
            has_secret,
            node,
            wanted,
            incarnation,
            nonce,
            purpose,
            last_metadata,
            cluster_id,
            directories,
            generation,
        })
    }
}

/// The length of a Hello by the bytes behind the magic.
pub fn checked_hello_length(prefix: [u8; LENGTH_BYTES]) -> Result<usize, CodecError> {
    checked_length(prefix, HELLO_BYTES_MAX)
}

fn node(id: i32) -> Result<BrokerId, CodecError> {
    if id < 0 {
        return Err(CodecError::Value("a node's id that is negative"));
    }
    Ok(BrokerId(id))
}

/// A text that may be written to a log.
fn cluster_id(text: &str) -> Result<String, CodecError> {
    if text.is_empty() || text.len() > CLUSTER_ID_BYTES_MAX || text.contains(char::is_control) {
        return Err(CodecError::Value("a cluster's id that is empty, long or not printable"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
impl Hello {
    /// What a node says in tests.
    pub(crate) fn sample(node: i32) -> Hello {
        Hello {
            versions: VERSIONS,
            has_secret: false,
            node: BrokerId(node),
            wanted: None,
            incarnation: Uuid([node as u8; 16]),
            nonce: [node as u8 + 0x10; NONCE_BYTES],
            purpose: Purpose::Control,
            last_metadata: Some(LogPoint { term: 3, leader: 1, index: 40 }),
            cluster_id: "AAAAAAAAAAAAAAAAAAAAAA".into(),
            directories: vec![Uuid([0xd1; 16]), Uuid([0xd2; 16])],
            generation: 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(node: i32) -> Hello {
        Hello::sample(node)
    }

    fn body(bytes: &[u8]) -> &[u8] {
        assert!(is_link(*bytes.first_chunk().unwrap()));
        let length = checked_hello_length(bytes[4..8].try_into().unwrap()).unwrap();
        assert_eq!(bytes.len(), 8 + length);
        &bytes[8..]
    }

    #[test]
    fn a_hello_and_back() {
        let fetcher = Hello {
            purpose: Purpose::Fetcher { slot: 2 },
            wanted: Some(BrokerId(9)),
            last_metadata: None,
            directories: Vec::new(),
            has_secret: true,
            ..hello(1)
        };
        let regenerated = Hello { generation: 7, ..hello(1) };
        for hello in [hello(1), fetcher, regenerated] {
            assert_eq!(Hello::decode(body(&hello.encode())), Ok(hello));
        }
    }

    /// These bytes are what other releases send. They may only become longer.
    #[test]
    fn the_bytes_of_a_hello_stay_what_they_are() {
        let golden = concat!(
            "48574c4b",
            "00000093",
            "0001",
            "0001",
            "00",
            "00000001",
            "ffffffff",
            "01010101010101010101010101010101",
            "1111111111111111111111111111111111111111111111111111111111111111",
            "00",
            "0000",
            "01",
            "0000000000000003",
            "0000000000000001",
            "0000000000000028",
            "0016",
            "41414141414141414141414141414141414141414141",
            "0002",
            "d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1d1",
            "d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2d2",
        );
        let hex: String = hello(1).encode().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, golden);
    }

    #[test]
    fn what_newer_releases_add_is_passed_over() {
        let hello = Hello { generation: 7, ..hello(1) };
        let mut bytes = hello.encode();
        bytes.extend_from_slice(b"something new");
        assert_eq!(Hello::decode(&bytes[8..]), Ok(hello));
    }

    /// Release 0.1.0 names no generation, and passes over the one that a newer release names.
    #[test]
    fn a_generation_is_behind_what_earlier_releases_read() {
        let (old, new) = (hello(1).encode(), Hello { generation: 7, ..hello(1) }.encode());
        assert_eq!((&new[8..old.len()], new.len()), (&old[8..], old.len() + 4));
        assert_eq!(Hello::decode(&old[8..]).unwrap().generation, 0);
        assert_eq!(Hello::decode(&new[8..]).unwrap().generation, 7);
        for cut in old.len() + 1..new.len() {
            assert!(Hello::decode(&new[8..cut]).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn every_cut_and_odd_value_is_an_error() {
        let bytes = hello(1).encode();
        for cut in 8..bytes.len() {
            assert!(Hello::decode(&bytes[8..cut]).is_err(), "cut at {cut}");
        }
        let with = |at: usize, value: u8| {
            let mut changed = bytes.clone();
            changed[at] = value;
            Hello::decode(&changed[8..])
        };
        assert!(with(12, 2).is_err(), "whether it has a secret");
        assert!(with(13, 0x80).is_err(), "a negative node");
        assert!(with(17, 0x80).is_err(), "a negative node that is wanted");
        assert!(with(69, 9).is_err(), "a purpose");
        assert!(with(99, b'\n').is_err(), "a cluster id that breaks a line");
    }

    #[test]
    fn a_node_with_very_many_directories_says_hello_all_the_same() {
        let many = Hello {
            directories: vec![Uuid([7; 16]); 1000],
            cluster_id: "c".repeat(1000),
            ..hello(1)
        };
        let read = Hello::decode(body(&many.encode())).unwrap();
        assert_eq!((read.directories.len(), read.cluster_id.len()), (200, 249));
    }

    #[test]
    fn versions_meet_where_they_overlap() {
        let of = |min, max| Versions { min, max };
        assert_eq!(of(1, 4).newest_common(of(3, 9)), Some(4));
        assert_eq!(of(1, 2).newest_common(of(3, 9)), None);
        assert_eq!(of(5, 5).newest_common(of(5, 5)), Some(5));
    }
}
