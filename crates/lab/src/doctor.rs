//! What about a machine would spoil figures that are measured on it: a line for each thing that was looked at. The looking itself
//! is in `machine`.

use std::fmt;

use experiment::environment::Environment;

/// A load average above this share of the cores is somebody else's work.
const LOAD_SHARE_MAX: f64 = 0.25;
/// How much longer than at the median a sync may take at the 99th percentile.
const SYNC_RATIO_MAX: f64 = 20.0;
/// File systems in memory: a sync costs nothing there.
const IN_MEMORY: [&str; 2] = ["tmpfs", "ramfs"];

/// What was found of one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// What was looked at.
    pub subject: &'static str,
    /// What it is.
    pub found: String,
    /// What it spoils and what to do; `None` if it is well.
    pub advice: Option<&'static str>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = if self.advice.is_some() { "warn" } else { "ok" };
        write!(f, "{word:<5} {}: {}", self.subject, self.found)?;
        self.advice.map_or(Ok(()), |advice| write!(f, ": {advice}"))
    }
}

/// Judges what is known of a machine; what is not known is not judged.
pub fn verdicts(seen: &Environment) -> Vec<Verdict> {
    let text = |key: &str| seen.get(key).filter(|value| !value.is_empty());
    let number = |key: &str| text(key)?.split_whitespace().next()?.parse::<f64>().ok();
    let mut all = Vec::new();
    let mut judge = |subject, found: String, is_well: bool, advice| {
        all.push(Verdict { subject, found, advice: (!is_well).then_some(advice) });
    };
    if let Some(program) = text("program") {
        let is_well = !program.contains("debug build");
        judge("program", program.to_owned(), is_well, "measure with `cargo build --release`");
    }
    if let Some(governor) = text("cpu.governor") {
        let advice = "the clock follows the load; set it to performance (cpupower frequency-set -g performance)";
        judge("cpu governor", governor.to_owned(), governor == "performance", advice);
    }
    if let (Some(load), Some(cores)) = (number("load.average"), number("cpu.cores")) {
        let advice = "something else runs here; stop it, or wait until it is done";
        judge("load", format!("{load} on {cores} cores"), load <= cores * LOAD_SHARE_MAX, advice);
    }
    if let Some(kind) = text("disk.file_system") {
        let advice =
            "temporary data lies in memory, where a sync costs nothing; set TMPDIR to a disk";
        judge("disk", kind.to_owned(), !IN_MEMORY.contains(&kind), advice);
    }
    if let (Some(p50), Some(p99)) = (number("probe.sync_4k_p50_ms"), number("probe.sync_4k_p99_ms"))
    {
        let advice = "others use the device, or it stalls; figures with acks=all will differ from run to run";
        let is_well = p99 <= p50 * SYNC_RATIO_MAX;
        judge("sync of 4 KiB", format!("p50 {p50} ms, p99 {p99} ms"), is_well, advice);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(pairs: &[(&str, &str)]) -> Vec<String> {
        let mut environment = Environment::new();
        pairs.iter().for_each(|(key, value)| environment.set(*key, value));
        verdicts(&environment).iter().map(Verdict::to_string).collect()
    }

    #[test]
    fn a_quiet_machine_is_well() {
        let lines = seen(&[
            ("program", "highwater 0.1.0 abc release build"),
            ("cpu.governor", "performance"),
            ("cpu.cores", "4"),
            ("load.average", "0.42 0.3 0.2 1/99 7"),
            ("disk.file_system", "ext4"),
            ("probe.sync_4k_p50_ms", "0.150"),
            ("probe.sync_4k_p99_ms", "0.400"),
        ]);
        assert_eq!(lines.len(), 5);
        assert!(lines.iter().all(|line| line.starts_with("ok ")), "{lines:#?}");
    }

    #[test]
    fn what_spoils_figures_is_told() {
        let lines = seen(&[
            ("program", "highwater 0.1.0 abc debug build"),
            ("cpu.governor", "powersave"),
            ("cpu.cores", "4"),
            ("load.average", "3.10 0.3 0.2 1/99 7"),
            ("disk.file_system", "tmpfs"),
            ("probe.sync_4k_p50_ms", "0.150"),
            ("probe.sync_4k_p99_ms", "40"),
        ]);
        assert_eq!(lines.len(), 5);
        assert!(lines.iter().all(|line| line.starts_with("warn ")), "{lines:#?}");
        assert_eq!(
            lines[2],
            "warn  load: 3.1 on 4 cores: something else runs here; stop it, or wait until it is done"
        );
    }

    #[test]
    fn what_is_not_known_is_not_judged() {
        assert_eq!(seen(&[("cpu.governor", ""), ("load.average", "0.1")]), [""; 0]);
    }
}
