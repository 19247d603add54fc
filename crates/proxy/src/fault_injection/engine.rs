//! The decision which request gets which fault: rules, counts and seed, without sockets and clock.
//!
//! A decision depends on the seed, the rule, the client id, the partition and the number of the request among those of the
//! client id to the partition. Equal requests of a client get equal faults in every interleaving of the clients, except under
//! rules with `limit` or with `count_by = "rule"`: all clients share their counts. Connections of one client id share counts too.

use super::facts::RequestFacts;
use super::journal::FaultEvent;
use super::rule::{CountBy, FaultAction, FaultPlan, FaultRule, InvalidRule, Occurrence, RULES_MAX};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// Streams of requests that a rule counts apart; further streams share one count.
const STREAMS_MAX: usize = 100_000;
/// Names that the rules of a run have at most. The engine counts the generations of each.
const NAMES_MAX: usize = 10_000;

/// Requests that are counted together: those of a client to a partition, or all of a rule.
#[derive(Debug, Clone, Default)]
struct RequestStream {
    client_id: String,
    topic: Option<String>,
    partition: Option<i32>,
}

impl RequestStream {
    /// Hash of the stream: a count of fixed size, for client ids and topic names of any length.
    fn key(&self) -> u64 {
        let mut hash = Fnv::default();
        for text in [Some(&self.client_id), self.topic.as_ref()] {
            hash.add_text(text);
        }
        hash.add(&self.partition.unwrap_or(-1).to_be_bytes());
        mixed(hash.0)
    }
}

/// A rule with its counts.
#[derive(Debug)]
struct RuleState {
    rule: FaultRule,
    /// How often a rule of this name was added before.
    generation: u32,
    matches: u64,
    faults: u64,
    /// Requests of each stream, by [`RequestStream::key`].
    counts: HashMap<u64, u64>,
}

/// A rule and its counts, as the HTTP interface shows them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RuleStatus {
    /// The rule.
    #[serde(flatten)]
    pub rule: FaultRule,
    /// Requests that the rule matched; a request to several matching partitions counts once for each.
    pub matches: u64,
    /// Faults of the rule.
    pub faults: u64,
}

/// The fault of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultDecision {
    /// The fault.
    pub action: FaultAction,
    /// The rule that fired.
    pub rule: Box<FaultRule>,
    /// The journal's line about it.
    pub event: FaultEvent,
}

/// Rules, counts and seed of a proxy.
#[derive(Debug, Default)]
pub struct FaultEngine {
    seed: u64,
    rules: Vec<RuleState>,
    generations: HashMap<String, u32>,
    /// Faults of an earlier run; they replace the rules' occurrences.
    replayed: Option<HashSet<FaultEvent>>,
}

impl FaultEngine {
    /// An engine that has seen no request. The plan must be valid.
    pub fn new(plan: FaultPlan) -> FaultEngine {
        let mut engine = FaultEngine { seed: plan.seed, ..FaultEngine::default() };
        engine.rules = plan.rules.into_iter().map(|rule| engine.state_of(rule)).collect();
        engine
    }

    /// The same engine with the faults of an earlier run in place of the rules' occurrences.
    pub fn replaying(self, events: impl IntoIterator<Item = FaultEvent>) -> FaultEngine {
        FaultEngine { replayed: Some(events.into_iter().collect()), ..self }
    }

    /// Seed and rules.
    pub fn plan(&self) -> FaultPlan {
        let rules = self.rules.iter().map(|state| state.rule.clone()).collect();
        FaultPlan { seed: self.seed, rules }
    }

    /// Rules with their counts, in the order of their precedence.
    pub fn status(&self) -> Vec<RuleStatus> {
        let status = |state: &RuleState| RuleStatus {
            rule: state.rule.clone(),
            matches: state.matches,
            faults: state.faults,
        };
        self.rules.iter().map(status).collect()
    }

