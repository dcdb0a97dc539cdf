//! The clients of the fronts, each the same for every server; and what they read, compared with what it
//! must be.

use std::path::Path;
use std::time::Instant;

use cryptline::{DirectMode, Open};

use super::servers::{Door, Server};
use crate::Error;
use crate::contents::Contents;
use crate::guest::Guest;
use crate::load::{Calls, Transport};
use crate::nbd::{self, Export};
use crate::report::Shape;

/// Bytes that are compared at each end of a read, where not all are.
const END: usize = 8;

/// How much of each read is compared with what it must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// All.
    Whole,
    /// Its first and last bytes: hardly any work for the client.
    Ends,
}

/// Takes data that NBD gives.
type Take = Box<dyn FnMut(u64, &[u8]) -> Result<(), String>>;

/// A client of any front.
pub enum Client {
    VhostUser(Checked<Guest>),
    Nbd(nbd::Client<Take>),
    Fuse(Box<Checked<Calls>>),
}

impl Client {
    /// Of a server at `place`, for reads of this shape, until it is too late.
    pub fn open(
        server: Server,
        place: &Path,
        shape: Shape,
        late: Instant,
        (contents, check): (Contents, Check),
    ) -> Result<Self, Error> {
        Ok(match server.door() {
            Door::VhostUser => {
                let guest = Guest::connect(place, shape, late)?;
                Self::VhostUser(Checked::new(guest, shape, contents, check))
            }
            Door::Nbd => {
                let take: Take = Box::new(move |offset, bytes| {
                    let wrong = check.first_difference(contents, offset, bytes);
                    wrong.map_or(Ok(()), |at| Err(wrong_data(at)))
                });
                Self::Nbd(Export::new(place, "").client(shape, late, take)?)
            }
            Door::Fuse | Door::FuseUring => {
                let open = Open::new(place).direct(DirectMode::On).read_only(true);
                let (gate, _) = open.base()?;
                let calls = Calls::open(&gate, shape)?;
                Self::Fuse(Box::new(Checked::new(calls, shape, contents, check)))
            }
        })
    }
}

impl Transport for Client {
    fn size(&self) -> u64 {
        match self {
            Self::VhostUser(client) => client.size(),
            Self::Nbd(client) => client.size(),
            Self::Fuse(client) => client.size(),
        }
    }

    fn submit(&mut self, slot: usize, offset: u64) -> Result<bool, Error> {
        match self {
            Self::VhostUser(client) => client.submit(slot, offset),
            Self::Nbd(client) => client.submit(slot, offset),
            Self::Fuse(client) => client.submit(slot, offset),
        }
    }

    fn collect(&mut self, wait: bool, ended: &mut Vec<usize>) -> Result<(), Error> {
        match self {
            Self::VhostUser(client) => client.collect(wait, ended),
            Self::Nbd(client) => client.collect(wait, ended),
            Self::Fuse(client) => client.collect(wait, ended),
        }
    }
}

/// Reads at each of `offsets`, `depth` at a time, until all have ended.
pub fn read_all(client: &mut impl Transport, depth: u32, offsets: impl IntoIterator<Item = u64>) -> Result<(), Error> {
    let depth = depth as usize;
    let mut offsets = offsets.into_iter().fuse();
    let mut free: Vec<usize> = (0..depth).collect();
    let mut ended = Vec::with_capacity(depth);
    loop {
        while let Some(slot) = free.pop() {
            let Some(offset) = offsets.next() else {
                free.push(slot);
                break;
            };
            if client.submit(slot, offset)? {
                free.push(slot);
            }
        }
        if free.len() == depth {
            return Ok(());
        }
        client.collect(true, &mut ended)?;
        free.append(&mut ended);
    }
}

/// A client whose data can be looked at when a read has ended.
pub trait Look: Transport {
    /// Compares what the last read of a slot gave with what it must be.
    fn first_difference(&mut self, slot: usize, offset: u64, expected: (Contents, Check))
    -> Result<Option<u64>, Error>;
}

