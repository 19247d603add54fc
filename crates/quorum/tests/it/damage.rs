//! One flipped bit, one cut, one removal in any file of the quorum's folder: a start finds everything
//! as before, or refuses in words. Never less, never another vote, never a panic. Every start is made
//! twice: what the first one tidied up must not look whole to the second.

use crate::support::*;
use metadata::ClusterImage;
use quorum::{Quorum, QuorumConfig, QuorumError};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use storage::disk::{Disk, OpenMode, SimDisk};

const DIR: &str = "/data/__cluster_metadata-0";
/// Of logs and snapshots, every so many bits and bytes are damaged: primes, so that all fields are met.
const STRIDE_BITS: usize = 797;
const STRIDE_BYTES: usize = 397;
/// Of files that are only derived from others.
const STRIDE_DERIVED: usize = 29;

fn short_log() -> QuorumConfig {
    // Segments of 1 KiB, so that there are several, and files go when snapshots are made.
    QuorumConfig { snapshot_entries: 12, snapshot_bytes: 8 << 10, ..config(1) }
}

async fn open(disk: &SimDisk) -> Result<Quorum, QuorumError> {
    start(short_log(), disk, Arc::new(quorum::NoTransport)).await
}

/// A folder with two snapshots, purged entries, and entries behind the newest snapshot: as a kill
/// leaves it, and as a clean stop does.
async fn folders() -> [(&'static str, SimDisk, Arc<ClusterImage>); 2] {
    let disk = new_disk();
    let quorum = open(&disk).await.unwrap();
    prepare(&quorum).await;
    for i in 0..45 {
        assert!(created(&quorum.propose(create(&format!("t{i:02}"), i)).await.unwrap()));
    }
    let is_settled = |disk: &SimDisk| snapshots(disk).len() == 2;
    let mut more = 100;
    while !is_settled(&disk) {
        quorum.propose(create(&format!("m{more}"), more)).await.unwrap();
        more += 1;
    }
    for i in 50..54 {
        assert!(created(&quorum.propose(create(&format!("t{i:02}"), i)).await.unwrap()));
    }
    let image = quorum.image();
    let killed = disk.snapshot();
    quorum.stop().await.unwrap();
    [("killed", killed, Arc::clone(&image)), ("stopped", disk, image)]
}

fn files(disk: &SimDisk) -> Vec<(PathBuf, u64)> {
    let dir = Path::new(DIR);
    let names = disk.list(dir).unwrap().into_iter();
    names.map(|name| (dir.join(&name), disk.size(&dir.join(&name)).unwrap())).collect()
}

fn snapshots(disk: &SimDisk) -> Vec<PathBuf> {
    let all = files(disk).into_iter().map(|(path, _)| path);
    all.filter(|path| path.extension().is_some_and(|extension| extension == "checkpoint")).collect()
}

/// Every so many bits of a file, or bytes if `in_bytes`.
fn stride(path: &Path, in_bytes: bool) -> usize {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("log" | "checkpoint") if in_bytes => STRIDE_BYTES,
        Some("log" | "checkpoint") => STRIDE_BITS,
        Some(_) => STRIDE_DERIVED,
        // `vote`, `synced`.
        None => 1,
    }
}

/// Starts twice. Returns whether the folder was refused.
async fn check(what: &str, damaged: &SimDisk, image: &ClusterImage) -> bool {
    let mut refused = [false; 2];
    for refused in &mut refused {
        match open(damaged).await {
            Ok(quorum) => {
                assert_eq!(quorum.image().digest(), image.digest(), "{what}");
                assert!(quorum.is_leader(), "{what}");
                quorum.stop().await.unwrap_or_else(|error| panic!("{what}: {error}"));
            }
            Err(QuorumError::Stopped(text)) => {
                assert!(text.contains(DIR), "{what}: which file? {text}");
                assert!(!text.contains("panicked"), "{what}: {text}");
                *refused = true;
            }
            Err(error) => panic!("{what}: {error}"),
        }
    }
    assert_eq!(refused[0], refused[1], "{what}: the second start found it otherwise");
    refused[0]
}

/// The folder as one of the two states.
async fn folder(wanted: &str) -> (SimDisk, Arc<ClusterImage>) {
    let found = folders().await.into_iter().find(|(state, ..)| *state == wanted);
    let (_, disk, image) = found.expect("one of the two");
    (disk, image)
}

