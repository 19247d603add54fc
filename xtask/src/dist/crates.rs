//! Crates that are linked into the program of one processor, by cargo's own resolution.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::Arch;
use crate::repository::repository;

/// A linked crate from outside of this workspace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkedCrate {
    pub(super) name: String,
    pub(super) version: String,
    /// SPDX expression of its manifest, if any.
    pub(super) licence: Option<String>,
    pub(super) repository: Option<String>,
    /// Folder of its sources.
    pub(super) folder: PathBuf,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
    workspace_members: BTreeSet<String>,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
    repository: Option<String>,
    manifest_path: PathBuf,
    targets: Vec<Target>,
}

#[derive(Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<DependencyKind>,
}

#[derive(Deserialize)]
struct DependencyKind {
    /// `None` for a dependency of the program, `build` and `dev` for the others.
    kind: Option<String>,
}

/// Crates from outside that are linked into the program for `arch`, by name and version.
pub(super) fn linked_crates(arch: Arch) -> Result<Vec<LinkedCrate>> {
    let mut cargo = Command::new("cargo");
    cargo.args(["metadata", "--format-version", "1", "--locked"]);
    cargo.args(["--filter-platform", arch.target()]).current_dir(repository());
    let output = cargo.output().context("cannot run cargo metadata")?;
    ensure!(
        output.status.success(),
        "cargo metadata failed: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    of_metadata(&serde_json::from_slice(&output.stdout)?)
}

fn of_metadata(metadata: &Metadata) -> Result<Vec<LinkedCrate>> {
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let nodes: BTreeMap<&str, &Node> =
        metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
    let is_macro = |id: &str| {
        let targets = packages.get(id).into_iter().flat_map(|package| &package.targets);
        targets.flat_map(|target| &target.kind).any(|kind| kind == "proc-macro")
    };
    let program = metadata.packages.iter().find(|package| package.name == "highwater");
    let mut pending = vec![program.context("no package is named highwater")?.id.as_str()];
    let mut seen = BTreeSet::new();
    while let Some(id) = pending.pop() {
        // A macro runs in the compiler: neither it nor its dependencies are linked.
        if is_macro(id) || !seen.insert(id) {
            continue;
        }
        let dependencies = nodes.get(id).into_iter().flat_map(|node| &node.deps);
        let linked = dependencies.filter(|it| it.dep_kinds.iter().any(|kind| kind.kind.is_none()));
        pending.extend(linked.map(|it| it.pkg.as_str()));
    }
    let linked = seen.into_iter().filter(|id| !metadata.workspace_members.contains(*id));
    let linked = linked.filter_map(|id| packages.get(id));
    let mut linked: Vec<LinkedCrate> = linked.map(|package| linked_crate(package)).collect();
    linked.sort();
    Ok(linked)
}

fn linked_crate(package: &Package) -> LinkedCrate {
    LinkedCrate {
        name: package.name.clone(),
        version: package.version.clone(),
        licence: package.license.clone(),
        repository: package.repository.clone(),
        folder: package.manifest_path.parent().map(PathBuf::from).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linked_crates_are_those_of_the_program_without_macros_and_build_scripts() {
        let package = |name: &str, kind: &str| {
            serde_json::json!({
                "id": name, "name": name, "version": "1.0.0", "license": "MIT", "repository": null,
                "manifest_path": format!("/src/{name}/Cargo.toml"), "targets": [{ "kind": [kind] }],
            })
        };
        let on = |name: &str, kind: Option<&str>| serde_json::json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = serde_json::json!({
            "packages": [
                package("highwater", "bin"), package("linked", "lib"), package("deeper", "lib"),
                package("macros", "proc-macro"), package("syn", "lib"), package("cc", "lib"),
                package("tests", "lib"),
            ],
            "workspace_members": ["highwater"],
            "resolve": { "nodes": [
                { "id": "highwater", "deps": [
                    on("linked", None), on("macros", None), on("cc", Some("build")),
                    on("tests", Some("dev")),
                ] },
                { "id": "linked", "deps": [on("deeper", None)] },
                { "id": "macros", "deps": [on("syn", None)] },
            ] },
        });
        let linked = of_metadata(&serde_json::from_value(metadata).unwrap()).unwrap();
        let names: Vec<&str> = linked.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["deeper", "linked"]);
        assert_eq!(linked[0].folder, PathBuf::from("/src/deeper"));
    }
}
