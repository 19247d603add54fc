//! Who is in sync, where this broker leads: what partitions propose goes to the controller (AlterPartition, KIP-497),
//! many in one request, and what it says comes back to them.
//!
//! A partition has one proposal under way at a time, so what one asks for while a request runs goes with the next
//! request. Followers that lag are looked for by a clock, because they say nothing.
//!
//! A partition's lock is held while an append writes. Elections and heartbeats, on this thread, wait for no disk: so partitions
//! are asked and told on others ([`vital::waiting`]).

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use metadata::decide::{AlterPartition, AlteredPartition, BrokerRef, NewIsr};
use metadata::{Answer, Request, Response};
use model::{BrokerEpoch, ErrorCode, PartitionIndex, TopicId};
use partition::{IsrAnswer, IsrDecision, Partition, Proposals, Status};
use tokio::time::{MissedTickBehavior, interval};
use tracing::{debug, info};

use crate::server::Server;
use crate::vital;

/// Partitions in one request.
const TOGETHER_MAX: usize = 1_000;
/// How long one request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// The pause after a request that was not looked at.
const PAUSE: Duration = Duration::from_millis(50);
/// How often replicas that lag are looked for, at most.
const TICK_MIN: Duration = Duration::from_millis(100);
/// And at least.
const TICK_MAX: Duration = Duration::from_secs(2);

/// The partitions of this broker that have an ISR to propose.
#[derive(Debug, Default)]
pub struct InSync {
    proposals: Arc<Proposals>,
}

impl InSync {
    /// Asks the controller for what this partition proposes, from now on.
    pub fn include(&self, partition: &Partition) {
        partition.tell_proposals(&self.proposals);
    }
}

type Key = (TopicId, PartitionIndex);

/// What one request asks for.
struct Asked {
    partition: Arc<Partition>,
    wish: NewIsr,
}

/// Asks until the broker stops.
pub(crate) async fn run(server: Arc<Server>, who: BrokerRef) {
    loop {
        let waiting = poll_fn(|cx| {
            let waiting = server.in_sync.proposals.take_or_wait(cx.waker());
            if waiting.is_empty() { Poll::Pending } else { Poll::Ready(waiting) }
        })
        .await;
        let asking = Arc::clone(&server);
        let wishes = move || -> Vec<Asked> {
            waiting.into_iter().filter_map(|partition| wish(&asking, who, partition)).collect()
        };
        let Some(mut asked) = vital::waiting(wishes).await else { return };
        while !asked.is_empty() {
            let rest = asked.split_off(asked.len().min(TOGETHER_MAX));
            ask(&server, who, asked).await;
            asked = rest;
        }
    }
}

fn wish(server: &Server, who: BrokerRef, partition: Arc<Partition>) -> Option<Asked> {
    let proposal = partition.take_proposal()?;
    let image = server.image();
    let members = proposal.isr.into_iter().map(|(id, epoch)| {
        let known = || image.broker(id).map(|broker| broker.epoch);
        let epoch = if id == who.broker { Some(who.epoch) } else { epoch.or_else(known) };
        (id, epoch.unwrap_or(BrokerEpoch(-1)))
    });
    let wish = NewIsr {
        topic_id: partition.topic_id(),
        partition: partition.topic_partition().partition,
        leader_epoch: proposal.leader_epoch,
        partition_epoch: proposal.partition_epoch,
        isr: members.collect(),
        recovering: false,
        durable: proposal.durable,
    };
    Some(Asked { partition, wish })
}

