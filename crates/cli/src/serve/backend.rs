//! Which way I/O goes, found out before the first client comes.

use std::io;

use cryptline_engine::{Arena, BackendChoice, Ring};

use crate::CliError;
use crate::args::choice::ChoiceWords;

/// Entries that a connection's ring needs; see the session's own sizes.
const RING_DEPTH: u32 = 512;
const REGISTERED_BUFFERS: (usize, usize) = (16 * 1024, 64);

/// `--io`.
pub const IO: &ChoiceWords<BackendChoice> = &[
    ("auto", "io_uring if the kernel allows it, otherwise preadv/pwritev", BackendChoice::Auto),
    ("io_uring", "io_uring, or fail", BackendChoice::IoUring),
    ("preadv", "preadv2/pwritev2 and poll", BackendChoice::Syscalls),
    ("io-uring", "", BackendChoice::IoUring),
    ("pwritev", "", BackendChoice::Syscalls),
];

/// The way that works here.
pub struct WorkingBackend {
    /// For the server.
    pub choice: BackendChoice,
    /// For people.
    pub description: String,
}

impl WorkingBackend {
    /// Tries what is `asked` for.
    pub fn probe(asked: BackendChoice) -> Result<Self, CliError> {
        let plain =
            |why: &str| Self { choice: BackendChoice::Syscalls, description: format!("preadv/pwritev ({why})") };
        match (asked, try_uring()) {
            (BackendChoice::Syscalls, _) => Ok(plain("asked for by --io")),
            (BackendChoice::Auto, Err(error)) => Ok(plain(&format!("io_uring is not available: {}", why(&error)))),
            (_, Err(error)) => Err(CliError::parameters(format!(
                "io_uring is not available here ({}); use --io=auto or --io=preadv",
                why(&error)
            ))),
            (_, Ok(description)) => Ok(Self { choice: asked, description }),
        }
    }
}

fn try_uring() -> io::Result<String> {
    let mut ring = Ring::new(BackendChoice::IoUring, RING_DEPTH)?;
    let (size, count) = REGISTERED_BUFFERS;
    let registered = Arena::new(size, count).is_ok_and(|arena| ring.register(&arena));
    Ok(if registered { "io_uring, registered buffers" } else { "io_uring, buffers not registered (see `ulimit -l`)" }
        .to_owned())
}

/// A ring's memory counts as locked.
fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::OutOfMemory => format!("{error}; see `ulimit -l`"),
        _ => error.to_string(),
    }
}
