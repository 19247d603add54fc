//! Layouts of images with stand-ins for the binaries, and the scripts of `highwater:test`.

use std::collections::BTreeMap;
use std::process::Output;

use peer::process;
use serde_json::Value;

use super::*;
use crate::repository::repository;

/// Longest time of one program.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

/// The Dockerfile builds the same images: each setting of the layout is there.
fn assert_dockerfile_has(settings: &Value, image: &str) {
    let stage =
        if image == "highwater" { "FROM program AS highwater" } else { "FROM program AS test" };
    let text = fs::read_to_string(repository().join("packaging/docker/Dockerfile")).unwrap();
    let from = |start: &str| text.split_once(start).unwrap().1.split("FROM ").next().unwrap();
    let text = [from("FROM scratch AS program"), from(stage)].concat();
    let lines = |text: &str| text.replace("\\\n", "").replace(' ', "");
    let has = |line: &str| assert!(lines(&text).contains(&lines(line)), "{image}: {line}\n{text}");
    for (instruction, key) in
        [("USER", "User"), ("WORKDIR", "WorkingDir"), ("STOPSIGNAL", "StopSignal")]
    {
        has(&format!("\n{instruction} {}\n", settings[key].as_str().unwrap()));
    }
    for (instruction, key) in [("ENTRYPOINT", "Entrypoint"), ("CMD", "Cmd")] {
        if settings[key].is_array() {
            has(&format!("\n{instruction} {}\n", settings[key]));
        }
    }
    has(&format!("\nENV {}\n", settings["Env"][0].as_str().unwrap()));
    let names = |key: &str| -> Vec<String> {
        let names = settings[key].as_object().into_iter().flat_map(|object| object.keys());
        names.map(|name| name.trim_end_matches("/tcp").to_owned()).collect()
    };
    for (instruction, key) in [("EXPOSE", "ExposedPorts"), ("VOLUME", "Volumes")] {
        match &*names(key) {
            [] => assert!(!text.contains(instruction), "{image}: {instruction}"),
            names => has(&format!("\n{instruction} {}\n", names.join(" "))),
        }
    }
    match settings["Healthcheck"]["Test"].as_array() {
        Some(probe) => has(&format!("CMD {}\n", Value::from(&probe[1..]))),
        None => assert!(!text.contains("HEALTHCHECK"), "{image}"),
    }
}

fn release() -> Release {
    Release::of_checkout(true).unwrap()
}

