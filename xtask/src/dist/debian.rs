//! Debian packages, built by `dpkg-deb`. A package installs the program, its manual and completions, and a service that is
//! neither enabled nor started; its configuration listens on loopback only.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use peer::process;

use super::archive::{copy, copy_folder, run};
use super::build::SHELLS;
use super::{Arch, Parts, Release};
use crate::repository::repository;

/// Where Debian looks for completions, in the order of [`SHELLS`].
const COMPLETIONS: [&str; 3] = [
    "usr/share/bash-completion/completions/highwater",
    "usr/share/zsh/vendor-completions/_highwater",
    "usr/share/fish/vendor_completions.d/highwater.fish",
];

/// Writes `highwater_VERSION_ARCH.deb`.
pub(super) fn package(
    arch: Arch,
    release: &Release,
    parts: &Parts<'_>,
    output: &Path,
) -> Result<PathBuf> {
    let scratch = tempfile::tempdir()?;
    let root = scratch.path().join("root");
    let packaging = repository().join("packaging");
    copy(parts.binary, &root.join("usr/bin/highwater"), 0o755)?;
    copy_folder(&packaging.join("systemd"), &root.join("usr/lib/systemd/system"))?;
    let configuration = "etc/highwater/highwater.properties";
    copy(&packaging.join("debian/highwater.properties"), &root.join(configuration), 0o644)?;
    let doc = root.join("usr/share/doc/highwater");
    copy(&packaging.join("debian/copyright"), &doc.join("copyright"), 0o644)?;
    copy(parts.notices, &doc.join("THIRD-PARTY-LICENSES.txt"), 0o644)?;
    for ((_, name), path) in SHELLS.iter().zip(COMPLETIONS) {
        copy(&parts.help.completions.join(name), &root.join(path), 0o644)?;
    }
    let manual = root.join("usr/share/man/man1");
    copy_folder(&parts.help.manual, &manual)?;
    for entry in fs::read_dir(&manual)? {
        run(process::command("gzip").args(["-9", "--no-name"]).arg(entry?.path()))?;
    }
    write_control(arch, release, &root, configuration)?;
    open_folders(&root)?;
    let path = output.join(format!("highwater_{}_{}.deb", release.version, arch.debian()));
    let mut dpkg = process::command("dpkg-deb");
    dpkg.args(["--root-owner-group", "-Zxz", "-z9", "--threads-max=1", "--build"]);
    dpkg.arg(&root).arg(&path).env("SOURCE_DATE_EPOCH", release.epoch.to_string());
    run(&mut dpkg)?;
    Ok(path)
}

/// Writes the folder DEBIAN: control file, list of configuration files, and the scripts of installation and removal.
fn write_control(arch: Arch, release: &Release, root: &Path, configuration: &str) -> Result<()> {
    let control = root.join("DEBIAN");
    fs::create_dir_all(&control)?;
    let text = format!(
        "Package: highwater\nVersion: {}\nArchitecture: {}\nSection: net\nPriority: optional\n\
         Depends: passwd\n\
         Maintainer: Highwater maintainers <maintainers@highwater.invalid>\n\
         Installed-Size: {}\nDescription: event streaming that speaks Kafka's protocol\n \
         One program: a broker that Kafka clients use unchanged, an HTTP gateway, a console in the\n \
         browser, and the tools to measure it.\n",
        release.version,
        arch.debian(),
        installed_kib(root)?,
    );
    fs::write(control.join("control"), text)?;
    fs::write(control.join("conffiles"), format!("/{configuration}\n"))?;
    for name in ["postinst", "prerm", "postrm"] {
        let script = repository().join("packaging/debian").join(name);
        copy(&script, &control.join(name), 0o755)?;
    }
    set_modes(&control)
}

fn set_modes(control: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;

    for name in ["control", "conffiles"] {
        fs::set_permissions(control.join(name), fs::Permissions::from_mode(0o644))?;
    }
    Ok(())
}

/// Gives all folders the mode 0755, whatever the umask of this process is.
fn open_folders(folder: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;

    fs::set_permissions(folder, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            open_folders(&entry.path())?;
        }
    }
    Ok(())
}

