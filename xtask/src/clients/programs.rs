//! Client libraries: small programs under `conformance/`, one a client, installed with the package
//! manager of their language into the cache folder.
//!
//! A program knows three calls. `PROGRAM list` prints the library's version, then a scenario a line.
//! `PROGRAM run SCENARIO` ends with 0 when all held, with 77 when the scenario cannot run (its last
//! line says why), and with anything else when something did not hold. Where the cluster is comes in
//! `BOOTSTRAP`, a word that no other run uses in `RUN`.

use std::collections::hash_map::DefaultHasher;
use std::ffi::OsString;
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::report::{Ending, Row, print_row};
use super::scenario::rounded;
use super::target::Target;
use super::{Arguments, RESTARTS};
use crate::repository::repository;
use peer::process;
use peer::{cache, download};

/// How long one scenario may take.
const SCENARIO_LIMIT: Duration = Duration::from_secs(90);
/// How long the one may take that waits for brokers to be killed.
const RESTARTS_LIMIT: Duration = Duration::from_secs(300);
/// How long one attempt at an installation may take.
const INSTALL_LIMIT: Duration = Duration::from_secs(900);
/// The exit code that means: this cannot run here.
const SKIP: i32 = 77;

/// One client library.
#[derive(Debug)]
pub struct Program {
    /// The library's name, which is its folder's.
    pub client: &'static str,
    /// Its language.
    language: Language,
}

#[derive(Clone, Copy, Debug)]
enum Language {
    Python,
    Node,
    Go,
}

/// All of them.
pub const PROGRAMS: [Program; 6] = [
    Program { client: "confluent-kafka", language: Language::Python },
    Program { client: "kafka-python", language: Language::Python },
    Program { client: "aiokafka", language: Language::Python },
    Program { client: "kafkajs", language: Language::Node },
    Program { client: "franz-go", language: Language::Go },
    Program { client: "sarama", language: Language::Go },
];

/// Program and leading arguments that start it, with what it needs in its environment.
#[derive(Clone, Debug)]
pub struct Installed {
    program: PathBuf,
    arguments: Vec<OsString>,
    environment: Vec<(&'static str, OsString)>,
}

impl Installed {
    /// A shell's script that runs it with `argument`.
    pub fn script(&self, argument: &str) -> String {
        let set = self
            .environment
            .iter()
            .map(|(key, value)| quoted(&format!("{key}={}", value.display())));
        let words = self.arguments.iter().map(|word| quoted(&word.display().to_string()));
        let program = quoted(&self.program.display().to_string());
        let all: Vec<String> =
            set.chain([program]).chain(words).chain([quoted(argument)]).collect();
        format!("#!/bin/sh\nexec env {}\n", all.join(" "))
    }

    /// A command that runs it against a target.
    fn command_for(&self, target: &Target, run: &str) -> Command {
        let mut command = self.command(&target.bootstrap, run);
        command.env("BROKERS", target.brokers.to_string());
        command.env("REPLICAS", target.replicas().to_string());
        command
    }

