//! Leaderships that return to preferred replicas: the active controller elects them now and then. Of a broker with a log directory
//! that is sick or on probation, it requests which partitions the broker takes back.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ::link::{Answering, Decline, Declined, Peer, Service, service};
use bytes::Bytes;
use metadata::decide::{ElectLeaders, ElectionKind, SWEEP_PARTITIONS_MAX};
use metadata::{ClusterImage, Request, Response};
use model::BrokerId;
use node::elections::NamedPartition;
use node::log_ends::{decode_request, encode_request};
use node::returns::{decode_answer, encode_answer};
use quorum::Quorum;
use tracing::{debug, info};

use super::links::ClusterLinks;
use super::sick_disks::SickDisks;

/// How long one request may take.
const CALL_MAX: Duration = Duration::from_secs(1);

/// Answers which partitions this broker takes back.
pub(super) struct ReturnsService {
    pub(super) disks: Arc<SickDisks>,
}

impl Service for ReturnsService {
    fn answer<'a>(&'a self, _: &'a Arc<Peer>, message: Bytes) -> Answering<'a> {
        Box::pin(async move {
            let partitions = decode_request(&message)
                .map_err(|error| Declined::new(Decline::Failed, error.to_string()))?;
            Ok(encode_answer(&self.disks.takes_back(&partitions)))
        })
    }
}

/// Elects preferred leaders once, as the active controller.
pub(super) async fn elect_preferred(quorum: Arc<Quorum>, links: Arc<ClusterLinks>) {
    let image = quorum.image();
    let (probes, now) = (links.watching().probes(), links.watching().now());
    let mut taken = BTreeSet::new();
    for broker in probes.with_book(now, |book| book.declining(now, &image)) {
        taken.extend(taken_back(&links, &image, broker).await);
    }
    let now = links.watching().now();
    let partitions = probes.with_book(now, |book| book.preferred_by_health(now, &image, &taken));
    let elect = ElectLeaders { kind: ElectionKind::Preferred, partitions };
    match quorum.propose(Request::ElectLeaders(elect)).await {
        Ok(Response::ElectLeaders(elected)) => {
            let moved = elected.iter().filter(|(_, _, answer)| answer.is_ok()).count();
            if moved > 0 {
                info!(partitions = moved, "leaderships went back to preferred replicas");
            }
        }
        Ok(other) => unreachable!("the answer to another request: {other:?}"),
        Err(cause) => debug!(%cause, "cannot elect preferred leaders"),
    }
}

/// Partitions that a broker takes back, of those that it should lead and does not. None if it does not answer.
async fn taken_back(
    links: &ClusterLinks,
    image: &ClusterImage,
    broker: BrokerId,
) -> Vec<NamedPartition> {
    let mut taken = Vec::new();
    for partitions in led_elsewhere(image, broker).chunks(SWEEP_PARTITIONS_MAX) {
        let answer = match links.watching().probes().own_disks(broker) {
            Some(disks) => disks.takes_back(partitions),
            None => {
                let request = encode_request(partitions);
                match links.links().call(broker, service::RETURNS, request, CALL_MAX).await {
                    Ok(answer) => decode_answer(&answer).unwrap_or_default(),
                    // An earlier release has no such service: all of its leaderships wait.
                    Err(cause) => {
                        debug!(%broker, %cause, "a broker does not answer which partitions it takes back");
                        return taken;
                    }
                }
            }
        };
        let named = partitions.iter().zip(answer).filter(|(_, is_taken)| *is_taken);
        taken.extend(named.map(|(partition, _)| *partition));
    }
    taken
}

/// Partitions whose preferred leader is `broker` and that another broker leads.
fn led_elsewhere(image: &ClusterImage, broker: BrokerId) -> Vec<NamedPartition> {
    let of_topic = |topic: &Arc<metadata::TopicImage>| {
        let away = topic
            .partitions()
            .filter(|(_, state)| state.preferred_leader() == broker && state.leader != broker);
        away.map(|(at, _)| (topic.id, at)).collect::<Vec<_>>()
    };
    image.topics().flat_map(of_topic).collect()
}
