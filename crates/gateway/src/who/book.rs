//! The file of users as it is believed at the moment. It is looked at once a second at most, when somebody asks; one that cannot
//! be read, or is damaged, changes nothing and is reported: those that were known stay so.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use std::time::{Duration, Instant};

use ring::digest::{SHA256, digest};
use serving::rights::Rights;
use serving::users::{Damage, FILE_BYTES_MAX, TokenHash, Users, topics_text};
use tokio::sync::Mutex;
use tracing::{info, warn};

use super::login::LoginChanges;
use super::{passwords, tokens};

/// How long the file is believed without a look at it.
const FRESH: Duration = Duration::from_secs(1);

/// Why a file of users cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BookError {
    /// It cannot be read.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is damaged.
    #[error("{0}")]
    Damage(#[from] Damage),
    /// The hash of a password is not one.
    #[error(
        "the hash of {0:?}'s password cannot be checked: give the user a new one (highwater user add)"
    )]
    Hash(String),
}

/// A user as it is believed.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) name: Arc<str>,
    pub(super) rights: Arc<Rights>,
    pub(super) password: Option<String>,
    /// A piece of the hash of its entry.
    pub(super) stamp: u64,
}

/// All users.
#[derive(Debug, Default)]
pub(crate) struct Book {
    users: HashMap<Arc<str>, Arc<Known>>,
    tokens: HashMap<TokenHash, Arc<Known>>,
}

impl Book {
    pub(super) fn of(users: &Users) -> Result<Book, BookError> {
        let mut book = Book::default();
        for (name, user) in &users.users {
            if !user.password.as_deref().is_none_or(passwords::is_usable) {
                return Err(BookError::Hash(name.clone()));
            }
            let role = user.rights.role.map_or("", serving::rights::Role::name);
            let topics = topics_text(&user.rights.topics);
            let password = user.password.as_deref().unwrap_or("-");
            let entry = digest(&SHA256, format!("{name} {role} {topics} {password}").as_bytes());
            let stamp = entry.as_ref()[..8].try_into().expect("a hash has more than eight bytes");
            let name: Arc<str> = Arc::from(&**name);
            let known = Known {
                name: Arc::clone(&name),
                rights: Arc::new(user.rights.clone()),
                password: user.password.clone(),
                stamp: u64::from_be_bytes(stamp),
            };
            book.users.insert(name, Arc::new(known));
        }
        for (hash, token) in &users.tokens {
            let known = book.users.get(&*token.user).expect("a token has a user in its file");
            book.tokens.insert(*hash, Arc::clone(known));
        }
        Ok(book)
    }

    pub(super) fn has_token(&self, hash: &TokenHash) -> bool {
        self.tokens.contains_key(hash)
    }

    pub(super) fn user(&self, name: &str) -> Option<&Arc<Known>> {
        self.users.get(name)
    }

    /// Whose token this is. That it is looked for by its hash tells nobody who measures the time anything about it.
    pub(super) fn by_token(&self, token: &str) -> Option<&Arc<Known>> {
        self.tokens.get(&tokens::hash(token))
    }
}

/// What a file is told by from another one of its name: device, inode, size, time.
pub(super) type Mark = (u64, u64, u64, i64, i64);

fn load(path: &Path) -> Result<(Mark, Book), BookError> {
    let file = File::open(path)?;
    let mark = mark(&file.metadata()?);
    let mut text = String::new();
    file.take(FILE_BYTES_MAX as u64 + 1).read_to_string(&mut text)?;
    Ok((mark, Book::of(&Users::parse(&text)?)?))
}

pub(super) fn mark(of: &std::fs::Metadata) -> Mark {
    (of.dev(), of.ino(), of.size(), of.mtime(), of.mtime_nsec())
}

/// Reads a file of users, and says how many there are.
///
/// # Errors
/// It cannot be used.
pub fn check_file(path: &Path) -> Result<usize, BookError> {
    load(path).map(|(_, book)| book.users.len())
}

/// Follows the file.
pub(super) struct Keeper {
    path: PathBuf,
    book: RwLock<Arc<Book>>,
    looked: Mutex<Looked>,
    looked_at: RwLock<Option<Instant>>,
    /// Times that the file had changed and could not be used.
    failed_reloads: AtomicU64,
    changes: LoginChanges,
}

/// What was seen last.
#[derive(Default)]
struct Looked {
    mark: Option<Mark>,
    /// What was said of a file that cannot be used, so that it is said once.
    said: Option<String>,
    /// The file that cannot be used, so that it is counted once: its mark, `None` if there is no file.
    refused: Option<Option<Mark>>,
}

impl Keeper {
    pub(super) fn new(path: PathBuf, changes: LoginChanges) -> Keeper {
        Keeper {
            path,
            book: RwLock::default(),
            looked: Mutex::default(),
            looked_at: RwLock::default(),
            failed_reloads: AtomicU64::default(),
            changes,
        }
    }

    /// Times that the file had changed and could not be used.
    pub(super) fn failed_reloads(&self) -> u64 {
        self.failed_reloads.load(Ordering::Relaxed)
    }

    fn is_fresh(&self) -> bool {
        let at = *self.looked_at.read().expect("no code under it panics");
        at.is_some_and(|at| at.elapsed() < FRESH)
    }

    /// The users, by a look at the file that is a second old at most.
    pub(super) async fn book(&self) -> Arc<Book> {
        if !self.is_fresh() {
            let mut looked = self.looked.lock().await;
            if !self.is_fresh() {
                self.look(&mut looked).await;
            }
        }
        self.book_now()
    }

    /// The users as they were read last.
    pub(super) fn book_now(&self) -> Arc<Book> {
        Arc::clone(&self.book.read().expect("no code under it panics"))
    }

    async fn look(&self, looked: &mut Looked) {
        let (path, before) = (self.path.clone(), looked.mark);
        let found = tokio::task::spawn_blocking(move || {
            let now = std::fs::metadata(&path).map(|found| mark(&found));
            let seen = now.as_ref().ok().copied();
            let found = match now {
                Ok(now) if Some(now) == before => Ok(None),
                Ok(_) => load(&path).map(Some),
                Err(error) => Err(error.into()),
            };
            (seen, found)
        });
        let (seen, found) = found
            .await
            .unwrap_or_else(|_| (None, Err(io::Error::other("the look was ended").into())));
        match found {
            Ok(None) => (looked.said, looked.refused) = (None, None),
            Ok(Some((mark, book))) => {
                info!(users = book.users.len(), "the file of users was read");
                *self.book.write().expect("no code under it panics") = Arc::new(book);
                self.changes.announce();
                *looked = Looked { mark: Some(mark), said: None, refused: None };
            }
            Err(cause) => {
                let cause = cause.to_string();
                if looked.refused.replace(seen) != Some(seen) {
                    self.failed_reloads.fetch_add(1, Ordering::Relaxed);
                }
                if looked.said.as_ref() != Some(&cause) {
                    let file = self.path.display();
                    warn!(
                        "{file} (gateway.users.file) cannot be used, and those who were known stay so: {cause}"
                    );
                    looked.said = Some(cause);
                }
            }
        }
        *self.looked_at.write().expect("no code under it panics") = Some(Instant::now());
    }
}