    /// A command that runs it against `bootstrap`, of one broker.
    pub fn command(&self, bootstrap: &str, run: &str) -> Command {
        let mut command = process::command(&self.program);
        command.args(&self.arguments).envs(self.environment.iter().cloned());
        command.env("BOOTSTRAP", bootstrap).env("RUN", run);
        command
    }
}

/// One word to a shell, whatever is in it.
pub fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Installs a client (once) and runs all its scenarios; when it cannot be installed, one row says so.
pub fn run(
    arguments: &Arguments,
    program: &Program,
    target: &Target,
    run: &str,
    rows: &mut Vec<Row>,
) -> Result<()> {
    let prepared = install(program).and_then(|installed| {
        let (version, scenarios) = describe(&installed)?;
        Ok((installed, version, scenarios))
    });
    let mut add = |row: Row| {
        print_row(&row);
        rows.push(row);
    };
    match prepared {
        Ok((installed, version, scenarios)) => {
            for scenario in scenarios.iter().filter(|name| arguments.wants_scenario(name)) {
                let attempt = |prefix: &str| {
                    let name = format!("{prefix}-{}", program.client);
                    let mut command = installed.command_for(target, &name);
                    command.args(["run", scenario]);
                    run_scenario(program.client, &version, scenario, &mut command)
                };
                let first = attempt(run)?;
                let row = match first.result {
                    Ending::Fail if scenario != RESTARTS => {
                        first.or_second(attempt(&format!("{run}b"))?)
                    }
                    _ => first,
                };
                add(row);
            }
        }
        Err(why) => add(Row {
            client: program.client.to_owned(),
            version: String::new(),
            scenario: "all".to_owned(),
            result: Ending::Skip,
            reason: format!("cannot be installed here: {why:#}"),
            seconds: 0.0,
        }),
    }
    Ok(())
}

/// Version and scenarios, as the program says them.
fn describe(installed: &Installed) -> Result<(String, Vec<String>)> {
    let mut command = installed.command("", "");
    let outcome = process::run(command.arg("list"), None, SCENARIO_LIMIT)?;
    ensure!(outcome.success(), "`list` failed: {}", outcome.story());
    let text = outcome.text();
    let mut lines = text.lines().map(str::to_owned);
    let version = lines.next().context("`list` says nothing")?;
    Ok((version, lines.collect()))
}

fn run_scenario(client: &str, version: &str, scenario: &str, command: &mut Command) -> Result<Row> {
    let limit = if scenario == RESTARTS { RESTARTS_LIMIT } else { SCENARIO_LIMIT };
    let outcome = process::run(command, None, limit)?;
    let code = outcome.status.and_then(|status| status.code());
    let (result, reason) = match code {
        // What there is to tell of a scenario that held: what the client told its user.
        Some(0) => (Ending::Pass, told(&outcome.text())),
        Some(SKIP) => {
            let text = outcome.text();
            (Ending::Skip, text.lines().last().unwrap_or("without a word").to_owned())
        }
        _ => (Ending::Fail, outcome.story()),
    };
    Ok(Row {
        client: client.to_owned(),
        version: version.to_owned(),
        scenario: scenario.to_owned(),
        result,
        reason,
        seconds: rounded(outcome.elapsed),
    })
}

/// The rest of the last line that begins with the word for it.
fn told(text: &str) -> String {
    let lines = text.lines().rev();
    lines.filter_map(|line| line.strip_prefix("told: ")).next().unwrap_or_default().to_owned()
}

/// The program named `client`, ready to run.
pub fn installed(client: &str) -> Result<Installed> {
    let program = PROGRAMS.iter().find(|program| program.client == client);
    install(program.with_context(|| format!("no client {client}"))?)
}

fn install(program: &Program) -> Result<Installed> {
    let conformance = repository().join("conformance");
    match program.language {
        Language::Python => install_python(&conformance, program.client),
        Language::Node => install_node(&conformance, program.client),
        Language::Go => install_go(&conformance, program.client),
    }
}

/// A virtual environment with these pinned packages, made once.
pub fn python_environment(requirements: &Path) -> Result<PathBuf> {
    let requirements = requirements.to_owned();
    cache::once(&stamped("python", &[&requirements])?, |fresh| {
        eprintln!("installing {} …", requirements.display());
        must_run(process::command("python3").args(["-m", "venv"]).arg(fresh))?;
        let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r"];
        must_run(process::command(fresh.join("bin/python")).args(pip).arg(&requirements))
    })
}

/// The Python clients, all three in one environment.
fn install_python(conformance: &Path, client: &str) -> Result<Installed> {
    let folder = python_environment(&conformance.join("python/requirements.txt"))?;
    Ok(Installed {
        program: folder.join("bin/python"),
        arguments: vec![conformance.join(client).join("main.py").into()],
        environment: vec![
            ("PYTHONPATH", conformance.join("python").into()),
            ("PYTHONDONTWRITEBYTECODE", "1".into()),
        ],
    })
}

/// The modules of `package-lock.json`, beside the cache; CommonJS finds them by NODE_PATH.
fn install_node(conformance: &Path, client: &str) -> Result<Installed> {
    let source = conformance.join(client);
    let modules = node_modules(&source)?;
    Ok(Installed {
        program: "node".into(),
        arguments: vec![source.join("main.js").into()],
        environment: vec![("NODE_PATH", modules.into())],
    })
}

/// The modules of the `package-lock.json` in this folder, installed once.
pub fn node_modules(source: &Path) -> Result<PathBuf> {
    let files = [source.join("package.json"), source.join("package-lock.json")];
    let folder = cache::once(&stamped("node", &[&files[0], &files[1]])?, |fresh| {
        eprintln!("installing {} …", files[0].display());
        for file in &files {
            fs::copy(file, fresh.join(file.file_name().expect("both are files")))?;
        }
        let ci = ["ci", "--silent", "--no-audit", "--no-fund", "--ignore-scripts"];
        must_run(process::command("npm").args(ci).current_dir(fresh))
    })?;
    Ok(folder.join("node_modules"))
}

/// Go programs are built each time: the compiler's own cache makes that quick.
fn install_go(conformance: &Path, client: &str) -> Result<Installed> {
    let module = conformance.join("go");
    let binary = cache::folder()?.join("go").join(client);
    // A program that runs cannot be written, and two steps may build one at the same moment.
    let lock = fs::File::create(cache::folder()?.join("go.lock"))?;
    lock.lock()?;
    let mut go = process::command("go");
    go.args(["build", "-mod=readonly", "-o"]).arg(&binary).arg(format!("./{client}"));
    must_run(go.current_dir(module))?;
    Ok(Installed { program: binary, arguments: Vec::new(), environment: Vec::new() })
}

fn must_run(command: &mut Command) -> Result<()> {
    let outcome = download::run(command, INSTALL_LIMIT)?;
    ensure!(outcome.success(), "{command:?}: {}", outcome.story());
    Ok(())
}

/// A folder name that changes with the contents of `files`, so that a new version is installed anew.
fn stamped(word: &str, files: &[&PathBuf]) -> Result<String> {
    let mut hasher = DefaultHasher::new();
    for file in files {
        fs::read(file)
            .with_context(|| format!("cannot read {}", file.display()))?
            .hash(&mut hasher);
    }
    Ok(format!("{word}-{:016x}", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(script: &str) -> Row {
        let mut shell = process::command("sh");
        run_scenario("c", "1", "s", shell.args(["-c", script])).unwrap()
    }

    #[test]
    fn a_script_runs_the_program_as_it_is_installed() {
        let installed = Installed {
            program: "sh".into(),
            arguments: vec!["-c".into(), "echo \"$WORD\" \"it's\" $0".into()],
            environment: vec![("WORD", "a b'c".into())],
        };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("script");
        fs::write(&path, installed.script("produce")).unwrap();
        let outcome = process::run(process::command("sh").arg(path), None, SCENARIO_LIMIT).unwrap();
        assert_eq!(outcome.text(), "a b'c it's produce\n");
    }

    #[test]
    fn the_exit_code_says_how_a_scenario_ended() {
        assert_eq!(row("exit 0").result, Ending::Pass);
        assert_eq!(row("echo told: one time-out; echo more").reason, "one time-out");
        assert_eq!(row("echo told nothing").reason, "");
        assert_eq!(row("echo no zstd here; exit 77").result, Ending::Skip);
        assert_eq!(row("echo no zstd here; exit 77").reason, "no zstd here");
        let failed = row("echo 3 of 4 records >&2; exit 1");
        assert_eq!(failed.result, Ending::Fail);
        assert!(failed.reason.contains("3 of 4 records"), "{}", failed.reason);
    }

    #[test]
    fn a_program_that_dies_has_failed() {
        assert_eq!(row("kill -9 $$").result, Ending::Fail);
    }

    #[test]
    fn a_changed_file_changes_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("requirements.txt");
        fs::write(&file, "a==1").unwrap();
        let before = stamped("python", &[&file]).unwrap();
        fs::write(&file, "a==2").unwrap();
        assert_ne!(before, stamped("python", &[&file]).unwrap());
    }
}
