//! The answers that are decoded as a whole because they bear addresses or versions, and what they
//! become. Answers that bear addresses only at their end are [`crate::endpoints`]'s.

use crate::endpoints::{self, Form};
use crate::frames::{Broken, SHARE_ACKNOWLEDGE, SHARE_FETCH, version_max};
use bytes::{Bytes, BytesMut};
use model::Uuid;
use std::io;
use std::sync::{Mutex, PoisonError};
use wire::api_versions::ApiVersion;
use wire::frame::{self, LENGTH_BYTES, read_response_head, write_response};
use wire::reader::DecodeError;
use wire::{
    ApiKey, ApiVersionsResponse, DescribeClusterResponse, FindCoordinatorResponse, Message,
    MetadataResponse, Reader, Writer,
};

/// Gives brokers the addresses by which clients reach them through the proxy.
pub trait Addresses {
    /// The address for a broker whose own is `host` and `port`. A broker that was not known before
    /// becomes known by this; that may fail for want of a port.
    fn of(&self, node_id: i32, host: &str, port: i32) -> io::Result<(String, i32)>;

    /// Learns the name of a topic id: fault rules name topics, and requests of newer versions have ids.
    fn learn_topic(&self, _id: Uuid, _name: &str) {}
}

/// Whether an answer must be held as a whole, whatever its size.
pub fn needs_whole(api_key: i16) -> bool {
    let has_end = [ApiKey::Produce.code(), ApiKey::Fetch.code(), SHARE_FETCH, SHARE_ACKNOWLEDGE];
    version_max(api_key).is_some() && !has_end.contains(&api_key)
}

/// What becomes of a whole answer, its frame's length included.
pub fn rewrite(
    answer: BytesMut,
    api_key: i16,
    version: i16,
    addresses: &dyn Addresses,
) -> Result<Bytes, Broken> {
    let Some(api) = ApiKey::from_code(api_key) else {
        return rewrite_end(answer, api_key, version, addresses);
    };
    match api {
        ApiKey::ApiVersions => api_versions(&answer, version),
        ApiKey::Metadata => {
            alter(&answer, api, version, |m: &mut MetadataResponse| metadata(m, addresses))
        }
        ApiKey::FindCoordinator => {
            alter(&answer, api, version, |m: &mut FindCoordinatorResponse| {
                coordinators(m, version, addresses)
            })
        }
        ApiKey::DescribeCluster => {
            alter(&answer, api, version, |m: &mut DescribeClusterResponse| cluster(m, addresses))
        }
        _ => rewrite_end(answer, api_key, version, addresses),
    }
}

/// Answers above this size are rewritten one at a time: decoded they take several times their size.
const LARGE_BYTES: usize = 1 << 20;
/// Held while a large answer is rewritten.
static REWRITING: Mutex<()> = Mutex::new(());

/// Decodes an answer, alters it and encodes it again.
fn alter<M: Message>(
    answer: &[u8],
    api: ApiKey,
    version: i16,
    change: impl FnOnce(&mut M) -> io::Result<()>,
) -> Result<Bytes, Broken> {
    let lock = || REWRITING.lock().unwrap_or_else(PoisonError::into_inner);
    let _alone = (answer.len() > LARGE_BYTES).then(lock);
    let mut reader = Reader::new(&answer[LENGTH_BYTES..]);
    let correlation_id = read_response_head(&mut reader, api, version)?;
    let mut message = M::decode(&mut reader, version)?;
    reader.finish()?;
    change(&mut message)?;
    let mut writer = Writer::new();
    write_response(&mut writer, &message, api, version, correlation_id)?;
    Ok(writer.into_bytes().into())
}

fn place(addresses: &dyn Addresses, id: i32, host: &mut String, port: &mut i32) -> io::Result<()> {
    (*host, *port) = addresses.of(id, host, *port)?;
    Ok(())
}

fn metadata(message: &mut MetadataResponse, addresses: &dyn Addresses) -> io::Result<()> {
    for broker in &mut message.brokers {
        place(addresses, broker.node_id, &mut broker.host, &mut broker.port)?;
    }
    for topic in &message.topics {
        if let Some(name) = &topic.name {
            addresses.learn_topic(topic.topic_id, name);
        }
    }
    Ok(())
}

