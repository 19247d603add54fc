//! Suspicion: brokers that answer none of the active controller's probes.
//!
//! Suspicion is weaker than the end of a session. A suspected broker stays registered and unfenced; the controller moves its
//! leaderships and ISR memberships to brokers that answer. The first answer ends the suspicion. Heartbeats do not count as
//! answers: where only the way from the controller to the broker is cut, the broker gets no metadata and must not lead.
//!
//! A broker is suspected only if the controller's own timer was on time and another broker answered. After two wrong
//! suspicions within ten minutes, the session alone decides for ten minutes. A suspicion that an answer ends was wrong unless
//! the broker reports that its process was paused when the suspicion began.

use std::collections::BTreeMap;
use std::time::Duration;

use metadata::ClusterImage;
use metadata::decide::BrokerRef;
use model::{BrokerEpoch, BrokerId, Moment};

use crate::mutants::{Mutant, is_planted};
use crate::pauses::RecentPauses;

/// Wrong suspicions within [`WRONG_WITHIN`] that exempt a broker.
const WRONG_MAX: usize = 2;
/// Period in which wrong suspicions are counted, and for which an exempt broker is not suspected.
const WRONG_WITHIN: Duration = Duration::from_secs(600);

/// Times of the probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbeTimes {
    /// `highwater.suspect.after.ms`: silence after which the controller redials a broker. Zero: no suspicion.
    pub after: Duration,
    /// Time between two probes of a broker.
    pub every: Duration,
    /// Time since a probe was sent up to which its answer shows that a broker may lead.
    pub fresh: Duration,
    /// Time that a redialed broker has for an answer.
    pub redial: Duration,
}

impl ProbeTimes {
    /// Times of the product, with `after` from `highwater.suspect.after.ms`.
    pub fn with_after(after: Duration) -> ProbeTimes {
        let ms = Duration::from_millis;
        ProbeTimes { after, every: ms(250), fresh: ms(500), redial: ms(500) }
    }

    /// Time for which a probe waits for its answer. A slow answer shows that the broker runs.
    pub fn patience(&self) -> Duration {
        self.fresh.max(self.after + self.redial)
    }
}

/// Answers to the active controller's probes, and the suspicions that follow from them.
#[derive(Debug)]
pub struct Suspicion {
    times: ProbeTimes,
    brokers: BTreeMap<BrokerId, Probed>,
    /// Leader of the quorum before this node, and the time since when it counts as silent.
    former: Option<(BrokerId, Moment)>,
    polled_at: Moment,
}

#[derive(Clone, Debug)]
struct Probed {
    epoch: BrokerEpoch,
    /// Time of the last answer, or since when answers are expected.
    answered_at: Moment,
    /// Send time of the last probe that was answered since the registration.
    probed_at: Option<Moment>,
    redialed_at: Option<Moment>,
    suspected_at: Option<Moment>,
    /// Ends of wrong suspicions, in order.
    wrong: Vec<Moment>,
    exempt_until: Option<Moment>,
}

impl Probed {
    fn new(epoch: BrokerEpoch, now: Moment) -> Probed {
        Probed {
            epoch,
            answered_at: now,
            probed_at: None,
            redialed_at: None,
            suspected_at: None,
            wrong: Vec::new(),
            exempt_until: None,
        }
    }
}

/// Result of [`Suspicion::poll`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SuspicionDue {
    /// Brokers whose connection is to be replaced.
    pub redial: Vec<BrokerId>,
    /// Brokers suspected since this poll, with the length of their silence.
    pub begun: Vec<(BrokerId, Duration)>,
    /// All suspected brokers.
    pub suspects: Vec<BrokerRef>,
}

impl Suspicion {
    /// This node becomes the active controller. The former leader of the quorum has been silent for an election time-out
    /// already: half of `after` counts.
    pub fn begin(times: ProbeTimes, former: Option<BrokerId>, now: Moment) -> Suspicion {
        let since = Moment(now.0.saturating_sub((times.after / 2).as_micros() as u64));
        let former = former.map(|broker| (broker, since));
        Suspicion { times, brokers: BTreeMap::new(), former, polled_at: now }
    }

