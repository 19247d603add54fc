//! `cluster regenerate`: two of three voters are lost for good, and the third makes a new quorum.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::copies::create_on;
use super::deletion::{PATIENT_MS, delete};
use super::health::cluster_health;
use super::lost_disks::{Started, copy, take_away, wait_for_all_votes};
use super::replication::{
    all_acknowledged, described, kept, produce, wait_for_all_in_sync, wait_for_in_sync,
};
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

/// Three brokers that are stopped, and a new quorum of the metadata of broker 3. The metadata of the others is gone. Broker 3 was
/// stopped first: the logs of the others have later leader epochs, and 100 acknowledged records of the last one.
struct LostMajority {
    place: tempfile::TempDir,
    brokers: Vec<Broker>,
    /// Addresses of all brokers.
    all: String,
}

impl LostMajority {
    /// `elections`: how many elections the survivor does not know.
    fn after(elections: usize) -> LostMajority {
        let (place, folder) = place();
        let mut up = Up::of(&folder, 3, &["--set", "highwater.election.wait.ms=0"]);
        create_on(&up.bootstrap, &[1, 2, 3], "2");
        all_acknowledged(produce(&up.bootstrap, 0..300));
        wait_for_all_in_sync(&up.bootstrap, "kept");
        let brokers = up.brokers.clone();
        brokers[2].signal(Signal::KILL);
        wait_for_in_sync(&brokers[0].address, "kept", 2);
        for _ in 0..elections {
            wait_until("the leader leads in another leader epoch", || {
                try_run(&brokers[0].address, "cluster elect --unclean kept:0").status.success()
            });
        }
        let first_two = format!("{},{}", brokers[0].address, brokers[1].address);
        all_acknowledged(produce(&first_two, 300..400));
        up.signal(Signal::KILL);
        up.process.wait().unwrap();
        wait_until("all brokers are dead", || {
            brokers.iter().all(|broker| !procfs::is_running(broker.pid))
        });
        for number in [1, 2] {
            let metadata = Path::new(&brokers[number - 1].folder).join("__cluster_metadata-0");
            fs::rename(metadata, place.path().join(format!("lost metadata of {number}"))).unwrap();
        }
        let made = regenerate(&brokers[2].folder, &["--yes"]);
        assert!(made.status.success(), "{made:?}");
        let all: Vec<&str> = brokers.iter().map(|broker| broker.address.as_str()).collect();
        let all = all.join(",");
        LostMajority { place, brokers, all }
    }

    fn start(&self, number: usize) -> Started {
        let reports = self.place.path().join(format!("reports of {number}"));
        Started::of(&self.brokers[number - 1].folder, reports)
    }

    fn leader(&self) -> Option<i64> {
        described(&self.all, "kept").map(|rows| rows[0].0)
    }
}

/// More elections than the survivor decides before the others return.
const LOST_ELECTIONS: usize = 12;

#[test]
fn leader_epochs_of_a_lost_majority_lead_nothing_before_an_operator_elects() {
    let lost = LostMajority::after(LOST_ELECTIONS);
    let all = &lost.all;
    let started = [3, 1, 2].map(|number| lost.start(number));
    wait_until("health names the partition", || {
        let (code, text) = cluster_health(all);
        let named =
            "complete_replicas_lost: kept-0: a log has records of the partition's election ";
        let is_complete = [1, 2].iter().any(|id| {
            text.contains(&format!("of those that answer, broker {id} has the greatest log end"))
        });
        code == 1 && text.contains(named) && is_complete
    });
    assert!(lost.leader().is_none_or(|leader| leader < 0), "{}", started[0].said());

    run(all, "cluster elect --unclean kept:0");
    wait_until("the partition has a leader", || lost.leader().is_some_and(|leader| leader > 0));
    assert_eq!(kept(all), (0..400).collect(), "{}", started[0].said());
    wait_for_all_in_sync(all, "kept");
    all_acknowledged(produce(all, 400..500));
    assert_eq!(kept(all), (0..500).collect());
}