/// Size of all files, in KiB.
fn installed_kib(folder: &Path) -> Result<u64> {
    let mut kib = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        kib += match entry.file_type()?.is_dir() {
            true => installed_kib(&entry.path())?,
            false => entry.metadata()?.len().div_ceil(1024),
        };
    }
    Ok(kib)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether `systemd-analyze` accepts the unit with this command, or is not installed.
    fn is_accepted(words: &[&str]) -> bool {
        if !process::is_installed("systemd-analyze") {
            eprintln!("skipped: there is no systemd-analyze");
            return true;
        }
        let folder = tempfile::tempdir().unwrap();
        let unit = repository().join("packaging/systemd/highwater.service");
        // The program and its manual need not be installed here.
        let text = fs::read_to_string(unit).unwrap().replace("/usr/bin/highwater", "/bin/true");
        let lines = text.lines().filter(|line| !line.starts_with("Documentation="));
        let path = folder.path().join("highwater.service");
        fs::write(&path, lines.collect::<Vec<_>>().join("\n")).unwrap();
        let mut analyze = process::command("systemd-analyze");
        let limit = std::time::Duration::from_secs(60);
        let outcome = process::run(analyze.args(words).arg(&path), None, limit).unwrap();
        eprintln!("{}", outcome.story());
        outcome.success() && !outcome.errors().contains("Unknown")
    }

    /// Builds the package of a stand-in for the program below `folder`.
    fn built(folder: &Path) -> PathBuf {
        let (manual, completions) = (folder.join("manual"), folder.join("completions"));
        for path in [&manual, &completions] {
            fs::create_dir_all(path).unwrap();
        }
        fs::write(manual.join("highwater.1"), ".TH highwater 1").unwrap();
        for (_, name) in SHELLS {
            fs::write(completions.join(name), "complete").unwrap();
        }
        let (binary, notices) = (folder.join("highwater"), folder.join("notices"));
        fs::write(&binary, "\x7fELF").unwrap();
        fs::write(&notices, "licences").unwrap();
        let help = super::super::build::ShellHelp { manual, completions };
        let parts = Parts { binary: &binary, notices: &notices, help: &help };
        let release =
            Release { version: "1.2.3".to_owned(), commit: "abc".to_owned(), epoch: 1_700_000_000 };
        package(Arch::Aarch64, &release, &parts, folder).unwrap()
    }

    /// Output of `dpkg-deb` about a package.
    fn dpkg(words: &[&str], package: &Path) -> String {
        let limit = std::time::Duration::from_secs(60);
        let mut dpkg = process::command("dpkg-deb");
        let outcome = process::run(dpkg.args(words).arg(package), None, limit).unwrap();
        assert!(outcome.success(), "{}", outcome.story());
        outcome.text()
    }

    #[test]
    fn a_package_installs_a_service_that_is_not_enabled_and_listens_on_loopback() {
        if !process::is_installed("dpkg-deb") {
            eprintln!("skipped: dpkg-deb is missing");
            return;
        }
        let folders = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let [package, again] = folders.each_ref().map(|folder| built(folder.path()));
        assert!(fs::read(&package).unwrap() == fs::read(again).unwrap(), "two builds differ");
        assert_eq!(package.file_name().unwrap(), "highwater_1.2.3_arm64.deb");
        for (field, value) in
            [("Version", "1.2.3"), ("Architecture", "arm64"), ("Depends", "passwd")]
        {
            let mut show = process::command("dpkg-deb");
            show.arg("--field").arg(&package).arg(field);
            let outcome =
                process::run(&mut show, None, std::time::Duration::from_secs(60)).unwrap();
            assert_eq!(outcome.text().trim(), value, "{field}");
        }
        assert_eq!(dpkg(&["--info"], &package).matches("/bin/sh").count(), 3, "three scripts");
        let contents = dpkg(&["--contents"], &package);
        for line in contents.lines() {
            assert!(line.split_whitespace().nth(1) == Some("root/root"), "{line}");
        }
        for (mode, path) in [
            ("-rwxr-xr-x", "./usr/bin/highwater"),
            ("-rw-r--r--", "./usr/lib/systemd/system/highwater.service"),
            ("-rw-r--r--", "./etc/highwater/highwater.properties"),
            ("-rw-r--r--", "./usr/share/man/man1/highwater.1.gz"),
            ("-rw-r--r--", "./usr/share/bash-completion/completions/highwater"),
            ("drwxr-xr-x", "./etc/highwater/"),
        ] {
            let is_there =
                |line: &str| line.starts_with(mode) && line.ends_with(&format!(" {path}"));
            assert!(contents.lines().any(is_there), "{path}:\n{contents}");
        }
        // A link below a folder of a target would enable the service.
        assert!(!contents.contains(".wants"), "{contents}");
        let unpacked = folders[0].path().join("unpacked");
        let mut extract = process::command("dpkg-deb");
        extract.arg("--extract").arg(&package).arg(&unpacked);
        let outcome = process::run(&mut extract, None, std::time::Duration::from_secs(60)).unwrap();
        assert!(outcome.success(), "{}", outcome.story());
        let text = fs::read_to_string(unpacked.join("etc/highwater/highwater.properties")).unwrap();
        let listeners = text.lines().filter(|line| line.starts_with("listeners="));
        assert_eq!(listeners.collect::<Vec<_>>(), ["listeners=PLAINTEXT://127.0.0.1:9092"]);
    }

    #[test]
    fn the_unit_is_valid_and_its_exposure_low() {
        assert!(is_accepted(&["verify"]));
        // Tenths: 3.0.
        assert!(is_accepted(&["security", "--offline=true", "--threshold=30"]));
    }
}
