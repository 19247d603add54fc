//! What the kernel knows about a process and about the machine, from `/proc`. Reads only.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result};

/// Clock ticks of `/proc/PID/stat` a second: fixed in the kernel's interface on all our platforms.
const TICKS_PER_S: f64 = 100.0;

/// CPU seconds, user and system, that a process has used with all its threads, ended ones included.
pub fn cpu_s(pid: u32) -> Result<f64> {
    Ok((stat_field(&pid.to_string(), 14)? + stat_field(&pid.to_string(), 15)?) / TICKS_PER_S)
}

/// CPU seconds of this program's children that have ended: of the generators, not of the brokers.
pub fn ended_children_cpu_s() -> Result<f64> {
    Ok((stat_field("self", 16)? + stat_field("self", 17)?) / TICKS_PER_S)
}

/// CPU seconds of the threads that a process has now, to the nanosecond: for idle processes, whose
/// use the ticks of [`cpu_s`] are too coarse for.
pub fn threads_cpu_s(pid: u32) -> Result<f64> {
    let mut total_ns = 0.0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        let running = text.split_whitespace().next().context("an empty schedstat")?;
        total_ns += running.parse::<f64>()?;
    }
    Ok(total_ns / 1e9)
}

/// How often the threads that a process has now gave up a processor, and how often one was taken from them.
pub fn context_switches(pid: u32) -> Result<f64> {
    let mut total = 0.0;
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = fs::read_to_string(thread?.path().join("status"))?;
        let counts = text.lines().filter_map(|line| line.split_once("_ctxt_switches:"));
        for (_, count) in counts {
            total += count.trim().parse::<f64>()?;
        }
    }
    Ok(total)
}

/// When a process was started, in seconds since 1970; within 10 ms.
pub fn start_unix_s(pid: u32) -> Result<f64> {
    let uptime = fs::read_to_string("/proc/uptime")?;
    let uptime: f64 = uptime.split_whitespace().next().context("an empty uptime")?.parse()?;
    let age = uptime - stat_field(&pid.to_string(), 22)? / TICKS_PER_S;
    Ok(unix_s() - age)
}

/// Now, in seconds since 1970.
pub fn unix_s() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("the clock is past 1970").as_secs_f64()
}

/// Whether a process is there and has not ended.
pub fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !matches!(state_of(&stat), None | Some('Z' | 'X'))
}

/// Whether a process that was sent SIGSTOP runs no code of its own any more: each of its threads is stopped,
/// or in a call to the kernel behind which it will be.
pub fn stands_still(pid: u32) -> Result<bool> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = fs::read_to_string(thread?.path().join("stat"))?;
        if matches!(state_of(&stat), Some('R' | 'S')) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Resident memory of a process, in MiB.
pub fn resident_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(kib_of(&status, "VmRSS:").context("no VmRSS")? / 1024.0)
}

/// Resident memory of a process, in MiB. Pages that several processes share count in parts.
///
/// # Errors
/// The process has ended, or belongs to another user.
pub fn proportional_mib(pid: u32) -> Result<f64> {
    let sums = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    Ok(kib_of(&sums, "Pss:").context("no Pss")? / 1024.0)
}

/// The most memory of a process that has been resident since [`forget_peak`], or since its start, in MiB.
pub fn peak_resident_mib(pid: u32) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(kib_of(&status, "VmHWM:").context("no VmHWM")? / 1024.0)
}

/// Makes the peak of a process's memory what is resident now.
pub fn forget_peak(pid: u32) -> Result<()> {
    const PEAK: &str = "5";
    let file = format!("/proc/{pid}/clear_refs");
    fs::write(&file, PEAK).with_context(|| format!("{file} cannot be written"))
}

/// Memory that the kernel has for itself, sockets' buffers among it, in MiB.
pub fn kernel_mib() -> Result<f64> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let slab = kib_of(&meminfo, "Slab:").context("no Slab")?;
    let sockets = fs::read_to_string("/proc/net/sockstat")?;
    let pages = sockets.split_once(" mem ").and_then(|(_, rest)| {
        rest.split_whitespace().next().and_then(|pages| pages.parse::<f64>().ok())
    });
    // Pages of 4 KiB, as on all machines that this runs on.
    Ok((slab + pages.context("no memory of TCP")? * 4.0) / 1024.0)
}

/// Memory of the machine that is free, in MiB; caches don't count.
pub fn free_mib() -> Result<f64> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    Ok(kib_of(&meminfo, "MemFree:").context("no MemFree")? / 1024.0)
}

/// All memory of the machine, in MiB.
pub fn total_mib() -> Result<f64> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    Ok(kib_of(&meminfo, "MemTotal:").context("no MemTotal")? / 1024.0)
}

