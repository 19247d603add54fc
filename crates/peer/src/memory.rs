//! Holding the machine's free memory, touched, and giving it back as a run needs it.
//!
//! A virtual machine that reports free pages to its host pays a host page fault when it uses them
//! again, several times what writing to the page cache costs; whoever runs first would pay it. While
//! this holds the memory, the pages that a run gets were in use a moment before.

use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::procfs;

/// Large enough that the allocator maps and unmaps each block by itself.
const BLOCK_BYTES: usize = 64 << 20;
/// Blocks are given back while less than this is free.
const LOW_MIB: f64 = 700.0;
/// Blocks are taken while more than this is free.
const HIGH_MIB: f64 = 1300.0;
/// How often free memory is looked at.
const LOOK: Duration = Duration::from_millis(25);

/// A thread that holds memory until this is dropped.
pub struct MemoryHolder {
    /// Asks for a refill; the answer comes through the sender that is sent.
    refill: Option<Sender<Sender<usize>>>,
    thread: Option<JoinHandle<()>>,
}

impl MemoryHolder {
    /// Starts holding all but a little of what is free.
    pub fn start() -> MemoryHolder {
        let (refill, requests) = mpsc::channel();
        let thread = thread::spawn(move || hold(&requests));
        let holder = MemoryHolder { refill: Some(refill), thread: Some(thread) };
        eprintln!("holding {} MiB of memory", holder.refill());
        holder
    }

    /// Takes what became free since; to be called before each run. Returns how many MiB are held.
    pub fn refill(&self) -> usize {
        let (answer, held) = mpsc::channel();
        let asked = self.refill.as_ref().is_some_and(|refill| refill.send(answer).is_ok());
        if asked { held.recv().unwrap_or(0) } else { 0 }
    }
}

impl Drop for MemoryHolder {
    fn drop(&mut self) {
        self.refill = None;
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

fn hold(requests: &Receiver<Sender<usize>>) {
    let mut blocks: Vec<Vec<u8>> = Vec::new();
    let free = || procfs::free_mib().unwrap_or(0.0);
    loop {
        match requests.recv_timeout(LOOK) {
            Ok(answer) => {
                while free() > HIGH_MIB {
                    // A value other than 0, or the pages would not be touched.
                    blocks.push(vec![1; BLOCK_BYTES]);
                }
                let _gone = answer.send(blocks.len() * (BLOCK_BYTES >> 20));
            }
            Err(RecvTimeoutError::Timeout) => while free() < LOW_MIB && blocks.pop().is_some() {},
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
