//! What the program asks of the operating system before it works.

use std::io;

use rustix::process::{Resource, getrlimit, setrlimit};
#[cfg(target_os = "linux")]
use rustix::process::{Signal, getppid, set_parent_process_death_signal};

/// Raises the number of files that may be open as far as the system lets us: connections and
/// segments of logs are files, and the usual limit of 1,024 is for programs of another kind.
/// Returns the limit that holds now; `None` for no limit.
pub fn raise_open_files_limit() -> Option<u64> {
    let mut limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        limit.current = limit.maximum;
        // A start goes on without the permission: the old limit holds.
        let _ = setrlimit(Resource::Nofile, limit);
    }
    getrlimit(Resource::Nofile).current
}

/// Settings of an allocator, as its environment has them.
pub type AllocatorSettings = &'static [(&'static str, &'static str)];

/// How the system's allocator is to give back what was freed. By default glibc learns from every large buffer that is freed
/// and then keeps up to 64 MiB at the end of each of its arenas: a flood of large requests would stay in memory for good.
/// The last one is a broker's: its threads allocate next to nothing, and those of a gateway for each request.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const ALLOCATOR: [(&str, &str); 3] = [
    ("MALLOC_MMAP_THRESHOLD_", "262144"),
    ("MALLOC_TRIM_THRESHOLD_", "131072"),
    ("MALLOC_ARENA_MAX", "2"),
];

/// `settings`, but nothing where a user has some of their own.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn unless_given(settings: AllocatorSettings) -> AllocatorSettings {
    let given = |key: &str| std::env::var_os(key).is_some();
    match given("GLIBC_TUNABLES") || ALLOCATOR.iter().any(|(key, _)| given(key)) {
        true => &[],
        false => settings,
    }
}

/// What the allocator of a broker is to find in its environment.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn allocator_settings() -> AllocatorSettings {
    unless_given(&ALLOCATOR)
}

/// What that of a gateway alone is to find there.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
pub fn gateway_allocator_settings() -> AllocatorSettings {
    unless_given(ALLOCATOR.split_last().map_or(&[], |(_, thresholds)| thresholds))
}

/// Other allocators have no such habit, or no such settings.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn allocator_settings() -> AllocatorSettings {
    &[]
}

/// Nor here.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn gateway_allocator_settings() -> AllocatorSettings {
    &[]
}

/// Starts this program anew, in the same process, with `settings` in its environment, which is where glibc reads them from,
/// once. Where it cannot be done, or there are none, the program goes on as it is.
pub fn settle_allocator(settings: AllocatorSettings) {
    use std::os::unix::process::CommandExt;

    if settings.is_empty() {
        return;
    }
    let mut arguments = std::env::args_os();
    let (Some(name), Ok(program)) = (arguments.next(), std::env::current_exe()) else { return };
    let mut command = std::process::Command::new(program);
    let cause = command.arg0(name).args(arguments).envs(settings.iter().copied()).exec();
    // Whoever replaced the program while it was starting gets the memory back a little later.
    eprintln!("the allocator keeps its own settings: {cause}");
}

/// Starts this program again, in the same process, without these environment variables, if one of them is set. Processes
/// that this one starts then have none of them either.
///
/// # Errors
/// The program cannot be started again.
pub fn remove_variables(is_removed: impl Fn(&str) -> bool) -> io::Result<()> {
    use std::os::unix::process::CommandExt;

    let names = std::env::vars_os().map(|(name, _)| name);
    let removed: Vec<_> = names.filter(|name| name.to_str().is_some_and(&is_removed)).collect();
    let mut arguments = std::env::args_os();
    let Some(name) = arguments.next().filter(|_| !removed.is_empty()) else { return Ok(()) };
    let mut command = std::process::Command::new(std::env::current_exe()?);
    for name in removed {
        command.env_remove(name);
    }
    Err(command.arg0(name).args(arguments).exec())
}

/// Has the system kill this process as soon as the one with id `parent`, which must have started it, ends.
///
/// # Errors
/// `parent` has ended already.
#[cfg(target_os = "linux")]
pub fn end_with(parent: u32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // A parent that ended before that is not noticed: another process is the parent then.
    match getppid().is_some_and(|pid| u32::try_from(pid.as_raw_nonzero().get()) == Ok(parent)) {
        true => Ok(()),
        false => {
            Err(io::Error::other(format!("process {parent} did not start this one, or has ended")))
        }
    }
}

/// Other systems have nothing of the kind.
#[cfg(not(target_os = "linux"))]
pub fn end_with(_parent: u32) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_files_as_the_system_allows_may_be_open() {
        assert_eq!(raise_open_files_limit(), getrlimit(Resource::Nofile).maximum);
    }
}
