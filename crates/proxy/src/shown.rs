//! The proxy's counters by name, for Prometheus.

use std::fmt;
use std::sync::Arc;

use metrics::{Families, Source, process};

use pools::{ClientNetwork, LeasePool};

use crate::counters::{ApiTraffic, Counters};

impl Source for Counters {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        let traffic = self.traffic();
        families.gauge(
            "highwater_proxy_connections",
            "Connections of clients that are open",
            traffic.open_connections as f64,
        )?;
        for (name, help, count) in [
            ("connections_accepted", "Connections of clients", traffic.client_connections),
            (
                "connections_refused",
                "Connections of clients that were closed at once, because as many as may be were open",
                traffic.refused_connections,
            ),
            (
                "connections_evicted",
                "Connections of clients that were closed because places or memory were short",
                traffic.evicted_connections,
            ),
            ("broker_connections", "Connections to brokers", traffic.server_connections),
        ] {
            families.counter(&format!("highwater_proxy_{name}"), help, count)?;
        }
        let help =
            "Connections that ended because of what this side sent, or because of its socket";
        families.counters("highwater_proxy_errors", help, |row| {
            row(&[("side", "client")], traffic.client_errors)?;
            row(&[("side", "broker")], traffic.server_errors)
        })?;
        let help = "Requests and answers that went through";
        by_api(families, "messages", help, &traffic.apis, |api| (api.requests, api.responses))?;
        let help = "Bytes of them, their lengths included";
        let bytes = |api: &ApiTraffic| (api.request_bytes, api.response_bytes);
        by_api(families, "bytes", help, &traffic.apis, bytes)
    }
}

fn by_api(
    families: &mut Families<'_>,
    name: &str,
    help: &str,
    apis: &[ApiTraffic],
    both: impl Fn(&ApiTraffic) -> (u64, u64),
) -> fmt::Result {
    families.counters(&format!("highwater_proxy_{name}"), help, |row| {
        for api in apis {
            let (requests, responses) = both(api);
            row(&[("api_key", api.api), ("direction", "request")], requests)?;
            row(&[("api_key", api.api), ("direction", "response")], responses)?;
        }
        Ok(())
    })
}

/// Memory of the connections of a proxy.
#[derive(Debug)]
pub struct MemoryShown(Arc<LeasePool<ClientNetwork>>);

impl MemoryShown {
    pub(crate) fn new(memory: &Arc<LeasePool<ClientNetwork>>) -> MemoryShown {
        MemoryShown(Arc::clone(memory))
    }

    /// Bytes that connections hold.
    pub fn used_bytes(&self) -> usize {
        self.0.used_units()
    }
}

impl Source for MemoryShown {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        for (name, help, bytes) in [
            ("memory_used_bytes", "Bytes that connections of clients hold", self.0.used_units()),
            ("memory_max_bytes", "Bytes that they may hold (`--memory-max`)", self.0.units_max()),
        ] {
            families.gauge(&format!("highwater_proxy_{name}"), help, bytes as f64)?;
        }
        Ok(())
    }
}

/// What runs, and its process.
pub struct OfProcess;

impl Source for OfProcess {
    fn write(&self, families: &mut Families<'_>) -> fmt::Result {
        process::write_with_version(families, env!("CARGO_PKG_VERSION"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn every_metric_of_the_proxy_is_listed_in_the_documentation() {
        let counters = Counters::default();
        counters.request(0, 100);
        counters.request(0, 50);
        counters.response(0, 7);
        let source: Arc<dyn Source> = Arc::new(counters);
        let memory: Arc<dyn Source> = Arc::new(MemoryShown(Arc::new(LeasePool::new(1))));
        let text = metrics::text(&source) + &metrics::text(&memory);
        for line in [
            "highwater_proxy_messages_total{api_key=\"Produce\",direction=\"request\"} 2",
            "highwater_proxy_bytes_total{api_key=\"Produce\",direction=\"request\"} 150",
            "highwater_proxy_bytes_total{api_key=\"Produce\",direction=\"response\"} 7",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}:\n{text}");
        }
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
        metrics::documented::check(&text, Path::new(page), "metric of the proxy");
    }
}
