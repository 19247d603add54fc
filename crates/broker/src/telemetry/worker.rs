//! A thread that looks at the broker for whoever asks over HTTP: one look at a time, and what it gave
//! serves everybody for a second. Looking takes partitions' locks and may take long, so it happens
//! neither on a thread that serves requests nor on one of the runtime's blocking threads, which others
//! need.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tracing::error;

/// How long what was seen is shown.
const FRESH: Duration = Duration::from_secs(1);
/// Questions that may wait.
const WAITING_MAX: usize = 64;

type Asked<K, T> = (K, oneshot::Sender<T>);

/// The thread, seen by those who ask. It ends with the last of them.
#[derive(Debug)]
pub struct Worker<K, T> {
    questions: SyncSender<Asked<K, T>>,
}

impl<K, T> Clone for Worker<K, T> {
    fn clone(&self) -> Worker<K, T> {
        Worker { questions: self.questions.clone() }
    }
}

impl<K: Copy + PartialEq + Send + 'static, T: Clone + Send + 'static> Worker<K, T> {
    /// Starts the thread; `look` answers a question. Errors: the system gives no thread.
    pub fn start(
        name: &str,
        look: impl Fn(K) -> T + Send + 'static,
    ) -> std::io::Result<Worker<K, T>> {
        let (questions, asked) = sync_channel::<Asked<K, T>>(WAITING_MAX);
        let thread = std::thread::Builder::new().name(name.to_owned());
        thread.spawn(move || {
            // There are few kinds of questions.
            let mut seen: Vec<(K, Instant, T)> = Vec::new();
            while let Ok((question, answer)) = asked.recv() {
                seen.retain(|(_, at, _)| at.elapsed() < FRESH);
                let known = seen.iter().find(|(known, _, _)| *known == question);
                let found = match known {
                    Some((_, _, found)) => found.clone(),
                    None => {
                        let found = look(question);
                        seen.push((question, Instant::now(), found.clone()));
                        found
                    }
                };
                // Whoever asked may have gone.
                let _ = answer.send(found);
            }
        })?;
        Ok(Worker { questions })
    }

    /// Asks. `None`: too many are asking.
    pub async fn ask(&self, question: K) -> Option<T> {
        let (answer, answered) = oneshot::channel();
        self.questions.try_send((question, answer)).ok()?;
        let found = answered.await;
        if found.is_err() {
            error!("a bug: looking at the broker for metrics panicked");
        }
        found.ok()
    }
}
