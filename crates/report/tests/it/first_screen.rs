//! The first screen and the cards: everything above the tables.

use super::fake;
use experiment::analysis::analyse_settled;
use experiment::round::Durability;
use report::{Documents, Run, render};

fn text(documents: &Documents, path: &str) -> String {
    String::from_utf8(documents.get(path).expect(path).to_vec()).expect("text")
}

/// The page from its body to the contents.
fn first_screen(run: &Run) -> String {
    let html = text(&render(run), "report.html");
    let body = html.split("<main>").nth(1).expect("a body");
    body.split("<nav").next().expect("a first screen").to_owned()
}

/// A run that measured everything the first screen shows.
fn measured() -> Run {
    let mut run = fake::of_report("mif", 3);
    let more = [("broker_rss_mib", 80.0), ("broker_cpu_s_per_mrec", 2.0)];
    for round in run.rounds.iter_mut() {
        let worse = if round.target == "apache-kafka" { 10.0 } else { 1.0 };
        round.metrics.extend(more.map(|(name, value)| (name.to_owned(), value * worse)));
    }
    again(&mut run, &[]);
    run
}

fn again(run: &mut Run, young: &[u32]) {
    let young = young.iter().copied().collect();
    run.analysis = analyse_settled(&run.rounds, &young, Some("apache-kafka"), 7);
}

#[test]
fn the_finding_and_its_figures_come_first() {
    let first = first_screen(&measured());
    let heading = first.split("<h1>").nth(1).and_then(|rest| rest.split("</h1>").next()).unwrap();
    assert!(heading.contains("Highwater acknowledges 1.") && heading.contains("Apache Kafka"));
    assert!(
        heading.contains("10\u{a0}% of the CPU a record and 10\u{a0}% of the memory"),
        "{heading}"
    );
    for name in ["Throughput", "p99 latency", "Broker CPU", "Broker memory"] {
        assert_eq!(first.matches(&format!("<h3>{name} ")).count(), 1, "{name}");
    }
    assert!(first.contains("Where Highwater is worse than Apache Kafka"));
    assert!(first.find("<details").unwrap() > first.find("is worse than").unwrap());
}

#[test]
fn synced_and_page_cache_are_apart() {
    let mut run = measured();
    let acks_all = |cell: &experiment::definition::Levels| {
        cell.get("acks").is_some_and(|acks| acks.to_string() == "all")
    };
    for round in run.rounds.iter_mut() {
        if round.target == "highwater" && acks_all(&round.cell) {
            round.durability = Durability::ReplicatedSynced;
        }
    }
    again(&mut run, &[]);
    let first = first_screen(&run);
    let synced = first.find("Synced by Highwater only").expect("synced");
    assert!(synced < first.find("Not synced to disk").expect("not synced"));
    assert!(first.contains("and syncs them first, which Apache Kafka does not"));
}

#[test]
fn what_is_worse_is_listed_with_its_cell() {
    let mut run = measured();
    let worse = run.rounds[0].cell.clone();
    for round in run.rounds.iter_mut().filter(|round| round.cell == worse) {
        let slow = if round.target == "highwater" { 0.5 } else { 1.0 };
        round.metrics.entry("throughput".to_owned()).and_modify(|value| *value *= slow);
    }
    again(&mut run, &[]);
    let first = first_screen(&run);
    let losses = first.split("is worse than").nth(1).unwrap();
    assert!(losses.contains("times its throughput"), "{losses}");
    assert!(losses.contains("worse in 1 of"), "{losses}");
}

#[test]
fn cells_of_young_brokers_are_marked_and_have_no_factor() {
    let mut run = measured();
    let cell = run.rounds[0].cell.clone();
    let young: Vec<u32> = run
        .rounds
        .iter()
        .filter(|round| round.cell == cell && round.target == "apache-kafka")
        .map(|round| round.order)
        .collect();
    again(&mut run, &young);
    let documents = render(&run);
    let html = text(&documents, "report.html");
    assert!(html.contains("brokers still warming up") && html.contains("no factor"));
    assert!(text(&documents, "report.md").contains("†"));
    again(&mut run, &[]);
    assert!(!text(&render(&run), "report.html").contains("no factor"));
}

#[test]
fn a_target_has_one_colour_though_an_experiment_ran_on_it_alone() {
    let mut run = fake::of_report("ali", 1);
    let alone = "ali-consumer";
    run.rounds.retain(|round| round.experiment != alone || round.target == "apache-kafka");
    again(&mut run, &[]);
    let chart = text(&render(&run), "charts/ali-consumer-1.svg");
    let [highwater, kafka] = ["#2F78C4", "#D95F0E"].map(|colour| chart.matches(colour).count());
    assert!(highwater == 0 && kafka > 0, "{highwater} {kafka}");
}

#[test]
fn verdicts_name_their_subject() {
    let run = fake::of_report("mif", 3);
    let documents = render(&run);
    for document in ["report.html", "report.md"] {
        let text = text(&documents, document);
        assert!(text.contains("the published claim"), "{document}");
        assert!(!text.to_lowercase().contains("contradicted<"), "{document}");
    }
}

#[test]
fn the_picture_has_the_numbers_of_the_page() {
    let run = measured();
    let documents = render(&run);
    let picture = text(&documents, "summary.svg");
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    assert!(text(&documents, "report.md").contains("](summary.svg)"));
    let first = first_screen(&run);
    let numbers = picture.split("class=\"number\">").skip(3);
    for number in numbers.map(|rest| rest.split('<').next().unwrap()) {
        assert!(first.contains(number), "{number}");
    }
}

#[test]
fn the_terminal_gets_the_same_finding() {
    let run = measured();
    let summary = report::summary(&run);
    let finding = summary.lines().next().unwrap().to_owned();
    // Markdown has plain spaces.
    let finding = finding.replace('\u{a0}', " ");
    assert!(text(&render(&run), "report.md").contains(&format!("**{finding}**")));
    assert!(summary.contains("Where Highwater is worse than Apache Kafka"));
}
