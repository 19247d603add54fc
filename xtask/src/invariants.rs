//! Holds `docs/invariants.md` and the code together: every name in a comment stands in the list, and
//! every place and test that the list names is there.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};

/// The list.
pub const DOCUMENT: &str = "docs/invariants.md";
/// With which letter a name may begin; a number follows.
const LETTERS: &[u8] = b"CRMSNL";

/// What the list says.
pub struct List {
    names: BTreeSet<String>,
    findings: Vec<String>,
}

impl List {
    /// Reads the list under the workspace's root, and looks for what it names.
    pub fn read(root: &Path) -> Result<List> {
        let text = fs::read_to_string(root.join(DOCUMENT)).context(DOCUMENT)?;
        let mut list = List { names: BTreeSet::new(), findings: Vec::new() };
        for line in text.lines() {
            let Some(name) = row_name(line) else { continue };
            if !list.names.insert(name.to_owned()) {
                list.findings.push(format!("{DOCUMENT}: {name} is listed twice"));
            }
            for place in places(line) {
                list.findings.extend(match place {
                    Some((path, wanted)) => missing(root, name, path, wanted),
                    None => Some(format!("{DOCUMENT}: {name}: a place is told as `file` `name`")),
                });
            }
        }
        ensure!(!list.names.is_empty(), "{DOCUMENT} lists no invariant");
        Ok(list)
    }

    /// What is wrong with the list itself.
    pub fn findings(&self) -> &[String] {
        &self.findings
    }

    /// The names in a file's comments, and in the texts of its assertions, that the list does not have.
    pub fn unknown(&self, file: &str, text: &str) -> Vec<String> {
        let mut findings = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let (code, comment) = line.split_once("//").unwrap_or((line, ""));
            let names = names_in(comment).chain(said(code));
            for name in names.filter(|name| !self.names.contains(*name)) {
                findings.push(format!("{file}:{}: {name} is not in {DOCUMENT}", at + 1));
            }
            for range in ranges_in(comment) {
                findings.push(format!("{file}:{}: ({range}): list the names one by one", at + 1));
            }
        }
        findings
    }
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 2 && LETTERS.contains(&bytes[0]) && bytes[1..].iter().all(u8::is_ascii_digit)
}

fn row_name(line: &str) -> Option<&str> {
    line.strip_prefix("| ")?.split(" |").next().filter(|name| is_name(name))
}

/// The file and the name in each of the last two cells of a row.
fn places(line: &str) -> [Option<(&str, &str)>; 2] {
    let mut cells = line.trim_end().trim_end_matches('|').rsplit(" | ");
    let tried = cells.next().and_then(quoted);
    [cells.next().and_then(quoted), tried]
}

/// The two names in backticks, if a cell has two.
fn quoted(cell: &str) -> Option<(&str, &str)> {
    match cell.split('`').collect::<Vec<_>>()[..] {
        [_, file, _, name, _] => Some((file, name)),
        _ => None,
    }
}

fn missing(root: &Path, name: &str, path: &str, wanted: &str) -> Option<String> {
    match fs::read_to_string(root.join(path)) {
        Err(_) => Some(format!("{DOCUMENT}: {name}: there is no {path}")),
        Ok(text) if text.contains(wanted) => None,
        Ok(_) => Some(format!("{DOCUMENT}: {name}: {path} has no {wanted}")),
    }
}

/// What is between brackets, in pieces, as in `(S9)` or `(C2, KIP-98)`.
fn bracketed(comment: &str) -> impl Iterator<Item = &str> {
    let groups = comment.split('(').skip(1).filter_map(|rest| rest.split_once(')'));
    groups.flat_map(|(group, _)| group.split(", "))
}

/// The names in brackets.
fn names_in(comment: &str) -> impl Iterator<Item = &str> {
    bracketed(comment).filter(|piece| is_name(piece))
}

/// Ranges in brackets, as in `(S1 to S8)`: names are given up, and a range would still seem to be whole.
fn ranges_in(comment: &str) -> impl Iterator<Item = &str> {
    bracketed(comment).filter(|piece| {
        piece.split_once(" to ").is_some_and(|(first, last)| is_name(first) && is_name(last))
    })
}

/// The name with which the text of an assertion begins: the literal that ends the call, or the line.
fn said(code: &str) -> Option<&str> {
    let code = code.trim_end().trim_end_matches([';', ',', ')']);
    let literal = code.strip_suffix('"')?.rsplit('"').next()?;
    literal.split(|c: char| !c.is_ascii_alphanumeric()).next().filter(|word| is_name(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_comments_and_places_in_rows() {
        let found: Vec<_> = names_in(" final (S9), twice (C2, C12); (KIP-98), (the S1)").collect();
        assert_eq!(found, ["S9", "C2", "C12"]);
        assert_eq!(names_in("(S9, KIP-98)").collect::<Vec<_>>(), ["S9"]);
        assert_eq!(ranges_in(" all (S1 to S8, S9)").collect::<Vec<_>>(), ["S1 to S8"]);
        assert_eq!(said("        assert!(a <= b, \"S8\");"), Some("S8"));
        assert_eq!(said("            \"S8: it rises\""), Some("S8"));
        assert_eq!(said("finding(\"cs6-1\", \"S0\", &rows);"), None);
        assert_eq!(said("    \"cs6-1 S0\","), None);
        let row = "| S9 | Text. | `a/b.rs` `f` | `c.rs` `g` |";
        assert_eq!(row_name(row), Some("S9"));
        assert_eq!(places(row), [Some(("a/b.rs", "f")), Some(("c.rs", "g"))]);
        assert_eq!(row_name("| name | what |"), None);
    }

    #[test]
    fn what_is_not_listed_or_not_there_is_told() {
        let names = BTreeSet::from(["S9".to_owned()]);
        let list = List { names, findings: Vec::new() };
        assert_eq!(list.unknown("f.rs", "// one (S9)\nlet x = \"(S8)\";\n").len(), 0);
        assert_eq!(list.unknown("f.rs", "assert!(x, \"S8\");\n").len(), 1);
        assert_eq!(list.unknown("f.rs", "// (S9 to S9)\n").len(), 1);
        assert_eq!(list.unknown("f.rs", "/// other (S8, S9)\n").len(), 1);
        let root = crate::tidy::root().unwrap();
        assert!(missing(&root, "S9", DOCUMENT, "no such words in it, surely").is_some());
        assert!(missing(&root, "S9", "no/such/file.rs", "x").is_some());
    }
}
