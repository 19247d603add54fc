//! A session: clients produce, each to a topic of its own, and one broker after the other is killed under all of them and started
//! again.
//!
//! Nothing is left to a pause of some length: a kill comes when every replica is in sync, every partition is led by the
//! replica that it prefers and every client's acknowledgements have flowed for a while; what follows is waited for in the
//! same way, with a deadline.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use experiment::failover::{self, Gaps, Roles, Window};
use experiment::round::{Durability, Verdict};
use experiment::workload::{Acks, Kill, Workload};
use peer::scratch::{Scratch, Whose};
use perf::load::{LATENCY_MAX_US, Stop, histogram};

use super::brokers::Brokers;
use super::clients::Programs;
use super::journal::{Journal, now_us};
use super::producing::{Producing, Task};
use super::read_back::read_back;
use crate::admin;
use crate::round::measured::Measured;
use crate::target::Cluster;

/// How often a condition is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// How long clients may take to be ready: a Java runtime compiles its program first.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// How long the brokers may take until all replicas are in sync, or lead where they should.
const SETTLE_LIMIT: Duration = Duration::from_secs(180);
/// How long a client may be without acknowledgements before it is given up.
const RECOVER_LIMIT: Duration = Duration::from_secs(90);
/// What a run looks at before a kill, and at the least behind it.
pub const STEADY: Duration = Duration::from_secs(2);
/// How long leaders stay where they are before one of them is killed while franz-go takes part. It looks at the metadata at
/// most once in five seconds, and one look may be due since the last move: what is measured is a failure, and not that it came
/// within seconds of another one.
const FRANZ_GO_CALM: Duration = Duration::from_millis(10_500);
/// How long a client may take to begin with another partition, before that.
const TURNING: Duration = Duration::from_millis(500);
/// Acknowledgements must have come for so long to flow again.
const FLOWING: Duration = Duration::from_secs(1);
/// And without a gap longer than this.
const FLOWING_GAP: Duration = Duration::from_millis(500);
/// Beyond this the system's clock, by which clients tell time, was set.
const CLOCK_OFF_MAX: Duration = Duration::from_millis(5);

/// A session that is about to be performed.
pub struct Session<'a> {
    /// The brokers; the lab's own.
    pub cluster: &'a Cluster,
    /// Who is killed how often, and what is sent meanwhile.
    pub workload: &'a Workload,
    /// The clients, by their names in the experiment.
    pub clients: &'a [String],
    /// The programs of those that the lab does not bring along.
    pub programs: &'a Programs,
    /// What is looked at before a kill, and at the least behind it.
    pub steady: Duration,
    /// How the topics' names begin.
    pub name: String,
    /// Whether to look for what was acknowledged.
    pub verify: bool,
    /// Whether the topics stay.
    pub keep_topics: bool,
    /// Ends it early.
    pub stop: Stop,
}

/// What a session found out about each client.
pub type Outcomes = BTreeMap<String, Result<Measured>>;

impl Session<'_> {
    /// Performs it; what an acknowledgement was worth comes with the numbers.
    ///
    /// # Errors
    /// The brokers do not do what they must, or it was interrupted. What befalls one client is that client's outcome.
    pub fn perform(&self) -> Result<(Outcomes, Durability)> {
        let bootstrap = &self.cluster.bootstrap;
        let brokers = Brokers::of(bootstrap)?;
        let needed = self.workload.brokers as usize;
        ensure!(
            brokers.ids().len() == needed,
            "a session of kills needs {needed} brokers, and there are {}",
            brokers.ids().len()
        );
        let topics: Vec<String> =
            self.clients.iter().map(|client| format!("{}-{client}", self.name)).collect();
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        brokers.make_topics(bootstrap, &names, self.workload.min_isr)?;
        let scratch = Scratch::make(Whose::Ours)?;
        let mut running = Running {
            session: self,
            brokers,
            topics: topics.clone(),
            clients: Vec::new(),
            refused: Outcomes::new(),
            moved_us: now_us(),
        };
        let outcomes = running.perform(&scratch);
        let durability =
            admin::durability(bootstrap, &topics[0], Acks::All, self.workload.replication);
        if !self.keep_topics {
            admin::delete_topics(bootstrap, &topics);
        }
        Ok((outcomes?, durability))
    }
}

/// A client in a session.
struct Client {
    name: String,
    topic: String,
    producing: Producing,
    journal: Journal,
    gaps: Gaps,
    steady: Gaps,
    moves: Gaps,
    returns: Gaps,
    warnings: Vec<String>,
    /// Why it takes part no more.
    out: Option<String>,
}

