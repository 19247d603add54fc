//! Threads and tasks without which the broker must not go on: a panic in one of them ends the process.
//!
//! A broker that lives on without its chores fills the disk, without its cleaner grows for ever, and
//! without the task of a coordinator leaves a group with sessions that never end; nobody would notice
//! before the damage is done. A supervisor starts a process that ended again. What runs for one client
//! is not vital: its panic costs that connection.

use std::future::{Future, poll_fn};
use std::pin::pin;

use tracing::error;

/// Ends the process when it is dropped by a panic.
struct Vital(&'static str);

impl Drop for Vital {
    fn drop(&mut self) {
        if std::thread::panicking() {
            error!(
                what = self.0,
                "a bug: this part of the broker panicked, and the broker cannot go on without it"
            );
            std::process::abort();
        }
    }
}

/// Runs `work`, on a thread of its own.
pub fn thread<T>(name: &'static str, work: impl FnOnce() -> T) -> T {
    let _guard = Vital(name);
    work()
}

/// Runs `work`, as a task of its own. A task that is dropped has not panicked, although its thread may: a runtime ends with the
/// thread that owns it.
pub async fn task<T>(name: &'static str, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    poll_fn(|context| {
        let _guard = Vital(name);
        work.as_mut().poll(context)
    })
    .await
}

/// Runs `work` on a thread that may wait for a disk, or for a lock that is held while one is waited for: the threads of runtimes
/// carry what must not. A panic goes on in the caller. `None`: the runtime ends.
pub async fn waiting<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Some(done),
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    const CHILD: &str = "HIGHWATER_TEST_VITAL";

    /// Runs the test of this name in a process of its own; the signal that ended it.
    fn signal_of(test: &str) -> Option<i32> {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args([test, "--exact", "--nocapture"]).env(CHILD, "1");
        child.output().unwrap().status.signal()
    }

    const SIGABRT: i32 = 6;

    #[test]
    fn a_panic_in_a_vital_thread_ends_the_process() {
        if std::env::var_os(CHILD).is_none() {
            let name = "vital::tests::a_panic_in_a_vital_thread_ends_the_process";
            assert_eq!(signal_of(name), Some(SIGABRT));
            return;
        }
        let thread = std::thread::spawn(|| thread("chores", || panic!("a bug")));
        let _ = thread.join();
    }

    #[test]
    fn a_panic_in_a_vital_task_ends_the_process() {
        if std::env::var_os(CHILD).is_none() {
            let name = "vital::tests::a_panic_in_a_vital_task_ends_the_process";
            assert_eq!(signal_of(name), Some(SIGABRT));
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let broken = async {
            tokio::task::yield_now().await;
            panic!("a bug")
        };
        let _: Result<(), _> =
            runtime.block_on(async { tokio::spawn(task("groups", broken)).await });
    }

    #[test]
    fn a_panic_of_the_thread_that_owns_the_runtime_is_none_of_its_tasks() {
        if std::env::var_os(CHILD).is_none() {
            let name =
                "vital::tests::a_panic_of_the_thread_that_owns_the_runtime_is_none_of_its_tasks";
            assert_eq!(signal_of(name), None);
            return;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            tokio::spawn(task("groups", std::future::pending::<()>()));
            tokio::task::yield_now().await;
            panic!("a failed test");
        });
    }
}
