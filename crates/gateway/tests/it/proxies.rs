//! Clients behind trusted proxies: their addresses are those that the proxies name, and nothing that a client claims.

use gateway::Settings;
use gateway::who::passwords;
use serving::forwarded::{ForwardingHeader, TrustedProxies};
use serving::rights::{Rights, Role};
use serving::users::{User, Users};

use crate::fixture::World;
use crate::http::Connection;

/// Wrong passwords that an address may have.
const GUESSES: usize = 10;

async fn world(dir: &tempfile::TempDir, trusted: &str, header: ForwardingHeader) -> World {
    let mut users = Users::default();
    let user = User { rights: Rights::of(Role::Read), password: Some(passwords::hash("right")) };
    users.users.insert("ann".to_owned(), user);
    let file = dir.path().join("users");
    std::fs::write(&file, users.text()).unwrap();
    let proxies = TrustedProxies::read([trusted], header).unwrap();
    World::start_with(|settings| Settings { users_file: Some(file), proxies, ..settings }).await
}

/// The status of a request with a wrong password (`ann:wrong`) and this header.
async fn guess(connection: &mut Connection, (name, value): (&str, &str)) -> u16 {
    let headers = [("authorization", "Basic YW5uOndyb25n"), (name, value)];
    connection.ask("GET", "/topics", &headers, b"").await.status
}

/// Whether further guesses with this header are refused. A guess may take so long that the next one is due.
async fn is_limited(connection: &mut Connection, header: (&str, &str)) -> bool {
    for _ in 0..2 * GUESSES {
        if guess(connection, header).await == 429 {
            return true;
        }
    }
    false
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_passwords_count_for_the_client_behind_a_proxy() {
    for (header, one, another) in [
        (ForwardingHeader::XForwardedFor, "203.0.113.1", "203.0.113.2"),
        (ForwardingHeader::Forwarded, "for=203.0.113.1", "for=\"203.0.113.2:80\""),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let world = world(&dir, "127.0.0.0/8", header).await;
        let mut connection = world.connect().await;
        for _ in 0..GUESSES {
            assert_eq!(guess(&mut connection, (header.name(), one)).await, 401);
        }
        // The client's own entry comes before the proxy's.
        let claimed = format!("{another}, {one}");
        assert!(is_limited(&mut connection, (header.name(), one)).await);
        let claim = (header.name(), &*claimed);
        assert!(is_limited(&mut connection, claim).await, "a claim gives no address");
        assert_eq!(guess(&mut connection, (header.name(), another)).await, 401);
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_from_another_peer_or_of_another_name_is_no_address() {
    let dir = tempfile::tempdir().unwrap();
    // Connections of this test come from 127.0.0.1, which is not a trusted proxy.
    let world = world(&dir, "127.0.0.2", ForwardingHeader::XForwardedFor).await;
    let mut connection = world.connect().await;
    let name = ForwardingHeader::XForwardedFor.name();
    for _ in 0..GUESSES {
        assert_eq!(guess(&mut connection, (name, "203.0.113.1")).await, 401);
    }
    assert!(is_limited(&mut connection, (name, "203.0.113.2")).await, "the address of the peer");
    let address = world.gateway.address();
    let mut proxy = Connection::open_from("127.0.0.2:0".parse().unwrap(), address).await;
    // The guesses from elsewhere were not those of this client; and the proxy passes other headers on.
    for _ in 0..GUESSES {
        let headers = [
            ("authorization", "Basic YW5uOndyb25n"),
            ("x-forwarded-for", "203.0.113.1"),
            ("forwarded", "for=203.0.113.77"),
        ];
        assert_eq!(proxy.ask("GET", "/topics", &headers, b"").await.status, 401);
    }
    assert!(is_limited(&mut proxy, (name, "203.0.113.1")).await);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_cannot_take_the_address_of_its_proxy() {
    let dir = tempfile::tempdir().unwrap();
    let world = world(&dir, "127.0.0.0/8", ForwardingHeader::XForwardedFor).await;
    let mut connection = world.connect().await;
    let mut limited = false;
    for _ in 0..3 * GUESSES {
        let request =
            b"GET /topics HTTP/1.1\r\nhost: localhost\r\nauthorization: Basic YW5uOndyb25n\r\n\
                        x-forwarded-for: \xff, 203.0.113.9\r\n\r\n";
        connection.send(request).await;
        limited |= connection.answer().await.status == 429;
    }
    assert!(limited);
    // The guesses were those of the client, and the proxy's own address has a limit as well.
    let own = ("x-forwarded-for", "unknown");
    assert_eq!(guess(&mut connection, own).await, 401);
    assert!(is_limited(&mut connection, own).await);
    world.stop().await;
}
