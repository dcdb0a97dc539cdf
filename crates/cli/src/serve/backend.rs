//! Which way I/O goes, found out before the first client comes.

use std::io;

use clap::ValueEnum;
use cryptline_engine::{Arena, BackendChoice, Ring};

use crate::CliError;

/// What a connection's ring needs; see the session's own sizes.
const RING_DEPTH: u32 = 512;
const REGISTERED_BUFFERS: (usize, usize) = (16 * 1024, 64);

/// `--io`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum IoMode {
    /// io_uring if the kernel allows it, otherwise preadv/pwritev
    #[default]
    Auto,
    /// io_uring, or fail
    #[value(name = "io_uring", alias = "io-uring")]
    IoUring,
    /// preadv2/pwritev2 and poll
    #[value(alias = "pwritev")]
    Preadv,
}

/// The way that works here.
pub struct Backend {
    /// For the server.
    pub choice: BackendChoice,
    /// For people.
    pub description: String,
}

impl Backend {
    /// Tries what `mode` asks for.
    pub fn probe(mode: IoMode) -> Result<Self, CliError> {
        let plain = |why: &str| Self {
            choice: BackendChoice::Syscalls,
            description: format!("preadv/pwritev ({why})"),
        };
        match (mode, try_uring()) {
            (IoMode::Preadv, _) => Ok(plain("asked for by --io")),
            (IoMode::Auto, Err(error)) => Ok(plain(&format!(
                "io_uring is not available: {}",
                why(&error)
            ))),
            (IoMode::IoUring, Err(error)) => Err(CliError::parameters(format!(
                "io_uring is not available here ({}); use --io=auto or --io=preadv",
                why(&error)
            ))),
            (_, Ok(description)) => Ok(Self {
                choice: match mode {
                    IoMode::IoUring => BackendChoice::IoUring,
                    _ => BackendChoice::Auto,
                },
                description,
            }),
        }
    }
}

fn try_uring() -> io::Result<String> {
    let mut ring = Ring::new(BackendChoice::IoUring, RING_DEPTH)?;
    let (size, count) = REGISTERED_BUFFERS;
    let registered = Arena::new(size, count).is_ok_and(|arena| ring.register(&arena));
    Ok(if registered {
        "io_uring, registered buffers"
    } else {
        "io_uring, buffers not registered (see `ulimit -l`)"
    }
    .to_owned())
}

/// A ring's memory counts as locked.
fn why(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::OutOfMemory => format!("{error}; see `ulimit -l`"),
        _ => error.to_string(),
    }
}