impl Look for Calls {
    fn first_difference(
        &mut self,
        slot: usize,
        offset: u64,
        (contents, check): (Contents, Check),
    ) -> Result<Option<u64>, Error> {
        let bytes = self.buffer(slot).as_deref().unwrap_or_default();
        Ok(check.first_difference(contents, offset, bytes))
    }
}

impl Look for Guest {
    fn first_difference(
        &mut self,
        slot: usize,
        offset: u64,
        (contents, check): (Contents, Check),
    ) -> Result<Option<u64>, Error> {
        let block = self.block();
        if check == Check::Whole {
            let mut bytes = vec![0; block];
            self.look(slot, 0, &mut bytes)?;
            return Ok(check.first_difference(contents, offset, &bytes));
        }
        for at in [0, block.saturating_sub(END)] {
            let mut bytes = [0; END];
            self.look(slot, at, &mut bytes)?;
            let wrong = check.first_difference(contents, offset + at as u64, &bytes);
            if wrong.is_some() {
                return Ok(wrong);
            }
        }
        Ok(None)
    }
}

/// A client each of whose reads is compared.
pub struct Checked<T> {
    client: T,
    expected: (Contents, Check),
    /// What each slot has read last.
    offsets: Vec<u64>,
}

impl<T: Look> Checked<T> {
    fn new(client: T, shape: Shape, contents: Contents, check: Check) -> Self {
        Self { client, expected: (contents, check), offsets: vec![0; shape.depth as usize] }
    }

    fn compare(&mut self, slot: usize) -> Result<(), Error> {
        let offset = self.offsets[slot];
        match self.client.first_difference(slot, offset, self.expected)? {
            Some(at) => Err(Error::device(wrong_data(at))),
            None => Ok(()),
        }
    }
}

impl<T: Look> Transport for Checked<T> {
    fn size(&self) -> u64 {
        self.client.size()
    }

    fn submit(&mut self, slot: usize, offset: u64) -> Result<bool, Error> {
        self.offsets[slot] = offset;
        let has_ended = self.client.submit(slot, offset)?;
        if has_ended {
            self.compare(slot)?;
        }
        Ok(has_ended)
    }

    fn collect(&mut self, wait: bool, ended: &mut Vec<usize>) -> Result<(), Error> {
        let before = ended.len();
        self.client.collect(wait, ended)?;
        ended[before..].iter().try_for_each(|&slot| self.compare(slot))
    }
}

impl Check {
    /// The first of the bytes at `offset` that is compared and not what it must be.
    fn first_difference(self, contents: Contents, offset: u64, bytes: &[u8]) -> Option<u64> {
        if self == Self::Whole {
            return contents.first_difference(offset, bytes);
        }
        let last = bytes.len().saturating_sub(END);
        let differs = |at: usize| {
            let found = &bytes[at..bytes.len().min(at + END)];
            let mut expected = [0; END];
            let expected = &mut expected[..found.len()];
            contents.fill(offset + at as u64, expected);
            (found != expected).then_some(offset + at as u64)
        };
        differs(0).or_else(|| differs(last))
    }
}

fn wrong_data(at: u64) -> String {
    format!("the server gave wrong data at byte {at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wrong_ends_are_found_and_a_whole_check_finds_the_middle_too() {
        let contents = Contents::new(3);
        let mut right = vec![0; 4096];
        contents.fill(8192, &mut right);
        for (at, by_ends) in [(0, true), (7, true), (2000, false), (4088, true), (4095, true)] {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            let ends = Check::Ends.first_difference(contents, 8192, &wrong);
            assert_eq!(ends.is_some(), by_ends, "{at}");
            let whole = Check::Whole.first_difference(contents, 8192, &wrong);
            assert_eq!(whole, Some(8192 + at as u64));
        }
        for check in [Check::Ends, Check::Whole] {
            assert_eq!(check.first_difference(contents, 8192, &right), None);
            assert_eq!(check.first_difference(contents, 8192, &right[..5]), None);
            assert!(check.first_difference(contents, 8192, &[0; 4096]).is_some());
        }
    }
}