/// Up to version 3 there is one coordinator. Without one the node is -1, and it has no address.
fn coordinators(
    message: &mut FindCoordinatorResponse,
    version: i16,
    addresses: &dyn Addresses,
) -> io::Result<()> {
    if version < 4 && message.node_id >= 0 {
        place(addresses, message.node_id, &mut message.host, &mut message.port)?;
    }
    for found in message.coordinators.iter_mut().filter(|found| found.node_id >= 0) {
        place(addresses, found.node_id, &mut found.host, &mut found.port)?;
    }
    Ok(())
}

/// `endpoint_type` of an answer that lists brokers; 2 lists controllers, whose ids are others.
const BROKERS: i8 = 1;

fn cluster(message: &mut DescribeClusterResponse, addresses: &dyn Addresses) -> io::Result<()> {
    if message.endpoint_type != BROKERS {
        return Ok(());
    }
    for broker in &mut message.brokers {
        place(addresses, broker.broker_id, &mut broker.host, &mut broker.port)?;
    }
    Ok(())
}

/// `UNSUPPORTED_VERSION`.
const UNSUPPORTED_VERSION: i16 = 35;

/// Offers what brokers offer, but no version whose answers could not be rewritten.
fn api_versions(answer: &[u8], version: i16) -> Result<Bytes, Broken> {
    let error = answer.get(8..10).ok_or(DecodeError::Truncated { needed: 2, remaining: 0 })?;
    // A broker that does not know the version answers in version 0 (KIP-511).
    let refused = error == UNSUPPORTED_VERSION.to_be_bytes();
    let version = if refused { 0 } else { version };
    alter(answer, ApiKey::ApiVersions, version, |message: &mut ApiVersionsResponse| {
        message.api_keys.retain_mut(clamp);
        Ok(())
    })
}

/// Narrows a row to what can be carried; false if nothing is left of it.
fn clamp(row: &mut ApiVersion) -> bool {
    if let Some(max) = version_max(row.api_key) {
        row.max_version = row.max_version.min(max);
    }
    // Version 0 is followed by frames without headers.
    if row.api_key == ApiKey::SaslHandshake.code() {
        row.min_version = row.min_version.max(1);
    }
    row.min_version <= row.max_version
}

/// The answer to a question about versions in a version that is not known here: the client asks
/// again in one that it finds in it.
pub fn unsupported_api_versions(correlation_id: i32) -> Bytes {
    let api = ApiKey::ApiVersions;
    let message = ApiVersionsResponse {
        error_code: UNSUPPORTED_VERSION,
        api_keys: vec![ApiVersion {
            api_key: api.code(),
            min_version: api.min_version(),
            max_version: api.max_version(),
        }],
        ..ApiVersionsResponse::default()
    };
    let mut writer = Writer::new();
    write_response(&mut writer, &message, api, 0, correlation_id)
        .expect("one row fits a frame, and version 0 has all that is set");
    writer.into_bytes().into()
}

