//! How far a copy into a new file has come, kept in that file behind its last byte until it is whole.
//!
//! ```text
//! 0 ─────────── size ─ padding ─ record ─ record
//! ```
//!
//! The two records of 4096 bytes take turns, and the one with the higher number counts. A record is written when a
//! flush has made durable what it tells, so it never tells too much. With the last cut, the file has its size and no
//! record: then it is whole, or it is begun anew.
//!
//! A source is known by its identity, size, mtime and ctime, and the first chunk and the last before the mark are
//! compared. Other options count as a text of their own (`Create::choices`), so an upgrade does not make a part
//! worthless.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Gate};
use rustix::fs::FallocateFlags;
use rustix::io::{Errno, retry_on_intr};
use sha2::{Digest, Sha256};

use super::feed::CHUNK;
use crate::Result;
use crate::durable;
use crate::error::{ErrorKind, Problem};

const MAGIC: &[u8; 16] = b"cryptline copy 1";
const RECORD: u64 = 4096;
/// Magic, number, size, mark, what is copied.
const LEN: usize = 16 + 3 * 8 + 32;

/// Why a copy does not go on where another one has ended.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// No way to tell if it has changed meanwhile.
    #[error("only a regular file tells whether it has changed since a copy began")]
    Source,
    /// Not a new file.
    #[error("only a copy into a new file can go on later")]
    Destination,
    /// The header of the new volume is to be elsewhere.
    #[error("only a volume that has its header with it can be filled in several runs")]
    Apart,
    /// The copy there is of something else, or the source has changed since.
    #[error("{} was copied from another source, or the source has changed since; remove it to start over", part.display())]
    Changed {
        /// The unfinished copy.
        part: PathBuf,
    },
    /// The volume that was begun opens with another passphrase.
    #[error("{} was begun with another passphrase; use that one, or remove it to start over", part.display())]
    OtherKey {
        /// The unfinished copy.
        part: PathBuf,
    },
    /// The header that was begun says now that its data has another cipher.
    #[error("{} says by now that its data is encrypted with {found}; remove it to start over", part.display())]
    OtherCipher {
        /// The unfinished copy.
        part: PathBuf,
        /// Cipher in its header.
        found: String,
    },
    /// Somebody else's, or for others to write to.
    #[error("{} is not a file that only its owner can use; remove it first", part.display())]
    NotOurs {
        /// Path that should be the unfinished copy.
        part: PathBuf,
    },
}

impl ResumeError {
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Self::Source | Self::Destination | Self::Apart => ErrorKind::Parameters,
            Self::Changed { .. } => ErrorKind::Busy,
            Self::OtherKey { .. } => ErrorKind::NoKey,
            Self::OtherCipher { .. } | Self::NotOurs { .. } => ErrorKind::Device,
        }
    }
}

pub(crate) struct CopyJournal<'a> {
    file: &'a File,
    /// Where the records are.
    at: u64,
    size: u64,
    source: [u8; 32],
    number: Cell<u64>,
    /// Everything before this is there.
    pub mark: u64,
}

/// Traces of an earlier copy in a file.
pub(crate) enum FoundTraces {
    Nothing,
    /// One of something else.
    Another,
    /// One of the same: its last record.
    Same(CopyRecord),
}

/// Where the bytes of the source are in the file, and where the file will end.
#[derive(Clone, Copy)]
pub(crate) struct SourceRoom {
    pub start: u64,
    pub end: u64,
}

pub(crate) struct CopyRecord {
    number: u64,
    size: u64,
    mark: u64,
    source: [u8; 32],
}

impl<'a> CopyJournal<'a> {
    /// Returns what `file` has of a copy of `size` bytes of `source`.
    pub fn find(file: &File, size: u64, source: [u8; 32]) -> io::Result<FoundTraces> {
        let len = file.metadata()?.len();
        let places = [2, 1].map(|back| len.checked_sub(back * RECORD));
        let records = places.map(|place| place.and_then(|at| CopyRecord::read(file, at)));
        Ok(match records.into_iter().flatten().max_by_key(|it| it.number) {
            Some(found) if found.size == size && found.source == source => FoundTraces::Same(found),
            Some(_) => FoundTraces::Another,
            None => FoundTraces::Nothing,
        })
    }

