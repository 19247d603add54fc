//! `user`: those who may come to a gateway and its console, in the file that `gateway.users.file` names. A gateway reads the file
//! again within a second; nothing has to be told to it.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::SystemTime;

use gateway::who::{passwords, tokens};
use rustix::fs::{FlockOperation, flock};
use serde::Serialize;
use serving::rights::{Rights, Role, Topics};
use serving::users::{self, NAME_BYTES_MAX, Token, Users, hex, topics_text};

use crate::arguments::User;
use crate::failure::{Failure, on_output};
use crate::output::{self, Row};

/// Digits of a token's hash that are shown, and by which it is named.
const SHOWN_DIGITS: usize = 12;

/// Makes, lists and removes users.
pub fn run(command: &User) -> Result<ExitCode, Failure> {
    match command {
        User::Add { name, role, topics, password_file, no_password, replace, users_file } => {
            let topics = users::topics(topics).ok_or_else(|| {
                Failure::new(format!("invalid prefixes of topics {topics:?}")).hint(
                    "write * for all topics, or prefixes with commas between them: orders.,logs.",
                )
            })?;
            let user = Wanted { name, role: *role, topics, replace: *replace };
            add(&users_file.path, user, password_file.as_deref(), *no_password)
        }
        User::Token { name, users_file } => add_token(&users_file.path, name),
        User::List { users_file, listing } => {
            let known = read(&users_file.path)?.ok_or_else(|| nowhere(&users_file.path))?;
            output::print(listing.format, &rows(&known))?;
            Ok(ExitCode::SUCCESS)
        }
        User::Remove { name, token, users_file } => {
            remove(&users_file.path, name, token.as_deref())
        }
    }
}

struct Wanted<'a> {
    name: &'a str,
    role: Role,
    topics: Topics,
    replace: bool,
}

fn add(
    file: &Path,
    wanted: Wanted<'_>,
    password_file: Option<&Path>,
    no_password: bool,
) -> Result<ExitCode, Failure> {
    let Wanted { name, role, topics, replace } = wanted;
    if !users::is_name(name) {
        return Err(Failure::new(format!("{name:?} cannot be the name of a user")).detail(
            format!(
                "expected 1 to {NAME_BYTES_MAX} letters, digits, dots, underscores, hyphens and @"
            ),
        ));
    }
    let said = password_file.map(read_password).transpose()?;
    let made_up = said.is_none() && !no_password;
    let password = if made_up { Some(tokens::make()) } else { said };
    let user = users::User {
        rights: Rights { role: Some(role), topics },
        password: password.as_deref().map(passwords::hash),
    };
    change(file, |known| {
        if known.users.contains_key(name) && !replace {
            return Err(Failure::new(format!("there is a user {name:?} already"))
                .hint("--replace changes role, topics and password, and keeps the tokens"));
        }
        known.users.insert(name.to_owned(), user);
        Ok(())
    })?;
    let shown = password.filter(|_| made_up);
    say(&shown
        .map_or(format!("user: {name}\n"), |made| format!("user: {name}\npassword: {made}\n")))
}

fn add_token(file: &Path, name: &str) -> Result<ExitCode, Failure> {
    let token = tokens::make();
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let made_s = since.map_or(0, |since| since.as_secs());
    change(file, |known| {
        if !known.users.contains_key(name) {
            return Err(no_user(name));
        }
        known.tokens.insert(tokens::hash(&token), Token { user: name.to_owned(), made_s });
        Ok(())
    })?;
    // Alone on its line, for programs; it is not shown again.
    say(&format!("{token}\n"))
}

fn remove(file: &Path, name: &str, token: Option<&str>) -> Result<ExitCode, Failure> {
    change(file, |known| match token {
        None if known.remove(name) => Ok(()),
        None => Err(no_user(name)),
        Some(token) => {
            let is_it = |hash: &[u8; 32], of: &Token| {
                of.user == name && token.len() >= SHOWN_DIGITS && hex(hash).starts_with(token)
            };
            let before = known.tokens.len();
            known.tokens.retain(|hash, of| !is_it(hash, of));
            match known.tokens.len() < before {
                true => Ok(()),
                false => Err(Failure::new(format!("{name:?} has no token {token:?}"))
                    .hint("highwater user list shows tokens by the first digits of their hashes")),
            }
        }
    })?;
    say(&format!("removed: {name}{}\n", token.map_or(String::new(), |token| format!(" {token}"))))
}