#[test]
fn records_of_a_lost_majority_are_not_truncated_for_a_leader_that_was_elected_before_they_returned()
{
    let lost = LostMajority::after(1);
    let all = &lost.all;
    // The survivor's own election has the number of the election that it does not know.
    let third = lost.start(3);
    third.wait_for_report("elected the complete replicas with the greatest log ends");
    let others = [1, 2].map(|number| lost.start(number));
    wait_until("health names both replicas", || {
        let (code, text) = cluster_health(all);
        let is_named = |id: &i32| {
            text.contains(&format!(
                "broker {id}: truncation_refused: kept-0: leader 3 lacks records from 300 to 400, which a lost \
                 majority of the quorum may have committed"
            ))
        };
        code == 1 && [1, 2].iter().all(is_named)
    });
    // An operator gives the records up.
    run(all, "cluster elect --unclean kept:0");
    wait_for_all_in_sync(all, "kept");
    assert_eq!(kept(all), (0..300).collect(), "{}", third.said());
    all_acknowledged(produce(all, 300..400));
    assert_eq!(kept(all), (0..400).collect());
    drop(others);
}

#[test]
fn records_of_a_lost_majority_are_kept_behind_the_log_start_of_a_leader_that_lacks_them() {
    let lost = LostMajority::after(1);
    let (all, third) = (&lost.all, &lost.brokers[2]);
    let started = lost.start(3);
    started.wait_for_report("elected the complete replicas with the greatest log ends");
    // One of two in sync is enough.
    run(&third.address, "config set --topic kept min.insync.replicas=1");
    all_acknowledged(produce(&third.address, 1000..1200));
    drop(started);
    // A log knows where the leader epoch of its first record began, and no earlier one.
    let started = lost.start(3);
    all_acknowledged(produce(&third.address, 1200..1400));
    let deleted = delete(third, 650, PATIENT_MS);
    assert_eq!(deleted, (model::ErrorCode::None, 650), "{}", started.said());

    let others = [1, 2].map(|number| lost.start(number));
    wait_until("health names both replicas", || {
        let (code, text) = cluster_health(all);
        let is_named = |id: &i32| {
            text.contains(&format!(
                "broker {id}: truncation_refused: kept-0: leader 3 lacks records from 0 to 400, which a lost \
                 majority of the quorum may have committed"
            ))
        };
        code == 1 && [1, 2].iter().all(is_named)
    });
    run(all, "cluster elect --unclean kept:0");
    wait_for_all_in_sync(all, "kept");
    assert_eq!(kept(all), (1350..1400).collect(), "{}", started.said());
    drop((started, others));
}

/// Every file below a folder, with its bytes.
fn files_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let files = files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap()));
    files.chain(folders.iter().flat_map(|path| files_below(path))).collect()
}

#[test]
fn a_regeneration_that_did_not_finish_must_be_run_again_before_a_start() {
    let (place, folder) = place();
    let up = Up::of(&folder, 1, &[]);
    up.run("topic create kept");
    all_acknowledged(produce(&up.bootstrap, 0..100));
    let broker = up.brokers[0].clone();
    drop(up);
    wait_until("the broker is dead", || !procfs::is_running(broker.pid));
    assert!(regenerate(&broker.folder, &["--yes"]).status.success());
    // As after a kill of the command.
    let metadata = Path::new(&broker.folder).join("__cluster_metadata-0");
    fs::write(metadata.join("regeneration-unfinished"), "").unwrap();

    let before = files_below(Path::new(&broker.folder));
    let mut refused = Started::of(&broker.folder, place.path().join("refusal"));
    wait_until("the broker refuses to start", || refused.exit_code().is_some());
    let said = refused.said();
    let again = format!("run `highwater cluster regenerate {} --yes` again", broker.folder);
    assert!(said.lines().any(|line| line.contains(&again)), "{said}");
    assert_eq!(refused.exit_code(), Some(1));
    assert_eq!(files_below(Path::new(&broker.folder)), before);

    assert!(regenerate(&broker.folder, &["--yes"]).status.success());
    let started = Started::of(&broker.folder, place.path().join("reports"));
    wait_until("the broker serves", || described(&broker.address, "kept").is_some());
    assert_eq!(kept(&broker.address), (0..100).collect(), "{}", started.said());
}
