//! The whole disk, in order: what it hashes to.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use cryptline_nbd::wire::cmd;
use sha2::{Digest, Sha256};

use super::connect::{Connection, describe};
use super::flight::Flight;
use super::receive::{Receiver, Sink};
use super::{BLOCK_MAX, PATIENCE};
use crate::CliError;

/// Bytes of each read, and how many are in flight: servers may answer them in any order.
const BLOCK: u32 = 1 << 20;
const DEPTH: usize = 4;
/// Slower than this is no server but a way to hold us up, in bytes in a second.
const RATE_MIN: u64 = 1 << 20;

/// SHA-256 of all that the export at `socket` holds, read in order with several reads in flight.
/// A tail shorter than 1 MiB is read by one request of its own.
///
/// # Errors
/// Exit code 4 for a server that fails, lies, or falls silent.
pub fn sha256(socket: &Path, export: &str) -> Result<[u8; 32], CliError> {
    let connection = Connection::open(socket, export, PATIENCE)?;
    let read = || {
        let size = connection.size;
        let mut hash = Sha256::new();
        let blocks = size / u64::from(BLOCK);
        read_part(&connection, 0, blocks, BLOCK, &mut hash)?;
        let tail = u32::try_from(size % u64::from(BLOCK)).unwrap_or(BLOCK_MAX);
        if tail > 0 {
            read_part(&connection, blocks * u64::from(BLOCK), 1, tail, &mut hash)?;
        }
        Ok(hash.finalize().into())
    };
    let sum = read().map_err(|why: String| CliError::device(format!("{}: {why}", connection.name)));
    connection.disconnect();
    sum
}

/// Reads `count` blocks of `block` bytes from `start` on.
fn read_part(
    connection: &Connection,
    start: u64,
    count: u64,
    block: u32,
    hash: &mut Sha256,
) -> Result<(), String> {
    let late = Instant::now() + PATIENCE + Duration::from_secs(count * u64::from(block) / RATE_MIN);
    let mut flight = Flight::new(DEPTH, cmd::READ, block);
    let mut receiver = Receiver::new(block as usize);
    let mut order = Order {
        hash,
        start,
        block: block as usize,
        data: vec![0; DEPTH * block as usize],
        is_whole: [false; DEPTH],
        hashed: 0,
    };
    let mut asked = 0;
    while order.hashed < count {
        while asked < count && asked < order.hashed + DEPTH as u64 {
            let Some((_, header)) = flight.launch(start + asked * u64::from(block), 0) else {
                break;
            };
            let mut stream = &connection.stream;
            stream
                .write_all(&header)
                .map_err(|error| describe(&error))?;
            asked += 1;
        }
        receiver.receive(&connection.stream)?;
        receiver.take(&mut flight, &mut order)?;
        if Instant::now() > late {
            return Err("the server is too slow to be read".into());
        }
    }
    Ok(())
}

/// Blocks that have come, hashed in their order on the disk.
struct Order<'a> {
    hash: &'a mut Sha256,
    start: u64,
    block: usize,
    /// A ring: block n is in place n modulo [`DEPTH`]. At most so many follow what is hashed.
    data: Vec<u8>,
    is_whole: [bool; DEPTH],
    /// Blocks hashed.
    hashed: u64,
}

impl Order<'_> {
    /// The block that `offset` lies in: its place in the ring, and the offset within it.
    fn place(&self, offset: u64) -> (usize, usize) {
        let block = self.block as u64;
        let at = offset - self.start;
        (ring_place(at / block), small(at % block))
    }
}

impl Sink for Order<'_> {
    fn data(&mut self, _: usize, offset: u64, bytes: &[u8]) -> Result<(), String> {
        let (place, within) = self.place(offset);
        let at = place * self.block + within;
        self.data[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn done(&mut self, flight: &Flight, slot: usize) {
        let (place, _) = self.place(flight.slot(slot).offset);
        self.is_whole[place] = true;
        loop {
            let place = ring_place(self.hashed);
            if !std::mem::take(&mut self.is_whole[place]) {
                return;
            }
            let data = &self.data[place * self.block..][..self.block];
            self.hash.update(data);
            self.hashed += 1;
        }
    }
}

/// Where block `number` is in the ring.
fn ring_place(number: u64) -> usize {
    small(number % DEPTH as u64)
}

/// A remainder of what is a `usize`, so it always fits.
fn small(number: u64) -> usize {
    usize::try_from(number).unwrap_or(0)
}
