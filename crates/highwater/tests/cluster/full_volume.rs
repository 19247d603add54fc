//! A volume without a free byte: voters start on it, serve reads, and are emptied.

use std::path::PathBuf;

use super::replication::{all_acknowledged, kept, produce, wait_for_all_in_sync};
use super::*;

/// A tmpfs; its mount ends with the test.
struct SmallVolume(PathBuf);

impl SmallVolume {
    /// `None`: this user may not mount a file system.
    fn mount(at: &Path, mib: u32) -> Option<SmallVolume> {
        fs::create_dir(at).unwrap();
        let size = format!("size={mib}m");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).stderr(Stdio::null());
        mount.status().is_ok_and(|status| status.success()).then(|| SmallVolume(at.to_owned()))
    }

    fn free_bytes(&self) -> u64 {
        let volume = rustix::fs::statvfs(&self.0).unwrap();
        volume.f_bavail * volume.f_frsize
    }

    /// Takes all room, as often as the brokers give some back.
    fn fill(&self) {
        let mut file = fs::File::options().create(true).append(true).open(self.filler()).unwrap();
        let block = vec![0; 64 << 10];
        while file.write_all(&block).is_ok() {}
        while file.write_all(&block[..512]).is_ok() {}
    }

    fn filler(&self) -> PathBuf {
        self.0.join("filler")
    }
}

impl Drop for SmallVolume {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn voters_start_on_a_volume_without_a_free_byte_and_are_emptied() {
    let (place, _) = place();
    let Some(volume) = SmallVolume::mount(&place.path().join("volume"), 128) else {
        eprintln!("skipped: this user may not mount a file system");
        return;
    };
    let up = Up::of(&volume.0.join("cluster"), 3, &[]);
    up.run("topic create kept -p 3 -r 3");
    all_acknowledged(produce(&up.bootstrap, 0..20_000));
    wait_for_all_in_sync(&up.bootstrap, "kept");
    let brokers = up.brokers.clone();
    let has = |broker: &Broker, name: &str| Path::new(&broker.folder).join(name).exists();
    wait_until("each broker has set room aside for essential files", || {
        brokers.iter().all(|broker| has(broker, "highwater-ballast-essential"))
    });
    // The room for records goes first: the brokers give it back, and the filler takes it.
    wait_until("no byte is free", || {
        volume.fill();
        let is_spent = brokers.iter().all(|broker| !has(broker, "highwater-ballast"));
        is_spent && volume.free_bytes() == 0
    });
    up.signal(Signal::KILL);
    wait_until("all brokers are dead", || {
        brokers.iter().all(|broker| !procfs::is_running(broker.pid))
    });
    volume.fill();
    let _again: Vec<ByHand> = brokers.iter().map(|broker| ByHand::start(&broker.again)).collect();
    wait_until("all serve", || {
        let serves = |broker: &Broker| try_run(&broker.address, "cluster info").status.success();
        brokers.iter().all(serves)
    });
    wait_for_all_in_sync(&up.bootstrap, "kept");
    assert_eq!(kept(&up.bootstrap), (0..20_000).collect(), "reads are served");
    run(&up.bootstrap, "topic delete kept");
    fs::remove_file(volume.filler()).unwrap();
    wait_until("there is room for records again", || {
        try_run(&up.bootstrap, "topic create kept -p 3 -r 3").status.success()
    });
    wait_for_all_in_sync(&up.bootstrap, "kept");
    all_acknowledged(produce(&up.bootstrap, 0..100));
}
