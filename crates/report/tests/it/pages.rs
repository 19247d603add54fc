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
    assert!(html.len() < 1_500_000, "{} bytes are too many to send around", html.len());
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
    let table = article.split("</tbody>").next().expect("its first table");
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
    assert!(!enough.contains("too few") && enough.contains("95 % confidence intervals"));
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
