//! An image on disk: the OCI image layout 1.0, an index with a manifest for each processor.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use peer::process;
use serde_json::{Value, json};

use super::layer::{Layer, sha256};
use crate::dist::{Arch, Release};

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
/// Name of an image for programs that load a layout.
const NAME: &str = "org.opencontainers.image.ref.name";
/// Nanoseconds of a second: the unit of health checks.
const SECOND: u64 = 1_000_000_000;

/// Which image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The program alone.
    Program,
    /// With a shell and the scripts of Kafka's images.
    Test,
}

/// The image of one processor.
pub(super) struct PlatformImage {
    pub(super) arch: Arch,
    pub(super) layers: Vec<Layer>,
}

/// Writes a layout into `folder`, in the place of an earlier one.
pub(super) fn write(
    folder: &Path,
    release: &Release,
    kind: Kind,
    images: &[PlatformImage],
) -> Result<()> {
    if folder.exists() {
        ensure!(
            folder.join("oci-layout").is_file(),
            "{} is not an OCI layout: choose an empty folder by --output",
            folder.display()
        );
        fs::remove_dir_all(folder)?;
    }
    let blobs = folder.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let created = date(release.epoch())?;
    let mut manifests = Vec::new();
    for image in images {
        for layer in &image.layers {
            fs::copy(&layer.file, blobs.join(&layer.digest))?;
        }
        let config = put(&blobs, CONFIG, &config(release, kind, image, &created))?;
        let mut manifest = put(&blobs, MANIFEST, &manifest(&config, image))?;
        manifest["platform"] = platform(image.arch);
        manifests.push(manifest);
    }
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
    let index = put(&blobs, INDEX, &index)?;
    let named = tags(release, kind).map(|tag| {
        let mut index = index.clone();
        index["annotations"] = json!({ NAME: tag });
        index
    });
    let top = json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": named });
    fs::write(folder.join("index.json"), top.to_string())?;
    fs::write(folder.join("oci-layout"), json!({ "imageLayoutVersion": "1.0.0" }).to_string())?;
    Ok(())
}

/// The tags of an image: one of the version, and one that moves.
fn tags(release: &Release, kind: Kind) -> [String; 2] {
    let version = release.version();
    match kind {
        Kind::Program => [version.to_owned(), "latest".to_owned()],
        Kind::Test => [format!("{version}-test"), "test".to_owned()],
    }
}

fn platform(arch: Arch) -> Value {
    match arch {
        Arch::X86_64 => json!({ "os": "linux", "architecture": "amd64" }),
        Arch::Aarch64 => json!({ "os": "linux", "architecture": "arm64", "variant": "v8" }),
    }
}

/// Writes a blob and returns its descriptor.
fn put(blobs: &Path, media_type: &str, content: &Value) -> Result<Value> {
    let text = content.to_string();
    let draft = blobs.join("draft");
    fs::write(&draft, &text)?;
    let digest = sha256(&draft)?;
    fs::rename(draft, blobs.join(&digest))?;
    let digest = format!("sha256:{digest}");
    Ok(json!({ "mediaType": media_type, "digest": digest, "size": text.len() }))
}

fn manifest(config: &Value, image: &PlatformImage) -> Value {
    let layers = image.layers.iter().map(|layer| {
        let digest = format!("sha256:{}", layer.digest);
        json!({ "mediaType": LAYER, "digest": digest, "size": layer.size })
    });
    let layers: Vec<Value> = layers.collect();
    json!({ "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers })
}

fn config(release: &Release, kind: Kind, image: &PlatformImage, created: &str) -> Value {
    let container = ["--container", "/mnt/shared/config"];
    let mut settings = json!({
        "User": "1000:1000",
        "WorkingDir": "/tmp",
        "StopSignal": "SIGTERM",
        "Labels": {
            "org.opencontainers.image.title": "highwater",
            "org.opencontainers.image.version": release.version(),
            "org.opencontainers.image.revision": release.commit(),
            "org.opencontainers.image.licenses": "Apache-2.0",
        },
    });
    match kind {
        Kind::Program => {
            settings["Entrypoint"] = json!(["/usr/bin/highwater"]);
            settings["Cmd"] = json!(["start", container[0], container[1]]);
            settings["Env"] = json!(["PATH=/usr/bin"]);
            settings["ExposedPorts"] = json!({ "8080/tcp": {}, "8082/tcp": {}, "9092/tcp": {} });
            settings["Volumes"] = json!({ "/var/lib/kafka/data": {} });
            let probe = ["CMD", "/usr/bin/highwater", "healthcheck", "--probe", "livez"];
            let probe: Vec<&str> = probe.into_iter().chain(container).collect();
            // Orchestrators kill unhealthy containers. A broker that recovers or lacks a quorum is alive and not ready.
            settings["Healthcheck"] = json!({
                "Test": probe,
                "Interval": 5 * SECOND,
                "Timeout": 5 * SECOND,
                "StartPeriod": 60 * SECOND,
                "StartInterval": SECOND,
                "Retries": 3,
            });
        }
        // Test suites name a command and no entry point, publish ports by themselves (podman reports an exposed port that is
        // not published as a binding, and Node's module waits for it), and wait for a line. A volume would outlive the container.
        Kind::Test => {
            settings["Cmd"] = json!(["/etc/kafka/docker/run"]);
            settings["Env"] = json!(["PATH=/usr/sbin:/usr/bin:/sbin:/bin:/opt/kafka/bin"]);
        }
    }
    let layers = image.layers.iter();
    let diff_ids: Vec<String> =
        layers.clone().map(|layer| format!("sha256:{}", layer.diff_id)).collect();
    let by = json!({ "created": created, "created_by": "cargo xt image" });
    let mut config = platform(image.arch);
    config["created"] = json!(created);
    config["config"] = settings;
    config["rootfs"] = json!({ "type": "layers", "diff_ids": diff_ids });
    config["history"] = layers.map(|_| by.clone()).collect();
    config
}

/// A time in seconds since 1970, as RFC 3339.
fn date(epoch: u64) -> Result<String> {
    let mut date = process::command("date");
    date.args(["--utc", "+%Y-%m-%dT%H:%M:%SZ", "--date"]).arg(format!("@{epoch}"));
    let outcome = process::run(&mut date, None, Duration::from_secs(60))?;
    ensure!(outcome.success(), "date: {}", outcome.story());
    Ok(outcome.text().trim().to_owned())
}