    /// A broker answered a probe that was sent at `sent_at`, and reported its pauses. Returns the length of the suspicion
    /// that this ends, if any.
    pub fn answered(
        &mut self,
        now: Moment,
        sent_at: Moment,
        broker: BrokerId,
        pauses: &RecentPauses,
    ) -> Option<Duration> {
        let probed = self.brokers.get_mut(&broker)?;
        (probed.answered_at, probed.redialed_at) = (now, None);
        probed.probed_at = probed.probed_at.max(Some(sent_at));
        let suspected_for = now.since(probed.suspected_at.take()?);
        if pauses.include(suspected_for) && !is_planted(Mutant::PausesAreWrongSuspicions) {
            return Some(suspected_for);
        }
        probed.wrong.retain(|at| now.since(*at) < WRONG_WITHIN);
        probed.wrong.push(now);
        if probed.wrong.len() >= WRONG_MAX {
            probed.wrong.clear();
            probed.exempt_until = Some(now.plus(WRONG_WITHIN));
        }
        Some(suspected_for)
    }

    /// Whether a broker answered a probe of the last `fresh`.
    pub fn is_fresh(&self, now: Moment, broker: BrokerId) -> bool {
        let fresh =
            |probed: &Probed| probed.probed_at.is_some_and(|at| now.since(at) <= self.times.fresh);
        self.brokers.get(&broker).is_some_and(fresh)
    }

    /// Whether a broker is suspected.
    pub fn is_suspected(&self, broker: BrokerId) -> bool {
        self.brokers.get(&broker).is_some_and(|probed| probed.suspected_at.is_some())
    }

    /// Whether a broker is suspected.
    pub fn has_suspects(&self) -> bool {
        self.brokers.values().any(|probed| probed.suspected_at.is_some())
    }

    /// Decides which brokers to redial and which to suspect. `me` is this node. Called once every `times.every`.
    pub fn poll(&mut self, now: Moment, image: &ClusterImage, me: BrokerId) -> SuspicionDue {
        let mut due = SuspicionDue::default();
        self.track(now, image, me);
        self.grant_lateness(now);
        if self.times.after.is_zero() {
            return due;
        }
        let fresh: Vec<BrokerId> =
            self.brokers.keys().copied().filter(|id| self.is_fresh(now, *id)).collect();
        let ProbeTimes { after, redial, .. } = self.times;
        for (id, probed) in &mut self.brokers {
            let another_answers = fresh.iter().any(|other| other != id);
            let is_exempt = probed.exempt_until.is_some_and(|until| now < until);
            let silence = now.since(probed.answered_at);
            if probed.suspected_at.is_none() && silence >= after && !is_exempt && another_answers {
                match probed.redialed_at {
                    None => {
                        probed.redialed_at = Some(now);
                        due.redial.push(*id);
                    }
                    Some(at) if now.since(at) >= redial && !is_planted(Mutant::SuspectsNone) => {
                        probed.suspected_at = Some(now);
                        due.begun.push((*id, silence));
                    }
                    Some(_) => {}
                }
            }
            if probed.suspected_at.is_some() {
                due.suspects.push(BrokerRef { broker: *id, epoch: probed.epoch });
            }
        }
        due
    }

    /// Follows registrations. Another registration, or a fenced broker, begins again without suspicion.
    fn track(&mut self, now: Moment, image: &ClusterImage, me: BrokerId) {
        let serves = |id: BrokerId| image.broker(id).is_some_and(|known| !known.fenced);
        self.brokers.retain(|id, _| serves(*id));
        for broker in image.brokers().filter(|broker| !broker.fenced && broker.id != me) {
            let former = self.former.take_if(|(former, _)| *former == broker.id);
            let since = former.map_or(now, |(_, since)| since);
            let new = || Probed::new(broker.epoch, since);
            let probed = self.brokers.entry(broker.id).or_insert_with(new);
            if probed.epoch != broker.epoch {
                *probed = new();
            }
        }
    }