fn say(text: &str) -> Result<ExitCode, Failure> {
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(on_output)?;
    Ok(ExitCode::SUCCESS)
}

fn no_user(name: &str) -> Failure {
    Failure::new(format!("there is no user {name:?}")).hint("highwater user add makes one")
}

fn nowhere(file: &Path) -> Failure {
    Failure::new(format!("there is no file {}", file.display()))
        .hint("highwater user add NAME --role ROLE --users-file FILE makes it")
}

/// The first line of a file; `-` is standard input.
fn read_password(file: &Path) -> Result<String, Failure> {
    let failed = |error| Failure::new("cannot read the password").detail(error);
    let mut text = String::new();
    let limit = passwords::BYTES_MAX as u64 + 3;
    let read = match file == Path::new("-") {
        true => std::io::stdin().take(limit).read_to_string(&mut text),
        false => File::open(file).and_then(|file| file.take(limit).read_to_string(&mut text)),
    };
    read.map_err(failed)?;
    let password = text.lines().next().unwrap_or_default();
    if password.is_empty() || password.len() > passwords::BYTES_MAX {
        let detail = format!("expected 1 to {} bytes in the first line", passwords::BYTES_MAX);
        return Err(Failure::new("the password cannot be used").detail(detail));
    }
    Ok(password.to_owned())
}

/// The users in a file; `None` if it is not there.
fn read(path: &Path) -> Result<Option<Users>, Failure> {
    let failed = || Failure::new(format!("{} cannot be used", path.display()));
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed().detail(error)),
    };
    Users::parse(&text).map(Some).map_err(|error| {
        failed()
            .detail(error)
            .hint("take the file back from a copy, or move it away and make the users anew")
    })
}

/// Changes a file as a whole: whoever reads it finds what it was or what it is, and of two that change it one waits.
fn change(
    path: &Path,
    change: impl FnOnce(&mut Users) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(format!("cannot write {}", path.display())).detail(error)
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let folder = File::open(parent.unwrap_or(Path::new("."))).map_err(failed)?;
    flock(&folder, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
    let mut known = read(path)?.unwrap_or_default();
    change(&mut known)?;
    let new = PathBuf::from(format!("{}.new", path.display()));
    let write = || {
        // What a process that was killed has left of one.
        let _ = fs::remove_file(&new);
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
        // Whoever runs the gateway goes on to be able to read it.
        if let Ok(before) = fs::metadata(path) {
            file.set_permissions(before.permissions())?;
        }
        file.write_all(known.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        folder.sync_all()
    };
    write().map_err(failed)
}

/// A user as it is listed.
#[derive(Debug, Serialize)]
struct Listed {
    user: String,
    role: &'static str,
    topics: String,
    password: bool,
    tokens: Vec<String>,
}

impl Row for Listed {
    const HEADERS: &'static [&'static str] = &["USER", "ROLE", "TOPICS", "PASSWORD", "TOKENS"];

    fn cells(&self) -> Vec<String> {
        let tokens = if self.tokens.is_empty() { "-".to_owned() } else { self.tokens.join(" ") };
        let password = if self.password { "yes" } else { "no" };
        vec![
            self.user.clone(),
            self.role.to_owned(),
            self.topics.clone(),
            password.to_owned(),
            tokens,
        ]
    }
}

fn rows(known: &Users) -> Vec<Listed> {
    let tokens = |name: &str| {
        let of = known.tokens.iter().filter(|(_, token)| token.user == name);
        of.map(|(hash, _)| hex(hash)[..SHOWN_DIGITS].to_owned()).collect()
    };
    let row = |(name, user): (&String, &users::User)| Listed {
        user: name.clone(),
        role: user.rights.role.map_or("-", Role::name),
        topics: topics_text(&user.rights.topics),
        password: user.password.is_some(),
        tokens: tokens(name),
    };
    known.users.iter().map(row).collect()
}