    /// Sets a rule behind the others, or in the place of the rule of its name. Its counts begin at 0.
    ///
    /// # Errors
    /// The rule is invalid, or there are too many rules or names.
    pub fn put(&mut self, rule: FaultRule) -> Result<(), InvalidRule> {
        rule.check()?;
        let is_new = self.rules.iter().all(|known| known.rule.name != rule.name);
        if is_new && self.rules.len() >= RULES_MAX {
            return Err(rule.one_too_many());
        }
        self.check_names(std::slice::from_ref(&rule))?;
        let state = self.state_of(rule);
        match self.rules.iter_mut().find(|known| known.rule.name == state.rule.name) {
            Some(known) => *known = state,
            None => self.rules.push(state),
        }
        Ok(())
    }

    /// Sets these valid rules in the place of all rules, and the seed, if there is one.
    ///
    /// # Errors
    /// The rules of the run have too many names.
    pub fn replace(&mut self, rules: Vec<FaultRule>, seed: Option<u64>) -> Result<(), InvalidRule> {
        self.check_names(&rules)?;
        self.seed = seed.unwrap_or(self.seed);
        self.rules = rules.into_iter().map(|rule| self.state_of(rule)).collect();
        Ok(())
    }

    /// Whether the rule that decided this event is still set.
    pub fn has_rule_of(&self, event: &FaultEvent) -> bool {
        let is_it = |state: &RuleState| {
            state.generation == event.generation && state.rule.name == event.rule
        };
        self.rules.iter().any(is_it)
    }

    fn check_names(&self, rules: &[FaultRule]) -> Result<(), InvalidRule> {
        let mut known = self.generations.len();
        for rule in rules {
            known += usize::from(!self.generations.contains_key(&rule.name));
            if known > NAMES_MAX {
                let problem = format!("a run has at most {NAMES_MAX} names; use a name again");
                return Err(rule.invalid("name", problem));
            }
        }
        Ok(())
    }

    /// Removes a rule. Returns whether there was one of this name.
    pub fn remove(&mut self, name: &str) -> bool {
        let before = self.rules.len();
        self.rules.retain(|state| state.rule.name != name);
        self.rules.len() < before
    }

    fn state_of(&mut self, rule: FaultRule) -> RuleState {
        let generation = self.generations.entry(rule.name.clone()).or_default();
        let state = RuleState {
            rule,
            generation: *generation,
            matches: 0,
            faults: 0,
            counts: HashMap::new(),
        };
        *generation += 1;
        state
    }

    /// The rules.
    pub fn rules(&self) -> impl Iterator<Item = &FaultRule> {
        self.rules.iter().map(|state| &state.rule)
    }

    /// Counts a request and returns its fault, if it gets one.
    pub fn decide(&mut self, request: &RequestFacts) -> Option<FaultDecision> {
        let mut decided = None;
        for state in &mut self.rules {
            // Every rule counts, also behind the one that fires: rules do not change each other's counts.
            let numbered = state.count(request);
            if decided.is_some() {
                continue;
            }
            let replayed = self.replayed.as_ref();
            let fired = numbered
                .into_iter()
                .map(|(stream, number)| state.event(request, stream, number))
                .find(|event| match replayed {
                    Some(events) => events.contains(event),
                    None => state.fires(self.seed, event),
                });
            if let Some(event) = fired {
                state.faults += 1;
                let rule = Box::new(state.rule.clone());
                decided = Some(FaultDecision { action: rule.action, rule, event });
            }
        }
        decided
    }

    /// Counts a request that gets no fault.
    pub fn count(&mut self, request: &RequestFacts) {
        for state in &mut self.rules {
            state.count(request);
        }
    }
}

impl RuleState {
    /// Counts a request. Returns its streams, and its number in each.
    fn count(&mut self, request: &RequestFacts) -> Vec<(RequestStream, u64)> {
        let rule = &self.rule;
        if !rule.matches_api(request.api) || !rule.matches_client(&request.client_id) {
            return Vec::new();
        }
        let client_id = || request.client_id.clone();
        let mut streams: Vec<RequestStream> = Vec::new();
        let matching = request
            .partitions
            .iter()
            .filter(|at| rule.matches_partition(at.topic.as_deref(), at.partition));
        streams.extend(matching.map(|at| RequestStream {
            client_id: client_id(),
            topic: at.topic.clone(),
            partition: at.partition,
        }));
        if streams.is_empty() && rule.matches_any_partition() {
            streams.push(RequestStream { client_id: client_id(), ..RequestStream::default() });
        }
        if rule.count_by == CountBy::Rule && !streams.is_empty() {
            streams = vec![RequestStream::default()];
        }
        self.matches += streams.len() as u64;
        streams.into_iter().map(|stream| self.number(stream)).collect()
    }