async fn flip_every_bit(state: &str) {
    let (disk, image) = folder(state).await;
    let (mut refused, mut count) = (0, 0);
    for (path, size) in files(&disk) {
        for bit in (0..size as usize * 8).step_by(stride(&path, false)) {
            let damaged = disk.snapshot();
            damaged.flip_bit(&path, bit as u64 / 8, (bit % 8) as u8);
            let what = format!("{state}: bit {bit} of {}", path.display());
            refused += check(&what, &damaged, &image).await as usize;
            count += 1;
        }
    }
    assert!(refused > 100, "{state}: {refused} of {count} refused: was anything damaged?");
}

async fn cut_and_remove_every_file(state: &str) {
    let (disk, image) = folder(state).await;
    for (path, size) in files(&disk) {
        for cut in (0..size).step_by(stride(&path, true)) {
            let damaged = disk.snapshot();
            damaged.open(&path, OpenMode::ReadWrite).unwrap().truncate(cut).unwrap();
            let what = format!("{state}: {} cut at byte {cut}", path.display());
            check(&what, &damaged, &image).await;
        }
        let damaged = disk.snapshot();
        damaged.remove_file(&path).unwrap();
        check(&format!("{state}: {} removed", path.display()), &damaged, &image).await;
    }
}

#[tokio::test]
async fn every_flipped_bit_after_a_kill_is_as_before_or_refused() {
    flip_every_bit("killed").await;
}

#[tokio::test]
async fn every_flipped_bit_after_a_stop_is_as_before_or_refused() {
    flip_every_bit("stopped").await;
}

#[tokio::test]
async fn every_cut_and_removal_after_a_kill_is_as_before_or_refused() {
    cut_and_remove_every_file("killed").await;
}

#[tokio::test]
async fn every_cut_and_removal_after_a_stop_is_as_before_or_refused() {
    cut_and_remove_every_file("stopped").await;
}

#[tokio::test]
async fn a_newest_snapshot_that_is_gone_or_damaged_is_made_up_for_by_the_one_before() {
    for (state, disk, image) in folders().await {
        let newest = snapshots(&disk).pop().unwrap();
        let removed = disk.snapshot();
        removed.remove_file(&newest).unwrap();
        assert!(!check(&format!("{state}: removed"), &removed, &image).await, "nothing is lost");
        let damaged = disk.snapshot();
        damaged.flip_bit(&newest, 100, 2);
        assert!(!check(&format!("{state}: damaged"), &damaged, &image).await, "nothing is lost");
        // Without both of them nothing is left to begin with.
        for path in snapshots(&removed) {
            removed.remove_file(&path).unwrap();
        }
        let error = open(&removed).await.err().expect("no snapshot is there").to_string();
        assert!(error.contains("snapshot") || error.contains("is due"), "{error}");
    }
}

/// Folders that the version before checksums wrote.
#[tokio::test]
async fn folders_of_version_0_are_opened_and_gone_on_with() {
    for state in ["stopped", "killed"] {
        let disk = new_disk();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata");
        let folder = folder.join(format!("folder-version-0-{state}"));
        disk.create_dir_all(Path::new(DIR)).unwrap();
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let path = Path::new(DIR).join(entry.file_name());
            let file = disk.open(&path, OpenMode::CreateNew).unwrap();
            file.write_all_at(&std::fs::read(entry.path()).unwrap(), 0).unwrap();
        }
        // What the version that wrote them said of its image.
        let digest = 0x62c5_73af_22a9_cd6f;
        for start in 0..3 {
            let quorum = open(&disk).await.unwrap();
            assert_eq!(quorum.image().topic_count(), 60 + start);
            assert_eq!(start > 0, quorum.image().digest() != digest, "{state}");
            let number = 1000 + start as u64;
            assert!(created(&quorum.propose(create(&format!("n{start}"), number)).await.unwrap()));
            quorum.stop().await.unwrap();
        }
        // Its files carry checksums now: what was written is refused when a bit of it has flipped.
        let vote = Path::new(DIR).join("vote");
        disk.flip_bit(&vote, 20, 1);
        let error = open(&disk).await.err().expect("the vote is damaged").to_string();
        assert!(error.contains("vote") && error.contains("checksum"), "{error}");
    }
}
