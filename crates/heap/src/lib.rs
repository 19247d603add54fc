//! Giving memory back to the system that was freed and that the C library's allocator still holds.
//!
//! The only crate with unsafe code: no safe crate offers this call. Decision 0006 says why it is made.

use std::time::Duration;

/// Returns unused pages of the heap to the system; whether there were any. Goes over the whole heap,
/// a lock of the allocator held: some milliseconds for 100 MiB, in which other threads' allocations
/// may wait. Other allocators than glibc's have nothing to return.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "a C function; it has no safe wrapper")]
pub fn release_unused() -> bool {
    // SAFETY: `malloc_trim` takes a number, touches no memory that is in use, and may be called by any
    // thread at any time (MT-Safe in its manual).
    unsafe { libc::malloc_trim(0) == 1 }
}

/// The allocator of static binaries: musl's own serialises all threads by one lock (decision 0006).
#[cfg(all(target_os = "linux", target_env = "musl"))]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Returns unused pages of the calling thread's heap and of ended threads to the system. mimalloc reports no count, so the
/// result is always true.
#[cfg(all(target_os = "linux", target_env = "musl"))]
#[expect(unsafe_code, reason = "a C function; it has no safe wrapper")]
pub fn release_unused() -> bool {
    // SAFETY: `mi_collect` takes a flag, touches no memory that is in use, and may be called by any thread at any time.
    unsafe { libmimalloc_sys::mi_collect(true) };
    true
}

/// Other allocators keep less, or have no such call.
#[cfg(not(all(target_os = "linux", any(target_env = "gnu", target_env = "musl"))))]
pub fn release_unused() -> bool {
    false
}

/// Pause between two comparisons of resident and allocated bytes: a flood leaves some ten MiB of holes in a second.
const PERIOD: Duration = Duration::from_secs(1);
/// Anonymous bytes beyond the allocated ones that a process may keep: stacks, caches of threads, small holes.
const KEPT_BYTES: usize = 8 << 20;

/// Starts a thread that returns unused pages to the system for as long as the process lives: a flood of requests leaves
/// holes in the heap, and a process without requests would keep them. With musl it starts none: mimalloc returns pages by itself.
///
/// # Errors
/// The system starts no thread.
pub fn return_unused_pages() -> std::io::Result<()> {
    if cfg!(target_env = "musl") {
        return Ok(());
    }
    return_unused_every(PERIOD)
}

fn return_unused_every(period: Duration) -> std::io::Result<()> {
    let run = move || {
        // A fragmented heap keeps unused bytes: the next release waits until there are more.
        let mut left = 0;
        loop {
            std::thread::sleep(period);
            let unused = unused_bytes();
            left = unused.min(left);
            if unused > left + KEPT_BYTES {
                release_unused();
                left = unused_bytes();
            }
        }
    };
    std::thread::Builder::new().name("heap".to_owned()).spawn(run).map(drop)
}

/// Anonymous resident bytes beyond the allocated ones; 0 where the system does not report them.
fn unused_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = statm.split_whitespace().skip(1).map_while(|pages| pages.parse::<usize>().ok());
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    (resident.saturating_sub(shared) * rustix::param::page_size()).saturating_sub(allocated_bytes())
}

/// Bytes that the process has allocated from the heap and not freed, for tests of memory limits.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "a C function; it has no safe wrapper")]
pub fn allocated_bytes() -> usize {
    // SAFETY: `mallinfo2` takes nothing, returns numbers, and takes the allocator's locks itself.
    let info = unsafe { libc::mallinfo2() };
    info.uordblks + info.hblkhd
}

/// Other allocators report none.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
pub fn allocated_bytes() -> usize {
    usize::MAX
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use std::time::{Duration, Instant};

    /// Bytes resident now.
    fn resident_bytes() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").expect("this is Linux");
        let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<usize>().ok());
        pages.expect("the second number") * 4096
    }

    #[test]
    fn what_was_freed_between_what_is_used_goes_back_to_the_system() {
        const BYTES: usize = 16 << 10;
        let mut blocks: Vec<Option<Vec<u8>>> = (0..4096).map(|_| Some(vec![1; BYTES])).collect();
        let full = resident_bytes();
        // Every other one stays, so that the heap does not shrink by itself.
        blocks.iter_mut().step_by(2).for_each(|block| *block = None);
        assert!(super::release_unused());
        let kept = blocks.iter().flatten().map(Vec::len).sum::<usize>();
        let left = resident_bytes();
        assert!(left + kept / 2 < full, "{full} bytes before, {left} after, {kept} in use");

        // In the same test: a second one beside it would change the figures of the first.
        super::return_unused_every(Duration::from_millis(1)).expect("a thread starts");
        blocks.iter_mut().step_by(2).for_each(|block| *block = Some(vec![1; BYTES]));
        blocks.iter_mut().step_by(2).for_each(|block| *block = None);
        let deadline = Instant::now() + Duration::from_secs(60);
        while super::unused_bytes() > kept / 2 {
            assert!(Instant::now() < deadline, "{} bytes are unused", super::unused_bytes());
            std::thread::yield_now();
        }
    }
}
