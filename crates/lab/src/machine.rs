//! The machine that is measured on: what a reader has to know to judge a figure.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use experiment::environment::Environment;
use peer::scratch::{Scratch, Whose};

/// Syncs that are timed, and for how long at most.
const SYNCS: usize = 100;
const SYNC_LIMIT: Duration = Duration::from_secs(3);
/// Round trips over loopback that are timed.
const ROUND_TRIPS: usize = 2_000;
/// Bytes sent over loopback for the throughput.
const LOOPBACK_BYTES: usize = 256 << 20;

/// Looks at the machine; probes the disk that temporary data goes to, and loopback.
pub fn look(commit: &str) -> Result<Environment> {
    let mut seen = Environment::default();
    processor(&mut seen);
    memory(&mut seen);
    kernel(&mut seen);
    disk(&mut seen)?;
    network(&mut seen)?;
    pressure(&mut seen);
    seen.set("program", format!("highwater {} {commit} {}", env!("CARGO_PKG_VERSION"), profile()));
    seen.set("java", java());
    Ok(seen)
}

fn profile() -> &'static str {
    if cfg!(debug_assertions) { "debug build" } else { "release build" }
}

fn processor(seen: &mut Environment) {
    let cpuinfo = text("/proc/cpuinfo");
    let field = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name));
        line.and_then(|line| line.split_once(": ")).map(|(_, value)| value.to_owned())
    };
    seen.set("cpu.model", field("model name").unwrap_or_else(|| "unknown".to_owned()));
    seen.set("cpu.cores", thread::available_parallelism().map_or(0, usize::from).to_string());
    seen.set(
        "cpu.threads_per_core",
        sysfs("/sys/devices/system/cpu/smt/active").replace('1', "2").replace('0', "1"),
    );
    seen.set("cpu.governor", sysfs("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"));
    seen.set("now.cpu_mhz", field("cpu MHz").unwrap_or_default());
    seen.set("cpu.cgroup_max", sysfs("/sys/fs/cgroup/cpu.max"));
}

fn memory(seen: &mut Environment) {
    let meminfo = text("/proc/meminfo");
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<f64>().ok());
    seen.set("memory.mib", kib.map_or_else(String::new, |kib| format!("{:.0}", kib / 1024.0)));
    seen.set("memory.cgroup_max", sysfs("/sys/fs/cgroup/memory.max"));
    seen.set("memory.huge_pages", chosen(&sysfs("/sys/kernel/mm/transparent_hugepage/enabled")));
}

fn kernel(seen: &mut Environment) {
    seen.set("kernel", sysfs("/proc/sys/kernel/osrelease"));
    seen.set("clock", sysfs("/sys/devices/system/clocksource/clocksource0/current_clocksource"));
    let mut mitigations = Vec::new();
    for file in
        fs::read_dir("/sys/devices/system/cpu/vulnerabilities").into_iter().flatten().flatten()
    {
        let state = text(&file.path().display().to_string());
        if state.starts_with("Mitigation") {
            mitigations.push(file.file_name().to_string_lossy().into_owned());
        }
    }
    mitigations.sort();
    seen.set("mitigations", mitigations.join(" "));
}

fn disk(seen: &mut Environment) -> Result<()> {
    let folder = Scratch::make(Whose::Ours)?;
    let (device, kind, options) = mount(folder.path()).unwrap_or_default();
    let name = Path::new(&device).file_name().unwrap_or_default().to_string_lossy().into_owned();
    seen.set("disk.device", device);
    seen.set("disk.model", sysfs(&format!("/sys/block/{name}/device/model")));
    seen.set("disk.rotational", sysfs(&format!("/sys/block/{name}/queue/rotational")));
    seen.set("disk.file_system", kind);
    seen.set("disk.mount_options", options);
    let mut syncs = sync_times_ms(folder.path())?;
    syncs.sort_by(f64::total_cmp);
    let at = |share: f64| syncs[((syncs.len() - 1) as f64 * share) as usize];
    seen.set("probe.sync_4k_p50_ms", format!("{:.3}", at(0.5)));
    seen.set("probe.sync_4k_p99_ms", format!("{:.3}", at(0.99)));
    Ok(())
}