    /// A controller that polled late may have missed the answers of that time.
    fn grant_lateness(&mut self, now: Moment) {
        let gap = now.since(self.polled_at);
        self.polled_at = now;
        if gap > self.times.every * 2 && !is_planted(Mutant::SuspectsForOwnLateness) {
            for probed in self.brokers.values_mut() {
                probed.answered_at = probed.answered_at.plus(gap).min(now);
                probed.redialed_at = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use metadata::record::{BrokerRecord, MetadataRecord};
    use model::Uuid;

    use super::*;
    use crate::pauses::Pause;

    const ME: BrokerId = BrokerId(1);
    const TWO: BrokerId = BrokerId(2);
    const THREE: BrokerId = BrokerId(3);

    fn image() -> ClusterImage {
        let mut image = ClusterImage::default();
        for broker in [ME, TWO, THREE] {
            let record = BrokerRecord {
                broker,
                incarnation: Uuid::from_random([broker.0 as u8; 16]),
                epoch: BrokerEpoch(i64::from(broker.0)),
                endpoints: Vec::new(),
                rack: None,
                log_dirs: Vec::new(),
                fenced: false,
                software: None,
            };
            image.replay(&MetadataRecord::BrokerRegistered(record)).unwrap();
        }
        image
    }

    fn at(ms: u64) -> Moment {
        Moment::START.plus(Duration::from_millis(ms))
    }

    fn suspicion() -> Suspicion {
        let times = ProbeTimes::with_after(Duration::from_millis(1_500));
        Suspicion::begin(times, None, at(0))
    }

    /// Polls every 250 ms of these; at each poll the brokers of `answering` answer first.
    fn run(
        it: &mut Suspicion,
        ms: std::ops::Range<u64>,
        answering: &[BrokerId],
    ) -> Vec<(u64, SuspicionDue)> {
        let mut found = Vec::new();
        for ms in ms.step_by(250) {
            for broker in answering {
                it.answered(at(ms), at(ms), *broker, &RecentPauses::default());
            }
            let due = it.poll(at(ms), &image(), ME);
            if !due.redial.is_empty() || !due.begun.is_empty() {
                found.push((ms, due));
            }
        }
        found
    }

    fn suspects(it: &mut Suspicion, ms: u64) -> Vec<i32> {
        let due = it.poll(at(ms), &image(), ME);
        due.suspects.iter().map(|who| who.broker.0).collect()
    }

    #[test]
    fn a_silent_broker_is_redialed_then_suspected_until_it_answers() {
        let mut it = suspicion();
        run(&mut it, 0..1_000, &[TWO, THREE]);
        let found = run(&mut it, 1_000..3_000, &[THREE]);
        // The last answer came at 750 ms.
        assert_eq!(found[0].0, 2_250);
        assert_eq!(found[0].1.redial, [TWO]);
        assert_eq!(
            (found[1].0, &found[1].1.begun[..]),
            (2_750, &[(TWO, Duration::from_secs(2))][..])
        );
        assert!(it.is_suspected(TWO) && !it.is_fresh(at(2_750), TWO));
        assert_eq!(suspects(&mut it, 3_000), [2]);
        assert_eq!(
            it.answered(at(3_100), at(3_000), TWO, &RecentPauses::default()),
            Some(Duration::from_millis(350))
        );
        assert_eq!(suspects(&mut it, 3_250), [0; 0]);
        assert!(it.is_fresh(at(3_250), TWO));
    }

    #[test]
    fn a_slow_answer_keeps_a_broker_from_suspicion_and_does_not_make_it_a_leader() {
        let mut it = suspicion();
        run(&mut it, 0..1_000, &[TWO, THREE]);
        for ms in (1_000..9_000).step_by(250) {
            it.answered(at(ms), at(ms - 800), TWO, &RecentPauses::default());
            assert!(ms < 1_500 || !it.is_fresh(at(ms), TWO));
            assert_eq!(run(&mut it, ms..ms + 250, &[THREE]), []);
        }
    }

    #[test]
    fn no_broker_is_suspected_while_no_other_answers() {
        let mut it = suspicion();
        run(&mut it, 0..1_000, &[TWO, THREE]);
        assert_eq!(run(&mut it, 1_000..9_000, &[]), [], "the controller itself may be cut off");
    }

    #[test]
    fn a_late_controller_suspects_no_broker_for_that() {
        let mut it = suspicion();
        run(&mut it, 0..1_000, &[TWO, THREE]);
        it.answered(at(9_000), at(9_000), THREE, &RecentPauses::default());
        assert_eq!(it.poll(at(9_000), &image(), ME), SuspicionDue::default());
        assert_eq!(run(&mut it, 9_250..10_250, &[THREE]), []);
    }

    #[cfg(debug_assertions)]
    #[test]
    fn a_controller_that_forgets_its_own_lateness_suspects_a_broker_for_that() {
        crate::mutants::plant(Some(Mutant::SuspectsForOwnLateness));
        let mut it = suspicion();
        run(&mut it, 0..1_000, &[TWO, THREE]);
        it.answered(at(9_000), at(9_000), THREE, &RecentPauses::default());
        let due = it.poll(at(9_000), &image(), ME);
        crate::mutants::plant(None);
        assert_eq!(due.redial, [TWO]);
    }

    #[test]
    fn a_broker_suspected_wrongly_twice_is_exempt_for_ten_minutes() {
        let mut it = suspicion();
        run(&mut it, 0..1_000, &[TWO, THREE]);
        for begin in [1_000, 4_000] {
            assert_eq!(run(&mut it, begin..begin + 2_000, &[THREE]).len(), 2);
            run(&mut it, begin + 2_000..begin + 3_000, &[TWO, THREE]);
        }
        assert_eq!(run(&mut it, 7_000..600_000, &[THREE]), []);
        assert_eq!(run(&mut it, 600_000..610_000, &[THREE]).len(), 2);
    }

    /// Three silences of three seconds, each from `begin` and with these pauses, as reported in the answer that ends it.
    /// Returns how many of them led to a suspicion.
    fn suspicions_of_three(pauses: RecentPauses) -> usize {
        let mut it = suspicion();
        run(&mut it, 0..1_000, &[TWO, THREE]);
        let mut begun = 0;
        for begin in [1_000, 5_000, 9_000] {
            let found = run(&mut it, begin..begin + 3_000, &[THREE]);
            begun += found.iter().filter(|(_, due)| !due.begun.is_empty()).count();
            it.answered(at(begin + 3_000), at(begin + 2_900), TWO, &pauses);
            run(&mut it, begin + 3_000..begin + 4_000, &[TWO, THREE]);
        }
        begun
    }

    #[test]
    fn a_suspicion_of_a_paused_broker_is_not_wrong() {
        let pause = |length, ended_ago| {
            let ms = Duration::from_millis;
            RecentPauses::new([Pause { length: ms(length), ended_ago: ms(ended_ago) }])
        };
        // Suspicions begin 1,250 ms before the answer.
        assert_eq!(suspicions_of_three(pause(2_900, 50)), 3);
        assert_eq!(suspicions_of_three(RecentPauses::default()), 2, "its control thread ran");
        assert_eq!(suspicions_of_three(pause(1_100, 50)), 2, "it was paused afterwards");
        assert_eq!(suspicions_of_three(pause(1_000, 1_500)), 2, "it was paused before");
    }

    #[cfg(debug_assertions)]
    #[test]
    fn where_pauses_count_as_wrong_a_third_one_is_not_suspected() {
        crate::mutants::plant(Some(Mutant::PausesAreWrongSuspicions));
        let length = Duration::from_millis(2_900);
        let pauses = RecentPauses::new([Pause { length, ended_ago: Duration::ZERO }]);
        let begun = suspicions_of_three(pauses);
        crate::mutants::plant(None);
        assert_eq!(begun, 2);
    }

    #[test]
    fn another_registration_and_a_fenced_broker_are_not_suspected() {
        let mut it = suspicion();
        run(&mut it, 0..1_000, &[TWO, THREE]);
        run(&mut it, 1_000..3_500, &[THREE]);
        assert!(it.is_suspected(TWO));
        let mut fenced = image();
        fenced.replay(&MetadataRecord::BrokerFenced { broker: TWO }).unwrap();
        assert_eq!(it.poll(at(3_500), &fenced, ME).suspects, []);
        assert_eq!(suspects(&mut it, 3_750), [0; 0], "it serves again");
    }

    #[test]
    fn the_former_leader_of_the_quorum_has_half_of_the_time() {
        let times = ProbeTimes::with_after(Duration::from_millis(1_500));
        let mut it = Suspicion::begin(times, Some(TWO), at(10_000));
        let found = run(&mut it, 10_000..13_000, &[THREE]);
        assert_eq!((found[0].0, &found[0].1.redial[..]), (10_750, &[TWO][..]));
        assert_eq!(found[1].0, 11_250);
    }

    #[test]
    fn zero_switches_suspicion_off() {
        let mut it = Suspicion::begin(ProbeTimes::with_after(Duration::ZERO), None, at(0));
        assert_eq!(run(&mut it, 0..9_000, &[THREE]), []);
    }
}
