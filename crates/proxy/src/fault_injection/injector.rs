//! Fault injection of one proxy: its engine, its journal, and the counts of changed produce requests.

use super::engine::{FaultDecision, FaultEngine, RuleStatus};
use super::facts::RequestFacts;
use super::journal::{FaultEvent, JournalLine};
use super::rule::{FaultAction, FaultPlan, FaultRule, InvalidRule};
use super::topics::TopicNames;
use crate::produced::NextOffsets;
use serde::Serialize;
use std::fmt;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use wire::ApiKey;

/// Control of the brokers behind a proxy, for faults that concern a broker's process. Addresses are `host:port`.
pub trait BrokerControl: Send + Sync {
    /// Kills the process of a broker (SIGKILL).
    fn kill(&self, address: &str);

    /// Whether other brokers can take over the leaderships of one.
    fn has_other_brokers(&self) -> bool;

    /// Stops a broker in an orderly way, so that others lead its partitions, and starts it again. Does not wait.
    fn restart(&self, address: &str);
}

/// Records and requests that faults changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct FaultedRecords {
    /// Produce requests that were acknowledged and not forwarded (`lose`).
    pub lost_requests: u64,
    /// Records in them.
    pub lost_records: u64,
    /// Produce requests that were forwarded twice (`duplicate`).
    pub duplicated_requests: u64,
    /// Records in them, each counted once.
    pub duplicated_records: u64,
    /// Pairs of produce requests that changed places (`reorder`).
    pub reordered_pairs: u64,
    /// Records with another value than the client sent (`damage`).
    pub damaged_records: u64,
}

/// Fault injection of one proxy. All its connections share it; rules may change at any time.
pub struct FaultInjector {
    engine: Mutex<FaultEngine>,
    /// A bit for each API that a rule matches.
    apis: [AtomicU64; 2],
    learns_offsets: AtomicBool,
    topics: TopicNames,
    offsets: Mutex<NextOffsets>,
    records: Mutex<FaultedRecords>,
    journal: Mutex<Option<Box<dyn Write + Send>>>,
    control: Option<Box<dyn BrokerControl>>,
}

impl fmt::Debug for FaultInjector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultInjector").field("plan", &self.plan()).finish_non_exhaustive()
    }
}

/// A rule that this proxy cannot carry out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefusedRule {
    /// A field has an invalid value.
    #[error(transparent)]
    Invalid(#[from] InvalidRule),
    /// The proxy cannot end the processes of its brokers.
    #[error(
        "rule {0:?}: action: kill needs a broker that this program has started: highwater test-broker"
    )]
    NoProcess(String),
    /// No other broker can take over.
    #[error(
        "rule {0:?}: action: move_leader needs several brokers that this program has started: \
         highwater test-broker --brokers 3"
    )]
    NoOtherBroker(String),
}

impl FaultInjector {
    /// Fault injection by `engine`. `control` carries out `kill` and `move_leader`; without it, rules with them are refused.
    ///
    /// # Errors
    /// A rule cannot be carried out here.
    pub fn new(
        engine: FaultEngine,
        control: Option<Box<dyn BrokerControl>>,
    ) -> Result<FaultInjector, RefusedRule> {
        let injector = FaultInjector {
            engine: Mutex::new(engine),
            apis: Default::default(),
            learns_offsets: AtomicBool::default(),
            topics: TopicNames::default(),
            offsets: Mutex::default(),
            records: Mutex::default(),
            journal: Mutex::default(),
            control,
        };
        let engine = injector.engine();
        engine.rules().try_for_each(|rule| injector.check_control(rule))?;
        injector.adopt(&engine);
        drop(engine);
        Ok(injector)
    }

    /// Fault injection by this valid plan, without a journal. Refuses `kill` and `move_leader`.
    ///
    /// # Errors
    /// As [`FaultInjector::new`].
    pub fn of_plan(plan: FaultPlan) -> Result<FaultInjector, RefusedRule> {
        plan.check()?;
        FaultInjector::new(FaultEngine::new(plan), None)
    }

