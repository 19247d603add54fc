//! A connection that ends before its reader has asked anything, as one does that a gateway has accepted when it is killed: the
//! reader must come again. That comes to pass by chance where gateways are killed, and here each time.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::{Program, Reader};

/// How long a reader that is connected may take to ask.
const ASKED_IN: Duration = Duration::from_secs(10);
const ANSWER: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\ndata: 0\n\n";

/// Starts a reader of one record with each program.
pub(super) fn readers(programs: &[Program], folder: &Path) -> Result<Vec<Reader>> {
    let folder = folder.join("closed");
    fs::create_dir(&folder)?;
    let start = |program: &Program| program.start(&format!("http://{}", serve()?), 1, &folder);
    programs.iter().map(start).collect()
}

/// Closes the first connection at once, and answers on one of the others; the address. The thread ends then, or with this program.
fn serve() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?.to_string();
    thread::spawn(move || {
        drop(listener.accept());
        while let Ok((stream, _)) = listener.accept() {
            if answer(stream).is_ok() {
                return;
            }
        }
    });
    Ok(address)
}

/// Hears what is asked, and answers with one event.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_read_timeout(Some(ASKED_IN))?;
    for line in BufReader::new(stream.try_clone()?).lines() {
        if line?.is_empty() {
            return stream.write_all(ANSWER);
        }
    }
    Err(io::ErrorKind::UnexpectedEof.into())
}
