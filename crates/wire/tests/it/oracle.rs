//! A second opinion: the crate kafka-protocol reads what this codec writes, and the reverse.

use crate::golden::{lines, snake};
use bytes::{Bytes, BytesMut};
use kafka_protocol::protocol::{Decodable, Encodable, Message as OtherMessage};
use wire::Message;

/// Sends every golden message of one role through both codecs; returns how many.
fn exchange<M, Other>(file: &str, role: &str) -> usize
where
    M: Message + PartialEq + std::fmt::Debug,
    Other: OtherMessage + Decodable + Encodable,
{
    let known = Other::VERSIONS;
    let lines = lines(file).into_iter().filter(|line| line.role == role);
    let mut count = 0;
    for line in lines.filter(|line| (known.min..=known.max).contains(&line.version)) {
        let what = format!("{} v{} {}", M::NAME, line.version, line.filling);
        let ours: M = wire::decode(&line.bytes, line.version).unwrap();
        let mut written = Bytes::from(wire::encode(&ours, line.version).unwrap());
        let theirs = Other::decode(&mut written, line.version);
        let theirs = theirs.unwrap_or_else(|e| panic!("{what}: {e}"));
        assert!(written.is_empty(), "{what}: the other codec leaves {} bytes", written.len());
        let mut answer = BytesMut::new();
        theirs.encode(&mut answer, line.version).unwrap_or_else(|e| panic!("{what}: {e}"));
        let back: M = wire::decode(&answer, line.version).unwrap_or_else(|e| panic!("{what}: {e}"));
        assert_eq!(back, ours, "{what}");
        count += 1;
    }
    count
}

/// Exchanges the messages of an API; whether there were any.
macro_rules! exchange_api {
    // The other codec does not have it.
    (StreamsGroupDescribe $request:ident $response:ident) => {
        true
    };
    ($api:ident $request:ident $response:ident) => {{
        use kafka_protocol::messages::{$request, $response};
        let file = snake(stringify!($api));
        let requests = exchange::<wire::$request, $request>(&file, "request");
        let responses = exchange::<wire::$response, $response>(&file, "response");
        requests > 0 && responses > 0
    }};
}

macro_rules! exchange_apis {
    ($($api:ident $request:ident $response:ident,)*) => {
        #[test]
        fn another_codec_understands_every_message_that_it_knows() {
            let mut silent = Vec::new();
            $(if !exchange_api!($api $request $response) {
                silent.push(stringify!($api));
            })*
            assert_eq!(silent, Vec::<&str>::new(), "apis of which no version was exchanged");
        }
    };
}

wire::for_each_api!(exchange_apis);