    /// From where that copy has ended.
    pub fn go_on(file: &'a File, room: SourceRoom, found: CopyRecord) -> io::Result<Self> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Self::go_on_by(file, room, found, |at, len| retry_on_intr(|| rustix::fs::fallocate(file, flags, at, len)))
    }

    fn go_on_by(
        file: &'a File,
        room: SourceRoom,
        found: CopyRecord,
        punch: impl FnOnce(u64, u64) -> rustix::io::Result<()>,
    ) -> io::Result<Self> {
        let at = room.end.next_multiple_of(RECORD);
        let CopyRecord { number, size, mark, source } = found;
        let journal = Self { file, at, size, source, number: Cell::new(number), mark };
        // What was written behind the mark and not counted is as if it had not been: zeros are not written there.
        let next = room.start + mark;
        if at <= next {
            return Ok(journal);
        }
        match punch(next, at - next) {
            // The records go with it, so with a cut right here it is begun anew.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                file.set_len(next)?;
                file.set_len(at + 2 * RECORD)?;
                journal.note(mark)?;
                durable::sync_all(file)?;
            }
            punched => punched?,
        }
        Ok(journal)
    }

    /// A new one. `first` writes and makes durable what must be there before it.
    pub fn begin(
        file: &'a File,
        room: SourceRoom,
        size: u64,
        source: [u8; 32],
        first: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<Self> {
        let at = room.end.next_multiple_of(RECORD);
        file.set_len(0)?;
        // An earlier cut may not have become durable, and a record that it took away would tell of what is written now.
        durable::sync_all(file)?;
        file.set_len(at + 2 * RECORD)?;
        first()?;
        let journal = Self { file, at, size, source, number: Cell::new(0), mark: 0 };
        journal.note(0)?;
        durable::sync_all(file)?;
        Ok(journal)
    }

    /// Everything before `mark` is durable.
    pub fn note(&self, mark: u64) -> io::Result<()> {
        let number = self.number.get() + 1;
        let record = CopyRecord { number, size: self.size, mark, source: self.source };
        self.file.write_all_at(&record.bytes(), self.at + number % 2 * RECORD)?;
        self.number.set(number);
        Ok(())
    }

    /// Tells if the first and the last chunk before the mark are those of the source.
    pub fn agrees(&self, source: &Gate, dest: &Gate, backend: BackendChoice) -> Result<bool> {
        let len = CHUNK as u64;
        if self.mark < len {
            return Ok(true);
        }
        let read = |gate: &Gate, at: u64| -> Result<Vec<u8>> {
            let mut bytes = vec![0; CHUNK];
            let mut blocking = Blocking::new(gate, backend)?;
            let read = blocking.read_at(at, &mut bytes);
            read.map_err(|fault| Problem::Io { action: "read", source: io::Error::other(fault) })?;
            Ok(bytes)
        };
        for at in [0, self.mark - len] {
            if read(source, at)? != read(dest, at)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

impl CopyRecord {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for number in [self.number, self.size, self.mark] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(self.source);
        let sum = Sha256::digest(&bytes);
        bytes.extend(sum);
        bytes
    }

    fn read(file: &File, at: u64) -> Option<Self> {
        let mut bytes = [0; LEN + 32];
        file.read_exact_at(&mut bytes, at).ok()?;
        let (told, sum) = bytes.split_at(LEN);
        if !told.starts_with(MAGIC) || Sha256::digest(told)[..] != *sum {
            return None;
        }
        let number = |at: usize| {
            let bytes = told[at..at + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(bytes)
        };
        let record = Self {
            number: number(16),
            size: number(24),
            mark: number(32),
            source: told[40..].try_into().expect("the rest of it"),
        };
        let is_sound =
            record.mark <= record.size && record.mark.is_multiple_of(CHUNK as u64) && record.number < u64::MAX;
        is_sound.then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a copy of `size` bytes into `file`. Goes on where that has ended, or begins anew; `None` where the file is of
    /// another copy.
    fn open(file: &File, size: u64, source: [u8; 32]) -> Option<CopyJournal<'_>> {
        let room = SourceRoom { start: 0, end: size };
        match CopyJournal::find(file, size, source).unwrap() {
            FoundTraces::Same(record) => Some(CopyJournal::go_on(file, room, record).unwrap()),
            FoundTraces::Another => None,
            FoundTraces::Nothing => Some(CopyJournal::begin(file, room, size, source, || Ok(())).unwrap()),
        }
    }

    #[test]
    fn torn_record_leaves_the_one_before() {
        let file = tempfile::tempfile().unwrap();
        let size = 3 * CHUNK as u64 + 77;
        let opened = |source| open(&file, size, [source; 32]);
        let journal = opened(1).unwrap();
        assert_eq!(journal.mark, 0);
        journal.note(CHUNK as u64).unwrap();
        journal.note(2 * CHUNK as u64).unwrap();
        assert_eq!(opened(1).unwrap().mark, 2 * CHUNK as u64);
        assert!(opened(2).is_none(), "another source");
        assert!(open(&file, size + 1, [1; 32]).is_none(), "another size");
        let at = journal.at + journal.number.get() % 2 * RECORD;
        file.write_all_at(b"torn", at + 20).unwrap();
        assert_eq!(opened(1).unwrap().mark, CHUNK as u64);
        file.set_len(size).unwrap();
        assert_eq!(opened(1).unwrap().mark, 0, "no record: begun anew");
    }

    #[test]
    fn what_lies_behind_the_mark_is_gone() {
        let file = tempfile::tempfile().unwrap();
        let size = 2 * CHUNK as u64;
        let journal = open(&file, size, [1; 32]).unwrap();
        file.write_all_at(&[7; 8192], CHUNK as u64 - 4096).unwrap();
        journal.note(CHUNK as u64).unwrap();
        open(&file, size, [1; 32]).unwrap();
        let mut bytes = [0; 8192];
        file.read_exact_at(&mut bytes, CHUNK as u64 - 4096).unwrap();
        assert!(bytes[..4096] == [7; 4096] && bytes[4096..] == [0; 4096]);
    }

    #[test]
    fn what_lies_behind_the_mark_is_gone_where_no_holes_can_be_made() {
        let file = tempfile::tempfile().unwrap();
        let (mark, size) = (CHUNK as u64, 3 * CHUNK as u64 + 77);
        let journal = open(&file, size, [1; 32]).unwrap();
        let len = file.metadata().unwrap().len();
        file.write_all_at(&vec![7; 3 * CHUNK + 77], 0).unwrap();
        journal.note(mark).unwrap();
        let FoundTraces::Same(record) = CopyJournal::find(&file, size, [1; 32]).unwrap() else { panic!() };
        let room = SourceRoom { start: 0, end: size };
        let journal = CopyJournal::go_on_by(&file, room, record, |_, _| Err(rustix::io::Errno::OPNOTSUPP)).unwrap();
        assert_eq!((journal.mark, file.metadata().unwrap().len()), (mark, len));
        let mut bytes = vec![0; 3 * CHUNK + 77];
        file.read_exact_at(&mut bytes, 0).unwrap();
        assert!(bytes[..CHUNK].iter().all(|byte| *byte == 7) && bytes[CHUNK..].iter().all(|byte| *byte == 0));
        // It goes on from there once more, and further.
        assert_eq!(open(&file, size, [1; 32]).unwrap().mark, mark);
        journal.note(2 * mark).unwrap();
        assert_eq!(open(&file, size, [1; 32]).unwrap().mark, 2 * mark);
    }
}
