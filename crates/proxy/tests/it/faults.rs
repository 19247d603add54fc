//! Each action of a fault rule: what reaches the broker, and what the client gets.

use crate::produce_faults::{VERSION, request, values};
use crate::rules::{injector, rule};
use crate::server::{NODE, Raw, Server};
use model::ErrorCode;
use proxy::fault_injection::{
    AnswerCode, BrokerControl, CountBy, FaultAction, FaultEngine, FaultPlan, FaultRule, Occurrence,
};
use proxy::{FaultInjector, Proxy, ProxyConfig};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::AsyncReadExt;
use wire::{ApiKey, MetadataRequest, MetadataResponse, ProduceResponse};

/// How long a test waits for what must come.
const LIMIT: Duration = Duration::from_secs(60);

struct Setup {
    server: Server,
    proxy: Proxy,
    faults: Arc<FaultInjector>,
}

impl Setup {
    async fn start(rules: &[FaultRule]) -> Setup {
        Setup::with(injector(rules)).await
    }

    async fn with(faults: Arc<FaultInjector>) -> Setup {
        let server = Server::start().await;
        let config =
            ProxyConfig { faults: Some(faults.clone()), ..ProxyConfig::new(&server.address) };
        let proxy = Proxy::start(config).await.unwrap();
        Setup { server, proxy, faults }
    }

    async fn client(&self) -> Raw {
        Raw::connect(self.proxy.bootstrap()).await
    }

    fn values(&self) -> Vec<String> {
        values(&self.server)
    }

    /// Waits until the server has these values.
    async fn reached(&self, wanted: &[&str]) {
        let start = Instant::now();
        while self.values() != wanted {
            assert!(start.elapsed() < LIMIT, "{:?} instead of {wanted:?}", self.values());
            tokio::task::yield_now().await;
        }
    }
}

fn once(action: FaultAction) -> FaultRule {
    FaultRule { occurrence: Occurrence::Once, ..rule(ApiKey::Produce, action) }
}

fn error(code: ErrorCode, after_effect: bool) -> FaultAction {
    FaultAction::Error { code: AnswerCode(code), after_effect }
}

/// The answer to a produce request: correlation id, error code, base offset and throttle time.
async fn produced(client: &mut Raw) -> (i32, i16, i64, i32) {
    let (id, message): (_, ProduceResponse) = client.message(ApiKey::Produce, VERSION).await;
    let partition = &message.responses[0].partition_responses[0];
    (id, partition.error_code, partition.base_offset, message.throttle_time_ms)
}

/// The next bytes of a connection: `Some(0)` at an orderly end, `None` after a reset.
async fn end_of(client: &mut Raw) -> Option<usize> {
    let read = tokio::time::timeout(LIMIT, client.0.read(&mut [0; 16])).await.unwrap();
    match read {
        Ok(count) => Some(count),
        Err(error) if error.kind() == ErrorKind::ConnectionReset => None,
        Err(error) => panic!("{error}"),
    }
}

#[tokio::test]
async fn an_error_before_the_effect_reaches_no_broker() {
    let setup = Setup::start(&[once(error(ErrorCode::NotEnoughReplicas, false))]).await;
    let mut client = setup.client().await;
    client.send_all(&[request("a", -1), request("b", -1)], VERSION, 1).await;
    assert_eq!(produced(&mut client).await, (1, 19, -1, 0));
    assert_eq!(produced(&mut client).await, (2, 0, 100, 0));
    assert_eq!(setup.values(), ["b"]);
    assert_eq!((setup.faults.status()[0].matches, setup.faults.status()[0].faults), (2, 1));
}

#[tokio::test]
async fn an_error_after_the_effect_hides_the_brokers_answer() {
    let setup = Setup::start(&[once(error(ErrorCode::RequestTimedOut, true))]).await;
    let mut client = setup.client().await;
    client.send_all(&[request("a", -1), request("b", -1)], VERSION, 1).await;
    assert_eq!(produced(&mut client).await, (1, 7, -1, 0));
    assert_eq!(produced(&mut client).await, (2, 0, 200, 0));
    assert_eq!(setup.values(), ["a", "b"]);
}

#[tokio::test]
async fn an_error_of_metadata_concerns_the_topics_of_the_rule_and_keeps_the_brokers() {
    let action = error(ErrorCode::LeaderNotAvailable, false);
    let rule = FaultRule { topic: Some("t*".to_owned()), ..rule(ApiKey::Metadata, action) };
    let setup = Setup::start(&[rule]).await;
    let mut client = setup.client().await;
    let topic = |name: &str| wire::metadata::MetadataRequestTopic {
        name: Some(name.to_owned()),
        ..Default::default()
    };
    let topics = Some(vec![topic("t"), topic("x")]);
    client.send(&MetadataRequest { topics, ..MetadataRequest::default() }, 12, 1).await;
    let (_, message): (_, MetadataResponse) = client.message(ApiKey::Metadata, 12).await;
    let codes = message.topics.iter().map(|topic| (topic.name.as_deref(), topic.error_code));
    assert_eq!(codes.collect::<Vec<_>>(), [(Some("t"), 5), (Some("x"), 0)]);
    assert_eq!(message.brokers[0].node_id, NODE);
}