/// Writes both images of both processors below `output`.
fn write(output: &Path) {
    let folder = tempfile::tempdir().unwrap();
    let materials = Arch::ALL.map(|arch| {
        let file = |name: &str, text: String| {
            let path = folder.path().join(format!("{name}-{}", arch.name()));
            fs::write(&path, text).unwrap();
            path
        };
        let binary = file("highwater", format!("\x7fELF of {}", arch.name()));
        let program = file("busybox", format!("\x7fELF busybox of {}", arch.name()));
        let licence = file("copyright", "GPL-2".to_owned());
        let shell = shell::Shell { program, licence };
        (arch, Materials { binary, notices: "licences".to_owned(), shell })
    });
    write_images(&release(), &materials, output).unwrap();
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The file of a descriptor, whose digest and size must be those of the descriptor.
fn blob(image: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let path = image.join("blobs/sha256").join(digest);
    assert_eq!(layer::sha256(&path).unwrap(), digest);
    assert_eq!(descriptor["size"].as_u64(), Some(fs::metadata(&path).unwrap().len()));
    path
}

/// Manifest and configuration of each processor. All tags must name one index.
fn images(layout: &Path, tags: [&str; 2]) -> Vec<(Value, Value)> {
    assert_eq!(json(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    let top = json(&layout.join("index.json"));
    let named = top["manifests"].as_array().unwrap();
    let names = named.iter().map(|it| &it["annotations"]["org.opencontainers.image.ref.name"]);
    assert_eq!(names.collect::<Vec<_>>(), tags);
    assert_eq!(named[0]["digest"], named[1]["digest"]);
    let index = json(&blob(layout, &named[0]));
    let found = index["manifests"].as_array().unwrap().iter().map(|descriptor| {
        let manifest = json(&blob(layout, descriptor));
        let config = json(&blob(layout, &manifest["config"]));
        for key in ["os", "architecture"] {
            assert_eq!(descriptor["platform"][key], config[key], "{key}");
        }
        (manifest, config)
    });
    found.collect()
}

/// Lines of `tar --list --verbose` by the name of the entry.
fn entries(tarball: &Path) -> BTreeMap<String, String> {
    let mut tar = process::command("tar");
    tar.args(["--list", "--verbose", "--numeric-owner", "--gzip", "--file"]).arg(tarball);
    let outcome = process::run(&mut tar, None, LIMIT).unwrap();
    assert!(outcome.success(), "{}", outcome.story());
    let of_line = |line: &str| {
        let name = line.split_whitespace().nth(5).unwrap().to_owned();
        (name, line.to_owned())
    };
    outcome.text().lines().map(of_line).collect()
}

#[test]
fn an_image_has_an_index_of_both_processors_whose_digests_agree() {
    let output = tempfile::tempdir().unwrap();
    write(output.path());
    let mut programs = Vec::new();
    let version = release().version().to_owned();
    let test_version = format!("{version}-test");
    for (name, layers, tags) in
        [("highwater", 1, [&*version, "latest"]), ("highwater-test", 2, [&*test_version, "test"])]
    {
        let layout = output.path().join(name);
        let images = images(&layout, tags);
        let architectures: Vec<_> =
            images.iter().map(|(_, config)| config["architecture"].as_str().unwrap()).collect();
        assert_eq!(architectures, ["amd64", "arm64"], "{name}");
        for (manifest, config) in &images {
            let descriptors = manifest["layers"].as_array().unwrap();
            assert_eq!(descriptors.len(), layers, "{name}");
            let unpacked = output.path().join("layer.tar");
            for (descriptor, diff_id) in
                descriptors.iter().zip(config["rootfs"]["diff_ids"].as_array().unwrap())
            {
                let gunzip = process::command("gzip")
                    .args(["--decompress", "--stdout"])
                    .arg(blob(&layout, descriptor))
                    .output()
                    .unwrap();
                fs::write(&unpacked, gunzip.stdout).unwrap();
                let digest = format!("sha256:{}", layer::sha256(&unpacked).unwrap());
                assert_eq!(diff_id.as_str(), Some(&*digest));
            }
            assert_eq!(config["rootfs"]["diff_ids"].as_array().unwrap().len(), layers);
            assert_eq!(config["history"].as_array().unwrap().len(), layers);
            let settings = &config["config"];
            assert_eq!(settings["User"], "1000:1000");
            assert_dockerfile_has(settings, name);
            for key in ["Healthcheck", "Entrypoint", "ExposedPorts", "Volumes"] {
                assert_eq!(settings[key].is_null(), name == "highwater-test", "{name}: {key}");
            }
            if name == "highwater" {
                let probe = settings["Healthcheck"]["Test"].to_string();
                assert!(probe.contains(r#""--probe","livez","--container""#), "{probe}");
            }
            programs.push(descriptors[0]["digest"].clone());
        }
    }
    // Both images share the layer of the program.
    assert_eq!(programs[..2], programs[2..]);
    assert_ne!(programs[0], programs[1]);
}

#[test]
fn layers_have_the_paths_of_kafkas_images_and_belong_to_root() {
    let output = tempfile::tempdir().unwrap();
    write(output.path());
    let roots = output.path().join("roots");
    let program = entries(&roots.join("highwater-amd64.tar.gz"));
    let test = entries(&roots.join("test-amd64.tar.gz"));
    for line in program.values().chain(test.values()) {
        assert!(line.split_whitespace().nth(1) == Some("0/0"), "{line}");
    }
    for (name, mode) in [
        ("usr/bin/highwater", "-rwxr-xr-x"),
        ("etc/passwd", "-rw-r--r--"),
        ("mnt/shared/config/", "drwxr-xr-x"),
        ("var/lib/kafka/data/", "drwxrwxrwt"),
        ("tmp/", "drwxrwxrwt"),
        ("usr/share/doc/highwater/THIRD-PARTY-LICENSES.txt", "-rw-r--r--"),
    ] {
        assert!(
            program.get(name).is_some_and(|line| line.starts_with(mode)),
            "{name}: {program:?}"
        );
    }
    for (name, mode) in [
        ("bin/sh", "lrwxrwxrwx"),
        ("bin/bash", "-rwxr-xr-x"),
        ("bin/nc", "lrwxrwxrwx"),
        ("usr/bin/env", "lrwxrwxrwx"),
        ("usr/bin/kafka-storage", "lrwxrwxrwx"),
        ("etc/kafka/docker/run", "-rwxr-xr-x"),
        ("etc/confluent/docker/", "drwxrwxrwx"),
        ("etc/confluent/docker/run", "-rwxrwxrwx"),
        ("etc/confluent/docker/launch", "-rwxrwxrwx"),
        ("etc/confluent/docker/configure", "-rwxrwxrwx"),
        ("etc/confluent/docker/ensure", "-rwxrwxrwx"),
        ("etc/confluent/docker/bash-config", "-rwxrwxrwx"),
        ("opt/kafka/", "drwxrwxrwt"),
        ("opt/kafka/bin/kafka-topics.sh", "-rwxr-xr-x"),
        ("opt/bitnami/scripts/kafka/run.sh", "-rwxr-xr-x"),
        ("opt/bitnami/kafka/bin", "lrwxrwxrwx"),
    ] {
        assert!(test.get(name).is_some_and(|line| line.starts_with(mode)), "{name}: {test:?}");
    }
}

#[test]
fn the_same_files_give_the_same_images() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    write(first.path());
    write(second.path());
    for image in ["highwater", "highwater-test"] {
        let index = |folder: &Path| fs::read(folder.join(image).join("index.json")).unwrap();
        assert!(index(first.path()) == index(second.path()), "{image}");
    }
    // A second run replaces the images of the first one.
    write(first.path());
    let blobs = fs::read_dir(first.path().join("highwater/blobs/sha256")).unwrap();
    assert_eq!(
        blobs.count(),
        7,
        "an index, and for each processor a manifest, a configuration and a layer"
    );
}

/// Runs a script of `highwater:test` with a program that prints its arguments.
fn script(path: &str, arguments: &[&str]) -> Output {
    let mut shell = process::command("sh");
    shell.arg(repository().join("packaging/image/test").join(path)).args(arguments);
    shell.env("HIGHWATER", "echo").output().unwrap()
}

#[test]
fn scripts_of_kafkas_tools_call_the_program() {
    let tool = |name: &str| format!("opt/kafka/bin/{name}.sh");
    for (name, arguments, called) in [
        ("kafka-topics", "--bootstrap-server k:9092 --list", "topic list -b k:9092"),
        (
            "kafka-topics",
            "--create --if-not-exists --topic t --partitions 3 --replication-factor 1 \
             --config a=b --bootstrap-server k:9092",
            "topic create t -b k:9092 --if-not-exists --partitions 3 --replication-factor 1 --config a=b",
        ),
        ("kafka-topics", "--describe --bootstrap-server k:1", "topic describe -b k:1"),
        ("kafka-cluster", "cluster-id --bootstrap-server k:1", "cluster info -b k:1"),
        ("kafka-broker-api-versions", "--bootstrap-server k:1", "cluster info -b k:1"),
        ("kafka-storage", "random-uuid", "cluster id"),
        (
            "kafka-server-start",
            "s.properties --override a=b --override c=d",
            "start --container /mnt/shared/config s.properties --set a=b --set c=d",
        ),
    ] {
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        let output = script(&tool(name), &arguments);
        assert!(output.status.success(), "{name} {arguments:?}: {output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), called, "{name}");
    }
    let run = script("etc/kafka/docker/run", &[]);
    assert_eq!(run.stdout, b"start --container /mnt/shared/config\n");
    let format = script(&tool("kafka-storage"), &["format", "-t", "x", "-c", "f"]);
    assert!(format.status.success(), "{format:?}");
    assert!(String::from_utf8_lossy(&format.stderr).contains("CLUSTER_ID"), "{format:?}");
    for (name, arguments) in [
        ("kafka-topics", &["--list"][..]),
        ("kafka-topics", &["--bootstrap-server", "k:1", "--create"]),
        ("kafka-topics", &["--bootstrap-server", "k:1", "--alter"]),
        ("kafka-topics", &["--bootstrap-server"]),
        ("kafka-cluster", &["cluster-id"]),
        ("kafka-storage", &["format", "--add-scram", "x"]),
        ("kafka-storage", &["format", "--add-scram=x"]),
        ("kafka-storage", &["info"]),
        ("kafka-server-start", &["-daemon", "f"]),
    ] {
        let output = script(&tool(name), arguments);
        assert_eq!(output.status.code(), Some(1), "{name} {arguments:?}: {output:?}");
        assert!(!output.stderr.is_empty() && output.stdout.is_empty(), "{name} {arguments:?}");
    }
}
