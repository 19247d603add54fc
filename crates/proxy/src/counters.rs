//! Counters of what went through, named after Kroxylicious's metrics. Plain numbers: who exports
//! them, and how, is the caller's.

use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};

/// API numbers that have counters of their own; all others share the last ones.
const APIS: usize = 128;

#[derive(Debug, Default)]
struct PerApi {
    requests: AtomicU64,
    request_bytes: AtomicU64,
    responses: AtomicU64,
    response_bytes: AtomicU64,
}

/// The counters of one proxy; they only rise, but for the open connections.
#[derive(Debug)]
pub struct Counters {
    client_connections: AtomicU64,
    refused_connections: AtomicU64,
    evicted_connections: AtomicU64,
    open_connections: AtomicU64,
    server_connections: AtomicU64,
    client_errors: AtomicU64,
    server_errors: AtomicU64,
    apis: [PerApi; APIS],
}

impl Default for Counters {
    fn default() -> Counters {
        Counters {
            client_connections: AtomicU64::new(0),
            refused_connections: AtomicU64::new(0),
            evicted_connections: AtomicU64::new(0),
            open_connections: AtomicU64::new(0),
            server_connections: AtomicU64::new(0),
            client_errors: AtomicU64::new(0),
            server_errors: AtomicU64::new(0),
            apis: std::array::from_fn(|_| PerApi::default()),
        }
    }
}

/// What went through for one API. Bytes count the frames' lengths too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ApiTraffic {
    /// The API's number; 127 for all numbers that no API has.
    pub api_key: i16,
    /// Its name; `Unknown` for one that this code does not know.
    pub api: &'static str,
    /// `kroxylicious_client_to_proxy_request_total`.
    pub requests: u64,
    /// `kroxylicious_client_to_proxy_request_size_bytes`, summed.
    pub request_bytes: u64,
    /// `kroxylicious_server_to_proxy_response_total`.
    pub responses: u64,
    /// `kroxylicious_server_to_proxy_response_size_bytes`, summed.
    pub response_bytes: u64,
}

/// All counters at one time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// `kroxylicious_client_to_proxy_connections_total`.
    pub client_connections: u64,
    /// Connections that were closed at once, because as many as may be were open.
    pub refused_connections: u64,
    /// Connections that were closed so that others are served.
    pub evicted_connections: u64,
    /// Clients' connections that are open.
    pub open_connections: u64,
    /// `kroxylicious_proxy_to_server_connections_total`.
    pub server_connections: u64,
    /// `kroxylicious_client_to_proxy_errors_total`: connections that what a client sent, or its
    /// socket, ended.
    pub client_errors: u64,
    /// `kroxylicious_proxy_to_server_errors_total`: connections that what a broker sent, or its
    /// socket, ended.
    pub server_errors: u64,
    /// By API, of those that were used, in the order of their numbers.
    pub apis: Vec<ApiTraffic>,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Counts an open connection until it is dropped.
pub(crate) struct Open<'a>(&'a Counters);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.open_connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Counters {
    /// Reads all of them.
    pub fn traffic(&self) -> Traffic {
        let used = |api: &&(usize, &PerApi)| read(&api.1.requests) + read(&api.1.responses) > 0;
        let apis: Vec<_> = self.apis.iter().enumerate().collect();
        Traffic {
            client_connections: read(&self.client_connections),
            refused_connections: read(&self.refused_connections),
            evicted_connections: read(&self.evicted_connections),
            open_connections: read(&self.open_connections),
            server_connections: read(&self.server_connections),
            client_errors: read(&self.client_errors),
            server_errors: read(&self.server_errors),
            apis: apis.iter().filter(used).map(|(code, api)| api.traffic(*code as i16)).collect(),
        }
    }

    pub(crate) fn client_connected(&self) -> Open<'_> {
        add(&self.client_connections, 1);
        add(&self.open_connections, 1);
        Open(self)
    }

    pub(crate) fn client_refused(&self) {
        add(&self.refused_connections, 1);
    }

    pub(crate) fn client_evicted(&self) {
        add(&self.evicted_connections, 1);
    }

    pub(crate) fn server_connected(&self) {
        add(&self.server_connections, 1);
    }

    pub(crate) fn client_failed(&self) {
        add(&self.client_errors, 1);
    }

    pub(crate) fn server_failed(&self) {
        add(&self.server_errors, 1);
    }

    fn api(&self, api_key: i16) -> &PerApi {
        let at = usize::try_from(api_key).unwrap_or(APIS - 1);
        &self.apis[at.min(APIS - 1)]
    }

    pub(crate) fn request(&self, api_key: i16, size_bytes: usize) {
        add(&self.api(api_key).requests, 1);
        add(&self.api(api_key).request_bytes, size_bytes as u64);
    }

    pub(crate) fn response(&self, api_key: i16, size_bytes: usize) {
        add(&self.api(api_key).responses, 1);
        add(&self.api(api_key).response_bytes, size_bytes as u64);
    }
}

impl PerApi {
    fn traffic(&self, api_key: i16) -> ApiTraffic {
        ApiTraffic {
            api_key,
            api: name_of(api_key),
            requests: read(&self.requests),
            request_bytes: read(&self.request_bytes),
            responses: read(&self.responses),
            response_bytes: read(&self.response_bytes),
        }
    }
}

fn name_of(api_key: i16) -> &'static str {
    match api_key {
        crate::frames::SHARE_FETCH => "ShareFetch",
        crate::frames::SHARE_ACKNOWLEDGE => "ShareAcknowledge",
        code => wire::ApiKey::from_code(code).map_or("Unknown", wire::ApiKey::name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn apis_are_counted_apart_and_unused_ones_left_out() {
        let counters = Counters::default();
        counters.request(3, 30);
        counters.request(3, 12);
        counters.response(3, 100);
        counters.request(-5, 9);
        counters.request(i16::MAX, 9);
        let apis = counters.traffic().apis;
        assert_eq!(apis.len(), 2);
        assert_eq!((apis[0].api, apis[0].requests, apis[0].request_bytes), ("Metadata", 2, 42));
        assert_eq!((apis[0].responses, apis[0].response_bytes), (1, 100));
        assert_eq!((apis[1].api, apis[1].requests), ("Unknown", 2));
    }

    #[test]
    fn open_connections_fall_when_they_close() {
        let counters = Counters::default();
        let open = counters.client_connected();
        assert_eq!(counters.traffic().open_connections, 1);
        drop(open);
        let traffic = counters.traffic();
        assert_eq!((traffic.open_connections, traffic.client_connections), (0, 1));
    }
}
