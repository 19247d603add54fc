//! The gateway's metrics by name.

use std::fmt;
use std::sync::Weak;

use metrics::{Families, Source, process};

use crate::state::Shared;
use crate::who::LoginCounts;

/// Shows a gateway. It does not keep it alive.
pub(crate) struct Shown(pub(crate) Weak<Shared>);

impl Source for Shown {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let Some(shared) = self.0.upgrade() else { return Ok(()) };
        write_connections(families, &shared)?;
        shared.counts.requests.write(families)?;
        write_logins(families, &shared.who.counts)?;
        write_records(families, &shared)?;
        write_events(families, &shared)
    }
}

/// Shows the process.
pub(crate) struct OfProcess;

impl Source for OfProcess {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        process::write_with_version(families, env!("CARGO_PKG_VERSION"))
    }
}

fn write_connections(families: &mut Families<'_>, shared: &Shared) -> fmt::Result {
    let help = "Connections that are open, by what they carry";
    families.gauges("highwater_gateway_connections", help, |row| {
        row(&[("kind", "http")], shared.counts.http.get() as f64)?;
        row(&[("kind", "sse")], shared.events.counts.streams.get() as f64)?;
        row(&[("kind", "websocket")], shared.counts.sockets.get() as f64)
    })?;
    families.counter(
        "highwater_gateway_connections_refused",
        "Connections turned away by gateway.connections.max or gateway.connections.per.address.max",
        shared.counts.refused.get(),
    )?;
    families.counter(
        "highwater_gateway_tls_handshakes_failed",
        "Connections that ended before TLS was agreed on",
        shared.counts.failed_handshakes.get(),
    )?;
    families.counter(
        "highwater_gateway_tls_reloads_failed",
        "Times that the files of certificate and key had changed and could not be used: the ones before are shown on",
        shared.settings.tls.as_ref().map_or(0, |tls| tls.failed_reloads()),
    )?;
    families.counter(
        "highwater_gateway_users_reloads_failed",
        "Times that the file of users had changed and could not be used: those who were known stay so",
        shared.who.failed_reloads(),
    )
}

fn write_logins(families: &mut Families<'_>, counts: &LoginCounts) -> fmt::Result {
    let help = "Passwords and tokens that were looked at: passwords that were right, what was wrong, and passwords for which there was no turn";
    families.counters("highwater_gateway_logins", help, |row| {
        row(&[("result", "accepted")], counts.accepted.get())?;
        row(&[("result", "refused")], counts.refused.get())?;
        row(&[("result", "turned_away")], counts.turned_away.get())
    })
}

fn write_records(families: &mut Families<'_>, shared: &Shared) -> fmt::Result {
    let (produced, waiting_bytes) = shared.topics.produced();
    let help = "Records that were written and acknowledged";
    families.counter("highwater_gateway_produced_records", help, produced)?;
    let help =
        "Memory in use, by what for: bodies and answers, records that are not acknowledged, events";
    families.gauges("highwater_gateway_buffer_bytes", help, |row| {
        row(&[("for", "bodies")], shared.body_bytes() as f64)?;
        row(&[("for", "records")], waiting_bytes as f64)?;
        row(&[("for", "events")], shared.events.held_bytes() as f64)
    })?;
    let help = "Requests that are remembered by their Idempotency-Key";
    families.gauge("highwater_gateway_idempotency_entries", help, shared.keys.len() as f64)?;
    let help = "Consumer instances that are there";
    families.gauge("highwater_gateway_instances", help, shared.instances.len() as f64)?;
    let help = "Members of groups that records are pushed to";
    families.gauge("highwater_gateway_group_sessions", help, shared.groups.len() as f64)
}

fn write_events(families: &mut Families<'_>, shared: &Shared) -> fmt::Result {
    let counts = &shared.events.counts;
    families.counters("highwater_gateway_events", "Events that were sent", |row| {
        row(&[("kind", "sse")], counts.sent.get())
    })?;
    let help = "Bytes of event streams that were sent";
    families.counter("highwater_gateway_sent_bytes", help, counts.sent_bytes.get())?;
    families.histograms(
        "highwater_gateway_delivery_seconds",
        "From a broker's answer to the moment at which a reader at the end of the log had taken its events",
        std::iter::once((&[][..], &counts.delivery)),
    )?;
    let (all, blocked, behind) =
        (counts.readers.get(), counts.blocked.get(), counts.catching_up.get());
    let help =
        "Readers of event streams: those that wait for what comes, read the past, or take nothing";
    families.gauges("highwater_gateway_subscribers", help, |row| {
        let tail = all.saturating_sub(blocked + behind);
        row(&[("state", "tail")], tail as f64)?;
        row(&[("state", "catching_up")], behind as f64)?;
        row(&[("state", "blocked")], blocked as f64)
    })?;
    families.counters("highwater_gateway_closed", "Event streams that were closed", |row| {
        counts.closed.each().try_for_each(|(reason, count)| row(&[("reason", reason)], count))
    })?;
    families.counters("highwater_gateway_gaps", "Gaps that readers were told of", |row| {
        counts.gaps.each().try_for_each(|(reason, count)| row(&[("reason", reason)], count))
    })
}
