//! What another broker says, or somebody who only reached the port: no bytes panic, and what can be read is
//! written as it would be read again. The first byte says what the others are.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use link::codec::checked_length;
use link::codec::frame::Frame;
use link::codec::hello::{HELLO_BYTES_MAX, Hello};
use link::codec::refusal::judge;

fn hello(body: &[u8]) {
    let Ok(hello) = Hello::decode(body) else { return };
    let written = hello.encode();
    let body = &written[8..];
    // A Hello with very many directories is written with the first of them.
    let again = Hello::decode(body).expect("what was written can be read");
    assert_eq!(again.encode(), written);
    assert!(body.len() <= HELLO_BYTES_MAX);
    // Whatever it says, a judgement is the same from both sides.
    let (there, here) = (judge(&hello, &again, true), judge(&again, &hello, true));
    assert_eq!(there.map_err(|refused| refused.why), here.map_err(|refused| refused.why));
}

fn frame(payload: &[u8]) {
    let Ok(frame) = Frame::decode(&Bytes::copy_from_slice(payload)) else { return };
    let written = Bytes::from(frame.encode());
    let length = checked_length(written[..4].try_into().expect("four bytes"), usize::MAX);
    assert_eq!(length.ok(), Some(written.len() - 4));
    let again = Frame::decode(&written.slice(4..)).expect("what was written can be read");
    // Words are cut to what a frame may carry, once.
    assert_eq!(again.encode(), written);
}

fuzz_target!(|input: &[u8]| {
    match input {
        [0, body @ ..] => hello(body),
        [_, payload @ ..] => frame(payload),
        [] => {}
    }
});