async fn ask(server: &Server, leader: BrokerRef, asked: Vec<Asked>) {
    let partitions = asked.iter().map(|asked| asked.wish.clone()).collect();
    let request = Request::AlterPartition(AlterPartition { leader, partitions });
    let answered = server.controller.decide_within(request, PATIENCE).await;
    let (index, answers) = match answered {
        Ok((index, Response::AlterPartition(Ok(answers)))) => (index, answers),
        Ok((_, Response::AlterPartition(Err(refusal)))) => {
            // This broker is not who it was: heartbeats find out.
            debug!(error = %refusal.error, reason = refusal.message, "the controller refuses ISRs");
            return tell_unknown(asked).await;
        }
        Ok((_, other)) => unreachable!("the answer to another request: {other:?}"),
        Err(cause) => {
            debug!(%cause, "ISRs were not decided");
            return tell_unknown(asked).await;
        }
    };
    // A smaller ISR may be acted upon only by all metadata up to the decision: with an older
    // min.insync.replicas the high watermark could move where the controller believes that it stands.
    let goes_by_it = async {
        let _ = server.quorum.wait_applied(index).await;
        server.applied().await;
    };
    if tokio::time::timeout(PATIENCE, goes_by_it).await.is_err() {
        return tell_unknown(asked).await;
    }
    let answers: BTreeMap<Key, Answer<AlteredPartition>> =
        answers.into_iter().map(|(id, index, answer)| ((id, index), answer)).collect();
    let answer_to = move |wish: &NewIsr| match answers.get(&(wish.topic_id, wish.partition)) {
        Some(answer) => understood(answer, wish),
        None => IsrAnswer::Unknown,
    };
    tell_all(asked, answer_to).await;
}

/// What an answer says to the partition.
fn understood(answer: &Answer<AlteredPartition>, wish: &NewIsr) -> IsrAnswer {
    match answer {
        Ok(altered) if altered.leader_epoch == wish.leader_epoch => {
            IsrAnswer::Decided(IsrDecision {
                partition_epoch: altered.partition_epoch,
                isr: altered.isr.clone(),
                recovering: altered.recovering,
            })
        }
        Ok(_) => IsrAnswer::Superseded,
        Err(refusal) => match refusal.error {
            ErrorCode::InvalidUpdateVersion
            | ErrorCode::FencedLeaderEpoch
            | ErrorCode::UnknownTopicId
            | ErrorCode::UnknownTopicOrPartition => IsrAnswer::Superseded,
            ErrorCode::NotController => IsrAnswer::Unknown,
            _ => IsrAnswer::Refused,
        },
    }
}

fn tell(partition: &Partition, wish: &NewIsr, answer: IsrAnswer) {
    if let IsrAnswer::Decided(decision) = &answer {
        let isr: Vec<i32> = decision.isr.iter().map(|id| id.0).collect();
        info!(partition = %partition.topic_partition(), ?isr, "in-sync replicas");
    }
    partition.isr_answered(wish.leader_epoch, wish.partition_epoch, answer);
}

/// Tells all that it is not known what became of their wish; they ask again, after a pause.
async fn tell_unknown(asked: Vec<Asked>) {
    tokio::time::sleep(PAUSE).await;
    tell_all(asked, |_| IsrAnswer::Unknown).await;
}

async fn tell_all(asked: Vec<Asked>, answer: impl Fn(&NewIsr) -> IsrAnswer + Send + 'static) {
    let telling = move || {
        asked.iter().for_each(|Asked { partition, wish }| tell(partition, wish, answer(wish)));
    };
    // Without it the broker stops.
    let _ = vital::waiting(telling).await;
}

/// Looks for replicas that lag until the broker stops.
pub(crate) async fn look_for_laggards(server: Arc<Server>) {
    let lag = Duration::from_millis(server.config().replica_lag_ms_max);
    let mut ticks = interval((lag / 4).clamp(TICK_MIN, TICK_MAX));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let looking = Arc::clone(&server);
        if vital::waiting(move || tick(&looking)).await.is_none() {
            return;
        }
    }
}

fn tick(server: &Server) {
    let now = server.clock.moment();
    let topics = server.topics.snapshot();
    for partition in topics.partitions().filter(|p| p.status() == Status::Leading) {
        partition.tick(now);
    }
}
