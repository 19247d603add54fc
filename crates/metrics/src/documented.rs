//! For tests: a page that lists metrics has each of them, as it is shown.

use std::collections::BTreeMap;
use std::path::Path;

/// Compares the list behind this head of a table with the metrics of this text; `UPDATE=1` in the environment writes the list
/// anew. The list ends with the page, or with an empty line.
///
/// # Panics
/// They differ, or the page cannot be read.
pub fn check(text: &str, page: &Path, head: &str) {
    let listed = std::fs::read_to_string(page).expect("the page is there");
    let head = format!("| {head} | type | what it is |\n|---|---|---|\n");
    let (before, behind) = listed.split_once(&head).expect("the list has a head");
    let (list, after) = behind.split_at(behind.find("\n\n").map_or(behind.len(), |end| end + 1));
    if std::env::var_os("UPDATE").is_some() {
        let anew = format!("{before}{head}{}{after}", rows(text));
        std::fs::write(page, anew).expect("the page can be written");
    } else {
        assert_eq!(list, rows(text), "{}", page.display());
    }
}

fn rows(text: &str) -> String {
    let (mut rows, mut help) = (String::new(), BTreeMap::new());
    for line in text.lines() {
        if let Some((name, words)) = line.strip_prefix("# HELP ").and_then(|l| l.split_once(' ')) {
            help.insert(name, words.trim_end_matches('.'));
        }
        if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|l| l.split_once(' ')) {
            let total = if kind == "counter" { "_total" } else { "" };
            rows += &format!("| `{name}{total}` | {kind} | {} |\n", help[name]);
        }
    }
    rows
}