struct Running<'a> {
    session: &'a Session<'a>,
    brokers: Brokers,
    topics: Vec<String>,
    clients: Vec<Client>,
    /// Clients that could not be started.
    refused: Outcomes,
    /// When a leadership moved last, without a kill.
    moved_us: u64,
}

impl Running<'_> {
    fn perform(&mut self, scratch: &Scratch) -> Result<Outcomes> {
        self.start_clients(scratch);
        self.settle(true).context("before the first kill")?;
        self.wait_until_ready()?;
        self.visit_all()?;
        for number in 0..self.session.workload.kills {
            self.kill(number).with_context(|| format!("at the kill {}", number + 1))?;
            ensure!(self.taking_part().next().is_some(), "no client is left: {}", self.faults());
        }
        self.settle(false).context("behind the last kill")?;
        Ok(self.outcomes())
    }

    fn start_clients(&mut self, scratch: &Scratch) {
        let session = self.session;
        for (client, topic) in session.clients.iter().zip(&self.topics) {
            let task = Task {
                bootstrap: session.cluster.bootstrap.clone(),
                topic: topic.clone(),
                rate: session.workload.offered.max(1.0),
                record_bytes: session.workload.record_bytes as usize,
            };
            let journal = Journal::default();
            match Producing::start(client, session.programs, scratch.path(), task, &journal) {
                Err(error) => drop(self.refused.insert(client.clone(), Err(error))),
                Ok(producing) => self.clients.push(Client {
                    name: client.clone(),
                    topic: topic.clone(),
                    producing,
                    journal,
                    gaps: Gaps::default(),
                    steady: Gaps::default(),
                    moves: Gaps::default(),
                    returns: Gaps::default(),
                    warnings: Vec::new(),
                    out: None,
                }),
            }
        }
    }

    /// How long leaders stay where they are before one of them is killed.
    fn calm(&mut self) -> Duration {
        match self.taking_part().any(|client| client.name == "franz-go") {
            true => FRANZ_GO_CALM,
            false => Duration::ZERO,
        }
    }

    /// The clients that have not been given up.
    fn taking_part(&mut self) -> impl Iterator<Item = &mut Client> {
        self.clients.iter_mut().filter(|client| client.out.is_none())
    }

    fn faults(&self) -> String {
        let refused = self.refused.iter().filter_map(|(name, outcome)| {
            outcome.as_ref().err().map(|error| format!("{name}: {error:#}"))
        });
        let out = self
            .clients
            .iter()
            .filter_map(|client| client.out.as_ref().map(|why| format!("{}: {why}", client.name)));
        refused.chain(out).collect::<Vec<_>>().join("; ")
    }

    /// Waits until `look` finds what it looks for; `None` if it does not within `limit`.
    fn wait_for<T>(
        &mut self,
        limit: Duration,
        mut look: impl FnMut(&mut Self) -> Option<T>,
    ) -> Result<Option<T>> {
        let deadline = Instant::now() + limit;
        loop {
            if let Some(found) = look(self) {
                return Ok(Some(found));
            }
            ensure!(!self.session.stop.is_stopped(), "interrupted");
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(LOOK);
        }
    }

    /// Waits until all replicas are in sync, and with `at_home` lead where they should.
    fn settle(&mut self, at_home: bool) -> Result<()> {
        let topics = self.topics.clone();
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        let mut why = String::new();
        let settled = self.wait_for(SETTLE_LIMIT, |running| {
            match running.brokers.unsettled(&names, at_home) {
                None => Some(()),
                Some(now) => {
                    why = now;
                    None
                }
            }
        })?;
        settled.with_context(|| {
            let words = self.session.cluster.last_words();
            format!("the brokers do not settle within {SETTLE_LIMIT:?}: {why}\n{words}")
        })
    }

    /// Lets the replicas that are preferred lead, and waits until they do.
    fn bring_home(&mut self) -> Result<()> {
        let topics = self.topics.clone();
        let names: Vec<&str> = topics.iter().map(String::as_str).collect();
        self.brokers.elect_preferred(&names)?;
        self.settle(true)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        self.wait_for(READY_LIMIT, |running| {
            running.take_out_the_dead();
            running.taking_part().all(|client| client.journal.version().is_some()).then_some(())
        })?;
        for client in self.taking_part().filter(|client| client.journal.version().is_none()) {
            client.out = Some(format!("it was not ready within {READY_LIMIT:?}"));
        }
        ensure!(self.taking_part().next().is_some(), "no client is ready: {}", self.faults());
        Ok(())
    }

    /// Has every client send to every broker before the first of them is killed, as one does that has run for a while: librdkafka
    /// connects to brokers as it needs them, and one that has met its leader only must find another before it can ask who leads.
    fn visit_all(&mut self) -> Result<()> {
        for leader in self.brokers.ids() {
            let (partition, turned_us) = (self.brokers.partition_of(leader)?, now_us());
            self.taking_part().for_each(|client| client.producing.turn_to(partition));
            self.wait_until_all_flow(partition, turned_us, Duration::ZERO, FLOWING)?;
        }
        Ok(())
    }

    fn take_out_the_dead(&mut self) {
        for client in self.taking_part() {
            client.out = client.journal.ended();
        }
    }

    /// Waits until the partition's acknowledgements have flowed for `for_so_long` at every client that takes part, not counting
    /// what came before `from_us`. Whoever takes too long takes part no more.
    fn wait_until_all_flow(
        &mut self,
        partition: i32,
        from_us: u64,
        at_least: Duration,
        for_so_long: Duration,
    ) -> Result<()> {
        let (length_us, gap_max_us) = (micros(for_so_long), micros(FLOWING_GAP));
        let flows = |client: &Client, now_us: u64| {
            let window = Window { from_us: now_us - length_us, until_us: now_us };
            window.from_us >= from_us && client.journal.flows(partition, window, gap_max_us)
        };
        let all = self.wait_for(RECOVER_LIMIT, |running| {
            running.take_out_the_dead();
            let now_us = now_us();
            let is_over = now_us >= from_us + micros(at_least);
            (is_over && running.taking_part().all(|client| flows(client, now_us))).then_some(())
        })?;
        if all.is_none() {
            let now_us = now_us();
            for client in self.taking_part().filter(|client| !flows(client, now_us)) {
                client.out = Some(format!(
                    "its acknowledgements did not flow again within {RECOVER_LIMIT:?}"
                ));
            }
        }
        Ok(())
    }

    /// Who is killed, and under which leader.
    fn roles(&mut self, number: u32) -> Result<Roles> {
        let controller = self.wait_for(SETTLE_LIMIT, |running| running.brokers.controller())?;
        let controller = controller.context("no broker says who leads the metadata quorum")?;
        let kill = self.session.workload.kill;
        let roles = failover::roles(kill, &self.brokers.ids(), controller, number);
        roles.context("there are too few brokers for this kill")
    }

    fn kill(&mut self, number: u32) -> Result<()> {
        self.bring_home()?;
        let mut roles = self.roles(number)?;
        let mut partition = self.brokers.partition_of(roles.leader)?;
        loop {
            let turned_us = now_us();
            self.taking_part().for_each(|client| client.producing.turn_to(partition));
            let calm_us = (self.moved_us + micros(self.calm())).saturating_sub(turned_us);
            self.wait_until_all_flow(
                partition,
                turned_us,
                Duration::from_micros(calm_us),
                self.session.steady + TURNING,
            )?;
            ensure!(self.taking_part().next().is_some(), "no client sends: {}", self.faults());
            // The controller may have gone elsewhere meanwhile.
            let now = self.roles(number)?;
            if now == roles {
                break;
            }
            roles = now;
            partition = self.brokers.partition_of(roles.leader)?;
        }
        self.strike(number, roles, partition)?;
        self.bring_back(roles.victim)?;
        let started_us = now_us();
        self.settle(false).context("the broker that was killed was started again")?;
        let until_back = Window { from_us: started_us, until_us: now_us() };
        self.note(partition, until_back, |client| &mut client.returns);
        match self.session.workload.kill {
            Kill::Leader | Kill::LeaderController | Kill::LeaderPaused => self.move_home(partition),
            Kill::Follower => Ok(()),
        }
    }

    /// Kills, and notes what that does to each client. The gap of one that does not recover is noted as far as it was waited for.
    fn strike(&mut self, number: u32, roles: Roles, partition: i32) -> Result<()> {
        let clock = Clock::start();
        let killed_us = now_us();
        let steady =
            Window { from_us: killed_us - micros(self.session.steady), until_us: killed_us };
        self.note(partition, steady, |client| &mut client.steady);
        let struck: Vec<usize> =
            (0..self.clients.len()).filter(|at| self.clients[*at].out.is_none()).collect();
        match self.session.workload.kill {
            Kill::LeaderPaused => self.session.cluster.pause(roles.victim)?,
            Kill::Leader | Kill::LeaderController | Kill::Follower => {
                self.session.cluster.kill(roles.victim)?;
            }
        }
        self.wait_until_all_flow(partition, killed_us, self.session.steady, FLOWING)?;
        let around = Window { from_us: killed_us, until_us: now_us() };
        let clock_set = clock.warning();
        for at in struck {
            let client = &mut self.clients[at];
            client.gaps.add(client.journal.longest_gap_us(partition, around));
            let given_up = client.out.as_ref().map(|why| format!("given up: {why}"));
            for what in given_up.iter().chain(&clock_set) {
                client.warnings.push(format!("kill {}: {what}", number + 1));
            }
        }
        Ok(())
    }

    /// Starts a killed broker, or resumes a paused one.
    fn bring_back(&self, victim: i32) -> Result<()> {
        match self.session.workload.kill {
            Kill::LeaderPaused => self.session.cluster.resume(victim),
            Kill::Leader | Kill::LeaderController | Kill::Follower => {
                self.session.cluster.restart(victim)
            }
        }
    }

    /// Makes the broker that came back leader again while all are alive.
    fn move_home(&mut self, partition: i32) -> Result<()> {
        let moved_us = now_us();
        self.bring_home()?;
        self.moved_us = now_us();
        self.wait_until_all_flow(partition, moved_us, FLOWING, FLOWING)?;
        let around = Window { from_us: moved_us, until_us: now_us() };
        self.note(partition, around, |client| &mut client.moves);
        Ok(())
    }

    /// Notes the longest gap of every client that takes part.
    fn note(&mut self, partition: i32, window: Window, of: impl Fn(&mut Client) -> &mut Gaps) {
        for client in self.taking_part() {
            let gap_us = client.journal.longest_gap_us(partition, window);
            of(client).add(gap_us);
        }
    }

    fn outcomes(&mut self) -> Outcomes {
        let mut outcomes = std::mem::take(&mut self.refused);
        let session = self.session;
        for mut client in std::mem::take(&mut self.clients) {
            let outcome = client.outcome(session);
            outcomes.insert(client.name, outcome);
        }
        outcomes
    }
}

