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
        // Each of them may take so long that the next guess is due.
        let is_limited = async |connection: &mut Connection, value: &str| {
            for _ in 0..2 * GUESSES {
                if guess(connection, (header.name(), value)).await == 429 {
                    return true;
                }
            }
            false
        };
        assert!(is_limited(&mut connection, one).await);
        assert!(is_limited(&mut connection, &claimed).await, "a claim gives no address");
        assert_eq!(guess(&mut connection, (header.name(), another)).await, 401);
        world.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_header_from_another_peer_or_of_another_name_is_no_address() {
    let dir = tempfile::tempdir().unwrap();
    // Connections of this test come from 127.0.0.1, whose guesses are not limited.
    let world = world(&dir, "127.0.0.2", ForwardingHeader::XForwardedFor).await;
    let mut connection = world.connect().await;
    for _ in 0..2 * GUESSES {
        let name = ForwardingHeader::XForwardedFor.name();
        assert_eq!(guess(&mut connection, (name, "203.0.113.1")).await, 401);
    }
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
    world.stop().await;
}
