//! What a round of each row does, and the figures that come out.

use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use peer::procfs;

use super::super::figures::Figures;
use super::rows::Work;
use super::stand::{Programs, Stand};

/// Seconds of a round, and of a quick one.
const SECONDS: (f64, f64) = (10.0, 1.5);
/// Looks of the console, every 15 seconds, of which the cost is measured; and in a quick round.
const LOOKS: (u32, u32) = (4, 1);
/// Instances of a group, partitions of their topic, and for how long they are watched at rest; in a quick round.
const EACH: u32 = 25;
const PARTITIONS: &str = "50";
const RESTING: (Duration, Duration) = (Duration::from_secs(15), Duration::from_secs(3));
/// How long memory may take to come back: the gateway gives it back some seconds behind the last instance.
const SETTLING: Duration = Duration::from_secs(8);
/// A quick round has so many times fewer subscribers, topics, groups.
const QUICK: u32 = 10;

/// Runs a round; `quick`, or one that does not count: with a part of the volume.
pub fn round(programs: &Programs, work: Work, quick: bool) -> Result<Figures> {
    let stand = Stand::start(programs)?;
    let seconds = if quick { SECONDS.1 } else { SECONDS.0 }.to_string();
    let of_many = |count: u32| (if quick { count / QUICK } else { count }).to_string();
    match work {
        Work::Post { connections } => post(&stand, connections, &seconds),
        Work::Batch => batch(&stand, &seconds),
        Work::Idle { subscribers } => idle(&stand, &of_many(subscribers)),
        Work::Push { subscribers, rate } => push(&stand, (subscribers, rate), &seconds),
        Work::FanOut { subscribers } => {
            stand.load(&["fan-out", "--subscribers", &of_many(subscribers)]).map(|(line, _)| line)
        }
        Work::Instances { groups } => instances(&stand, &of_many(groups), quick),
        Work::Proxy { rate } => proxy(&stand, rate, &seconds),
        Work::Console => console(&stand, quick),
    }
}

fn figure(figures: &Figures, name: &str) -> Result<f64> {
    figures.get(name).copied().with_context(|| format!("the load tells no {name}"))
}

fn post(stand: &Stand<'_>, connections: u32, seconds: &str) -> Result<Figures> {
    let connections = connections.to_string();
    let arguments =
        ["--partitions", "4", "--seconds", seconds, "post", "--connections", &connections];
    let (mut figures, cpu) = stand.load(&arguments)?;
    let records = figure(&figures, "all_records")?;
    figures.insert("gateway_us".to_owned(), cpu.gateway_s * 1e6 / records);
    figures.insert("broker_us".to_owned(), cpu.broker_s * 1e6 / records);
    Ok(figures)
}

fn batch(stand: &Stand<'_>, seconds: &str) -> Result<Figures> {
    let common = ["--partitions", "4", "--seconds", seconds, "--topic"];
    let over_http = [&common[..], &["http", "post", "--connections", "4", "--records", "100"]];
    let (mut figures, http) = stand.load(&over_http.concat())?;
    let http_us = (http.gateway_s + http.broker_s) * 1e6 / figure(&figures, "all_records")?;
    let (native, cpu) = stand.load(&[&common[..], &["native", "native"]].concat())?;
    let native_us = (cpu.client_s + cpu.broker_s) * 1e6 / figure(&native, "all_records")?;
    figures.insert("http_us".to_owned(), http_us);
    figures.insert("native_us".to_owned(), native_us);
    figures.insert("times_native".to_owned(), http_us / native_us);
    Ok(figures)
}

fn idle(stand: &Stand<'_>, subscribers: &str) -> Result<Figures> {
    stand.load(&["fan-out", "--subscribers", "1", "--records", "1"])?;
    let pid = stand.gateway.pid();
    let (before, kernel_before) = (procfs::resident_mib(pid)?, procfs::kernel_mib()?);
    let (held, _) = stand.hold(&["idle", "--subscribers", subscribers])?;
    let (after, kernel_after) = (procfs::resident_mib(pid)?, procfs::kernel_mib()?);
    held.let_go()?;
    let each_kib = |before: f64, after: f64| -> Result<f64> {
        Ok((after - before) * 1024.0 / subscribers.parse::<f64>()?)
    };
    Ok(Figures::from([
        ("each_kib".to_owned(), each_kib(before, after)?),
        ("kernel_kib".to_owned(), each_kib(kernel_before, kernel_after)?),
    ]))
}

fn push(stand: &Stand<'_>, (subscribers, rate): (u32, u32), seconds: &str) -> Result<Figures> {
    let (subscribers, rate) = (subscribers.to_string(), rate.to_string());
    let arguments = ["--seconds", seconds, "--rate", &rate, "push", "--subscribers", &subscribers];
    let (mut figures, cpu) = stand.load(&arguments)?;
    let deliveries = figure(&figures, "deliveries")?;
    figures.insert("delivery_us".to_owned(), cpu.gateway_s * 1e6 / deliveries);
    let wrong = figure(&figures, "lost")? + figure(&figures, "gaps")?;
    *figures.entry("missing".to_owned()).or_default() += wrong;
    Ok(figures)
}

/// Instances with a partition each, and behind their end as many that are members of their groups.
fn instances(stand: &Stand<'_>, groups: &str, quick: bool) -> Result<Figures> {
    stand.load(&["fan-out", "--subscribers", "1", "--records", "1"])?;
    let assigned = held_instances(stand, groups, quick, false)?;
    let members = held_instances(stand, groups, quick, true)?;
    let mut figures = assigned;
    figures.extend(members.into_iter().map(|(name, value)| (format!("group_{name}"), value)));
    figures.insert("still_there".to_owned(), stand.gateway_count("highwater_gateway_instances")?);
    Ok(figures)
}

