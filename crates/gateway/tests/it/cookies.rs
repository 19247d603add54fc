//! Names of session cookies.

use gateway::Settings;

use crate::fixture::World;
use crate::who::{PASSWORD, People};

/// Logs in; returns the header `Set-Cookie` and the pair in it.
async fn log_in(world: &World) -> (String, String) {
    let form = format!("name=boss&password={}", PASSWORD.replace(' ', "+").replace(':', "%3A"));
    let kind = "application/x-www-form-urlencoded";
    let answer = world.connect().await.post("/console/login", kind, form).await;
    assert_eq!(answer.status, 303, "{answer:?}");
    let set = answer.header("set-cookie").unwrap().to_owned();
    let pair = set.split(';').next().unwrap().to_owned();
    (set, pair)
}

async fn status_with(world: &World, cookie: &str) -> u16 {
    world.connect().await.ask("GET", "/topics", &[("cookie", cookie)], b"").await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_under_tls_is_of_this_host_alone() {
    let people = People::new();
    let users_file = Some(people.file());
    let access = gateway::Access::Health;
    let world =
        World::start_with(|settings| Settings { access, users_file, is_secure: true, ..settings })
            .await;
    let (set, pair) = log_in(&world).await;
    // What browsers demand of the prefix.
    assert!(set.starts_with("__Host-highwater-session="), "{set}");
    assert!(
        set.contains("; Path=/;") && set.ends_with("; Secure") && !set.contains("Domain"),
        "{set}"
    );
    assert_eq!(status_with(&world, &pair).await, 200);
    // Another port of the host may set a cookie without the prefix.
    let plain = pair.trim_start_matches("__Host-");
    assert_eq!(status_with(&world, plain).await, 401);
    assert_eq!(status_with(&world, &format!("{plain}x; {pair}")).await, 200);
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cookie_without_tls_has_no_prefix_that_browsers_would_refuse() {
    let people = People::new();
    let world = people.world().await;
    let (set, pair) = log_in(&world).await;
    assert!(set.starts_with("highwater-session=") && !set.contains("Secure"), "{set}");
    assert_eq!(status_with(&world, &pair).await, 200);
    world.stop().await;
}
