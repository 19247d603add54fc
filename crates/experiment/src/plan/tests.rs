//! What every plan keeps to: order, pairs, dependencies, few clusters.

use super::*;
use std::collections::BTreeMap;

fn ability(target: &str, brokers: u32, provides: &[Need]) -> Ability {
    Ability { target: target.to_owned(), brokers, provides: provides.to_vec() }
}

fn two(brokers: u32) -> Vec<Ability> {
    let all = [Need::Gateway, Need::WebSocket];
    vec![ability("highwater", brokers, &all), ability("apache-kafka", brokers, &all)]
}

fn request(pattern: &str, targets: Vec<Ability>) -> Request<'static> {
    Request {
        experiments: catalogue::select(pattern).unwrap(),
        profile: ProfileName::Quick,
        seed: 42,
        targets,
        rounds: None,
        changed: toml::Table::new(),
    }
}

fn planned(pattern: &str, targets: Vec<Ability>) -> Plan {
    plan(&request(pattern, targets)).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_plan() {
    let one = request("all", two(9));
    assert_eq!(plan(&one).unwrap(), plan(&one).unwrap());
    let other = Request { seed: 43, ..one.clone() };
    let order = |plan: Plan| plan.steps.into_iter().map(|step| step.cell).collect::<Vec<_>>();
    assert_ne!(order(plan(&one).unwrap()), order(plan(&other).unwrap()));
}

#[test]
fn a_plan_survives_being_written_down() {
    let plan = planned("all", two(9));
    let text = serde_json::to_string(&plan).unwrap();
    assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
}

#[test]
fn every_cell_is_run_once_a_round_on_every_target() {
    let plan = planned("all", two(9));
    let mut times: BTreeMap<(usize, u32, &str), u32> = BTreeMap::new();
    for step in plan.steps.iter().filter(|step| step.purpose == Purpose::Cell) {
        *times.entry((step.cell, step.round, &step.target)).or_default() += 1;
    }
    assert!(times.values().all(|times| *times == 1));
    let cells = plan.cells.iter().filter(|cell| cell.experiment != CANARY);
    let wanted: usize = cells.map(|cell| cell.rounds as usize * cell.targets.len()).sum();
    assert_eq!(times.len(), wanted);
    assert!(plan.waiting.is_empty(), "{:?}", plan.waiting.first());
    for (at, step) in plan.steps.iter().enumerate() {
        assert_eq!(step.order as usize, at);
    }
}

#[test]
fn targets_run_back_to_back_and_neither_is_always_first() {
    let plan = planned("ibm-payload", two(1));
    let cells: Vec<&Step> =
        plan.steps.iter().filter(|step| step.purpose == Purpose::Cell).collect();
    let mut first = BTreeMap::new();
    for pair in cells.chunks(2) {
        assert_eq!((pair[0].cell, pair[0].round), (pair[1].cell, pair[1].round));
        assert_ne!(pair[0].target, pair[1].target);
        assert_eq!(pair[0].order + 1, pair[1].order);
        *first.entry(pair[0].target.as_str()).or_insert(0u32) += 1;
    }
    let (a, b) = (first["highwater"], first["apache-kafka"]);
    assert!(a.abs_diff(b) <= 4, "{first:?}");
}

#[test]
fn a_cells_targets_take_turns_at_being_first() {
    for seed in 0..8 {
        let plan = plan(&Request { seed, ..request("*", two(9)) }).unwrap();
        let mut firsts: BTreeMap<usize, BTreeMap<u32, &str>> = BTreeMap::new();
        for step in plan.steps.iter().filter(|step| step.purpose == Purpose::Cell) {
            firsts.entry(step.cell).or_default().entry(step.round).or_insert(&step.target);
        }
        for rounds in firsts.values() {
            let firsts: Vec<&str> = rounds.values().copied().collect();
            assert!(firsts.windows(2).all(|pair| pair[0] != pair[1]), "{firsts:?}");
        }
        let begins = |target: &str| firsts.values().filter(|rounds| rounds[&0] == target).count();
        let (a, b) = (begins("highwater"), begins("apache-kafka"));
        assert!(a.abs_diff(b) < firsts.len() / 4, "{a} and {b}");
    }
}

#[test]
fn a_round_is_over_before_the_next_begins_and_is_shuffled() {
    let plan = planned("ibm-payload", two(1));
    let steps = || plan.steps.iter().filter(|step| step.purpose == Purpose::Cell);
    let rounds: Vec<u32> = steps().map(|step| step.round).collect();
    assert!(rounds.is_sorted());
    let order = |round: u32| -> Vec<usize> {
        steps().filter(|step| step.round == round).map(|step| step.cell).collect()
    };
    assert_ne!(order(0), order(1));
}

#[test]
fn a_share_of_saturation_comes_after_its_saturation() {
    for seed in 0..4 {
        let plan = plan(&Request { seed, ..request("*", two(9)) }).unwrap();
        let place = |cell: usize, step: &Step| {
            let same = |other: &&Step| {
                other.cell == cell
                    && other.round == step.round
                    && other.target == step.target
                    && other.purpose == Purpose::Cell
            };
            plan.steps.iter().find(same).map(|step| step.order)
        };
        let mut shares = 0;
        for step in &plan.steps {
            let Some(base) = plan.cell(step).saturation else { continue };
            assert!(plan.cells[base].workload.offered_share == 0.0);
            assert!(place(base, step).unwrap() < step.order);
            shares += 1;
        }
        assert!(shares > 0);
    }
}

#[test]
fn a_saturation_that_no_cell_measures_is_added() {
    let shares = catalogue::experiment("ali-scaled").unwrap();
    let mut without = shares.clone();
    without.grid.insert("offered_share".to_owned(), vec![Level::Number(0.5)]);
    without.profile.get_mut("quick").unwrap().grid.clear();
    let request = Request { experiments: vec![&without], ..request("ali-scaled", two(1)) };
    let plan = plan(&request).unwrap();
    let own: Vec<_> = plan.cells.iter().filter(|cell| cell.experiment == "ali-scaled").collect();
    assert_eq!(own.len(), 10, "five shares and five saturations");
    assert_eq!(own.iter().filter(|cell| cell.saturation.is_some()).count(), 5);
}

#[test]
fn clusters_are_started_few_times() {
    let plan = planned("all", two(9));
    let shapes: BTreeSet<Shape> = plan.cells.iter().map(PlannedCell::shape).collect();
    assert!(shapes.len() > 5, "there is something to group");
    assert!(plan.cluster_starts() <= shapes.len() + 1, "{}", plan.cluster_starts());
    assert_eq!(planned("all", two(1)).cluster_starts(), 1);
}

#[test]
fn the_canary_is_at_both_ends_and_between() {
    let plan = planned("all", two(1));
    let at = |purpose: Purpose| -> Vec<usize> {
        let steps = plan.steps.iter().enumerate().filter(|(_, step)| step.purpose == purpose);
        steps.map(|(at, _)| at).collect()
    };
    let canaries = at(Purpose::Canary);
    assert_eq!(canaries.len(), 18, "three on each target at each place");
    assert_eq!((canaries[0], canaries[17]), (0, plan.steps.len() - 1));
    for place in canaries.chunks(6) {
        assert_eq!(place[5], place[0] + 5, "what is compared with another place lies together");
    }
    let rates = canaries.iter().map(|at| plan.cell(&plan.steps[*at]).workload.offered);
    assert_eq!(rates.collect::<Vec<_>>(), [20_000.0; 18]);
    let middle = canaries[6] as f64 / plan.steps.len() as f64;
    assert!((0.25..0.75).contains(&middle), "{middle}");
    let pairs = at(Purpose::SameTarget);
    assert_eq!(pairs.len(), SAME_TARGET_PAIRS as usize * 4);
    for pair in pairs.chunks(2) {
        let offered = plan.cell(&plan.steps[pair[0]]).workload.offered;
        assert_eq!(offered, 0.0, "a difference in throughput can be seen");
        let (one, other) = (&plan.steps[pair[0]], &plan.steps[pair[1]]);
        assert_eq!(one.target_name(), other.target_name());
        assert_ne!(one.target, other.target);
        assert_eq!((one.round, pair[0] + 1), (other.round, pair[1]));
    }
}

#[test]
fn what_a_target_lacks_makes_cells_wait() {
    let plain = vec![ability("highwater", 1, &[]), ability("apache-kafka", 3, &[])];
    let plan = planned("all", plain);
    let waits = |experiment: &str, target: &str| -> Vec<&Waiting> {
        let one = |one: &&Waiting| one.experiment == experiment && one.target == target;
        plan.waiting.iter().filter(one).collect()
    };
    let on = |experiment: &str| -> Vec<&PlannedCell> {
        plan.cells.iter().filter(|cell| cell.experiment == experiment).collect()
    };
    assert_eq!(waits("x-proxy", "highwater")[0].needs, [Need::Gateway]);
    assert_eq!(waits("x-proxy", "highwater")[0].why, "highwater does not have a gateway");
    assert_eq!(
        waits("ibm-tuning", "highwater")[0].why,
        "highwater does not have a cluster of 3 brokers"
    );
    // The other target runs alone.
    assert!(waits("ibm-tuning", "apache-kafka").is_empty());
    assert!(on("ibm-tuning").iter().all(|cell| cell.targets == ["apache-kafka"]));
    // Six brokers are more than three.
    assert_eq!(waits("ibm-fast", "apache-kafka").len(), 1);
    // Pull needs nothing; push does.
    assert!(on("cs6-1").iter().all(|cell| cell.cell["delivery"] == Level::Text("pull".to_owned())));
}

#[test]
fn targets_are_compared_with_as_many_brokers_each() {
    let plan =
        planned("mif-rtt", vec![ability("highwater", 1, &[]), ability("apache-kafka", 3, &[])]);
    for cell in plan.cells.iter().filter(|cell| cell.experiment == "mif-rtt") {
        assert_eq!((cell.workload.brokers, cell.workload.replication), (1, 1));
        assert_eq!(
            cell.deviations,
            ["1 instead of 3 brokers", "replication factor 1 instead of 3"]
        );
    }
    let whole = planned("mif-rtt", two(3));
    assert!(whole.cells.iter().all(|cell| cell.deviations.is_empty()));
}

#[test]
fn rounds_and_settings_may_be_changed() {
    let mut request = request("ibm-payload", two(1));
    request.rounds = Some(7);
    request.changed = "era = '4'".parse().unwrap();
    let plan = plan(&request).unwrap();
    for cell in plan.cells.iter().filter(|cell| cell.experiment != CANARY) {
        assert_eq!((cell.rounds, cell.workload.era), (7, crate::workload::Era::V4));
    }
}

#[test]
fn an_experiment_about_an_emulation_keeps_its_own() {
    let mut request = request("ibm-payload*", two(1));
    request.changed = "emulate = 'ali-2018'".parse().unwrap();
    let plan = plan(&request).unwrap();
    let of = |experiment: &str| -> BTreeSet<&str> {
        let cells = plan.cells.iter().filter(|cell| cell.experiment == experiment);
        cells.map(|cell| cell.workload.emulate.as_str()).collect()
    };
    assert_eq!(of("ibm-payload"), BTreeSet::from(["ali-2018"]));
    assert_eq!(of("ibm-payload-emulated"), BTreeSet::from(["icp-2019"]));
}

#[test]
fn cells_compared_by_the_brokers_settings_find_clusters_of_the_same_age() {
    let plan = planned("all", two(9));
    let setting = |name: &String| name.starts_with("broker_settings.");
    let compared: BTreeSet<&str> = catalogue::experiments()
        .filter(|one| one.factors.iter().any(setting))
        .map(|one| one.id.as_str())
        .collect();
    assert!(!compared.is_empty());
    for own in plan.cells.iter().filter(|cell| compared.contains(cell.experiment.as_str())) {
        let other = plan
            .cells
            .iter()
            .find(|cell| cell.shape() == own.shape() && cell.experiment != own.experiment);
        assert!(other.is_none(), "{} shares {:?} with {:?}", own.experiment, own.shape(), other);
    }
}

#[test]
fn a_cell_at_the_brokers_defaults_asks_for_no_setting() {
    let plan = planned("ibm-deploy", two(3));
    let plain = |cell: &&PlannedCell| cell.workload.broker_settings.is_empty();
    let plain: Vec<_> = plan.cells.iter().filter(plain).collect();
    assert_eq!(
        plain.len(),
        4,
        "direct, proxy, and on their cluster the canary and the target itself"
    );
    let listener = |cell: &PlannedCell| cell.shape().settings["inter.broker.listener.name"].clone();
    assert!(plain.iter().all(|cell| listener(cell) == "PLAINTEXT"));
}

#[test]
fn nothing_to_run_is_an_empty_plan() {
    let plan = planned("ibm-tuning", vec![ability("highwater", 1, &[])]);
    assert!(plan.steps.is_empty());
    assert_eq!(plan.waiting.len(), 6);
}

#[test]
fn a_quick_run_of_everything_measures_less_than_30_minutes() {
    let plan = planned("all", two(9));
    let minutes = plan.cost_seconds() / 60.0;
    assert!(minutes < 30.0, "{minutes:.1}");
}
