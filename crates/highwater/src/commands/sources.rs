//! Gathers the values of a broker from the file, the environment and the flags that were typed.

use configuration::{Configuration, Sources, Warning};

use crate::arguments::ConfigSources;
use crate::failure::Failure;

/// Reads all sources and checks every value on its own.
pub fn load(typed: &ConfigSources) -> Result<(Configuration, Vec<Warning>), Failure> {
    let sources = gather(typed)?;
    Configuration::load(&sources, typed.strict).map_err(|invalid| {
        Failure::new("the configuration cannot be used")
            .detail(invalid)
            .hint("`highwater config explain` lists every key with what it accepts")
    })
}

fn gather(typed: &ConfigSources) -> Result<Sources, Failure> {
    let mut sources = Sources::new().environment(environment());
    if let Some(path) = &typed.file {
        let name = path.display().to_string();
        let unreadable = || Failure::new(format!("cannot read the configuration file {name}"));
        let bytes = std::fs::read(path).map_err(|error| unreadable().detail(error))?;
        sources = sources.file(&name, &bytes).map_err(|error| unreadable().detail(error))?;
    }
    for pair in &typed.sets {
        sources = sources.set(&pair.key, &pair.value);
    }
    if let Some(dir) = &typed.data_dir {
        sources = sources.flag("--data-dir", "log.dirs", &dir.display().to_string());
    }
    Ok(sources)
}

/// Variables that are text; others cannot be values.
fn environment() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}
