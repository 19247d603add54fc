//! What pages of other origins may, strangers' and listed ones, with a cookie and without.

use gateway::{Access, Settings};
use serving::visitors::Doorkeeper;

use crate::fixture::World;
use crate::http::request;
use crate::websocket_client::handshake;
use crate::who::{PASSWORD, People, log_in};

const STRANGER: &str = "https://evil.example.com";
const LISTED: &str = "https://app.example.org";
const OWN: &str = "http://localhost";

fn with_listed(settings: Settings) -> Settings {
    Settings { doorkeeper: Doorkeeper::new(None, [LISTED]), ..settings }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_strangers_page_joins_no_group_by_an_address() {
    let world = World::start_with(with_listed).await;
    world.create("t", 1, &[]).await;
    for (target, headers, status) in [
        ("/topics/t/events?group=g", &[("origin", STRANGER)][..], 403),
        ("/topics/t/events?group=g&ack=sent", &[("sec-fetch-site", "cross-site")], 403),
        ("/topics/t/events?x=y&%67roup=g", &[("sec-fetch-site", "cross-site")], 403),
        ("/topics/t/events?group=g", &[("origin", "null")], 403),
        ("/topics/t/events?group=g", &[("origin", LISTED)], 200),
        ("/topics/t/events?group=g", &[("origin", OWN)], 200),
        ("/topics/t/events?group=g", &[], 200),
        // To read what it cannot see changes nothing.
        ("/topics/t/events", &[("origin", STRANGER)], 200),
    ] {
        for method in ["HEAD", "GET"] {
            // An answer that goes on is not read to its end.
            if method == "GET" && status == 200 {
                continue;
            }
            let answer = world.connect().await.ask(method, target, headers, b"").await;
            assert_eq!(answer.status, status, "{method} {target} {headers:?}: {answer:?}");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_opens_a_websocket_to_pages_of_this_host_alone() {
    let people = People::new();
    let users_file = Some(people.file());
    let settings =
        |settings| with_listed(Settings { access: Access::Health, users_file, ..settings });
    let world = World::start_with(settings).await;
    world.create("t", 1, &[]).await;
    let mut connection = world.connect().await;
    let answer = log_in(&mut connection, PASSWORD, "/console").await;
    let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let pulsar = "persistent/public/default/t";
    let address = world.gateway.address();
    for target in [
        "/ws/topics/t".to_owned(),
        format!("/ws/v2/reader/{pulsar}"),
        format!("/ws/v2/consumer/{pulsar}/s"),
        format!("/ws/v2/producer/{pulsar}"),
    ] {
        for (origin, status) in
            [(Some(LISTED), 403), (Some(STRANGER), 403), (None, 403), (Some(OWN), 101)]
        {
            let headers: Vec<_> = [("cookie", cookie.as_str())]
                .into_iter()
                .chain(origin.map(|origin| ("origin", origin)))
                .collect();
            let found = handshake(address, &target, &headers).await;
            let found = found.map_or_else(|refused| refused.0, |_| 101);
            assert_eq!(found, status, "{target} {origin:?}");
        }
        // Without a cookie a token says who asks, and a listed page may have one.
        let bearer = people.bearer("boss").replace("Bearer ", "bearer.");
        let headers = [("origin", LISTED), ("sec-websocket-protocol", bearer.as_str())];
        // The consumer before it may not have left yet.
        let found = handshake(address, &target, &headers).await;
        assert!(found.is_ok() || target.contains("consumer"), "{target}");
    }
    // What an instance gives is not given again, and to join a group takes partitions.
    for target in ["/consumers/g/instances/i/records", "/topics/t/events?group=g"] {
        for (page, may) in [
            (&[("origin", LISTED)][..], false),
            (&[], false),
            (&[("sec-fetch-site", "same-origin")], true),
            (&[("origin", OWN)], true),
        ] {
            let headers: Vec<_> =
                [("cookie", cookie.as_str())].iter().chain(page).copied().collect();
            let answer = world.connect().await.ask("HEAD", target, &headers, b"").await;
            assert_eq!(answer.status != 403, may, "{target} {page:?}: {answer:?}");
        }
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_of_the_console_are_taken_from_its_own_pages_alone() {
    let world = World::start_with(with_listed).await;
    let form = "application/x-www-form-urlencoded";
    for path in ["/console/do/delete-topic", "/console/login", "/console/logout"] {
        for (origin, may) in [
            (Some(LISTED), false),
            (Some(STRANGER), false),
            (Some("null"), false),
            (Some(OWN), true),
            (None, true),
        ] {
            let mut headers = vec![("content-type", form)];
            headers.extend(origin.map(|origin| ("origin", origin)));
            let mut connection = world.connect().await;
            connection.send(request("POST", path, &headers, b"topic=t")).await;
            let answer = connection.answer().await;
            let is_refused = answer.status == 403 && answer.body.contains("may not send this");
            assert_eq!(is_refused, !may, "{path} {origin:?}: {answer:?}");
        }
    }
    world.stop().await;
}
