//! What an operator asks of a broker among others: the metadata and who decides it, who was fenced and why, elections and
//! ISR changes with their reasons, how far followers are behind, what a round of replication carries.
//!
//! Series are as many as there are brokers, log directories and reasons, however many partitions there are.

use std::fmt;

use super::observed::{FollowerFacts, MemberFacts, VolumeFacts};
use super::scrape::Scrape;
use crate::counters::{ByReason, ClusterCounters, Reason};
use metrics::Families;

pub(super) fn write(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    let counters = &scrape.counters.cluster;
    write_brokers(families, scrape)?;
    write_metadata(families, scrape, counters)?;
    write_members(families, &scrape.cluster.quorum.members)?;
    write_reasons(families, scrape, counters)?;
    write_replication(families, counters)?;
    write_followers(families, &scrape.cluster.followers)?;
    write_syncs(families, scrape)?;
    write_volumes(families, &scrape.directory_volumes)
}

fn write_brokers(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    let cluster = &scrape.cluster;
    families.gauge(
        "highwater_broker_epoch",
        "The epoch of this broker's registration: rises with every start",
        cluster.broker_epoch as f64,
    )?;
    families.gauges(
        "highwater_broker_fenced",
        "1 of a registered broker that does not serve",
        |row| {
            cluster.registered.iter().try_for_each(|(id, fenced)| {
                row(&[("broker", &id.to_string())], if *fenced { 1.0 } else { 0.0 })
            })
        },
    )?;
    let eligible: usize = scrape.partitions().map(|partition| partition.eligible).sum();
    families.gauge(
        "highwater_eligible_leader_replicas",
        "Replicas of the cluster that are out of sync and have every acknowledged record (KIP-966)",
        eligible as f64,
    )
}

fn write_metadata(
    families: &mut Families<'_>,
    scrape: &Scrape<'_>,
    counters: &ClusterCounters,
) -> fmt::Result {
    let quorum = &scrape.cluster.quorum;
    let seconds = |ms: u64| ms as f64 / 1e3;
    for (name, help, value) in [
        (
            "quorum_leader_id",
            "The active controller; -1 if none is known",
            f64::from(quorum.leader),
        ),
        (
            "quorum_leader_epoch",
            "The newest epoch of a controller that is known",
            quorum.leader_epoch as f64,
        ),
        (
            "quorum_log_end_offset",
            "Offset behind the last entry of this broker's metadata log",
            quorum.log_end_offset as f64,
        ),
        (
            "metadata_applied_offset",
            "Entries of the metadata log below this offset are applied here",
            quorum.applied_offset as f64,
        ),
        (
            "metadata_changed_timestamp_seconds",
            "When the metadata that this broker goes by last changed, since 1970",
            seconds(counters.metadata_changed_ms.get()),
        ),
        (
            "controller_heard_timestamp_seconds",
            "When the active controller last answered a heartbeat of this broker, since 1970; 0 if never",
            seconds(counters.controller_heard_ms.get()),
        ),
        (
            "metadata_requests_waiting",
            "Metadata requests that wait for another leader than a dead one",
            counters.metadata_waiting.get() as f64,
        ),
    ] {
        families.gauge(&format!("highwater_{name}"), help, value)?;
    }
    for (name, help, value) in [
        (
            "metadata_requests_parked",
            "Metadata requests that had to wait for another leader than a dead one",
            &counters.metadata_parked,
        ),
        (
            "metadata_requests_unsettled",
            "Of these, those that were answered without a leader in the end",
            &counters.metadata_unsettled,
        ),
    ] {
        families.counter(&format!("highwater_{name}"), help, value.get())?;
    }
    Ok(())
}

/// Only the active controller has these.
fn write_members(families: &mut Families<'_>, members: &[MemberFacts]) -> fmt::Result {
    let labels = |member: &MemberFacts| {
        (member.id.to_string(), if member.votes { "voter" } else { "observer" })
    };
    families.gauges(
        "highwater_quorum_member_log_end_offset",
        "Offset behind the last entry that a member of the quorum has, as the active controller knows",
        |row| {
            members.iter().try_for_each(|member| {
                let (id, role) = labels(member);
                row(&[("node", &id), ("role", role)], member.log_end_offset as f64)
            })
        },
    )?;
    families.gauges(
        "highwater_quorum_member_heard_seconds",
        "How long ago the active controller heard of a member of the quorum",
        |row| {
            members.iter().try_for_each(|member| {
                let (id, role) = labels(member);
                let heard = member.heard_ago.map(|ago| ago.as_secs_f64());
                heard.map_or(Ok(()), |ago| row(&[("node", &id), ("role", role)], ago))
            })
        },
    )
}

fn write_by_reason<R: Reason>(
    families: &mut Families<'_>,
    name: &str,
    help: &str,
    counters: &ByReason<R>,
) -> fmt::Result {
    families.counters(name, help, |row| {
        counters.each().try_for_each(|(reason, count)| row(&[("reason", reason)], count))
    })
}