/// Replaces the addresses at the end of an answer, if there are any; else the bytes stay.
fn rewrite_end(
    answer: BytesMut,
    api_key: i16,
    version: i16,
    addresses: &dyn Addresses,
) -> Result<Bytes, Broken> {
    let Some(form) = Form::of(api_key, version) else { return Ok(answer.freeze()) };
    let at = LENGTH_BYTES + endpoints::tail_of(&answer[LENGTH_BYTES..], form, version)?;
    let Some(tail) = endpoints::rewrite_tail(&answer[at..], form, addresses)? else {
        return Ok(answer.freeze());
    };
    let mut writer = Writer::new();
    let start = frame::begin(&mut writer);
    writer.raw(&answer[LENGTH_BYTES..at]);
    writer.raw(&tail);
    frame::end(&mut writer, start)?;
    Ok(writer.into_bytes().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ById;
    use wire::describe_cluster::DescribeClusterBroker;
    use wire::find_coordinator::Coordinator;

    /// What becomes of a message.
    fn rewritten<M: Message>(message: &M, api: ApiKey, version: i16, written: i16) -> M {
        let mut writer = Writer::new();
        write_response(&mut writer, message, api, written, 7).unwrap();
        let answer = BytesMut::from(writer.bytes());
        let out = rewrite(answer, api.code(), version, &ById).unwrap();
        let mut reader = Reader::new(&out[LENGTH_BYTES..]);
        assert_eq!(read_response_head(&mut reader, api, written).unwrap(), 7);
        M::decode(&mut reader, written).unwrap()
    }

    fn row(api_key: i16, min_version: i16, max_version: i16) -> ApiVersion {
        ApiVersion { api_key, min_version, max_version }
    }

    #[test]
    fn coordinators_are_reached_through_the_proxy() {
        for version in 0..=3 {
            let message = FindCoordinatorResponse {
                node_id: 2,
                host: "b".to_owned(),
                port: 9,
                ..FindCoordinatorResponse::default()
            };
            let is = rewritten(&message, ApiKey::FindCoordinator, version, version);
            assert_eq!((is.host.as_str(), is.port), ("proxy", 1002));
        }
        let found = |node_id| Coordinator { node_id, ..Coordinator::default() };
        let message = FindCoordinatorResponse {
            coordinators: vec![found(3), found(-1)],
            ..FindCoordinatorResponse::default()
        };
        let is = rewritten(&message, ApiKey::FindCoordinator, 6, 6).coordinators;
        assert_eq!((is[0].host.as_str(), is[0].port), ("proxy", 1003));
        assert_eq!((is[1].host.as_str(), is[1].port), ("", 0));
    }

    #[test]
    fn a_list_of_brokers_names_the_proxy_and_one_of_controllers_does_not() {
        for (endpoint_type, port) in [(1, 1005), (2, 9)] {
            let broker = DescribeClusterBroker {
                broker_id: 5,
                host: "b".to_owned(),
                port: 9,
                ..DescribeClusterBroker::default()
            };
            let message = DescribeClusterResponse {
                endpoint_type,
                brokers: vec![broker],
                ..DescribeClusterResponse::default()
            };
            let is = rewritten(&message, ApiKey::DescribeCluster, 1, 1);
            assert_eq!(is.brokers[0].port, port);
        }
    }

    #[test]
    fn no_version_is_offered_whose_answer_could_not_be_rewritten() {
        let message = ApiVersionsResponse {
            api_keys: vec![
                row(ApiKey::Produce.code(), 0, 99),
                row(ApiKey::Metadata.code(), 5, 6),
                row(ApiKey::ListOffsets.code(), 1, 99),
                row(ApiKey::SaslHandshake.code(), 0, 1),
                row(SHARE_FETCH, 1, 3),
                row(SHARE_ACKNOWLEDGE, 9, 9),
                row(99, 0, 0),
            ],
            ..ApiVersionsResponse::default()
        };
        for version in 0..=5 {
            let is = rewritten(&message, ApiKey::ApiVersions, version, version);
            let produce_max = ApiKey::Produce.max_version();
            let wanted = [
                row(ApiKey::Produce.code(), 0, produce_max),
                row(ApiKey::Metadata.code(), 5, 6),
                row(ApiKey::ListOffsets.code(), 1, 99),
                row(ApiKey::SaslHandshake.code(), 1, 1),
                row(SHARE_FETCH, 1, 2),
                row(99, 0, 0),
            ];
            assert_eq!(is.api_keys, wanted);
        }
    }

    #[test]
    fn a_refusal_in_version_0_is_understood_whatever_was_asked() {
        let message = ApiVersionsResponse {
            error_code: UNSUPPORTED_VERSION,
            api_keys: vec![row(18, 0, 4)],
            ..ApiVersionsResponse::default()
        };
        assert_eq!(rewritten(&message, ApiKey::ApiVersions, 5, 0), message);
        let bytes = unsupported_api_versions(3);
        let mut reader = Reader::new(&bytes[LENGTH_BYTES..]);
        assert_eq!(read_response_head(&mut reader, ApiKey::ApiVersions, 0).unwrap(), 3);
        let own = ApiVersionsResponse::decode(&mut reader, 0).unwrap();
        assert_eq!(own.api_keys, [row(18, 0, ApiKey::ApiVersions.max_version())]);
    }
}
