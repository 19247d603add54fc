//! `cluster regenerate`: two of three voters are lost for good, and the third makes a new quorum.

use std::path::PathBuf;

use super::lost_disks::{Started, copy, take_away, wait_for_all_votes};
use super::replication::{all_acknowledged, kept, produce, wait_for_all_in_sync};
use super::*;

/// The greatest first producer id of a block in the metadata log of a broker's folder.
fn greatest_producer_block(broker: &Broker) -> i64 {
    let folder = Path::new(&broker.folder).join("__cluster_metadata-0");
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let logs = files.filter(|path| path.extension().is_some_and(|it| it == "log"));
    let text: String =
        logs.map(|path| String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()).collect();
    let blocks = text.split(r#""producer-ids-allocated":"#).skip(1);
    let first = |block: &str| -> i64 {
        let (_, number) = block.split_once(r#""first":"#).unwrap();
        let digits: String = number.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap()
    };
    blocks.map(first).max().unwrap()
}

fn regenerate(folder: &str, more: &[&str]) -> Output {
    let mut command = Command::new(HIGHWATER);
    command
        .args(["cluster", "regenerate", folder])
        .args(more)
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

#[test]
fn a_survivor_makes_a_new_quorum_and_refuses_the_old_one() {
    let (place, folder) = place();
    let up = Up::of(&folder, 3, &[]);
    let (addresses, bootstrap) = (up.addresses(), up.bootstrap.clone());
    up.run("topic create kept -p 3 -r 3");
    all_acknowledged(produce(&bootstrap, 0..300));
    wait_for_all_in_sync(&bootstrap, "kept");
    let brokers = up.brokers.clone();
    let third = brokers[2].folder.clone();
    let running = regenerate(&third, &["--yes"]);
    let said = String::from_utf8(running.stderr).unwrap();
    assert!(said.contains("stop the broker first"), "{said}");
    drop(up);
    wait_until("all brokers are dead", || {
        brokers.iter().all(|broker| !procfs::is_running(broker.pid))
    });
    let old: Vec<PathBuf> = (1..=2).map(|id| place.path().join(format!("old {id}"))).collect();
    for (broker, old) in brokers.iter().zip(&old) {
        take_away(&broker.folder, old);
    }

    let shown = regenerate(&third, &[]);
    let text = String::from_utf8(shown.stdout).unwrap();
    assert_eq!(shown.status.code(), Some(1), "{text}");
    assert!(text.contains("kept: the metadata up to entry "), "{text}");
    assert!(text.contains("until 1, 2 have joined"), "{text}");
    let made = regenerate(&third, &["--yes"]);
    assert!(made.status.success(), "{made:?}");
    let start = |number: usize, name: &str| {
        Started::of(&brokers[number - 1].folder, place.path().join(format!("reports {name}")))
    };
    let (third, first, second) = (start(3, "3"), start(1, "1"), start(2, "2"));
    wait_for_all_votes(&addresses);
    wait_for_all_in_sync(&bootstrap, "kept");
    assert_eq!(kept(&bootstrap), (0..300).collect(), "{}", third.said());
    all_acknowledged(produce(&bootstrap, 300..400));
    // The lost majority may have allocated blocks that the survivor does not know.
    assert!(greatest_producer_block(&brokers[2]) > 1 << 48);

    // A voter of the lost quorum comes back with its disk.
    drop(second);
    take_away(&brokers[1].folder, &place.path().join("new 2"));
    copy(&old[1], Path::new(&brokers[1].folder));
    let returned = start(2, "of the old 2");
    returned.wait_for_report("the metadata quorum was regenerated (generation 1");
    third.wait_for_report("the metadata quorum was regenerated (generation 1");
    let rest = format!("{},{}", addresses[0], addresses[2]);
    all_acknowledged(produce(&rest, 400..500));
    drop(returned);
    // It follows the words.
    let metadata = Path::new(&brokers[1].folder).join("__cluster_metadata-0");
    fs::rename(metadata, place.path().join("metadata of the old quorum")).unwrap();
    let second = start(2, "2 without the metadata");
    wait_for_all_votes(&addresses);
    wait_for_all_in_sync(&bootstrap, "kept");
    assert_eq!(kept(&bootstrap), (0..500).collect(), "{}", second.said());
    drop((first, second, third));
}
