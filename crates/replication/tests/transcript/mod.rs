//! Carries out a transcript, line by line, on one replica.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::str::FromStr;
use std::time::Duration;

use model::{BrokerEpoch, BrokerId, Durability, LeaderEpoch, Moment, Offset};
use replication::{
    AssignedReplica, Assignment, CommittedBound, Divergence, Effects, EpochEnd, Event,
    FollowerFetch, IsrAnswer, IsrDecision, LeaderAnswer, Next, Proposal, RefusedTruncation,
    Replica, Role, Rules, Standing, TruncationLimit,
};

/// The transcript as it comes out now: commands and comments as they are, effects made anew.
pub fn run(recorded: &str) -> String {
    let (mut out, mut replica) = (String::new(), None);
    for line in recorded.lines().filter(|line| !line.starts_with("  ")) {
        writeln!(out, "{line}").unwrap();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        for told in carry_out(&mut replica, &Command::read(line)) {
            writeln!(out, "  {told}").unwrap();
        }
    }
    out
}

/// One line: a verb, and names with their values.
struct Command<'a> {
    verb: &'a str,
    values: BTreeMap<&'a str, &'a str>,
}

impl<'a> Command<'a> {
    fn read(line: &'a str) -> Command<'a> {
        let mut words = line.split_whitespace();
        let verb = words.next().expect("a line has a verb");
        let values = words.map(|word| word.split_once('=').unwrap_or((word, ""))).collect();
        Command { verb, values }
    }

    fn text(&self, name: &str) -> Option<&'a str> {
        self.values.get(name).copied()
    }

    fn number<T: FromStr>(&self, name: &str) -> T {
        let text = self.text(name).unwrap_or_else(|| panic!("{}: {name}=", self.verb));
        parse(text)
    }

    fn number_or<T: FromStr>(&self, name: &str, default: T) -> T {
        self.text(name).map_or(default, parse)
    }

    fn offset(&self, name: &str) -> Offset {
        Offset(self.number(name))
    }

    /// `at=12` is twelve milliseconds after the beginning.
    fn moment(&self) -> Moment {
        Moment(self.number::<u64>("at") * 1000)
    }

    fn brokers(&self, name: &str) -> Vec<BrokerId> {
        let text = self.text(name).unwrap_or_else(|| panic!("{}: {name}=", self.verb));
        text.split(',').map(|id| BrokerId(parse(id))).collect()
    }

    /// `2:7` is broker 2, registered with epoch 7; `2:-` one that does not serve.
    fn replicas(&self) -> Vec<AssignedReplica> {
        let text = self.text("replicas").expect("replicas=");
        let one = |text: &str| {
            let (broker, standing) = text.split_once(':').unwrap_or((text, "1"));
            let standing = match standing {
                "-" => Standing::Absent,
                epoch => Standing::Serves(BrokerEpoch(parse(epoch))),
            };
            AssignedReplica { broker: BrokerId(parse(broker)), standing }
        };
        text.split(',').map(one).collect()
    }

    fn rules(&self) -> Rules {
        let name = self.text("durability").unwrap_or("page-cache");
        Rules {
            durability: Durability::from_name(name).expect("a durability"),
            min_insync_replicas: self.number_or("min", 1),
            lag_max: Duration::from_millis(self.number_or("lag", 10_000)),
        }
    }

    /// `truncation=none` allows none, `truncation=4` what was last known below leader epoch 4.
    fn truncation(&self) -> TruncationLimit {
        match self.text("truncation") {
            None => TruncationLimit::Unlimited,
            Some("none") => TruncationLimit::Committed(LeaderEpoch::NONE),
            Some(epoch) => TruncationLimit::Committed(LeaderEpoch(parse(epoch))),
        }
    }

    /// `5..120` is epoch 5, which ends at 120.
    fn epoch_end(&self, name: &str) -> Option<EpochEnd> {
        let (epoch, end) = self.text(name)?.split_once("..").expect("EPOCH..END");
        Some(EpochEnd { epoch: LeaderEpoch(parse(epoch)), end: Offset(parse(end)) })
    }
}

fn parse<T: FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

fn carry_out(replica: &mut Option<Replica>, command: &Command<'_>) -> Vec<String> {
    if command.verb == "open" {
        *replica = Some(open(command));
        return Vec::new();
    }
    let replica = replica.as_mut().expect("the first command is open");
    if command.verb == "show" {
        return vec![shown(replica)];
    }
    if command.verb == "low-watermark" {
        let low = replica.low_watermark();
        return vec![low.map_or("not known".to_owned(), |offset| offset.to_string())];
    }
    if command.verb == "bound" {
        let CommittedBound { offset, leader_epoch } = replica.bound();
        return vec![format!("{offset} is committed, as known in epoch {leader_epoch}")];
    }
    let effects = replica.step(event(command));
    told(&effects)
}

fn open(command: &Command<'_>) -> Replica {
    let end = command.number_or("end", 0);
    let mut replica = Replica::opened(
        BrokerId(command.number_or("me", 1)),
        command.rules(),
        Offset(command.number_or("start", 0)),
        Offset(command.number_or("synced", end)),
        Offset(end),
        Offset(command.number_or("checkpointed", 0)),
    );
    if let Some(EpochEnd { epoch, end }) = command.epoch_end("bound") {
        replica.recall(CommittedBound { offset: end, leader_epoch: epoch });
    }
    replica
}

