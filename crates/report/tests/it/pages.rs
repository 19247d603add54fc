//! The HTML page and the Markdown file.

use super::fake;
use experiment::catalogue;
use report::{Documents, from_fixture, render};
use std::path::Path;

const FIXTURES: [&str; 4] = ["ibm", "ali", "cs6", "mif"];

fn text(documents: &Documents, path: &str) -> String {
    let bytes = documents.get(path).unwrap_or_else(|| panic!("{path} is there"));
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// What a page would fetch, in any of the ways that HTML and CSS have.
fn references(html: &str) -> Vec<&str> {
    let marks =
        ["http:", "https:", "src=", "srcset=", "@import", "url(", "<link", "<iframe", "<base"];
    marks.into_iter().filter(|mark| html.contains(mark)).collect()
}

#[test]
fn page_fetches_nothing_and_shows_every_experiment_once() {
    let (_, documents) = fake::shared();
    let html = text(documents, "report.html");
    assert_eq!(references(&html), Vec::<&str>::new());
    for experiment in catalogue::experiments() {
        let place = format!("<article id=\"e-{}\">", experiment.id);
        assert_eq!(html.matches(&place).count(), 1, "{}", experiment.id);
        assert!(html.contains(&format!("href=\"#e-{}\"", experiment.id)), "{}", experiment.id);
    }
    assert!(html.len() < 2_000_000, "{} bytes are too many to send around", html.len());
}

#[test]
fn references_are_found_where_there_are_some() {
    assert_eq!(references("<img src=\"https://example.org/a.png\">"), ["https:", "src="]);
}

#[test]
fn every_row_says_what_its_records_were_worth() {
    let run = fake::of_report("ibm", 2);
    let html = text(&render(&run), "report.html");
    let rows = run.analysis.cells.iter().filter(|c| c.experiment == "ibm-payload").count() / 2;
    let article = html.split("<article id=\"e-ibm-payload\">").nth(1).expect("its article");
    let body = article.split("<tbody>").nth(1).expect("its first table");
    let table = body.split("</tbody>").next().expect("the end of its first table");
    assert!(rows > 3);
    assert_eq!(table.matches("page cache").count(), rows);
    let worded = ["all there", "unverified", "lost"].map(|word| table.matches(word).count());
    assert!(worded.iter().sum::<usize>() >= rows, "{worded:?}");
}

#[test]
fn the_same_run_gives_the_same_bytes() {
    assert_eq!(render(&fake::of_report("cs6", 2)), render(&fake::of_report("cs6", 2)));
}

#[test]
fn markdown_names_only_pictures_that_are_there() {
    let (_, documents) = fake::shared();
    let markdown = text(documents, "report.md");
    let named: Vec<&str> =
        markdown.split("](charts/").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    let drawn = documents.0.iter().filter(|(path, _)| path.starts_with("charts/")).count();
    assert_eq!(named.len(), drawn);
    assert!(drawn > 60, "{drawn}");
    for name in named {
        let svg = text(documents, &format!("charts/{name}"));
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"), "{name}");
    }
}

#[test]
fn text_of_strangers_cannot_become_mark_up() {
    let mut run = fake::of_report("mif", 2);
    run.title = "<script>alert(1)</script>".to_owned();
    run.analysis.cells.iter_mut().for_each(|cell| cell.warnings = vec!["</script><b>x".to_owned()]);
    let html = text(&render(&run), "report.html");
    assert!(!html.contains("<script>alert") && !html.contains("</script><b>x"));
    assert!(html.contains("&lt;script&gt;alert"));
}

#[test]
fn one_target_alone_stands_beside_the_published_values_without_a_ratio() {
    let markdown = text(&render(&fake::alone("ibm", 3)), "report.md");
    assert!(
        markdown.contains("throughput, records/s: published | throughput, records/s: highwater |")
    );
    assert!(!markdown.contains("apache-kafka") && !markdown.contains("ratio |"));
}

#[test]
fn fewer_rounds_than_an_interval_needs_are_said_to_be_too_few() {
    let few = text(&render(&fake::of_report("mif", 3)), "report.md");
    let enough = text(&render(&fake::of_report("mif", 5)), "report.md");
    assert!(few.contains("3 rounds: too few for confidence intervals"));
    assert!(!enough.contains("too few for") && enough.contains("95 % confidence intervals"));
}

#[test]
fn levels_stand_in_their_order_though_the_grid_has_holes() {
    let documents = render(&fake::of_report("ali", 1));
    let chart = text(&documents, "charts/ali-emulated-2-highwater.svg");
    let place =
        |label: &str| chart.find(&format!(">{label}<")).unwrap_or_else(|| panic!("{label}"));
    // The smallest records were offered at 8,000 a second only, and come first in the tables.
    let places = ["250", "500", "2,000", "4,000", "8,000"].map(place);
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn names_stand_in_the_order_of_the_definition_though_rounds_were_shuffled() {
    let mut run = fake::of_report("x", 1);
    run.analysis.cells.reverse();
    let documents = render(&run);
    let chart = text(&documents, "charts/x-partitioner-1-highwater.svg");
    let strategies = ["random", "round-robin", "hash-mod", "sticky", "murmur2"];
    let places = strategies.map(|name| chart.find(&format!(">{name}<")).expect(name));
    assert!(places.is_sorted(), "{places:?}");
}

#[test]
fn a_level_that_nobody_has_a_value_of_leaves_no_empty_place() {
    let mut run = fake::of_report("ali", 1);
    let unlimited = |cell: &experiment::analysis::CellAnalysis| {
        cell.cell.get("offered_share").and_then(experiment::definition::Level::number) == Some(0.0)
    };
    for cell in run.analysis.cells.iter_mut().filter(|cell| unlimited(cell)) {
        cell.metrics.remove("reached_share");
    }
    let chart = text(&render(&run), "charts/ali-scaled-1-highwater.svg");
    assert!(chart.contains(">1.5<") && !chart.contains(">max<"), "{chart}");
}

#[test]
fn a_chart_of_levels_that_no_round_has_is_left_out() {
    let mut run = fake::alone("ibm", 1);
    for cell in run.analysis.cells.iter_mut().filter(|cell| cell.experiment == "ibm-resilient") {
        cell.cell.remove("brokers");
    }
    for experiment in &mut run.reports[0].experiments {
        experiment.published.clear();
    }
    let documents = render(&run);
    assert!(!text(&documents, "report.md").contains("charts/ibm-resilient-1"));
}

#[test]
fn published_values_beyond_the_published_axis_are_not_drawn_on_its_edge() {
    let chart = text(&from_fixture("cs6").expect("in the catalogue"), "charts/cs6-1-1.svg");
    // 72,122 ms on an axis that was published up to 70,000.
    assert!(chart.contains(">80,000<") && chart.contains(">15,000<"));
}

#[test]
fn what_was_emulated_says_so_in_its_picture() {
    let documents = render(&fake::of_report("ali", 1));
    assert!(
        text(&documents, "charts/ali-emulated-2-highwater.svg").contains("emulated: ali-2018<")
    );
    let published = from_fixture("ali").expect("in the catalogue");
    assert!(!text(&published, "charts/ali-emulated-2.svg").contains("emulated: "));
    assert!(!text(&documents, "charts/ali-scaled-1-highwater.svg").contains("emulated: "));
}

#[test]
fn noise_floors_are_those_of_so_many_rounds() {
    for rounds in [1, 5] {
        let run = fake::of_report("mif", rounds);
        let floor = run.analysis.floors["throughput"].of_pairs(rounds as usize) - 1.0;
        let plural = if rounds == 1 { "" } else { "s" };
        let wanted =
            format!("Noise floor of {rounds} round{plural}: throughput {:.1} %.", floor * 100.0);
        assert!(text(&render(&run), "report.md").contains(&wanted), "{wanted}");
    }
}

#[test]
fn a_single_pair_has_no_range() {
    let one = text(&render(&fake::of_report("mif", 1)), "report.md");
    let few = text(&render(&fake::of_report("mif", 3)), "report.md");
    assert!(one.contains(" (1 pair") && !few.contains(" (1 pair"));
}

#[test]
fn every_compared_cell_is_counted_once_in_the_summary() {
    let markdown = text(&render(&fake::run(1)), "report.md");
    let rows: Vec<Vec<&str>> = markdown
        .lines()
        .skip_while(|line| !line.starts_with("| experiment |"))
        .skip(2)
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    assert!(rows.len() > 10);
    for row in rows {
        let counts: Vec<u32> = row[4..].iter().map(|cell| cell.parse().expect("a count")).collect();
        assert_eq!(counts[0], counts[1..].iter().sum::<u32>(), "{row:?}");
    }
}

#[test]
fn the_first_screen_says_on_what_and_how_far_it_can_be_trusted() {
    let (_, documents) = fake::shared();
    for document in ["report.html", "report.md"] {
        let text = text(documents, document);
        let start = text.find("IBM Event Streams").expect("the first report");
        let first = &text[..start];
        for wanted in ["2 × Example CPU", "Noise of this machine", "The canary", "the reports"] {
            assert!(first.contains(wanted), "{document}: {wanted}");
        }
    }
}

#[test]
fn targets_that_promise_unlike_things_are_named() {
    let mut run = fake::of_report("mif", 1);
    assert!(!text(&render(&run), "report.md").contains("Unlike: "));
    for cell in run.analysis.cells.iter_mut().filter(|cell| cell.target == "highwater") {
        cell.durability = experiment::round::Durability::Synced;
    }
    let markdown = text(&render(&run), "report.md");
    assert!(markdown.contains("meant synced on highwater, page cache on apache-kafka ("));
}

#[test]
fn text_of_strangers_is_only_text_in_markdown() {
    let mut run = fake::of_report("mif", 1);
    let hostile = "</a>\n# head `x` | **b** [c](d) _e_ f_g";
    run.title = hostile.to_owned();
    run.targets[0].description = hostile.to_owned();
    run.findings.iter_mut().for_each(|judged| judged.finding.because = hostile.to_owned());
    run.analysis.cells.iter_mut().for_each(|cell| cell.warnings = vec![hostile.to_owned()]);
    run.environment.set("host", hostile);
    let markdown = text(&render(&run), "report.md");
    let told = r"\</a\> # head \`x\` \| \*\*b\*\* \[c\](d) \_e\_ f_g";
    assert!(markdown.matches(told).count() > 5, "{}", &markdown[..600]);
    assert!(!markdown.contains("\n# head") && !markdown.contains("</a>"));
}

#[test]
fn texts_of_tables_stand_left_and_keep_their_tone() {
    let (_, documents) = fake::shared();
    let html = text(documents, "report.html");
    assert!(!html.contains("class=\"\" class="), "a second class counts for nothing");
    assert!(html.contains("<td class=\"t\">ibm-payload</td>"));
    assert!(html.contains("class=\"good\""));
}

#[test]
fn an_empty_run_is_still_a_page() {
    let html = text(&render(&report::Run::default()), "report.html");
    assert!(html.contains("<h1>") && html.ends_with("</html>"));
}

#[test]
fn published_reports_are_redrawn_as_they_were() {
    for id in FIXTURES {
        let documents = from_fixture(id).expect("in the catalogue");
        golden(&format!("{id}.txt"), &redrawn(&text(&documents, "report.md")));
        assert!(references(&text(&documents, "report.html")).is_empty(), "{id}");
    }
}

#[test]
fn published_pictures_are_redrawn_as_they_were() {
    // A line over categories, two axes, bars of counts, a heat map, bars with what linear scaling would give.
    let chosen = [
        ("ali", "charts/ali-consumer-1.svg"),
        ("ibm", "charts/ibm-payload-1.svg"),
        ("cs6", "charts/cs6-6-2.svg"),
        ("ali", "charts/ali-producer-7.svg"),
        ("ibm", "charts/ibm-resilient-1.svg"),
    ];
    for (id, path) in chosen {
        let documents = from_fixture(id).expect("in the catalogue");
        golden(path.trim_start_matches("charts/"), &text(&documents, path));
    }
}

#[test]
fn a_report_that_nobody_wrote_is_refused() {
    let error = from_fixture("nobody").expect_err("not in the catalogue");
    assert_eq!(error.to_string(), "no report is called \"nobody\"");
}

/// What is drawn again: experiments, tables and pictures, without the sentences around them.
fn redrawn(markdown: &str) -> String {
    let kept = |line: &&str| ["### ", "| ", "!["].iter().any(|mark| line.starts_with(mark));
    let experiments = markdown.lines().skip_while(|line| !line.starts_with("### "));
    experiments.filter(kept).map(|line| format!("{line}\n")).collect()
}

/// Compares with the file of that name in `testdata`; `UPDATE=1` rewrites it.
fn golden(name: &str, found: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata").join(name);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::create_dir_all(path.parent().expect("in testdata")).expect("created");
        std::fs::write(&path, found).expect("written");
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = wanted.lines().zip(found.lines()).position(|(a, b)| a != b);
    let differs = differs.unwrap_or(wanted.lines().count().min(found.lines().count()));
    assert!(
        wanted == found,
        "{name} differs from line {}: {:?}; UPDATE=1 rewrites it",
        differs + 1,
        found.lines().nth(differs)
    );
}

/// Every document can be written where it says; with `LOOK=DIR` they stay there, to be looked at in a browser.
#[test]
fn documents_have_paths_of_their_own_inside_a_folder() {
    let scratch = tempfile::tempdir().expect("there is room for a test");
    let kept = std::env::var_os("LOOK").map(std::path::PathBuf::from);
    let directory = kept.unwrap_or_else(|| scratch.path().to_owned());
    write_all(render(&fake::run(5)), &directory);
    for id in FIXTURES {
        write_all(from_fixture(id).expect("in the catalogue"), &directory.join(id));
    }
}

#[test]
fn targets_whose_names_are_no_file_names_have_files_of_their_own() {
    let mut run = fake::of_report("mif", 1);
    for (was, name) in [("highwater", "one:9092"), ("apache-kafka", "one/9092")] {
        run.rounds.iter_mut().filter(|r| r.target == was).for_each(|r| r.target = name.to_owned());
        run.targets.iter_mut().filter(|t| t.name == was).for_each(|t| t.name = name.to_owned());
    }
    run.analysis = experiment::analysis::analyse(&run.rounds, Some("one/9092"), 7);
    let documents = render(&run);
    assert!(documents.0.iter().all(|(path, _)| !path.contains(':')), "a drive or a stream");
    let results = documents.0.iter().filter(|(path, _)| path.starts_with("omb/")).count();
    assert_eq!(results, run.analysis.cells.len());
    write_all(documents, tempfile::tempdir().expect("there is room for a test").path());
}

fn write_all(documents: Documents, directory: &Path) {
    let mut paths = std::collections::BTreeSet::new();
    for (path, bytes) in documents.0 {
        assert!(paths.insert(path.clone()), "{path} is written twice");
        assert!(
            Path::new(&path).components().all(|c| matches!(c, std::path::Component::Normal(_))),
            "{path}"
        );
        let path = directory.join(path);
        std::fs::create_dir_all(path.parent().expect("inside the directory")).expect("created");
        std::fs::write(path, bytes).expect("written");
    }
}
