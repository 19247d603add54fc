//! One damage: which file, and what is done to it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Not part of what a broker keeps: taken anew by every start.
const LOCK: &str = ".lock";

/// One damage.
#[derive(Debug, Clone)]
pub struct Harm {
    /// Relative to the data folder.
    file: PathBuf,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// The bit of this number, from the front of the file, is the other one.
    Flip(u64),
    /// Only so many bytes are left.
    Cut(u64),
    /// The file is gone.
    Remove,
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let file = self.file.display();
        match self.kind {
            Kind::Flip(bit) => write!(f, "{file}: bit {} of byte {} flipped", bit % 8, bit / 8),
            Kind::Cut(bytes) => write!(f, "{file}: cut to {bytes} bytes"),
            Kind::Remove => write!(f, "{file}: removed"),
        }
    }
}

impl Harm {
    /// Does it to a copy of the folder.
    pub fn apply(&self, folder: &Path) -> Result<()> {
        let path = folder.join(&self.file);
        match self.kind {
            Kind::Remove => fs::remove_file(&path)?,
            Kind::Cut(bytes) => fs::File::options().write(true).open(&path)?.set_len(bytes)?,
            Kind::Flip(bit) => {
                let mut bytes = fs::read(&path)?;
                *bytes.get_mut((bit / 8) as usize).context("the bit is in the file")? ^=
                    1 << (bit % 8);
                fs::write(&path, bytes)?;
            }
        }
        Ok(())
    }

    /// Whether the first look at it ends with a clean stop.
    pub fn is_odd(&self) -> bool {
        match self.kind {
            Kind::Flip(bit) => bit % 2 == 1,
            Kind::Cut(bytes) => bytes % 2 == 1,
            Kind::Remove => self.file.as_os_str().len() % 2 == 1,
        }
    }

    /// A name for a folder.
    pub fn slug(&self) -> String {
        self.to_string().replace(['/', ' ', ':'], "_")
    }
}

/// The files below `folder`, relative to it, in order.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                folders.push(entry.path());
            } else if entry.file_name() != LOCK {
                found.push(entry.path().strip_prefix(folder)?.to_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Chooses damages, at least one for every file: of each file first its removal, a cut or a flip, by lot; then, while they are
/// fewer than `count`, the rest of the removals and cuts, two fifths of all at most; flips share what is left, a file's part
/// of them growing with the square root of its size, so that small files are well covered.
pub fn choose(
    folder: &Path,
    count: usize,
    only: &str,
    random: &mut fastrand::Rng,
) -> Result<Vec<Harm>> {
    let mut sized = Vec::new();
    for file in files(folder)?.into_iter().filter(|file| file.to_string_lossy().contains(only)) {
        let bytes = fs::metadata(folder.join(&file))?.len();
        sized.push((file, bytes));
    }
    let (mut harms, mut others) = (Vec::new(), Vec::new());
    for (file, bytes) in &sized {
        let mut kinds = vec![Kind::Remove];
        if *bytes > 0 {
            kinds.push(Kind::Cut(random.u64(..*bytes)));
            kinds.push(Kind::Flip(random.u64(..bytes * 8)));
        }
        random.shuffle(&mut kinds);
        let mut of_file = kinds.into_iter().map(|kind| Harm { file: file.clone(), kind });
        harms.extend(of_file.next());
        others.extend(of_file.filter(|harm| !matches!(harm.kind, Kind::Flip(_))));
    }
    random.shuffle(&mut others);
    others.truncate((count * 2 / 5).saturating_sub(harms.len()));
    harms.append(&mut others);
    let weights: Vec<f64> = sized.iter().map(|(_, bytes)| (*bytes as f64).sqrt()).collect();
    let all: f64 = weights.iter().sum();
    while harms.len() < count && all > 0.0 {
        let mut at = random.f64() * all;
        let chosen = weights.iter().position(|weight| {
            at -= weight;
            at < 0.0
        });
        let (file, bytes) = &sized[chosen.unwrap_or(0)];
        if *bytes > 0 {
            let kind = Kind::Flip(random.u64(..bytes * 8));
            harms.push(Harm { file: file.clone(), kind });
        }
    }
    Ok(harms)
}

/// Copies a folder with all that is in it.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), &target)?;
        }
    }
    Ok(())
}