fn event(command: &Command<'_>) -> Event {
    let epoch = || LeaderEpoch(command.number("epoch"));
    let answered = |answer| Event::IsrAnswered(epoch(), command.number("state"), answer);
    match command.verb {
        "assign" => Event::Assigned(assignment(command), command.moment()),
        "append" => Event::Appended { log_end: command.offset("end") },
        "sync" => Event::Synced { synced: command.offset("to") },
        "fetch" => Event::FollowerFetched(FollowerFetch {
            follower: BrokerId(command.number("by")),
            broker_epoch: BrokerEpoch(command.number_or("broker-epoch", 1)),
            leader_epoch: epoch(),
            position: command.offset("from"),
            log_start: Offset(command.number_or("start", 0)),
            now: command.moment(),
        }),
        "answer" => Event::LeaderAnswered(LeaderAnswer {
            asked_in: epoch(),
            diverging: command.epoch_end("diverging").map(|leaders| divergence(command, leaders)),
            high_watermark: command.offset("hw"),
            log_start: Offset(command.number_or("start", 0)),
        }),
        "start-over" => {
            Event::StartOverDue { asked_in: epoch(), earlier: command.epoch_end("earlier") }
        }
        "decided" => answered(IsrAnswer::Decided(IsrDecision {
            partition_epoch: command.number("new"),
            isr: command.brokers("isr"),
            recovering: false,
        })),
        "refused" => answered(IsrAnswer::Refused),
        "superseded" => answered(IsrAnswer::Superseded),
        "unknown" => answered(IsrAnswer::Unknown),
        "tick" => Event::Tick(command.moment()),
        "truncated" => Event::Truncated { log_end: command.offset("end") },
        "start" => Event::LogStartMoved { log_start: command.offset("to") },
        "start-synced" => Event::LogStartSynced { log_start: command.offset("to") },
        "rules" => Event::RulesChanged(command.rules()),
        "failed" => Event::Failed,
        verb => panic!("unknown command {verb:?}"),
    }
}

/// `earlier=7..100`: records of earlier generations end at 100, and the last one is of leader epoch 7.
fn divergence(command: &Command<'_>, leaders: EpochEnd) -> Divergence {
    Divergence { leaders, own: command.epoch_end("own"), earlier: command.epoch_end("earlier") }
}

fn assignment(command: &Command<'_>) -> Assignment {
    Assignment {
        leader: BrokerId(command.number("leader")),
        leader_epoch: LeaderEpoch(command.number("epoch")),
        partition_epoch: command.number("state"),
        replicas: command.replicas(),
        isr: command.brokers("isr"),
        recovering: command.text("recovering").is_some(),
        truncation: command.truncation(),
        awaits_durability: command.text("durable") == Some("awaited"),
    }
}

fn told(effects: &Effects) -> Vec<String> {
    let Effects {
        high_watermark,
        role_ended,
        proposal,
        truncation,
        refused,
        log_start,
        starts_over,
        is_stale,
        ahead,
        last_acknowledgement,
    } = effects;
    let mut told = Vec::new();
    told.extend(is_stale.then(|| "stale".to_owned()));
    told.extend(role_ended.then(|| "the role before is over".to_owned()));
    told.extend(high_watermark.map(|offset| format!("high watermark {offset}")));
    told.extend(proposal.as_ref().map(proposed));
    told.extend(truncation.map(|cut| {
        let what = if cut.takes_committed { ", taking committed records" } else { "" };
        format!("truncate to {}{what}", cut.to)
    }));
    told.extend(refused.map(|refused| {
        let RefusedTruncation { leader, leader_epoch, to, committed, .. } = refused;
        let reason = match refused.is_of_earlier_generation {
            true => "may be committed",
            false => "is committed",
        };
        format!(
            "refuse to truncate to {to} as leader {leader} of epoch {leader_epoch} requires: {committed} {reason}"
        )
    }));
    told.extend(log_start.map(|offset| format!("delete records below {offset}")));
    told.extend(starts_over.map(|offset| format!("start over at {offset}")));
    told.extend(last_acknowledgement.map(|it| {
        format!("broker {} acknowledged last, after {} ms", it.broker, it.took.as_millis())
    }));
    told.extend(ahead.map(|id| format!("broker {id} is ahead: a new leader epoch is needed")));
    told
}

fn proposed(proposal: &Proposal) -> String {
    let member = |(id, epoch): &(BrokerId, Option<BrokerEpoch>)| match epoch {
        Some(epoch) => format!("{id}:{epoch}"),
        None => id.to_string(),
    };
    let isr: Vec<String> = proposal.isr.iter().map(member).collect();
    let Proposal { leader_epoch, partition_epoch, durable, .. } = proposal;
    let synced = if *durable { ", all synced" } else { "" };
    format!(
        "ask for ISR {} behind {partition_epoch} in epoch {leader_epoch}{synced}",
        isr.join(",")
    )
}

fn shown(replica: &Replica) -> String {
    let role = match replica.role() {
        Role::Leader(book) => {
            let isr: Vec<String> = book.isr().iter().map(ToString::to_string).collect();
            let settled = if replica.is_high_watermark_settled() { "" } else { ", not settled" };
            format!("leads in epoch {} with ISR {}{settled}", book.epoch(), isr.join(","))
        }
        Role::Follower(following) => {
            let next = match replica.next() {
                Next::Ask(from) => format!("asks {} from {}", from.leader, from.offset),
                Next::Sync => "asks when it has synced".to_owned(),
                Next::Cut(to) => format!("cuts at {to}"),
                Next::Rest => "rests".to_owned(),
            };
            format!("follows {} in epoch {}, {next}", following.leader, following.epoch)
        }
        Role::Offline => "is offline".to_owned(),
    };
    format!("{role}, high watermark {}", replica.high_watermark())
}