    fn number(&mut self, stream: RequestStream) -> (RequestStream, u64) {
        let key = stream.key();
        let has_room = self.counts.len() < STREAMS_MAX || self.counts.contains_key(&key);
        let counted = if has_room { key } else { RequestStream::default().key() };
        let number = self.counts.entry(counted).or_default();
        *number += 1;
        (stream, *number)
    }

    fn event(&self, request: &RequestFacts, stream: RequestStream, number: u64) -> FaultEvent {
        FaultEvent {
            rule: self.rule.name.clone(),
            generation: self.generation,
            api: request.api.name().to_owned(),
            client_id: stream.client_id,
            topic: stream.topic,
            partition: stream.partition,
            number,
            action: self.rule.action.name().to_owned(),
        }
    }

    fn fires(&self, seed: u64, event: &FaultEvent) -> bool {
        if self.rule.limit.is_some_and(|limit| self.faults >= limit) {
            return false;
        }
        match self.rule.occurrence {
            Occurrence::Always => true,
            Occurrence::Once => event.number == 1,
            Occurrence::Nth(number) => event.number == number,
            Occurrence::Every(every) => event.number.is_multiple_of(every),
            Occurrence::Probability(probability) => draw(seed, event) < probability,
        }
    }
}

/// A number of [0, 1) that is a function of seed, rule, client id, partition and number of the request.
fn draw(seed: u64, event: &FaultEvent) -> f64 {
    let mut hash = Fnv::default();
    hash.add(&seed.to_be_bytes());
    for text in [Some(&event.rule), Some(&event.client_id), event.topic.as_ref()] {
        hash.add_text(text);
    }
    hash.add(&event.partition.unwrap_or(-1).to_be_bytes());
    hash.add(&event.number.to_be_bytes());
    // A 64-bit float holds integers of 53 bits.
    (mixed(hash.0) >> 11) as f64 / (1u64 << 53) as f64
}

/// FNV-1a of 64 bits.
struct Fnv(u64);

impl Default for Fnv {
    fn default() -> Fnv {
        Fnv(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    /// Adds a text behind its length, which keeps "a", "bc" and "ab", "c" apart.
    fn add_text(&mut self, text: Option<&String>) {
        self.add(&text.map_or(u64::MAX, |text| text.len() as u64).to_be_bytes());
        self.add(text.map_or(&[], |text| text.as_bytes()));
    }

    fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }
}

/// The finalizer of SplitMix64: spreads the last bytes of a hash over all bits.
fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{produce, rule};
    use super::*;
    use wire::ApiKey;

    fn engine(rules: &[FaultRule]) -> FaultEngine {
        FaultEngine::new(FaultPlan { seed: 7, rules: rules.to_vec() })
    }

    fn with(occurrence: Occurrence) -> FaultRule {
        FaultRule { occurrence, ..rule(FaultAction::Close) }
    }

    /// Numbers of the requests of client `a` to partition 0 that get a fault, of the first 12.
    fn fired(rule: FaultRule) -> Vec<usize> {
        let mut engine = engine(&[rule]);
        let fires = |_: &usize| engine.decide(&produce("a", &[("t", 0)])).is_some();
        (1..=12).filter(fires).collect()
    }

    #[test]
    fn occurrences_choose_requests_by_their_number() {
        assert_eq!(fired(with(Occurrence::Always)).len(), 12);
        assert_eq!(fired(with(Occurrence::Once)), [1]);
        assert_eq!(fired(with(Occurrence::Nth(3))), [3]);
        assert_eq!(fired(with(Occurrence::Every(5))), [5, 10]);
        assert_eq!(fired(with(Occurrence::Probability(0.0))), [0; 0]);
        assert_eq!(fired(with(Occurrence::Probability(1.0))).len(), 12);
        assert_eq!(fired(FaultRule { limit: Some(2), ..with(Occurrence::Every(3)) }), [3, 6]);
    }

