//! One partition has no leader: readers that start meanwhile read the others.

use super::replication::described;
use super::*;

/// Appends one record to a partition.
fn append(bootstrap: &str, partition: usize, value: &str) {
    let mut command = Command::new(HIGHWATER);
    command.args(["produce", "thirds", "-b", bootstrap, "--partition", &partition.to_string()]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(format!("{value}\n").as_bytes()).unwrap();
    assert!(child.wait().unwrap().success(), "{value}");
}

/// Values that `consume` prints.
fn values(text: &str) -> Vec<&str> {
    let mut values: Vec<&str> = text.lines().collect();
    values.sort_unstable();
    values
}

#[test]
fn a_reader_that_starts_while_a_partition_has_no_leader_reads_the_others() {
    let (_place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    up.run("topic create thirds -p 3 -r 1");
    for partition in 0..3 {
        append(&up.bootstrap, partition, &format!("of {partition}"));
    }
    // The coordinator's topic exists before a broker dies.
    up.run("consume thirds -n 3 --group before");
    let rows = described(&up.bootstrap, "thirds").unwrap();
    let leader = usize::try_from(rows[0].0).unwrap();
    up.brokers[leader - 1].signal(Signal::KILL);
    wait_until("partition 0 has no leader", || {
        described(&up.bootstrap, "thirds").is_some_and(|rows| rows[0].0 < 0)
    });
    let alone = up.run("consume thirds -n 2");
    assert_eq!(values(&alone), ["of 1", "of 2"]);
    let member = up.run("consume thirds -n 2 --group after");
    assert_eq!(values(&member), ["of 1", "of 2"]);
}
