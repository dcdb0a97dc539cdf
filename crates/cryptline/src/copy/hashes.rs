//! Hashes of all that was read of the source, from its first byte to its last, in the pass that copies it.
//!
//! A hash takes bytes in their order, and one core takes about as long for it as the copy does. So a copy with hashes has
//! one [worker](super::worker), which waits for the chunk whose turn it is; and each function has a thread, to which the
//! chunks are copied. None is further behind than [`WAITING`] chunks.

use std::fmt;
use std::io;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread::{self, JoinHandle};

use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

use super::CopyTrouble;

/// Chunks that may wait for a function.
const WAITING: usize = 4;
/// Buffers in use at most: those that wait, one that is hashed, and the next.
const BUFFERS: usize = WAITING + 2;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A function that a copy is hashed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CopyHash {
    /// Not safe against collisions, but old cases have it.
    Md5,
    /// As unsafe.
    Sha1,
    /// The usual one.
    Sha256,
    /// The same with longer values.
    Sha512,
}

impl CopyHash {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Md5, Self::Sha1, Self::Sha256, Self::Sha512];

    /// Its name, such as `sha256`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha256 => "sha256",
            Self::Sha512 => "sha512",
        }
    }

    fn work(self, pieces: &Receiver<HashedPiece>) -> Vec<u8> {
        match self {
            Self::Md5 => hash::<Md5>(pieces),
            Self::Sha1 => hash::<Sha1>(pieces),
            Self::Sha256 => hash::<Sha256>(pieces),
            Self::Sha512 => hash::<Sha512>(pieces),
        }
    }
}

impl FromStr for CopyHash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|it| it.name() == text);
        found.ok_or_else(|| format!("use {}", Self::ALL.map(Self::name).join(", ")))
    }
}

impl fmt::Display for CopyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The hash of a whole copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyHashed {
    /// The function.
    pub function: CopyHash,
    /// Its value.
    pub value: Vec<u8>,
}

impl CopyHashed {
    /// The value as programs print it.
    #[must_use]
    pub fn hex(&self) -> String {
        crate::hex(&self.value)
    }
}

/// The next bytes.
#[derive(Clone)]
enum HashedPiece {
    Bytes(Arc<Vec<u8>>),
    Zeros(u64),
}

/// Threads that hash, and what they have been told.
pub(super) struct Hashes {
    running: Vec<RunningHash>,
    /// Those that no thread has any more are used again.
    buffers: Vec<Arc<Vec<u8>>>,
    /// Bytes that were hashed, or wait for it.
    pub len: u64,
}

struct RunningHash {
    function: CopyHash,
    pieces: SyncSender<HashedPiece>,
    thread: JoinHandle<Vec<u8>>,
}

impl Hashes {
    /// Starts them; `None` where there is nothing to hash with.
    pub fn start(functions: &[CopyHash]) -> Result<Option<Self>, CopyTrouble> {
        let start = |&function: &CopyHash| -> io::Result<RunningHash> {
            let (pieces, taken) = mpsc::sync_channel(WAITING);
            let named = thread::Builder::new().name(format!("hash-{function}"));
            let thread = named.spawn(move || function.work(&taken))?;
            Ok(RunningHash { function, pieces, thread })
        };
        if functions.is_empty() {
            return Ok(None);
        }
        let running = functions.iter().map(start).collect::<io::Result<_>>().map_err(CopyTrouble::Thread)?;
        Ok(Some(Self { running, buffers: Vec::with_capacity(BUFFERS), len: 0 }))
    }

    /// Adds bytes.
    pub fn add(&mut self, bytes: &[u8]) {
        let spare = self.buffers.iter().position(|buffer| Arc::strong_count(buffer) == 1);
        let mut buffer = spare.map_or_else(Arc::default, |place| self.buffers.swap_remove(place));
        let own = Arc::get_mut(&mut buffer).expect("nobody else has it");
        own.clear();
        own.extend_from_slice(bytes);
        self.len += bytes.len() as u64;
        self.tell(&HashedPiece::Bytes(Arc::clone(&buffer)));
        self.buffers.push(buffer);
    }

    /// Adds zeros.
    pub fn add_zeros(&mut self, len: u64) {
        self.len += len;
        self.tell(&HashedPiece::Zeros(len));
    }

    fn tell(&self, piece: &HashedPiece) {
        for running in &self.running {
            // Only a panic ends a thread before; `finish` passes it on.
            let _ = running.pieces.send(piece.clone());
        }
    }

    /// Returns the values, in the order of the functions.
    pub fn finish(self) -> Vec<CopyHashed> {
        let end = |RunningHash { function, pieces, thread }| {
            drop(pieces);
            match thread.join() {
                Ok(value) => CopyHashed { function, value },
                Err(panic) => std::panic::resume_unwind(panic),
            }
        };
        self.running.into_iter().map(end).collect()
    }
}

fn hash<D: Digest>(pieces: &Receiver<HashedPiece>) -> Vec<u8> {
    let mut hash = D::new();
    for piece in pieces {
        match piece {
            HashedPiece::Bytes(bytes) => hash.update(bytes.as_slice()),
            HashedPiece::Zeros(mut left) => {
                while left > 0 {
                    let some = usize::try_from(left).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
                    hash.update(&ZEROS[..some]);
                    left -= some as u64;
                }
            }
        }
    }
    hash.finalize().to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_and_zeros_in_any_pieces_have_the_hash_of_the_whole() {
        let mut hashes = Hashes::start(&[CopyHash::Sha256, CopyHash::Md5]).unwrap().unwrap();
        let mut whole = Vec::new();
        for number in 0..40_u8 {
            let bytes = vec![number; usize::from(number) * 777];
            hashes.add(&bytes);
            whole.extend(&bytes);
            hashes.add_zeros(u64::from(number) * 4096);
            whole.resize(whole.len() + usize::from(number) * 4096, 0);
            assert!(hashes.buffers.len() <= BUFFERS, "{}", hashes.buffers.len());
        }
        assert_eq!(hashes.len, whole.len() as u64);
        let found: Vec<_> = hashes.finish().into_iter().map(|it| (it.function, it.value)).collect();
        let expected =
            [(CopyHash::Sha256, Sha256::digest(&whole).to_vec()), (CopyHash::Md5, Md5::digest(&whole).to_vec())];
        assert_eq!(found, expected);
    }

    #[test]
    fn values_are_those_of_the_functions_by_their_names() {
        for (name, value) in [
            ("md5", "900150983cd24fb0d6963f7d28e17f72"),
            ("sha1", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("sha256", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"),
        ] {
            let mut hashes = Hashes::start(&[name.parse().unwrap()]).unwrap().unwrap();
            hashes.add(b"abc");
            assert_eq!(hashes.finish()[0].hex(), value);
        }
        assert!("sha3".parse::<CopyHash>().unwrap_err().contains("sha256"));
    }
}