/// Milliseconds of appending 4 KiB and `fdatasync`, each.
fn sync_times_ms(folder: &Path) -> Result<Vec<f64>> {
    let mut file = File::create(folder.join("probe"))?;
    let (block, began) = ([7u8; 4096], Instant::now());
    let mut times = Vec::new();
    while times.len() < SYNCS && (times.is_empty() || began.elapsed() < SYNC_LIMIT) {
        let from = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        times.push(from.elapsed().as_secs_f64() * 1e3);
    }
    Ok(times)
}

fn network(seen: &mut Environment) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let mut stream = TcpStream::connect(listener.local_addr()?)?;
    stream.set_nodelay(true)?;
    let (mut other, _) = listener.accept()?;
    other.set_nodelay(true)?;
    let echo = thread::spawn(move || -> std::io::Result<()> {
        let mut byte = [0u8; 1];
        for _ in 0..ROUND_TRIPS {
            other.read_exact(&mut byte)?;
            other.write_all(&byte)?;
        }
        let mut buffer = vec![0u8; 1 << 16];
        while other.read(&mut buffer)? > 0 {}
        Ok(())
    });
    let mut times = Vec::with_capacity(ROUND_TRIPS);
    let mut byte = [1u8; 1];
    for _ in 0..ROUND_TRIPS {
        let from = Instant::now();
        stream.write_all(&byte)?;
        stream.read_exact(&mut byte)?;
        times.push(from.elapsed().as_secs_f64() * 1e6);
    }
    let (buffer, from) = (vec![0u8; 1 << 16], Instant::now());
    for _ in 0..LOOPBACK_BYTES / buffer.len() {
        stream.write_all(&buffer)?;
    }
    drop(stream);
    echo.join().expect("the echoing thread does not panic").context("loopback")?;
    let seconds = from.elapsed().as_secs_f64();
    times.sort_by(f64::total_cmp);
    seen.set("probe.loopback_rtt_us", format!("{:.1}", times[times.len() / 2]));
    seen.set(
        "probe.loopback_mib_per_s",
        format!("{:.0}", LOOPBACK_BYTES as f64 / seconds / 1048576.0),
    );
    Ok(())
}

/// What changes while we look; not part of the hash.
fn pressure(seen: &mut Environment) {
    seen.set("load.average", sysfs("/proc/loadavg"));
    for kind in ["cpu", "io", "memory"] {
        let line = text(&format!("/proc/pressure/{kind}"));
        seen.set(
            format!("load.pressure_{kind}"),
            line.lines().next().unwrap_or_default().to_owned(),
        );
    }
}

fn java() -> String {
    let asked = std::process::Command::new("java").arg("-version").output();
    let said = asked.map(|output| String::from_utf8_lossy(&output.stderr).into_owned());
    said.ok()
        .and_then(|text| text.lines().next().map(str::to_owned))
        .unwrap_or_else(|| "none".to_owned())
}

/// Device, file system and options of the mount that `folder` lies in.
fn mount(folder: &Path) -> Option<(String, String, String)> {
    let mounts = text("/proc/mounts");
    let rows = mounts.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let holding = rows.filter(|row| row.len() > 3 && folder.starts_with(row[1]));
    let row = holding.max_by_key(|row| row[1].len())?;
    Some((row[0].to_owned(), row[2].to_owned(), row[3].to_owned()))
}

/// The word in brackets: `always [madvise] never`.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or_else(|| text.to_owned(), |(word, _)| word.to_owned())
}

fn sysfs(path: &str) -> String {
    text(path).trim().to_owned()
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}
