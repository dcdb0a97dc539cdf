//! A lean NBD client that makes load: one thread and one connection for each stream.
//!
//! ```text
//! load::Stream ─► submit: 28-byte headers, put aside
//!      ▲          collect: one send of all ─► one large receive ─► replies checked ─┐
//!      └──────────────────────────── slots whose requests have ended ◄──────────────┘
//! ```
//!
//! A load generator that is slower than the server measures itself. So this one does what a client
//! must and no more: simple replies, no allocation and no lock for a request, and two system calls
//! for as many requests as there are answers waiting. Data that was read lands in user memory, as it
//! would in any client, and can be compared with a [`Contents`].
//!
//! Servers are not trusted: each reply's magic, cookie and error is checked, memory is bounded by the
//! load's shape, and a server that falls silent or dribbles ends the run with an error when
//! [`Export::patience`] is at its end.

mod client;
mod connect;
pub mod null;

use std::path::Path;
use std::time::{Duration, Instant};

use cryptline_nbd::NbdUri;
use cryptline_nbd::uri::{Address, TlsOptions};
use sha2::{Digest, Sha256};

use crate::Error;
use crate::contents::{Contents, hex};
use crate::load::{self, Job, Transport};
use crate::report::{Direction, Pattern, Sample, Shape};
pub use client::Client;
use connect::Connection;

/// How long a server may keep silent as a rule, and how long after the end of the measurement it may
/// take to answer what is still in flight.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest request in bytes, which is what any server takes unless it says otherwise.
const BLOCK_MAX: u32 = 32 << 20;
/// Bytes of each read of a digest.
const DIGEST_BLOCK: u32 = 1 << 20;
/// Slower than this is no server but a way to hold us up, in bytes in a second.
const RATE_MIN: u64 = 1 << 20;

/// A disk that a server offers.
#[derive(Clone, Copy, Debug)]
pub struct Export<'a> {
    /// The server's Unix socket.
    pub socket: &'a Path,
    /// Name of the export.
    pub name: &'a str,
    /// How long the server may keep silent.
    pub patience: Duration,
}

impl<'a> Export<'a> {
    /// One whose server has the usual time to answer.
    pub fn new(socket: &'a Path, name: &'a str) -> Self {
        Self { socket, name, patience: PATIENCE }
    }

    /// How other clients name it.
    pub fn uri(&self) -> String {
        NbdUri {
            tls: false,
            address: Address::Unix(self.socket.to_owned()),
            export: self.name.to_owned(),
            tls_options: TlsOptions::default(),
        }
        .to_string()
    }

    /// Whether the server is ready: connects, and says goodbye.
    pub fn try_connect(&self) -> Result<(), Error> {
        Connection::open(self).map(drop)
    }

    /// Does `job`; each stream has a connection of its own. Reads must give what is expected; checking
    /// that takes processor time from the client.
    pub fn load(&self, job: &Job, expect: Option<Contents>) -> Result<Sample, Error> {
        load::drive(job, |_| {
            let late = Instant::now() + job.warm_up + job.time + self.patience;
            let check = move |offset, bytes: &[u8]| {
                let wrong = expect.and_then(|contents| contents.first_difference(offset, bytes));
                wrong.map_or(Ok(()), |offset| Err(format!("the server gave wrong data at byte {offset}")))
            };
            self.client(job.shape, late, check)
        })
    }

    /// A client for requests of this shape, until it is too late. `take` is given what reads give: an
    /// offset, and bytes that lie there.
    pub fn client<F>(&self, shape: Shape, late: Instant, take: F) -> Result<Client<F>, Error>
    where
        F: FnMut(u64, &[u8]) -> Result<(), String>,
    {
        let connection = Connection::open(self)?;
        connection.check(shape)?;
        Ok(Client::new(connection, shape, late, take))
    }

    /// SHA-256 of all that the disk holds, in hexadecimal digits.
    pub fn sha256(&self) -> Result<String, Error> {
        let mut hash = Sha256::new();
        let connection = Connection::open(self)?;
        let size = connection.size;
        let late = Instant::now() + self.patience + Duration::from_secs(size / RATE_MIN);
        let shape = Shape::new(Direction::Read, Pattern::Sequential, DIGEST_BLOCK, 1);
        let mut client = Client::new(connection, shape, late, |_, bytes: &[u8]| {
            hash.update(bytes);
            Ok(())
        });
        let mut ended = Vec::new();
        for offset in (0..size).step_by(DIGEST_BLOCK as usize) {
            let left = u32::try_from(size - offset).unwrap_or(DIGEST_BLOCK);
            client.set_block(left.min(DIGEST_BLOCK));
            client.submit(0, offset)?;
            while ended.pop().is_none() {
                client.collect(true, &mut ended)?;
            }
        }
        drop(client);
        Ok(hex(&hash.finalize()))
    }
}

#[cfg(test)]
mod tests;