    /// Writes the plan, and each fault from now on, to `journal`.
    pub fn write_journal(&self, journal: Box<dyn Write + Send>) {
        let plan = self.plan();
        *lock(&self.journal) = Some(journal);
        self.note(&JournalLine::Plan(plan));
    }

    fn engine(&self) -> MutexGuard<'_, FaultEngine> {
        lock(&self.engine)
    }

    fn check_control(&self, rule: &FaultRule) -> Result<(), RefusedRule> {
        let control = self.control.as_ref();
        match rule.action {
            FaultAction::Kill if control.is_none() => {
                Err(RefusedRule::NoProcess(rule.name.clone()))
            }
            FaultAction::MoveLeader if !control.is_some_and(|it| it.has_other_brokers()) => {
                Err(RefusedRule::NoOtherBroker(rule.name.clone()))
            }
            _ => Ok(()),
        }
    }

    /// Notes which APIs the rules match.
    fn adopt(&self, engine: &FaultEngine) {
        let mut apis = [0u64; 2];
        for api in ApiKey::all() {
            if engine.rules().any(|rule| rule.matches_api(*api)) {
                let code = api.code() as usize;
                apis[code / 64] |= 1 << (code % 64);
            }
        }
        for (known, wanted) in self.apis.iter().zip(apis) {
            known.store(wanted, Ordering::Relaxed);
        }
        let loses = engine.rules().any(|rule| rule.action == FaultAction::Lose);
        self.learns_offsets.store(loses, Ordering::Relaxed);
    }

    /// Changes the rules and notes the new plan in the journal.
    fn change<T>(&self, change: impl FnOnce(&mut FaultEngine) -> T) -> T {
        let mut engine = self.engine();
        let changed = change(&mut engine);
        self.adopt(&engine);
        let plan = engine.plan();
        // The engine is held: no fault of the new rules comes before the plan.
        self.note(&JournalLine::Plan(plan));
        changed
    }

    /// Seed and rules.
    pub fn plan(&self) -> FaultPlan {
        self.engine().plan()
    }

    /// Rules with their counts.
    pub fn status(&self) -> Vec<RuleStatus> {
        self.engine().status()
    }

    /// Sets a rule behind the others, or in the place of the rule of its name.
    ///
    /// # Errors
    /// The rule cannot be carried out.
    pub fn put(&self, rule: FaultRule) -> Result<(), RefusedRule> {
        rule.check()?;
        self.check_control(&rule)?;
        Ok(self.change(|engine| engine.put(rule))?)
    }

    /// Sets these rules in the place of all rules, and the seed, if there is one.
    ///
    /// # Errors
    /// A rule cannot be carried out; the rules stay as they are then.
    pub fn replace(&self, rules: Vec<FaultRule>, seed: Option<u64>) -> Result<(), RefusedRule> {
        let plan = FaultPlan { seed: 0, rules };
        plan.check()?;
        plan.rules.iter().try_for_each(|rule| self.check_control(rule))?;
        Ok(self.change(|engine| engine.replace(plan.rules, seed))?)
    }

    /// Removes a rule. Returns whether there was one of this name.
    pub fn remove(&self, name: &str) -> bool {
        self.change(|engine| engine.remove(name))
    }

    /// Whether a rule matches requests of this API.
    pub fn concerns(&self, api_key: i16) -> bool {
        usize::try_from(api_key).is_ok_and(|code| {
            code < 128 && self.apis[code / 64].load(Ordering::Relaxed) >> (code % 64) & 1 == 1
        })
    }

    /// Counts a request, returns its fault, and notes the fault in the journal.
    pub fn decide(&self, request: &RequestFacts) -> Option<FaultDecision> {
        let mut engine = self.engine();
        let decision = engine.decide(request)?;
        self.note(&JournalLine::Fault(decision.event.clone()));
        Some(decision)
    }

    /// Counts a request that gets no fault.
    pub fn count(&self, request: &RequestFacts) {
        self.engine().count(request);
    }

    /// Whether the rule that decided this event is still set.
    pub fn has_rule_of(&self, event: &FaultEvent) -> bool {
        self.engine().has_rule_of(event)
    }

    /// Control of the brokers, if there is one.
    pub fn control(&self) -> Option<&dyn BrokerControl> {
        self.control.as_deref()
    }

    /// Names of topics by id.
    pub fn topics(&self) -> &TopicNames {
        &self.topics
    }

    /// Whether answers to produce requests must be read: `lose` acknowledges at the offset that would be next.
    pub fn learns_offsets(&self) -> bool {
        self.learns_offsets.load(Ordering::Relaxed)
    }

    /// Offsets that come next in partitions.
    pub fn offsets(&self) -> MutexGuard<'_, NextOffsets> {
        lock(&self.offsets)
    }

    /// Counts of changed requests and records.
    pub fn records(&self) -> FaultedRecords {
        *self.count_records()
    }

    /// The counts, to add to.
    pub(crate) fn count_records(&self) -> MutexGuard<'_, FaultedRecords> {
        lock(&self.records)
    }

    fn note(&self, line: &JournalLine) {
        let mut journal = lock(&self.journal);
        let Some(out) = journal.as_mut() else { return };
        let Ok(mut text) = serde_json::to_vec(line) else { return };
        text.push(b'\n');
        if let Err(error) = out.write_all(&text).and_then(|()| out.flush()) {
            tracing::error!(%error, "cannot write the journal of faults; no further fault is noted");
            *journal = None;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no code under this lock panics")
}

#[cfg(test)]
mod tests {
    use super::super::journal::parse_journal;
    use super::super::testing::{produce, rule};
    use super::*;
    use std::sync::Arc;

    fn plan(action: FaultAction) -> FaultPlan {
        FaultPlan { seed: 7, rules: vec![rule(action)] }
    }

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    struct OneBroker;

    impl BrokerControl for OneBroker {
        fn kill(&self, _address: &str) {}

        fn has_other_brokers(&self) -> bool {
            false
        }

        fn restart(&self, _address: &str) {}
    }

    #[test]
    fn faults_of_a_brokers_process_need_control_of_it() {
        let refused = FaultInjector::of_plan(plan(FaultAction::Kill)).unwrap_err().to_string();
        assert!(refused.contains("test-broker"), "{refused}");
        let with =
            |action| FaultInjector::new(FaultEngine::new(plan(action)), Some(Box::new(OneBroker)));
        assert!(with(FaultAction::Kill).is_ok());
        let refused = with(FaultAction::MoveLeader).unwrap_err().to_string();
        assert!(refused.contains("--brokers 3"), "{refused}");
        let none = FaultInjector::of_plan(plan(FaultAction::Close)).unwrap();
        assert!(none.put(rule(FaultAction::Kill)).is_err());
        assert!(none.replace(plan(FaultAction::MoveLeader).rules, None).is_err());
        assert_eq!(none.plan(), plan(FaultAction::Close), "a refused change changes nothing");
    }

    #[test]
    fn only_apis_of_rules_are_concerned() {
        let mut plan = plan(FaultAction::Close);
        plan.rules[0].api = Some(ApiKey::Fetch);
        let injector = FaultInjector::of_plan(plan).unwrap();
        let concerned = |injector: &FaultInjector| {
            [-1, 0, 1, 78, 127, 128, i16::MAX].map(|code| injector.concerns(code))
        };
        assert_eq!(concerned(&injector), [false, false, true, false, false, false, false]);
        assert!(injector.remove("rule"));
        assert_eq!(concerned(&injector), [false; 7]);
        injector.put(rule(FaultAction::Close)).unwrap();
        assert!(injector.concerns(0) && injector.concerns(1));
    }

    #[test]
    fn the_journal_has_plans_and_faults_in_their_order() {
        let injector = FaultInjector::of_plan(plan(FaultAction::Close)).unwrap();
        let journal = Shared::default();
        injector.write_journal(Box::new(journal.clone()));
        injector.decide(&produce("a", &[("t", 0)])).unwrap();
        injector.remove("rule");
        assert!(injector.decide(&produce("a", &[("t", 0)])).is_none());
        let text = String::from_utf8(journal.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 3, "{text}");
        let (plan, events) = parse_journal(&text).unwrap();
        assert_eq!((plan.rules.len(), events.len()), (1, 1));
        assert_eq!((events[0].topic.as_deref(), events[0].number), (Some("t"), 1));
    }
}
