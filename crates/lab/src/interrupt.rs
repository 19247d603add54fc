//! Ctrl-C: the first ends what is being measured and keeps what was; the second ends the program.

use std::thread;

use perf::load::Stop;

/// Exit code of a program that was interrupted, as shells have it.
const INTERRUPTED: i32 = 130;

/// A signal that Ctrl-C or SIGTERM gives.
pub fn on_interrupt() -> Stop {
    let stop = Stop::default();
    let given = stop.clone();
    thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            interrupted().await;
            eprintln!("\nending; what was measured is kept (again to end at once)");
            given.stop();
            interrupted().await;
            std::process::exit(INTERRUPTED);
        });
    });
    stop
}

async fn interrupted() {
    use tokio::signal::unix::{SignalKind, signal};
    let (interrupt, terminate) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = (interrupt, terminate) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}
