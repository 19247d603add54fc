//! Messages of every API: no bytes panic, and what can be read is written as it would be read
//! again. The input begins with the API, the version, and whether it is the response.

#![no_main]

use libfuzzer_sys::fuzz_target;
use wire::{Message, Request};

/// Reading, writing and reading again gives the same value. A version that would drop a field, or
/// a string that is too long, cannot come out of reading.
fn round_trip<M: Message + PartialEq + std::fmt::Debug>(bytes: &[u8], version: i16) {
    let Ok(message) = wire::decode::<M>(bytes, version) else { return };
    let written = wire::encode(&message, version).expect("what was read can be written");
    // NaN is not equal to itself, so the bytes are compared and not the values.
    let again: M = wire::decode(&written, version).expect("what was written can be read");
    assert_eq!(wire::encode(&again, version).expect("as before"), written);
}

fn api<R: Request + PartialEq + std::fmt::Debug>(version: u8, response: bool, bytes: &[u8])
where
    R::Response: PartialEq + std::fmt::Debug,
{
    let count = (R::MAX_VERSION - R::MIN_VERSION + 1) as u8;
    let version = R::MIN_VERSION + (version % count) as i16;
    match response {
        true => round_trip::<R::Response>(bytes, version),
        false => round_trip::<R>(bytes, version),
    }
    if R::API_KEY == wire::ApiKey::Produce {
        let walked = wire::hot::produce::walk(bytes, 0, version)
            .is_ok_and(|(_, walk)| walk.collect::<Result<Vec<_>, _>>().is_ok());
        assert_eq!(walked, wire::decode::<wire::ProduceRequest>(bytes, version).is_ok());
    }
    if R::API_KEY == wire::ApiKey::Fetch {
        let mut request = wire::hot::fetch::FetchRequest::default();
        let read = request.decode(bytes, version).is_ok();
        assert_eq!(read, wire::decode::<wire::FetchRequest>(bytes, version).is_ok());
    }
}

macro_rules! dispatch {
    ($($api:ident $request:ident $response:ident,)*) => {
        const APIS: &[fn(u8, bool, &[u8])] = &[$(api::<wire::$request>,)*];
    };
}

wire::for_each_api!(dispatch);

fuzz_target!(|input: &[u8]| {
    let _ = wire::frame::RequestHead::parse(input);
    if let [which, version, response, bytes @ ..] = input {
        APIS[*which as usize % APIS.len()](*version, response % 2 == 1, bytes);
    }
});