#[tokio::test]
async fn a_throttle_time_is_set_in_the_brokers_answer() {
    let setup = Setup::start(&[once(FaultAction::Throttle { ms: 250 })]).await;
    let mut client = setup.client().await;
    client.send(&request("a", -1), VERSION, 1).await;
    assert_eq!(produced(&mut client).await, (1, 0, 100, 250));
}

#[tokio::test]
async fn a_delayed_request_holds_back_the_requests_behind_it() {
    let delay = Duration::from_millis(300);
    for action in [FaultAction::Delay { ms: 300 }, FaultAction::DelayAnswer { ms: 300 }] {
        let setup = Setup::start(&[once(action)]).await;
        let mut client = setup.client().await;
        let start = Instant::now();
        client.send_all(&[request("a", -1), request("b", -1)], VERSION, 1).await;
        if matches!(action, FaultAction::DelayAnswer { .. }) {
            setup.reached(&["a", "b"]).await;
        }
        assert_eq!(produced(&mut client).await, (1, 0, 100, 0));
        assert!(start.elapsed() >= delay, "{action:?}");
        assert_eq!(produced(&mut client).await, (2, 0, 200, 0));
        // The connection works as before.
        client.send(&request("c", -1), VERSION, 3).await;
        assert_eq!(produced(&mut client).await, (3, 0, 300, 0));
        assert_eq!(setup.values(), ["a", "b", "c"]);
    }
}

#[tokio::test]
async fn a_dropped_answer_ends_the_connection_after_the_effect() {
    let setup = Setup::start(&[once(FaultAction::DropAnswer)]).await;
    let mut client = setup.client().await;
    client.send_all(&[request("a", -1), request("b", -1)], VERSION, 1).await;
    assert_eq!(end_of(&mut client).await, Some(0));
    assert_eq!(setup.values(), ["a"], "the request behind it is dropped");
    let mut client = setup.client().await;
    client.send(&request("a", -1), VERSION, 1).await;
    assert_eq!(produced(&mut client).await, (1, 0, 200, 0), "the retry passes");
}

#[tokio::test]
async fn a_withheld_answer_leaves_the_connection_open_and_silent() {
    let setup = Setup::start(&[once(FaultAction::WithholdAnswer)]).await;
    let mut client = setup.client().await;
    client.send(&request("a", -1), VERSION, 1).await;
    setup.reached(&["a"]).await;
    client.send(&request("b", -1), VERSION, 2).await;
    let mut buffer = [0; 1];
    let answer = client.0.read(&mut buffer);
    let silent = tokio::time::timeout(Duration::from_millis(200), answer).await;
    assert!(silent.is_err(), "{silent:?}");
    assert_eq!(setup.values(), ["a"]);
}

#[tokio::test]
async fn a_connection_is_closed_or_reset_behind_earlier_answers_and_before_the_effect() {
    for (action, end) in [(FaultAction::Close, Some(0)), (FaultAction::Reset, None)] {
        let second = FaultRule { occurrence: Occurrence::Nth(2), ..rule(ApiKey::Produce, action) };
        let setup = Setup::start(&[second]).await;
        let mut client = setup.client().await;
        client.send_all(&[request("a", -1), request("b", -1)], VERSION, 1).await;
        // A reset may overtake the bytes of an earlier answer, so that answer is read only before an orderly end.
        if end.is_some() {
            assert_eq!(produced(&mut client).await, (1, 0, 100, 0));
        }
        let mut ended = end_of(&mut client).await;
        while ended.is_some_and(|count| count > 0) {
            ended = end_of(&mut client).await;
        }
        assert_eq!(ended, end, "{action:?}");
        assert_eq!(setup.values(), ["a"]);
    }
}

#[tokio::test]
async fn a_duplicated_request_of_any_api_has_one_answer() {
    let setup = Setup::start(&[rule(ApiKey::Metadata, FaultAction::Duplicate)]).await;
    let mut client = setup.client().await;
    for id in [1, 2] {
        client.send(&MetadataRequest::default(), 12, id).await;
        assert_eq!(client.answered().await, id);
    }
    // The broker has answered each of them twice; the answer that is dropped may come last.
    let start = Instant::now();
    let counted = || setup.proxy.traffic().apis[0];
    while counted().responses < 4 {
        assert!(start.elapsed() < LIMIT, "{:?}", counted());
        tokio::task::yield_now().await;
    }
    assert_eq!((counted().requests, counted().responses), (2, 4));
}

/// Control that notes what it is to do.
#[derive(Clone, Default)]
struct NotedControl(Arc<Mutex<Vec<String>>>);

impl NotedControl {
    /// Waits until it has been called, and returns the calls.
    async fn calls(&self) -> Vec<String> {
        let start = Instant::now();
        while self.0.lock().unwrap().is_empty() {
            assert!(start.elapsed() < LIMIT);
            tokio::task::yield_now().await;
        }
        self.0.lock().unwrap().clone()
    }
}

