//! A classic group after a rebalance: GroupMetadataKey and GroupMetadataValue.
//!
//! ```text
//! key     i16 2 | group: string
//! value   i16 version | protocol type: string | generation: i32 | protocol: string?
//!         | leader: string? | state timestamp: i64 (2+) | members: [member] | tags (4+)
//! member  member id: string | instance id: string? (3+) | client id: string | host: string
//!         | rebalance timeout: i32 (1+) | session timeout: i32 | subscription: bytes
//!         | assignment: bytes | tags (4+)
//! ```
//!
//! Version 3 is written.

use std::collections::BTreeSet;
use std::sync::Arc;

use model::{GenerationId, Timestamp};

use super::bytes::{Reader, put_bytes, put_nullable_string, put_string};
use super::{KIND_GROUP_METADATA, RecordError};
use crate::{GroupId, GroupInstanceId, MemberId};

const VERSION_WRITTEN: i16 = 3;
const VERSION_FLEXIBLE: i16 = 4;

/// What survives of a classic group: its last completed generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// `consumer`, `connect`, …; `None` (on disk: empty) for a group that never had members.
    pub protocol_type: Option<Arc<str>>,
    /// How often it rebalanced.
    pub generation_id: GenerationId,
    /// What was chosen for this generation; none if it is empty.
    pub protocol: Option<Arc<str>>,
    /// Who assigned.
    pub leader: Option<MemberId>,
    /// When it last changed its state; -1 in records of old releases.
    pub state_timestamp: Timestamp,
    /// The members with their assignments, sorted by id when written by us.
    pub members: Vec<MemberRecord>,
}

/// What survives of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberRecord {
    /// Its id.
    pub member: MemberId,
    /// Its static name.
    pub instance: Option<GroupInstanceId>,
    /// Its client id.
    pub client_id: Arc<str>,
    /// Where it was.
    pub client_host: Arc<str>,
    /// Its rebalance time-out; -1 in records of old releases.
    pub rebalance_timeout_ms: i32,
    /// Its session time-out.
    pub session_timeout_ms: i32,
    /// Its metadata for the chosen protocol.
    pub subscription: Arc<[u8]>,
    /// What the leader assigned to it.
    pub assignment: Arc<[u8]>,
}

pub(super) fn encode_key(group: &GroupId) -> Vec<u8> {
    let mut key = Vec::with_capacity(4 + group.as_str().len());
    key.extend_from_slice(&KIND_GROUP_METADATA.to_be_bytes());
    put_string(&mut key, group.as_str());
    key
}

pub(super) fn decode_key(key: &mut Reader<'_>) -> Result<GroupId, RecordError> {
    Ok(GroupId(key.string()?))
}

pub(super) fn encode_value(value: &GroupRecord) -> Vec<u8> {
    assert!(value.members.is_empty() || value.protocol.is_some(), "members have a protocol");
    let mut out = Vec::new();
    out.extend_from_slice(&VERSION_WRITTEN.to_be_bytes());
    put_string(&mut out, value.protocol_type.as_deref().unwrap_or(""));
    out.extend_from_slice(&value.generation_id.0.to_be_bytes());
    put_nullable_string(&mut out, value.protocol.as_deref());
    put_nullable_string(&mut out, value.leader.as_ref().map(MemberId::as_str));
    out.extend_from_slice(&value.state_timestamp.0.to_be_bytes());
    out.extend_from_slice(&(value.members.len() as i32).to_be_bytes());
    for member in &value.members {
        encode_member(&mut out, member);
    }
    out
}

fn encode_member(out: &mut Vec<u8>, member: &MemberRecord) {
    assert!(!member.member.is_empty(), "a member has an id");
    put_string(out, member.member.as_str());
    put_nullable_string(out, member.instance.as_ref().map(GroupInstanceId::as_str));
    put_string(out, &member.client_id);
    put_string(out, &member.client_host);
    out.extend_from_slice(&member.rebalance_timeout_ms.to_be_bytes());
    out.extend_from_slice(&member.session_timeout_ms.to_be_bytes());
    put_bytes(out, &member.subscription);
    put_bytes(out, &member.assignment);
}

pub(super) fn decode_value(value: &[u8]) -> Result<GroupRecord, RecordError> {
    let mut value = Reader::new(value);
    let version = value.i16()?;
    if !(0..=VERSION_FLEXIBLE).contains(&version) {
        return Err(RecordError::UnknownVersion { kind: KIND_GROUP_METADATA, version });
    }
    value.set_flexible(version >= VERSION_FLEXIBLE);
    let protocol_type = Some(value.string()?).filter(|text| !text.is_empty());
    let generation_id = GenerationId(value.i32()?);
    let protocol = value.nullable_string()?;
    let leader = value.nullable_string()?.map(MemberId);
    let state_timestamp = Timestamp(if version >= 2 { value.i64()? } else { -1 });
    let count = value.count()?;
    let members: Vec<MemberRecord> =
        (0..count).map(|_| decode_member(&mut value, version)).collect::<Result<_, _>>()?;
    value.tagged_fields(|_, _| ())?;
    check_members(&members, protocol.as_deref())?;
    Ok(GroupRecord { protocol_type, generation_id, protocol, leader, state_timestamp, members })
}

/// The promises of [`encode_value`], and that nobody is there twice.
fn check_members(members: &[MemberRecord], protocol: Option<&str>) -> Result<(), RecordError> {
    let ids: BTreeSet<&MemberId> = members.iter().map(|member| &member.member).collect();
    let instances = || members.iter().filter_map(|member| member.instance.as_ref());
    let distinct: BTreeSet<&GroupInstanceId> = instances().collect();
    if ids.len() < members.len() || distinct.len() < instances().count() {
        return Err(RecordError::Malformed("a member is there twice"));
    }
    if ids.iter().any(|id| id.is_empty()) {
        return Err(RecordError::Malformed("a member has no id"));
    }
    if protocol.is_none() && !members.is_empty() {
        return Err(RecordError::Malformed("members have no protocol"));
    }
    Ok(())
}

fn decode_member(value: &mut Reader<'_>, version: i16) -> Result<MemberRecord, RecordError> {
    let member = MemberRecord {
        member: MemberId(value.string()?),
        instance: if version >= 3 { value.nullable_string()?.map(GroupInstanceId) } else { None },
        client_id: value.string()?,
        client_host: value.string()?,
        rebalance_timeout_ms: if version >= 1 { value.i32()? } else { -1 },
        session_timeout_ms: value.i32()?,
        subscription: value.bytes()?,
        assignment: value.bytes()?,
    };
    value.tagged_fields(|_, _| ())?;
    Ok(member)
}
