//! A regeneration of the metadata quorum that stops anywhere: no broker starts with half of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use broker::stopped::{METADATA_FOLDER, regenerate};
use metadata::decide::{
    CreateCluster, KnownDirectories, KnownDirectory, RegisterBroker, RegisterBroker2,
    RegisterBroker3, features_of_new_cluster, software_of_this_release,
};
use metadata::{ClusterImage, Request, Response};
use model::{BrokerId, Uuid};
use quorum::{NoTransport, Quorum, QuorumConfig, check_regenerated, read_stopped};
use storage::disk::{Disk, SimDisk};

const DATA: &str = "/data";
const CLUSTER: &str = "a cluster";
const ME: BrokerId = BrokerId(1);

/// How long a regeneration on a simulated disk may take before the test counts it as hung.
const PATIENCE: Duration = Duration::from_secs(60);

fn dyn_disk(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

/// A metadata folder with a broker that serves.
async fn founded() -> SimDisk {
    let disk = SimDisk::new();
    let dir = Path::new(DATA).join(METADATA_FOLDER);
    disk.create_dir_all(&dir).unwrap();
    for synced in ["/", DATA] {
        disk.sync_dir(Path::new(synced)).unwrap();
    }
    let config = QuorumConfig::new(ME, CLUSTER, dir);
    let node = Quorum::start(config, dyn_disk(&disk), Arc::new(NoTransport)).await.unwrap();
    let create = CreateCluster { cluster_id: CLUSTER.into(), features: features_of_new_cluster() };
    node.propose(Request::CreateCluster(create)).await.unwrap();
    let register = RegisterBroker {
        broker: ME,
        incarnation: Uuid::from_random([1; 16]),
        cluster_id: CLUSTER.into(),
        endpoints: Vec::new(),
        rack: None,
        log_dirs: vec![Uuid::from_random([2; 16])],
        clean: true,
        fenced: false,
        earlier_incarnation_alive: false,
    };
    let known = KnownDirectory { stopped: None, had_by: Vec::new() };
    let directories = KnownDirectories { directories: vec![known], instead_of: None };
    let request = RegisterBroker2 { register, directories };
    let request = RegisterBroker3 { request, software: software_of_this_release() };
    let registered = node.propose(Request::RegisterBroker3(request)).await.unwrap();
    assert!(matches!(registered, Response::RegisterBroker(Ok(_))), "{registered:?}");
    node.stop().await.unwrap();
    disk
}

fn image(disk: &SimDisk) -> ClusterImage {
    let dir = Path::new(DATA).join(METADATA_FOLDER);
    read_stopped(&dyn_disk(disk), &dir, CLUSTER, ME).unwrap()
}

/// Whether all of a regeneration has happened: the brokers are fenced, and the producer ids continue behind all earlier ones.
fn is_regenerated(disk: &SimDisk) -> bool {
    let image = image(disk);
    image.brokers().all(|broker| broker.fenced) && image.next_producer_id().0 > 1 << 48
}

async fn run(disk: &SimDisk) -> Result<(), String> {
    let voters: BTreeSet<BrokerId> = [ME].into();
    let disk = dyn_disk(disk);
    let made = regenerate(&disk, Path::new(DATA), CLUSTER, ME, &voters);
    let made = tokio::time::timeout(PATIENCE, made).await.expect("a regeneration ends");
    made.map(drop).map_err(|error| error.to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_regeneration_that_stops_anywhere_must_be_run_again() {
    let before = founded().await.after_crash(0);
    assert_eq!(image(&before).brokers().count(), 1);
    let dir = Path::new(DATA).join(METADATA_FOLDER);
    let starts = |disk: &SimDisk| check_regenerated(disk, &dir);
    let (mut refused, mut operation) = (0, 0);
    loop {
        let disk = before.snapshot();
        disk.stop_at(operation);
        let is_finished = run(&disk).await.is_ok();
        let found = disk.after_crash(operation);
        match starts(&found) {
            Ok(()) if is_finished => assert!(is_regenerated(&found), "operation {operation}"),
            Ok(()) => {
                let is_untouched = image(&found) == image(&before);
                assert!(is_untouched || is_regenerated(&found), "operation {operation}");
            }
            Err(error) => {
                let text = error.to_string();
                assert!(text.contains("run `highwater cluster regenerate /data --yes` again"));
                assert!(!text.contains('\n'), "{text}");
                refused += 1;
                assert_eq!(run(&found).await, Ok(()), "operation {operation}");
                assert_eq!(starts(&found), Ok(()));
                assert!(is_regenerated(&found), "operation {operation}");
            }
        }
        if is_finished {
            break;
        }
        operation += 1;
    }
    assert!(refused > 5, "{refused} of {operation}");
}
