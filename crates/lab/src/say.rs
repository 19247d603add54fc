//! Writing to standard output when somebody may have stopped reading: `highwater lab list | head`; and to standard error
//! when the terminal may have been closed.

/// As `println!`, but ends the program quietly when nobody reads any more.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        if writeln!(std::io::stdout(), $($text)*).is_err() {
            std::process::exit(0);
        }
    }};
}

/// As `eprintln!`, but goes on when nobody reads any more: what was measured matters more than that it is told.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _gone = writeln!(std::io::stderr(), $($text)*);
    }};
}
pub(crate) use {say, tell};
