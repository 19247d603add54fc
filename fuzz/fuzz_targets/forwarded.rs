//! Requests and responses that brokers forward: no bytes panic or reserve much memory (the runner watches
//! it), nothing is both, and what can be read is written as the same bytes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use metadata::{Request, Response};

fuzz_target!(|input: &[u8]| {
    let (request, response) = (Request::from_bytes(input), Response::from_bytes(input));
    assert!(request.is_err() || response.is_err(), "a request is not a response");
    if let Ok(request) = request {
        assert_eq!(request.to_bytes(), input);
    }
    if let Ok(response) = response {
        assert_eq!(response.to_bytes(), input);
    }
});