fn held_instances(
    stand: &Stand<'_>,
    groups: &str,
    quick: bool,
    subscribe: bool,
) -> Result<Figures> {
    let each = EACH.to_string();
    let topic = if subscribe { "shared" } else { "assigned" };
    let common = ["--partitions", PARTITIONS, "--topic", topic];
    let mut arguments = [&common[..], &["instances", "--groups", groups, "--each", &each]].concat();
    arguments.extend(subscribe.then_some("--subscribe"));
    let (gateway, broker) = (stand.gateway.pid(), stand.broker.pid());
    let cpu = || -> Result<[f64; 2]> { Ok([procfs::cpu_s(gateway)?, procfs::cpu_s(broker)?]) };
    let before_mib = procfs::resident_mib(gateway)?;
    let (held, mut figures) = stand.hold(&arguments)?;
    let resting = if quick { RESTING.1 } else { RESTING.0 };
    let before = cpu()?;
    thread::sleep(resting);
    let after = cpu()?;
    let held_mib = procfs::resident_mib(gateway)?;
    figures.extend(held.let_go()?);
    thread::sleep(SETTLING);
    let left_mib = procfs::resident_mib(gateway)?;
    let count = groups.parse::<f64>()? * f64::from(EACH);
    let share = |of: usize| (after[of] - before[of]) / resting.as_secs_f64();
    figures.extend([
        ("each_kib".to_owned(), (held_mib - before_mib) * 1024.0 / count),
        ("left_kib".to_owned(), (left_mib - before_mib) * 1024.0 / count),
        ("gateway_share".to_owned(), share(0)),
        ("broker_share".to_owned(), share(1)),
    ]);
    Ok(figures)
}

fn proxy(stand: &Stand<'_>, rate: u32, seconds: &str) -> Result<Figures> {
    let rate_text = rate.to_string();
    let common =
        ["--seconds", seconds, "--bytes", "1024", "--rate", &rate_text, "--partitions", "3"];
    let (direct, _) = stand.load(&[&common[..], &["--topic", "direct", "pair"]].concat())?;
    let front = stand.proxy()?;
    let proxied = [&common[..], &["--topic", "proxied", "pair"]].concat();
    let (proxied, _) = stand.load_at(front.address(), &proxied)?;
    let proxy_s = procfs::cpu_s(front.pid())?;
    front.stop()?;
    let added =
        |name: &str| -> Result<f64> { Ok(figure(&proxied, name)? - figure(&direct, name)?) };
    let per_s = figure(&proxied, "records_per_s")?;
    let mut figures = Figures::from([
        ("p50_added_ms".to_owned(), added("p50_ms")?),
        ("p99_added_ms".to_owned(), added("p99_ms")?),
        ("e2e_p50_added_ms".to_owned(), added("e2e_p50_ms")?),
        ("direct_share".to_owned(), per_s / figure(&direct, "records_per_s")?),
        // What is produced is read as well: the proxy carries each byte twice.
        ("proxy_s_per_gb".to_owned(), proxy_s * 1e9 / (2.0 * figure(&proxied, "all_bytes")?)),
        ("lost".to_owned(), figure(&proxied, "lost")?),
    ]);
    if rate > 0 {
        figures.insert("kept_share".to_owned(), per_s / f64::from(rate));
    }
    Ok(figures)
}

/// Memory is what the gateway has more than before its first request, at the most and at the end. The histories of groups
/// have their whole size from the first look on. Of the ends of logs there are two looks: in logs that grow a partition
/// takes more with each of the next 62 looks, which a round does not wait for (`console` has a test of what it is then).
fn console(stand: &Stand<'_>, quick: bool) -> Result<Figures> {
    let part = if quick { QUICK } else { 1 };
    let (topics, groups) = ((10_000 / part).to_string(), (1000 / part).to_string());
    let made = ["--topics", &topics, "--groups", &groups];
    stand.load(&[&["fill"], &made[..]].concat())?;
    let pid = stand.gateway.pid();
    let before_mib = procfs::resident_mib(pid)?;
    procfs::forget_peak(pid)?;
    let (mut figures, _) = stand.load(&[&["pages"], &made[..]].concat())?;
    let slowest = slowest_page(&figures)?;
    eprintln!("  the slowest page: {} after {:.1} ms", slowest.0, slowest.1);
    // From the end of one look to the end of another.
    stand.load(&["watch", "--looks", "1"])?;
    let looks = if quick { LOOKS.1 } else { LOOKS.0 };
    let (watched, cpu) = stand.load(&["watch", "--looks", &looks.to_string()])?;
    figures.insert("collecting_share".to_owned(), cpu.gateway_s / figure(&watched, "seconds")?);
    figures.insert("broker_share".to_owned(), cpu.broker_s / figure(&watched, "seconds")?);
    figures.insert("look_ms".to_owned(), figure(&watched, "look_ms")?);
    figures.insert("memory_mib".to_owned(), procfs::resident_mib(pid)? - before_mib);
    figures.insert("peak_mib".to_owned(), procfs::peak_resident_mib(pid)? - before_mib);
    Ok(figures)
}

/// The page that takes longest, and its milliseconds.
fn slowest_page(figures: &Figures) -> Result<(&str, f64)> {
    let pages = figures.iter().filter_map(|(name, ms)| Some((name.strip_suffix("_ms")?, *ms)));
    let pages = pages.filter(|(name, _)| *name != "page");
    pages.max_by(|a, b| a.1.total_cmp(&b.1)).context("the load tells of no page")
}
