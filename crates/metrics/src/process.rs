//! What the operating system says of this process, read from `/proc`.

use std::{fmt, fs};

use rustix::process::{Resource, getrlimit};

use crate::families::Families;

/// This process at one moment.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Process {
    pub(crate) cpu_seconds: f64,
    pub(crate) resident_bytes: u64,
    pub(crate) virtual_bytes: u64,
    pub(crate) threads: u64,
    pub(crate) open_files: usize,
    /// `u64::MAX`: no limit.
    pub(crate) open_files_max: u64,
    /// Seconds since 1970.
    pub(crate) started_s: f64,
}

impl Process {
    /// `None` on a system without `/proc`.
    pub(crate) fn now() -> Option<Process> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let boot = fs::read_to_string("/proc/stat").ok()?;
        let boot = boot.lines().find_map(|line| line.strip_prefix("btime "))?;
        let open_files = fs::read_dir("/proc/self/fd").ok()?.count();
        let process = Process::parse(&stat, boot.trim().parse().ok()?)?;
        let open_files_max = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        Some(Process { open_files, open_files_max, ..process })
    }

    /// Reads a line of `/proc/PID/stat`, whose second field, the name, may hold blanks.
    fn parse(stat: &str, boot_s: f64) -> Option<Process> {
        let (_, rest) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = rest.split_whitespace().collect();
        // proc(5) counts from 1 and from the process id: the first one here is field 3.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        let ticks_per_s = rustix::param::clock_ticks_per_second() as f64;
        Some(Process {
            cpu_seconds: (field(14)? + field(15)?) as f64 / ticks_per_s,
            threads: field(20)?,
            started_s: boot_s + field(22)? as f64 / ticks_per_s,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * rustix::param::page_size() as u64,
            open_files: 0,
            open_files_max: 0,
        })
    }
}

/// The version that runs, and its process.
///
/// # Errors
/// The text takes no more.
pub fn write_with_version(families: &mut Families<'_>, version: &str) -> fmt::Result {
    families.gauges("highwater_build_info", "The version that runs", |row| {
        row(&[("version", version)], 1.0)
    })?;
    write(families)
}

/// Processor time, memory and files of this process, under the names that every client library of Prometheus
/// uses; nothing on a system without `/proc`.
///
/// # Errors
/// The text takes no more.
pub fn write(families: &mut Families<'_>) -> fmt::Result {
    let Some(process) = Process::now() else { return Ok(()) };
    families.counter_seconds(
        "process_cpu_seconds",
        "Processor time of this process",
        process.cpu_seconds,
    )?;
    for (name, help, value) in [
        ("process_resident_memory_bytes", "Memory in use", process.resident_bytes as f64),
        ("process_virtual_memory_bytes", "Address space in use", process.virtual_bytes as f64),
        ("process_open_fds", "Open files and connections", process.open_files as f64),
        ("process_max_fds", "Files that may be open", process.open_files_max as f64),
        ("process_threads", "Threads of this process", process.threads as f64),
        ("process_start_time_seconds", "When this process began, since 1970", process.started_s),
    ] {
        families.gauge(name, help, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_blanks_and_brackets_shifts_nothing() {
        let stat = "77 (a ) b) S 1 2 3 4 5 6 7 8 9 10 300 200 13 14 15 16 9 18 1000 4096 5 20";
        let process = Process::parse(stat, 0.0).unwrap();
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        assert_eq!(process.cpu_seconds, 500.0 / ticks);
        assert_eq!((process.threads, process.virtual_bytes), (9, 4096));
        assert_eq!(process.started_s, 1000.0 / ticks);
        assert_eq!(Process::parse("77 (a) S 1", 0.0), None);
    }

    #[test]
    fn this_process_uses_memory_and_has_files_open() {
        let process = Process::now().expect("Linux has /proc");
        assert!(process.resident_bytes > 0 && process.open_files > 0 && process.threads >= 1);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let age_s = now.as_secs_f64() - process.started_s;
        assert!((-2.0..86_400.0).contains(&age_s), "{age_s}");
    }
}
