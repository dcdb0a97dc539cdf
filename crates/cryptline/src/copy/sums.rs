//! Sums of what was read of the source, chunk by chunk, and whether the copy has the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use cryptline_engine::{Arena, BackendChoice, Buffer, Channel, Completion, Gate, Request, Submitted};
use cryptline_sys::is_zero;
use sha2::{Digest, Sha256};

use super::CopyTrouble;
use super::feed::{CHUNK, is_set};

/// Chunks that are read at a time.
const BUFFERS: usize = 8;
const PATIENCE: Duration = Duration::from_millis(200);

/// A chunk, as the source had it.
pub(crate) struct Sum {
    offset: u64,
    len: u32,
    /// `None` for zeros.
    hash: Option<[u8; 32]>,
}

impl Sum {
    pub fn of(offset: u64, bytes: &[u8]) -> Self {
        let zeros = is_zero(bytes);
        Self {
            offset,
            len: u32::try_from(bytes.len()).expect("no more than a chunk"),
            hash: (!zeros).then(|| Sha256::digest(bytes).into()),
        }
    }

    pub fn of_zeros(offset: u64, len: usize) -> Self {
        Self { offset, len: u32::try_from(len).expect("no more than a chunk"), hash: None }
    }

    fn is_of(&self, bytes: &[u8]) -> bool {
        match self.hash {
            None => is_zero(bytes),
            Some(hash) => <[u8; 32]>::from(Sha256::digest(bytes)) == hash,
        }
    }
}

/// State shared by the threads of a comparison.
pub(super) struct CopyComparison<'a> {
    pub gate: &'a Gate,
    pub sums: &'a [Sum],
    pub backend: BackendChoice,
    pub next: AtomicUsize,
    pub stop: &'a AtomicBool,
    pub failed: AtomicBool,
    /// Bytes that were compared.
    pub done: AtomicU64,
}

impl CopyComparison<'_> {
    /// Compares until nothing is left.
    pub fn run(&self) -> Result<(), CopyTrouble> {
        let depth = u32::try_from(BUFFERS).expect("a few");
        let mut channel = Channel::open(self.gate, self.backend, depth).map_err(CopyTrouble::Open)?;
        let arena = channel.buffers(CHUNK, BUFFERS).map_err(CopyTrouble::Memory)?;
        let mut done = Vec::with_capacity(BUFFERS);
        loop {
            while let Some(completion) = done.pop() {
                self.judge(completion)?;
            }
            if is_set(self.stop) || is_set(&self.failed) {
                return Err(CopyTrouble::Stopped);
            }
            while done.is_empty()
                && let Some(request) = self.next(&arena)
            {
                if let Submitted::Done(completion) = channel.submit(request) {
                    done.push(completion);
                }
            }
            if !done.is_empty() {
                continue;
            }
            if channel.in_flight() == 0 {
                return Ok(());
            }
            channel.ring_mut().wake_by(Instant::now() + PATIENCE);
            channel.wait(&mut done).map_err(CopyTrouble::Ring)?;
        }
    }

    fn next(&self, arena: &Arc<Arena>) -> Option<Request> {
        let mut buffer: Buffer = arena.take()?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let sum = self.sums.get(number)?;
        buffer.set_len(sum.len as usize);
        Some(Request::read(sum.offset, buffer, number as u64))
    }

    fn judge(&self, completion: Completion) -> Result<(), CopyTrouble> {
        let Completion { request, result } = completion;
        let offset = request.offset;
        result.map_err(|fault| CopyTrouble::ReadBack { offset, fault })?;
        let buffer = request.data.expect("only reads were submitted");
        let number = usize::try_from(request.token).expect("the number of a sum");
        if !self.sums[number].is_of(&buffer) {
            return Err(CopyTrouble::Differs { offset });
        }
        self.done.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        Ok(())
    }
}
