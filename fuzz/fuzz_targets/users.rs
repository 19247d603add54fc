//! Files of users, and what stands in cookies and tickets behind their signature: no text panics, what is read is written so again,
//! and no damage makes somebody stronger.

#![no_main]

use libfuzzer_sys::fuzz_target;
use serving::claims::{Claims, Use};
use serving::rights::{Deed, Rights, Topics};
use serving::users::Users;

/// With the checksum that fits, or no text would get past it.
fn summed(lines: &str) -> String {
    let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, lines.as_bytes());
    format!("{lines}end {sum:08x}\n")
}

fuzz_target!(|input: &[u8]| {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let _ = Users::parse(text);
    let whole = summed(&format!("highwater users 1\n{text}\n"));
    for whole in [whole, summed(text)] {
        let Ok(users) = Users::parse(&whole) else { continue };
        assert_eq!(Users::parse(&users.text()).as_ref(), Ok(&users));
        assert!(users.tokens.values().all(|token| users.users.contains_key(&token.user)));
        for user in users.users.values() {
            let all = Rights { topics: Topics::All, ..user.rights.clone() };
            for deed in [Deed::Look, Deed::Read("t"), Deed::Produce("t"), Deed::Join, Deed::Reassign] {
                assert!(user.rights.may(deed).is_err() || all.may(deed).is_ok());
            }
        }
    }
    if let Some(claims) = Claims::parse(text) {
        assert_eq!(claims.text(), text);
        if let Use::Ticket(topics) = claims.good_for {
            assert!(!topics.is_empty() && topics.iter().all(|topic| !topic.is_empty()));
        }
    }
});
