//! Room in the memory of group members: members and groups that go when the pool is full (decision 0065).

use std::sync::Arc;
use std::time::{Duration, Instant};

use coordinator::{GroupMemory, MemberId};
use model::Timestamp;
use tracing::warn;

use super::Groups;
use super::host::Host;
use crate::network::shares::{Owner, PoolShare, PoolShortage};

/// Members that were not heard of for this long are idle: clients send heartbeats every 3 s.
const IDLE_AFTER: Duration = Duration::from_secs(10);
/// Groups that sent nothing for this long are silent, whatever their session time-out.
pub const SILENT_AFTER: Duration = Duration::from_secs(30);
/// Part of the pool that silent groups may use.
const SILENT_PART: usize = 4;
/// Part of the pool that is freed at once, so that a full pool is not searched for each request.
const FREED_PART: usize = 16;

/// A group with its shard.
type Candidate<'a> = (&'a Arc<Host>, GroupMemory);

impl Groups {
    /// Memory of members or assignments of a group, in place of `former_bytes` that are returned later. `None`: the
    /// pool is full, and the address has its share.
    pub fn hold(&self, owner: Owner, bytes: usize, former_bytes: usize) -> Option<PoolShare> {
        let pool = &self.memory.members;
        let short = match pool.hold(owner, bytes, former_bytes) {
            Ok(share) => return Some(share),
            Err(short) => short,
        };
        self.make_room(owner, short);
        let held = pool.hold(owner, bytes, former_bytes);
        if held.is_err() && pool.is_report_due(Instant::now()) {
            let (used, max) = (pool.used_bytes(), pool.bytes_max());
            warn!(
                ?owner,
                used,
                max,
                "memory for members of groups is full: JoinGroup and SyncGroup requests are refused; raise group.coordinator.memory.max.bytes, or reduce the metadata of members"
            );
        }
        held.ok()
    }

    /// Removes groups that sent nothing for `silent_after` while all groups use more than a quarter of the pool, those first
    /// that were silent for longest. A client may ask for a session of half an hour and leave.
    pub fn release_silent(&self, silent_after: Duration) {
        let pool = &self.memory.members;
        let is_enough = || pool.used_bytes() <= pool.bytes_max() / SILENT_PART;
        if is_enough() {
            return;
        }
        let hosts = self.hosts();
        let silent_since = self.clock.steady().plus_ms(-(silent_after.as_millis() as i64));
        let mut groups: Vec<Candidate<'_>> = candidates(&hosts);
        groups.retain(|(_, group)| group.heard <= silent_since);
        groups.sort_by_key(|(_, group)| group.heard);
        drop_groups(&groups, &is_enough, |group| {
            let pending = group.pending.iter().filter(|(_, since)| *since <= silent_since);
            let pending = pending.map(|(member, _)| member.clone());
            let members = group.members.iter().map(|(member, _)| member.clone());
            let gone: Vec<MemberId> = members.chain(pending).collect();
            (!gone.is_empty() || !group.has_offsets).then_some(gone)
        });
    }

    /// Evicts in this order: pending members, oldest first; groups without members and offsets; idle members of the same
    /// address; then, for an address within its fair share, members of addresses above their share, longest silent first.
    fn make_room(&self, owner: Owner, short: PoolShortage) {
        let pool = &self.memory.members;
        let is_due = short.is_within_share || pool.may_seek_idle(Instant::now());
        if !is_due && !pool.has_pending() {
            return;
        }
        let goal = (short.needed_bytes + pool.free_bytes()).max(pool.bytes_max() / FREED_PART);
        let is_enough = || pool.free_bytes() >= goal;
        let hosts = self.hosts();
        let groups: Vec<Candidate<'_>> = candidates(&hosts);
        self.drop_pending(&groups, &is_enough);
        if !is_due || is_enough() {
            return;
        }
        let silent_since = self.clock.steady().plus_ms(-(IDLE_AFTER.as_millis() as i64));
        let mut groups = groups;
        groups.sort_by_key(|(_, group)| group.heard);
        let is_unused = |group: &GroupMemory| group.members.is_empty() && !group.has_offsets;
        drop_groups(&groups, &is_enough, |group| is_unused(group).then(Vec::new));
        let is_idle = |group: &GroupMemory| group.heard <= silent_since;
        drop_groups(&groups, &is_enough, |group| {
            members(group, |of| is_idle(group) && of == owner)
        });
        if short.is_within_share {
            drop_groups(&groups, &is_enough, |group| members(group, |of| pool.is_above_share(of)));
        }
    }

    fn drop_pending(&self, groups: &[Candidate<'_>], is_enough: &impl Fn() -> bool) {
        let mut pending: Vec<(Timestamp, &Candidate<'_>, &MemberId)> = Vec::new();
        for candidate in groups {
            let own = candidate.1.pending.iter();
            pending.extend(own.map(|(member, since)| (*since, candidate, member)));
        }
        pending.sort_by_key(|(since, ..)| *since);
        for (_, (host, group), member) in pending {
            if is_enough() {
                return;
            }
            host.reclaim(group.group.clone(), vec![member.clone()]);
        }
    }
}

fn candidates(hosts: &[Arc<Host>]) -> Vec<Candidate<'_>> {
    hosts.iter().flat_map(|host| host.memory().into_iter().map(move |g| (host, g))).collect()
}

/// Removes those members of each group that `which` returns, until there is room enough.
fn drop_groups(
    groups: &[Candidate<'_>],
    is_enough: &impl Fn() -> bool,
    which: impl Fn(&GroupMemory) -> Option<Vec<MemberId>>,
) {
    for (host, group) in groups {
        if is_enough() {
            return;
        }
        if let Some(members) = which(group) {
            host.reclaim(group.group.clone(), members);
        }
    }
}

/// The members of a group whose addresses are to give memory back, if there are any.
fn members(group: &GroupMemory, which: impl Fn(Owner) -> bool) -> Option<Vec<MemberId>> {
    let owner =
        |lent: &coordinator::request::Lent| lent.account::<PoolShare>().and_then(PoolShare::owner);
    let chosen = group.members.iter().filter(|(_, lent)| which(owner(lent)));
    let chosen: Vec<MemberId> = chosen.map(|(member, _)| member.clone()).collect();
    (!chosen.is_empty()).then_some(chosen)
}