impl BrokerControl for NotedControl {
    fn kill(&self, address: &str) {
        self.0.lock().unwrap().push(format!("kill {address}"));
    }

    fn has_other_brokers(&self) -> bool {
        true
    }

    fn restart(&self, address: &str) {
        self.0.lock().unwrap().push(format!("restart {address}"));
    }
}

async fn controlled(action: FaultAction) -> (Setup, NotedControl) {
    let control = NotedControl::default();
    let plan = FaultPlan { seed: 0, rules: vec![once(action)] };
    let faults = FaultInjector::new(FaultEngine::new(plan), Some(Box::new(control.clone())));
    (Setup::with(Arc::new(faults.unwrap())).await, control)
}

#[tokio::test]
async fn the_broker_is_killed_after_the_effect_and_the_client_gets_nothing() {
    let (setup, control) = controlled(FaultAction::Kill).await;
    let mut client = setup.client().await;
    client.send(&request("a", -1), VERSION, 1).await;
    setup.reached(&["a"]).await;
    assert_eq!(control.calls().await, [format!("kill {}", setup.server.address)]);
    let silent = tokio::time::timeout(Duration::from_millis(100), client.answer()).await;
    assert!(silent.is_err(), "no answer");
}

#[tokio::test]
async fn leaders_move_before_the_effect_and_the_connection_closes() {
    let (setup, control) = controlled(FaultAction::MoveLeader).await;
    let mut client = setup.client().await;
    client.send(&request("a", -1), VERSION, 1).await;
    assert_eq!(end_of(&mut client).await, Some(0));
    assert_eq!(control.calls().await, [format!("restart {}", setup.server.address)]);
    assert_eq!(setup.values(), [""; 0]);
}

#[tokio::test]
async fn rules_change_while_connections_are_open() {
    let setup = Setup::start(&[]).await;
    let mut client = setup.client().await;
    client.send(&request("a", -1), VERSION, 1).await;
    assert_eq!(produced(&mut client).await.1, 0);
    let rule = FaultRule {
        count_by: CountBy::Rule,
        ..rule(ApiKey::Produce, error(ErrorCode::NotLeaderOrFollower, false))
    };
    setup.faults.put(rule).unwrap();
    client.send(&request("b", -1), VERSION, 2).await;
    assert_eq!(produced(&mut client).await.1, 6);
    assert!(setup.faults.remove("error"));
    client.send(&request("c", -1), VERSION, 3).await;
    assert_eq!(produced(&mut client).await.1, 0);
    assert_eq!(setup.values(), ["a", "c"]);
}

#[tokio::test]
async fn requests_of_other_topics_and_clients_pass() {
    let close = rule(ApiKey::Produce, FaultAction::Close);
    let other = |name: &str, topic: Option<&str>, client: Option<&str>| FaultRule {
        name: name.to_owned(),
        topic: topic.map(str::to_owned),
        client_id: client.map(str::to_owned),
        ..close.clone()
    };
    let rules = [other("topic", Some("u"), None), other("client", None, Some("x"))];
    let setup = Setup::start(&rules).await;
    let mut client = setup.client().await;
    client.send(&request("a", -1), VERSION, 1).await;
    assert_eq!(produced(&mut client).await.1, 0);
    assert_eq!(setup.faults.status().iter().map(|rule| rule.matches).sum::<u64>(), 0);
}

#[tokio::test]
async fn requests_without_an_answer_are_lost_or_cut() {
    let first = once(error(ErrorCode::NotEnoughReplicas, false));
    let fourth = FaultRule { occurrence: Occurrence::Nth(4), ..once(FaultAction::Close) };
    let setup = Setup::start(&[first, fourth]).await;
    let mut client = setup.client().await;
    let requests = ["a", "b", "c", "d", "e"].map(|value| request(value, 0));
    client.send_all(&requests, VERSION, 1).await;
    assert_eq!(end_of(&mut client).await, Some(0));
    setup.reached(&["b", "c"]).await;
}

#[tokio::test]
async fn a_removed_rule_owes_no_reordering() {
    // The second rule never fires. The proxy reads produce requests because of it.
    let never = FaultRule {
        name: "never".to_owned(),
        occurrence: Occurrence::Nth(1000),
        ..rule(ApiKey::Produce, FaultAction::Close)
    };
    let setup = Setup::start(&[once(FaultAction::Reorder), never]).await;
    let mut client = setup.client().await;
    // No other request comes: it goes unchanged, and the next one is owed.
    client.send(&request("a", -1), VERSION, 1).await;
    assert_eq!(produced(&mut client).await.0, 1);
    assert_eq!(setup.faults.status()[0].faults, 1);
    let name = setup.faults.status()[0].rule.name.clone();
    assert!(setup.faults.remove(&name));
    client.send_all(&[request("b", -1), request("c", -1)], VERSION, 2).await;
    assert_eq!(produced(&mut client).await.0, 2);
    assert_eq!(produced(&mut client).await.0, 3);
    assert_eq!(setup.values(), ["a", "b", "c"]);
}
