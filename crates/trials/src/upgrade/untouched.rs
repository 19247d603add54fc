//! Content of a data folder as a value, to prove that a program that refuses the folder changes nothing in it.

use std::collections::BTreeMap;
use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};

/// Files and folders below a folder, by path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderContent(BTreeMap<PathBuf, Item>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Folder,
    File { size_bytes: usize, hash: u64, modified: SystemTime },
}

impl FolderContent {
    /// Reads every file of `folder`.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn read(folder: &Path) -> Result<FolderContent> {
        let mut items = BTreeMap::new();
        collect(folder, &mut items)
            .with_context(|| format!("cannot read the folder {}", folder.display()))?;
        Ok(FolderContent(items))
    }

    /// Checks that `folder` is as it was, but for files of the names `except`.
    ///
    /// # Errors
    /// Names the first file that is new, gone or changed.
    pub fn check(&self, folder: &Path, except: &[&str]) -> Result<()> {
        let FolderContent(now) = FolderContent::read(folder)?;
        let counts = |path: &Path| !except.iter().any(|name| path.ends_with(name));
        for (path, item) in self.0.iter().filter(|(path, _)| counts(path)) {
            match now.get(path) {
                None => bail!("{} is gone", path.display()),
                Some(found) if found != item => bail!("{} has changed", path.display()),
                Some(_) => {}
            }
        }
        match now.keys().find(|path| counts(path) && !self.0.contains_key(*path)) {
            Some(path) => bail!("{} is new", path.display()),
            None => Ok(()),
        }
    }
}

fn collect(folder: &Path, items: &mut BTreeMap<PathBuf, Item>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            items.insert(entry.path(), Item::Folder);
            collect(&entry.path(), items)?;
            continue;
        }
        let content = fs::read(entry.path())?;
        let mut hasher = DefaultHasher::new();
        content.hash(&mut hasher);
        let (size_bytes, modified) = (content.len(), entry.metadata()?.modified()?);
        items.insert(entry.path(), Item::File { size_bytes, hash: hasher.finish(), modified });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("a")).unwrap();
        fs::write(path("a/x"), "1").unwrap();
        let before = FolderContent::read(folder.path()).unwrap();
        before.check(folder.path(), &[]).unwrap();
        let found = || before.check(folder.path(), &[]).unwrap_err().to_string();
        fs::write(path("b"), "").unwrap();
        assert!(found().ends_with("b is new"));
        before.check(folder.path(), &["b"]).unwrap();
        fs::write(path("a/x"), "2").unwrap();
        assert!(found().ends_with("x has changed"));
        fs::remove_file(path("a/x")).unwrap();
        assert!(found().ends_with("x is gone"));
    }
}