fn write_reasons(
    families: &mut Families<'_>,
    scrape: &Scrape<'_>,
    counters: &ClusterCounters,
) -> fmt::Result {
    write_by_reason(
        families,
        "highwater_leader_elections",
        "Leader epochs that began, counted by the active controller",
        &counters.elections,
    )?;
    families.counter(
        "highwater_unclean_elections_seen",
        "Leaders that may lack acknowledged records, counted by every broker that was told of them",
        counters.unclean_seen.get(),
    )?;
    write_by_reason(
        families,
        "highwater_brokers_fenced",
        "Brokers that were fenced, counted by the active controller",
        &counters.fencings,
    )?;
    families.counter(
        "highwater_brokers_suspected",
        "Brokers that answered no probe and lost their leaderships, counted by the active controller",
        scrape.cluster.suspicions,
    )?;
    families.counter(
        "highwater_leaderships_moved_for_disks",
        "Leaderships that moved away from hung and full disks, counted by the active controller",
        scrape.cluster.disk_moves,
    )?;
    families.gauge(
        "highwater_leaderships_in_doubt",
        "1 if this broker had no answer of a controller for a session, or lacks the metadata that the answers name: other leaders may have been elected",
        f64::from(u8::from(scrape.cluster.leaderships_in_doubt)),
    )?;
    families.counter(
        "highwater_produce_refused_in_doubt",
        "Batches with acks=0 or acks=1 that this broker refused because another leader may have been elected",
        scrape.cluster.refused_in_doubt,
    )?;
    families.gauges(
        "highwater_last_acknowledgement_seconds",
        "Longest time of the last minute for which high watermarks led here waited for this follower, the last in sync to acknowledge",
        |row| {
            scrape.cluster.acknowledgements.iter().try_for_each(|(follower, longest)| {
                row(&[("follower", &follower.to_string())], longest.as_secs_f64())
            })
        },
    )?;
    families.counter(
        "highwater_fenced_alive",
        "How often this broker was fenced though it lived",
        counters.fenced_alive.get(),
    )?;
    write_by_reason(
        families,
        "highwater_isr_shrinks",
        "Replicas that left the in-sync replicas of a partition led here",
        &counters.shrinks,
    )?;
    families.counter(
        "highwater_isr_expansions",
        "Replicas that caught up and joined the in-sync replicas of a partition led here",
        counters.expansions.get(),
    )
}

fn write_replication(families: &mut Families<'_>, counters: &ClusterCounters) -> fmt::Result {
    for (name, help, counter) in [
        ("rounds", "Answers of leaders to this broker's fetchers", &counters.rounds),
        ("rounds_with_records", "Answers that carried records", &counters.rounds_with_records),
        ("records", "Records that they carried", &counters.replicated_records),
        ("bytes", "Bytes of these records", &counters.replicated_bytes),
    ] {
        families.counter(&format!("highwater_replication_{name}"), help, counter.get())?;
    }
    Ok(())
}

/// What of a follower one metric shows.
type OfFollower = (&'static str, &'static str, fn(&FollowerFacts) -> f64);

const OF_FOLLOWERS: &[OfFollower] = &[
    ("partitions", "Partitions led here that a broker has a replica of", |f| f.partitions as f64),
    ("out_of_sync", "Of these, those of which its replica is not in sync", |f| {
        f.out_of_sync as f64
    }),
    (
        "lag_records",
        "Records that a broker has not acknowledged, of its replica that lacks most",
        |f| f.lag_max as f64,
    ),
    (
        "behind_seconds",
        "How long a broker's replica has not had everything, of the one longest behind",
        |f| f.behind.as_secs_f64(),
    ),
];

fn write_followers(families: &mut Families<'_>, followers: &[FollowerFacts]) -> fmt::Result {
    for (name, help, value) in OF_FOLLOWERS {
        families.gauges(&format!("highwater_follower_{name}"), help, |row| {
            followers.iter().try_for_each(|follower| {
                row(&[("follower", &follower.id.to_string())], value(follower))
            })
        })?;
    }
    Ok(())
}

fn write_syncs(families: &mut Families<'_>, scrape: &Scrape<'_>) -> fmt::Result {
    let labels: Vec<_> =
        scrape.directory_syncs.iter().map(|(path, _)| [("directory", path.as_str())]).collect();
    families.histograms(
        "highwater_log_directory_fsync_duration_seconds",
        "How long syncs of log files take, by log directory",
        scrape
            .directory_syncs
            .iter()
            .zip(&labels)
            .map(|((_, syncs), labels)| (&labels[..], &**syncs)),
    )
}

/// Two directories on one volume show the same bytes.
fn write_volumes(families: &mut Families<'_>, volumes: &[VolumeFacts]) -> fmt::Result {
    type Value = fn(&VolumeFacts) -> i64;
    let of_volumes: [(&str, &str, Value); 2] = [
        ("free", "Bytes that may still be written where a log directory lies", |v| v.free_bytes),
        ("volume", "Bytes of the volume on which a log directory lies", |v| v.total_bytes),
    ];
    for (name, help, value) in of_volumes {
        families.gauges(&format!("highwater_log_directory_{name}_bytes"), help, |row| {
            volumes.iter().try_for_each(|volume| {
                row(&[("directory", volume.directory.as_str())], value(volume) as f64)
            })
        })?;
    }
    families.gauges(
        "highwater_log_directory_oldest_operation_seconds",
        "Age of the oldest unfinished write or sync in a log directory",
        |row| {
            volumes.iter().try_for_each(|volume| {
                let age = volume.oldest_operation.as_secs_f64();
                row(&[("directory", volume.directory.as_str())], age)
            })
        },
    )?;
    families.gauges(
        "highwater_log_directory_sick",
        "1 of a log directory that hangs or is full: other brokers replace its replicas",
        |row| {
            volumes.iter().try_for_each(|volume| {
                let is_sick = if volume.is_sick { 1.0 } else { 0.0 };
                row(&[("directory", volume.directory.as_str())], is_sick)
            })
        },
    )
}
