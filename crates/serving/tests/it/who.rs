//! Files of users and signed claims: what was written is read, and what was damaged is not read as something else.

use proptest::prelude::*;
use serving::claims::{Claims, Use};
use serving::rights::{Rights, Role, Topics};
use serving::users::{Damage, Token, User, Users, topics};

fn some() -> Users {
    let mut users = Users::default();
    let hash = "$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHRzYWx0$aGFzaGhhc2g";
    let alice = User { rights: Rights::of(Role::Admin), password: Some(hash.to_owned()) };
    let under = Topics::Under(vec!["logs.".to_owned(), "metrics".to_owned()]);
    let meter = User { rights: Rights { role: Some(Role::Read), topics: under }, password: None };
    users.users.insert("alice".to_owned(), alice);
    users.users.insert("meter@home".to_owned(), meter);
    users.tokens.insert([7; 32], Token { user: "meter@home".to_owned(), made_s: 1_732_500_000 });
    users
}

/// With the checksum that fits.
fn summed(lines: &str) -> String {
    let sum = crc_fast::crc32_iscsi(lines.as_bytes());
    format!("{lines}end {sum:08x}\n")
}

#[test]
fn what_was_written_is_read() {
    for users in [some(), Users::default()] {
        assert_eq!(Users::parse(&users.text()), Ok(users));
    }
}

#[test]
fn a_file_that_was_cut_or_has_a_bit_flipped_is_refused() {
    let text = some().text();
    for end in 0..text.len() {
        assert!(Users::parse(&text[..end]).is_err(), "cut at {end}");
    }
    for at in 0..text.len() {
        for bit in 0..8 {
            let mut bytes = text.clone().into_bytes();
            bytes[at] ^= 1 << bit;
            let Ok(flipped) = String::from_utf8(bytes) else { continue };
            assert!(Users::parse(&flipped).is_err(), "bit {bit} of byte {at}: {flipped}");
        }
    }
    assert_eq!(Users::parse(&(text.clone() + "\n")), Err(Damage::Sum));
    assert_eq!(Users::parse(&(text.clone() + &text)), Err(Damage::Sum));
}

#[test]
fn lines_that_make_no_sense_are_named() {
    let hash = "ab".repeat(32);
    let token = format!("token a 1 {hash}\n");
    for (lines, line) in [
        ("user a root * -\n".to_owned(), 2),
        ("user a read * -\nuser a admin * -\n".to_owned(), 3),
        ("user a read  -\n".to_owned(), 2),
        ("user a read *,b -\n".to_owned(), 2),
        ("user a read x, -\n".to_owned(), 2),
        ("user a read * secret\n".to_owned(), 2),
        ("user  read * -\n".to_owned(), 2),
        ("user a/b read * -\n".to_owned(), 2),
        ("user a read * - more\n".to_owned(), 2),
        ("\n".to_owned(), 2),
        (token.clone(), 2),
        (format!("user a read * -\n{token}{token}"), 4),
        (format!("user a read * -\ntoken a -1 {hash}\n"), 3),
        (format!("user a read * -\ntoken a 1 {}\n", hash.to_uppercase()), 3),
        ("user a read * -\ntoken a 1 ab\n".to_owned(), 3),
    ] {
        let read = Users::parse(&summed(&format!("highwater users 1\n{lines}")));
        assert!(
            matches!(read, Err(Damage::Line { line: at, .. }) if at == line),
            "{lines}: {read:?}"
        );
    }
    assert_eq!(Users::parse(&summed("highwater users 2\n")), Err(Damage::Start));
}

#[test]
fn a_user_goes_with_its_tokens() {
    let mut users = some();
    assert!(users.remove("meter@home") && !users.remove("meter@home"));
    assert!(users.tokens.is_empty() && users.users.contains_key("alice"));
}

#[test]
fn lists_of_prefixes_are_strict() {
    assert_eq!(topics("*"), Some(Topics::All));
    assert_eq!(topics("a,b."), Some(Topics::Under(vec!["a".to_owned(), "b.".to_owned()])));
    for text in ["", ",", "a,", "a b", "a,*", "**", "é"] {
        assert_eq!(topics(text), None, "{text:?}");
    }
}

#[test]
fn claims_have_one_spelling() {
    let ticket = Claims {
        good_for: Use::Ticket(vec!["a".to_owned(), "b.c".to_owned()]),
        expires_s: 1_732_500_000,
        id: 5,
        stamp: 9,
        user: "alice".to_owned(),
    };
    let session = Claims { good_for: Use::Session, user: "bob".to_owned(), ..ticket.clone() };
    let nobody = Claims { user: String::new(), ..ticket.clone() };
    for claims in [&ticket, &session, &nobody] {
        assert_eq!(Claims::parse(&claims.text()).as_ref(), Some(claims));
    }
    let text = ticket.text();
    for other in [
        text.replace("1732500000", "+1732500000"),
        text.replace("1732500000", "01732500000"),
        text.replace("a,b.c", ""),
        text.replace("a,b.c", "a,,b"),
        text.replace("a,b.c", "a b"),
        text.replace("ticket", "session"),
        text.replace("ticket", "admin"),
        text.replace("alice", "al/ce"),
        format!("{text} "),
        format!(" {text}"),
        text.replace("a,b.c", &"a".repeat(5000)),
    ] {
        assert_eq!(Claims::parse(&other), None, "{other}");
    }
    assert!(ticket.is_void_at(1_732_500_000) && !ticket.is_void_at(1_732_499_999));
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC*", lines in prop::collection::vec("(user|token) [a-z ,.*$0-9-]{0,40}", 0..5)) {
        let _ = (Users::parse(&text), Claims::parse(&text));
        let body = lines.iter().fold("highwater users 1\n".to_owned(), |all, line| all + line + "\n");
        if let Ok(users) = Users::parse(&summed(&body)) {
            prop_assert_eq!(Users::parse(&users.text()), Ok(users));
        }
    }
}
