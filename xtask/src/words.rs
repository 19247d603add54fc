//! Compares the words of the code with `docs/glossary.md`: phrases to avoid are counted in each room, and
//! a room may not have more of them than the document allows.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// The document, from the workspace's root.
pub const GLOSSARY: &str = "docs/glossary.md";

/// What the document says.
pub struct Glossary {
    /// Phrases to avoid, in lower case, each with what to write.
    phrases: Vec<(String, String)>,
    /// Phrases that each room may have.
    allowed: BTreeMap<String, usize>,
}

impl Glossary {
    /// Reads the two tables.
    pub fn parse(text: &str) -> Result<Glossary> {
        let phrases = table(text, "| do not write |")?;
        let phrases = phrases
            .into_iter()
            .map(|(phrase, instead)| (phrase.trim_end_matches('…').to_lowercase(), instead));
        let counts = table(text, "| room |")?.into_iter().map(|(room, count)| {
            let count = count.parse().with_context(|| format!("{GLOSSARY}: {room}: {count}"))?;
            Ok((room, count))
        });
        Ok(Glossary { phrases: phrases.collect(), allowed: counts.collect::<Result<_>>()? })
    }

    /// The places of a file that use a phrase to avoid: line, phrase, what to write.
    fn uses(&self, text: &str) -> Vec<(usize, &str, &str)> {
        let mut found = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for (phrase, instead) in &self.phrases {
                let is_used = line.match_indices(phrase.as_str()).any(|(start, _)| {
                    let before = &line[..start];
                    // "There is no such file" is plain English, and "this" ends like "is".
                    !before.ends_with("there ") && !before.ends_with(|c: char| c.is_alphanumeric())
                });
                if is_used {
                    found.push((at + 1, phrase.trim(), instead.as_str()));
                }
            }
        }
        found
    }

    /// A finding for each room that has more phrases than it may, with all of them.
    pub fn check(&self, files: &[(String, String)]) -> Vec<String> {
        let mut by_room: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for (name, text) in files {
            for (line, phrase, instead) in self.uses(text) {
                let use_ = format!("{name}:{line}: \"{phrase}\": write \"{instead}\"");
                by_room.entry(room(name)).or_default().push(use_);
            }
        }
        let mut findings = Vec::new();
        for (room, uses) in by_room {
            let allowed = self.allowed.get(room).copied().unwrap_or(0);
            if uses.len() > allowed {
                findings.extend(uses.iter().cloned());
                findings.push(format!(
                    "{room}: {} phrases to avoid, {allowed} allowed ({GLOSSARY})",
                    uses.len()
                ));
            }
        }
        findings
    }
}

/// The crate that a file is in.
fn room(name: &str) -> &str {
    name.strip_prefix("crates/").unwrap_or(name).split('/').next().unwrap_or(name)
}

/// The first two cells of each row of the table whose head begins like this.
fn table(text: &str, head: &str) -> Result<Vec<(String, String)>> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with(head));
    lines.next().with_context(|| format!("{GLOSSARY} has no table {head}"))?;
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    let cells = rows.filter_map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned());
        Some((cells.next()?, cells.next()?))
    });
    Ok(cells.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
# Words
| do not write | write |
| --- | --- |
| is no … | invalid … |

| room | phrases |
| --- | --- |
| storage | 1 |
";

    #[test]
    fn a_room_may_have_as_many_phrases_as_the_document_allows() {
        let glossary = Glossary::parse(TEXT).unwrap();
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let one = file("crates/storage/src/a.rs", "// 5 is no length\n// there is no file\n");
        assert!(glossary.check(std::slice::from_ref(&one)).is_empty());
        let more = file("crates/storage/src/b.rs", "\n// It IS NO place, this no more\n");
        let findings = glossary.check(&[one, more]);
        assert_eq!(findings.len(), 3, "{findings:?}");
        assert!(findings[1].starts_with("crates/storage/src/b.rs:2: \"is no\": write \"invalid"));
        assert_eq!(glossary.check(&[file("xtask/src/c.rs", "// x is no y")]).len(), 2);
    }
}