impl Client {
    fn outcome(&mut self, session: &Session<'_>) -> Result<Measured> {
        let finished = self.producing.finish();
        if self.gaps.all_us().is_empty() {
            let why = self.out.take().unwrap_or_else(|| "nothing was measured".to_owned());
            return Err(anyhow!(why));
        }
        if let Err(error) = finished {
            self.warnings.push(format!("{error:#}"));
        }
        let mut measured = Measured::default();
        measured.put("kills", self.gaps.all_us().len() as f64);
        put(&mut measured, "gap_min_ms", &self.gaps, 0.0);
        put(&mut measured, "gap_p50_ms", &self.gaps, 0.5);
        put(&mut measured, "gap_p90_ms", &self.gaps, 0.9);
        put(&mut measured, "gap_p99_ms", &self.gaps, 0.99);
        put(&mut measured, "gap_max_ms", &self.gaps, 1.0);
        for (name, gaps) in
            [("steady", &self.steady), ("move", &self.moves), ("return", &self.returns)]
        {
            put(&mut measured, &format!("{name}_gap_p50_ms"), gaps, 0.5);
            put(&mut measured, &format!("{name}_gap_max_ms"), gaps, 1.0);
        }
        let mut distribution = histogram();
        for gap_us in self.gaps.all_us() {
            let within = (*gap_us).clamp(1, LATENCY_MAX_US);
            distribution.record(within).expect("the gap is within the bounds");
        }
        measured.keep("gap", &distribution);
        let (failed, errors) = self.journal.failures();
        measured.put("client_errors", failed as f64);
        self.warnings.extend(errors.iter().map(|error| format!("told of a failure: {error}")));
        let acknowledged = self.journal.acknowledged();
        measured.records = acknowledged.len() as u64;
        measured.verdict = match session.verify {
            false => Verdict::default(),
            true => {
                let bytes = session.workload.record_bytes as usize;
                let found = read_back(&session.cluster.bootstrap, &self.topic, bytes)?;
                failover::judge(&acknowledged, failed, &found)
            }
        };
        measured.warnings = std::mem::take(&mut self.warnings);
        Ok(measured)
    }
}

fn put(measured: &mut Measured, name: &str, gaps: &Gaps, share: f64) {
    if let Some(gap_ms) = gaps.quantile_ms(share) {
        measured.put(name, gap_ms);
    }
}

fn micros(time: Duration) -> u64 {
    time.as_micros() as u64
}

/// Both clocks of the machine: clients tell time by the one that can be set.
struct Clock {
    began: Instant,
    began_us: u64,
}

impl Clock {
    fn start() -> Clock {
        Clock { began: Instant::now(), began_us: now_us() }
    }

    /// That the clock was set since the start, if it was.
    fn warning(&self) -> Option<String> {
        let off_us = now_us().abs_diff(self.began_us + micros(self.began.elapsed()));
        (off_us > micros(CLOCK_OFF_MAX))
            .then(|| format!("the system's clock was set by {:.0} ms", off_us as f64 / 1e3))
    }
}
