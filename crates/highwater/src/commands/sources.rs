//! Gathers the values of a broker from the file, the environment and the flags that were typed.

use std::path::Path;

use configuration::{Configuration, InvalidConfiguration, Loaded, Sources};

use super::container;
use crate::arguments::ConfigSources;
use crate::failure::Failure;

/// Reads all sources and checks every value.
pub fn load(typed: &ConfigSources) -> Result<Loaded, Failure> {
    Ok(Configuration::load_all(&gather(typed)?, typed.strict))
}

/// Everything that keeps a broker from starting with these values.
pub fn unusable(invalid: &InvalidConfiguration, file: Option<&Path>) -> Failure {
    let file = file.map(|file| format!(" {}", file.display())).unwrap_or_default();
    Failure::new("the configuration cannot be used").detail(invalid).hint(format!(
        "change or remove these keys; `highwater config explain{file} --changed` shows all that \
         are set, with what becomes of them"
    ))
}

fn gather(typed: &ConfigSources) -> Result<Sources, Failure> {
    let mut sources = Sources::new().environment(std::env::vars_os());
    let mounted = match &typed.container {
        Some(folder) => container::mounted_file(folder)?,
        None => None,
    };
    if let Some(path) = mounted {
        let bytes = std::fs::read(&path).map_err(|error| container::unreadable(&path, &error))?;
        sources = sources.file(&path.display().to_string(), &bytes);
    }
    if let Some(path) = &typed.file {
        let name = path.display().to_string();
        let unreadable = || Failure::new(format!("cannot read the configuration file {name}"));
        let bytes = std::fs::read(path).map_err(|error| unreadable().detail(error))?;
        sources = sources.file(&name, &bytes);
    }
    for pair in &typed.sets {
        sources = sources.set(&pair.key, &pair.value);
    }
    if let Some(dir) = &typed.data_dir {
        sources = match dir.to_str() {
            Some(dir) => sources.flag("--data-dir", "log.dirs", dir),
            None => sources.flag_is_not_text("--data-dir", "log.dirs"),
        };
    }
    Ok(if typed.container.is_some() { container::with_defaults(sources) } else { sources })
}