    #[test]
    fn each_client_and_partition_is_counted_apart_unless_the_rule_counts_all() {
        let requests = [("a", 0), ("b", 0), ("a", 1), ("a", 0), ("b", 0)];
        let fires = |count_by| {
            let mut engine = engine(&[FaultRule { count_by, ..with(Occurrence::Nth(2)) }]);
            requests.map(|(client, partition)| {
                engine.decide(&produce(client, &[("t", partition)])).is_some()
            })
        };
        assert_eq!(fires(CountBy::ClientPartition), [false, false, false, true, true]);
        assert_eq!(fires(CountBy::Rule), [false, true, false, false, false]);
    }

    #[test]
    fn rules_filter_by_api_topic_partition_and_client() {
        let rules = FaultRule {
            api: Some(ApiKey::Produce),
            topic: Some("orders*".to_owned()),
            partition: Some(1),
            client_id: Some("bill*".to_owned()),
            ..rule(FaultAction::Close)
        };
        let mut engine = engine(&[rules]);
        let mut fires = |request: RequestFacts| engine.decide(&request).is_some();
        assert!(fires(produce("billing", &[("x", 0), ("orders-eu", 1)])));
        assert!(
            !fires(produce("billing", &[("orders-eu", 0), ("x", 1)])),
            "not one partition of both"
        );
        assert!(!fires(produce("shop", &[("orders-eu", 1)])));
        let fetch = RequestFacts { api: ApiKey::Fetch, ..produce("billing", &[("orders", 1)]) };
        assert!(!fires(fetch));
        assert!(!fires(produce("billing", &[])));
        assert_eq!((engine.status()[0].matches, engine.status()[0].faults), (1, 1));
    }

    #[test]
    fn the_first_rule_that_fires_decides_and_all_rules_count() {
        let first = FaultRule { name: "first".to_owned(), ..with(Occurrence::Once) };
        let second = FaultRule { name: "second".to_owned(), ..with(Occurrence::Nth(2)) };
        let mut engine = engine(&[first, second]);
        let mut next = || engine.decide(&produce("a", &[("t", 0)])).map(|it| it.event.rule);
        assert_eq!(next().as_deref(), Some("first"));
        assert_eq!(next().as_deref(), Some("second"));
        assert_eq!(next(), None);
    }

    /// Which of 200 requests of two clients to two partitions get a fault, by stream, when the streams take turns in the
    /// order of `turns`.
    fn faults_by_stream(seed: u64, turns: &[usize]) -> Vec<Vec<bool>> {
        let streams = [("a", 0), ("a", 1), ("b", 0), ("b", 1)];
        let plan = FaultPlan { seed, rules: vec![with(Occurrence::Probability(0.3))] };
        let mut engine = FaultEngine::new(plan);
        let mut faults = vec![Vec::new(); streams.len()];
        for turn in turns {
            let (client, partition) = streams[*turn];
            let request = produce(client, &[("t", partition)]);
            faults[*turn].push(engine.decide(&request).is_some());
        }
        faults
    }

    #[test]
    fn faults_of_a_client_do_not_depend_on_the_order_of_clients() {
        let in_turn: Vec<usize> = (0..200).map(|at| at % 4).collect();
        let one_by_one: Vec<usize> = (0..200).map(|at| at / 50).collect();
        let mut random = fastrand::Rng::with_seed(3);
        let mut shuffled = in_turn.clone();
        random.shuffle(&mut shuffled);
        let faults = faults_by_stream(7, &in_turn);
        assert_eq!(faults, faults_by_stream(7, &one_by_one));
        assert_eq!(faults, faults_by_stream(7, &shuffled));
        assert_ne!(faults, faults_by_stream(8, &in_turn), "another seed");
        assert_ne!(faults[0], faults[1], "another partition");
        assert_ne!(faults[0], faults[2], "another client");
        let count = faults.iter().flatten().filter(|is_fault| **is_fault).count();
        assert!((35..=85).contains(&count), "{count} of 200 at a probability of 0.3");
    }