/// CPU seconds that all cores have spent working, and that the host has withheld (steal).
pub fn machine_cpu_s() -> Result<(f64, f64)> {
    let stat = fs::read_to_string("/proc/stat")?;
    let line = stat.lines().next().context("an empty /proc/stat")?;
    let ticks: Vec<f64> = line.split_whitespace().skip(1).flat_map(str::parse).collect();
    let at = |index: usize| ticks.get(index).copied().unwrap_or(0.0);
    // user nice system idle iowait irq softirq steal
    let busy = at(0) + at(1) + at(2) + at(5) + at(6);
    Ok((busy / TICKS_PER_S, at(7) / TICKS_PER_S))
}

/// What the first core runs at, in MHz, if the kernel says.
pub fn cpu_mhz() -> Option<f64> {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = cpuinfo.lines().find(|line| line.starts_with("cpu MHz"))?;
    line.split_once(": ")?.1.trim().parse().ok()
}

/// Whether the process itself listens on that TCP port: load must never reach a stranger's broker.
pub fn listens_on(pid: u32, port: u16) -> Result<bool> {
    holds_any(pid, &listening_sockets(port))
}

/// The process that listens on that TCP port of this machine, as far as we may look.
pub fn listener(port: u16) -> Option<u32> {
    // Once: the kernel looks through all places for sockets, which takes it milliseconds.
    let sockets = listening_sockets(port);
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.find(|pid| holds_any(*pid, &sockets).unwrap_or(false))
}

/// Inodes of the sockets of this machine that listen on `port`.
fn listening_sockets(port: u16) -> Vec<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(fs::read_to_string);
    let found = tables.iter().flatten().flat_map(|table| listening_inodes(table, port));
    found.collect()
}

/// Whether a process has one of these sockets open.
fn holds_any(pid: u32, sockets: &[String]) -> Result<bool> {
    if sockets.is_empty() {
        return Ok(false);
    }
    for file in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let Ok(link) = fs::read_link(file?.path()) else { continue };
        if sockets.iter().any(|inode| link.to_string_lossy() == format!("socket:[{inode}]")) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Inodes of listening sockets on `port` in the text of `/proc/net/tcp`.
fn listening_inodes(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let suffix = format!(":{port:04X}");
    let columns = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    columns
        .filter(|row| row.len() > 9 && row[1].ends_with(&suffix) && row[3] == LISTEN)
        .map(|row| row[9].to_owned())
        .collect()
}

/// Field `number` of `/proc/PID/stat`, counted from 1 as in proc(5).
fn stat_field(pid: &str, number: usize) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .with_context(|| format!("process {pid} has gone"))?;
    field_of(&stat, number).with_context(|| format!("field {number} of {stat:?}"))
}

/// The letter for the state in `/proc/PID/stat`.
fn state_of(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

fn field_of(stat: &str, number: usize) -> Option<f64> {
    // The second field, the name, may itself hold spaces and parentheses; the third follows it.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split_whitespace().nth(number - 3)?.parse().ok()
}

fn kib_of(text: &str, name: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_behind_a_name_with_parentheses() {
        let stat = "7 (a) (b) c) S 1 2 3 4 5 6 7 8 9 10 111 222 0 0 20";
        assert_eq!(field_of(stat, 14), Some(111.0));
        assert_eq!(field_of(stat, 15), Some(222.0));
        assert_eq!(state_of(stat), Some('S'));
    }

    #[test]
    fn only_listening_sockets_of_the_port_count() {
        let table = "head\n\
            0: 0100007F:2384 00000000:0000 0A 0:0 0:0 0 0 0 4711 1\n\
            1: 0100007F:2384 0100007F:9999 01 0:0 0:0 0 0 0 4712 1\n\
            2: 0100007F:2385 00000000:0000 0A 0:0 0:0 0 0 0 4713 1\n";
        assert_eq!(listening_inodes(table, 0x2384), vec!["4711"]);
    }

    #[test]
    fn a_peak_is_remembered_until_it_is_forgotten() {
        const BLOCK_BYTES: usize = 64 << 20;
        let pid = std::process::id();
        drop(std::hint::black_box(vec![1_u8; BLOCK_BYTES]));
        let before = peak_resident_mib(pid).unwrap();
        forget_peak(pid).unwrap();
        let after = peak_resident_mib(pid).unwrap();
        // Tests beside this one have some memory, too, but nothing like that.
        assert!(after + 32.0 < before, "{before} MiB before, {after} after");
        assert!(after + 32.0 > resident_mib(pid).unwrap());
    }

    #[test]
    fn a_listener_of_this_process_is_recognised() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(listens_on(std::process::id(), port).unwrap());
        assert!(!listens_on(1, port).unwrap_or(false));
        assert_eq!(listener(port), Some(std::process::id()));
    }
}
