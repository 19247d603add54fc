//! The first screen as plain text, for the end of a run.

use crate::number;
use crate::overview::{BarGroup, Overview};
use crate::run::Run;
use crate::summary;

/// Losses that are listed.
const LOSSES_SHOWN: usize = 4;

/// The finding, the figures, the losses, the warnings: lines, each with its end.
pub(crate) fn text(run: &Run, overview: &Overview) -> String {
    let mut lines = vec![overview.finding.clone()];
    for class in &overview.classes {
        lines.push(String::new());
        lines.push(format!("{} (means of {} configurations)", class.title, class.cells));
        lines.extend(class.bars.iter().map(|group| bars(group, overview)));
    }
    if let Some(gaps) = &overview.failover {
        lines.push(String::new());
        lines.push(format!("A broker is killed ({} kills)", number::fixed(gaps.kills, 0)));
        for (name, values) in [("median", &gaps.median_ms), ("worst", &gaps.worst_ms)] {
            let values = values.iter().map(|ms| number::duration(*ms));
            lines.push(line(&format!("without acknowledgement, {name}"), overview, values));
        }
    }
    if overview.is_compared {
        lines.push(String::new());
        lines.push(overview.losses_title());
        for loss in overview.losses.iter().take(LOSSES_SHOWN) {
            let (factor, certainty) = (loss.factor(), loss.certainty());
            lines.push(format!("  {factor}: {}, {}; {certainty}", loss.experiment, loss.cell));
        }
        if overview.losses.is_empty() {
            lines.push("  no compared figure".to_owned());
        }
    }
    let warnings = summary::banners(run);
    if !warnings.is_empty() {
        lines.push(String::new());
        lines.extend(warnings.iter().map(|warning| format!("warning: {warning}")));
    }
    lines.iter().map(|line| format!("{}\n", line.trim_end())).collect()
}

fn bars(group: &BarGroup, overview: &Overview) -> String {
    let values = group.values.iter().map(|value| number::short(*value));
    let text = line(&format!("{}, {}", group.name, group.unit), overview, values);
    match group.ratio() {
        Some(ratio) => format!("{text}  {}×", number::ratio(ratio)),
        None => text,
    }
}

fn line(name: &str, overview: &Overview, values: impl Iterator<Item = String>) -> String {
    let named = overview.targets.iter().zip(values);
    let named: Vec<String> =
        named.map(|(target, value)| format!("{} {value:<12}", target.name)).collect();
    format!("  {name:<34}  {}", named.join("  "))
}
