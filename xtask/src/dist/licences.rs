//! Licences of the linked crates, as one text: each licence once, behind the names of the crates that have it.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use anyhow::{Context, Result, bail};

use super::crates::LinkedCrate;

/// Beginnings of the names of files with licences and notices, in lower case.
const NAMES: [&str; 5] = ["license", "licence", "copying", "notice", "unlicense"];

/// The text of THIRD-PARTY-LICENSES.txt.
///
/// # Errors
/// A crate declares no licence and has no file with one.
pub(super) fn notices(crates: &[LinkedCrate]) -> Result<String> {
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut out = String::from("Crates that are linked into this program, and their licences.\n\n");
    for it in crates {
        let found = licence_texts(it)?;
        let declared = it.licence.as_deref().unwrap_or("see its licence below");
        if it.licence.is_none() && found.is_empty() {
            bail!("crate {} {} declares no licence and has no file with one", it.name, it.version);
        }
        writeln!(out, "{} {}: {declared}", it.name, it.version)?;
        for text in found {
            texts.entry(text).or_default().push(format!("{} {}", it.name, it.version));
        }
    }
    let mut texts: Vec<(String, Vec<String>)> = texts.into_iter().collect();
    texts.sort_by(|one, other| one.1.cmp(&other.1).then_with(|| one.0.cmp(&other.0)));
    for (text, names) in texts {
        write!(out, "\n{}\n{}\n\n{}\n", "-".repeat(79), names.join(", "), text)?;
    }
    Ok(out)
}

/// The texts of a crate's licences, sorted by the names of their files.
fn licence_texts(it: &LinkedCrate) -> Result<Vec<String>> {
    let entries =
        fs::read_dir(&it.folder).with_context(|| format!("cannot read {}", it.folder.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
        if path.is_file() && NAMES.iter().any(|begin| name.starts_with(begin)) {
            files.push(path);
        }
    }
    files.sort();
    let read = |path: &std::path::PathBuf| -> Result<String> {
        let bytes = fs::read(path).with_context(|| path.display().to_string())?;
        Ok(String::from_utf8_lossy(&bytes).replace("\r\n", "\n").trim_end().to_owned())
    };
    files.iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked(name: &str, licence: Option<&str>, folder: &std::path::Path) -> LinkedCrate {
        LinkedCrate {
            name: name.to_owned(),
            version: "1.2.3".to_owned(),
            licence: licence.map(str::to_owned),
            repository: None,
            folder: folder.to_owned(),
        }
    }

    #[test]
    fn one_text_stands_once_behind_all_crates_that_have_it() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        fs::write(one.path().join("LICENSE-MIT"), "Permission is granted.\r\n").unwrap();
        fs::write(two.path().join("license.txt"), "Permission is granted.\n\n").unwrap();
        fs::write(two.path().join("lib.rs"), "no licence").unwrap();
        let crates = [
            linked("alpha", Some("MIT"), one.path()),
            linked("beta", Some("MIT OR Apache-2.0"), two.path()),
        ];
        let text = notices(&crates).unwrap();
        assert_eq!(text.matches("Permission is granted.").count(), 1);
        assert!(text.contains("alpha 1.2.3, beta 1.2.3\n\nPermission"), "{text}");
        assert!(text.contains("beta 1.2.3: MIT OR Apache-2.0"), "{text}");
    }

    #[test]
    fn a_crate_without_any_licence_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let cause = notices(&[linked("gamma", None, folder.path())]).unwrap_err().to_string();
        assert!(cause.contains("gamma 1.2.3 declares no licence"), "{cause}");
    }
}
