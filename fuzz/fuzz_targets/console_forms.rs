//! Forms of the console's actions, and the file of lag: no text panics; what is read has a command; plans and rows come back as
//! they were written.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serving::operation::command::{Reached, command};
use serving::operation::read::operation;
use serving::operation::{Fields, Kind, reassign, reset};

fuzz_target!(|input: &[u8]| {
    let _ = serving::lag::kept::from_bytes(input);
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Ok(moves) = reassign::moves_of(text) {
        assert_eq!(reassign::moves_of(&reassign::text_of(&moves)), Ok(moves));
    }
    if let Ok(rows) = reset::rows_of(text) {
        assert_eq!(reset::rows_of(&reset::text_of(&rows)), Ok(rows));
    }
    let pairs = text.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
    let fields = Fields::new(pairs.map(|(name, text)| (name.to_owned(), text.to_owned())));
    let config = input.first().is_some_and(|byte| byte & 1 == 1).then_some("a client.properties");
    let at = Reached { bootstrap: "b:9092", config, gateway: "g:8082" };
    for kind in Kind::ALL {
        if let Ok(asked) = operation(kind, &fields) {
            assert_eq!(asked.kind(), kind);
            let line = command(&asked, &at);
            assert!(!line.chars().any(char::is_control), "{line:?}");
        }
    }
});