    /// A seed gives the same faults in every version: journals of tests are kept.
    #[test]
    fn draws_are_fixed_numbers() {
        let drawn = [7, 8].map(|seed| {
            let faults = faults_by_stream(seed, &[0; 20]);
            faults[0].iter().map(|is_fault| if *is_fault { 'x' } else { '.' }).collect::<String>()
        });
        assert_eq!(drawn, DRAWN);
    }

    const DRAWN: [&str; 2] = [".....x....x....x.x..", "x..xxx..x.x.x......."];

    #[test]
    fn the_faults_of_a_run_are_played_back_without_its_seed() {
        let plan = FaultPlan { seed: 7, rules: vec![with(Occurrence::Probability(0.3))] };
        let request = || produce("a", &[("t", 0)]);
        let mut run = FaultEngine::new(plan.clone());
        let decisions: Vec<_> = (0..50).map(|_| run.decide(&request())).collect();
        let events = decisions.iter().flatten().map(|decision| decision.event.clone());
        let other_seed = FaultPlan { seed: 1, ..plan };
        let mut replay = FaultEngine::new(other_seed).replaying(events.collect::<Vec<_>>());
        let replayed: Vec<_> = (0..50).map(|_| replay.decide(&request())).collect();
        assert_eq!(replayed, decisions);
        assert!(decisions.iter().any(Option::is_some));
    }

    #[test]
    fn a_rule_that_is_set_again_counts_from_the_beginning_as_another_generation() {
        let mut engine = engine(&[with(Occurrence::Once)]);
        let event = |engine: &mut FaultEngine| {
            engine.decide(&produce("a", &[("t", 0)])).map(|it| it.event.generation)
        };
        assert_eq!((event(&mut engine), event(&mut engine)), (Some(0), None));
        engine.put(with(Occurrence::Once)).unwrap();
        assert_eq!((event(&mut engine), event(&mut engine)), (Some(1), None));
        assert!(engine.remove("rule") && !engine.remove("rule"));
        assert_eq!(engine.status(), []);
        assert!(engine.put(with(Occurrence::Nth(0))).is_err());
    }

    #[test]
    fn rules_and_their_names_are_limited() {
        let named = |name: String| FaultRule { name, ..with(Occurrence::Once) };
        let rules: Vec<_> = (0..=RULES_MAX).map(|at| named(at.to_string())).collect();
        let plan = |rules: &[FaultRule]| FaultPlan { seed: 0, rules: rules.to_vec() };
        assert!(plan(&rules).check().unwrap_err().to_string().contains("at most 1000 rules"));
        assert!(plan(&rules[1..]).check().is_ok());
        let mut engine = engine(&rules[1..]);
        assert!(engine.put(rules[0].clone()).is_err());
        assert!(engine.put(rules[1].clone()).is_ok(), "a known rule replaces itself");
        engine.replace(Vec::new(), None).unwrap();
        for at in RULES_MAX..NAMES_MAX {
            engine.put(named(format!("further {at}"))).unwrap();
            assert!(engine.remove(&format!("further {at}")));
        }
        let refused = engine.put(named("one more".to_owned())).unwrap_err().to_string();
        assert!(refused.contains("at most 10000 names"), "{refused}");
        assert!(engine.replace(vec![rules[0].clone()], None).is_err());
        assert!(engine.put(rules[1].clone()).is_ok());
    }

    #[test]
    fn a_plan_over_http_sets_the_seed_that_it_names() {
        let mut engine = engine(&[with(Occurrence::Once)]);
        engine.replace(Vec::new(), None).unwrap();
        assert_eq!(engine.plan(), FaultPlan { seed: 7, rules: Vec::new() });
        engine.replace(Vec::new(), Some(9)).unwrap();
        assert_eq!(engine.plan().seed, 9);
    }

    #[test]
    fn streams_above_the_limit_share_a_count() {
        let mut engine = engine(&[with(Occurrence::Once)]);
        for at in 0..STREAMS_MAX as i32 {
            engine.count(&produce("a", &[("t", at)]));
        }
        assert!(engine.decide(&produce("b", &[("t", 0)])).is_some());
        assert!(engine.decide(&produce("c", &[("t", 0)])).is_none());
        assert!(engine.rules[0].counts.len() <= STREAMS_MAX + 1);
    }
}
