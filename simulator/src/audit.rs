//! The judge of what readers see and of what flushes have promised, [cell](crate::cells) by cell.
//!
//! ```text
//! write ─► sent ─► done, maybe, or refused       done ─► seen by a read ─► promised by a flush
//! ```
//!
//! * A read may return a write that was sent before the read ended, unless a later one, sent after that write was done,
//!   was itself done or seen before the read was sent. So each cell is a linearizable register.
//! * What was refused is never read.
//! * After a power cut, what was promised is there, or something newer.
//! * Once a write was lost below, no flush that begins later says yes.

use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

use crate::cells::{Cells, SECTOR};
use crate::history::Place;
use crate::sim;

/// A moment; later ones are larger.
pub type Tick = u64;

/// Bytes that a write leaves in its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A pattern of its number and of the place.
    Pattern,
    /// Zeros.
    Zeros,
    /// Anything: it was discarded.
    Unknown,
}

/// How a write has ended, as its client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Done.
    Done,
    /// Failed, or nobody knows: it may still take effect.
    Maybe,
    /// Changed nothing.
    Refused,
}

#[derive(Clone)]
struct Write {
    content: Content,
    sent: Tick,
    is_open: bool,
    done: Option<Tick>,
    refused: bool,
    promised: Option<Tick>,
}

/// A write in one cell.
#[derive(Clone)]
struct Mark {
    write: usize,
    /// When the first read that has returned it had ended.
    seen: Option<Tick>,
}

/// Hash of a number that is as good as random.
#[derive(Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only numbers are hashed");
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// One export.
#[derive(Clone)]
pub struct Export {
    id: u64,
    pub cells: Cells,
    writes: Vec<Write>,
    marks: Vec<Vec<Mark>>,
    /// The first words of all patterns in sectors.
    words: HashSet<u64, BuildHasherDefault<Mixed>>,
    now: Tick,
    /// Writes that a flush has promised.
    pub promised: usize,
}

impl Export {
    /// An export that its write 0 has filled.
    pub fn new(id: u64, cells: Cells) -> Self {
        let (all, count) = (cells.count(), cells.used());
        let mut export = Self {
            id,
            cells,
            writes: Vec::new(),
            marks: std::iter::repeat_with(Vec::new).take(all).collect(),
            words: HashSet::default(),
            now: 0,
            promised: 0,
        };
        let fill = export.begin_write(Place { first: 0, count }, Content::Pattern);
        // Whatever a file has where it grows, its disk has something else there, perhaps.
        let room = export.begin_write(Place { first: count, count: all - count }, Content::Unknown);
        [fill, room].into_iter().for_each(|write| export.end_write(write, End::Done));
        export.promise(Tick::MAX, None);
        export
    }

    pub fn tick(&mut self) -> Tick {
        self.now += 1;
        self.now
    }

    /// A write is about to be sent. Its number.
    pub fn begin_write(&mut self, place: Place, content: Content) -> usize {
        let number = self.writes.len();
        let sent = self.tick();
        self.writes.push(Write { content, sent, is_open: true, done: None, refused: false, promised: None });
        for cell in place.first..place.first + place.count {
            self.marks[cell].push(Mark { write: number, seen: None });
        }
        if content == Content::Pattern {
            let range = self.cells.range(place);
            let sectors = range.start.div_ceil(SECTOR)..(range.end + SECTOR - 8) / SECTOR;
            self.words.extend(sectors.map(|sector| word(self.id, number, sector)));
        }
        number
    }

    pub fn end_write(&mut self, number: usize, end: End) {
        let now = self.tick();
        let write = &mut self.writes[number];
        write.is_open = false;
        match end {
            End::Done => write.done = Some(now),
            End::Maybe => {}
            End::Refused => write.refused = true,
        }
    }

    /// Tells if a write was sent and has not ended, or whoever sent it has left: it may still take effect then.
    pub fn has_writes_under_way(&self) -> bool {
        self.writes.iter().any(|write| write.is_open)
    }

    /// Tells if a write has brought its own bytes, and is not a zeroing or a discard.
    pub fn brings_bytes(&self, number: usize) -> bool {
        self.writes[number].content == Content::Pattern
    }

    /// A flush that was sent at `sent` has said yes; `only` is the one write that it was made for.
    pub fn promise(&mut self, sent: Tick, only: Option<usize>) {
        let now = self.tick();
        for (number, write) in self.writes.iter_mut().enumerate() {
            let is_covered = only.map_or_else(|| write.done.is_some_and(|done| done < sent), |only| only == number);
            if is_covered && write.promised.is_none() {
                write.promised = Some(now);
                self.promised += 1;
            }
        }
    }

    /// Takes what was written and not promised for gone, perhaps.
    pub fn doubt(&mut self) {
        self.writes.iter_mut().filter(|write| write.promised.is_none()).for_each(|write| write.done = None);
    }

    /// Judges a read of `bytes` from cell `first` on that was sent at `sent` and has ended now. Where writes were
    /// `lost` below, only what was promised must be there.
    pub fn read(&mut self, first: usize, bytes: &[u8], sent: Tick, lost: bool) -> Result<(), String> {
        let ended = self.tick();
        for (cell, bytes) in self.cut(first, bytes) {
            let alone = self.judge(cell, bytes, sent, ended, |write, seen, before| {
                let was = |moment: Option<Tick>| moment.is_some_and(|moment| moment < before);
                was(write.promised) || !lost && (was(write.done) || seen)
            })?;
            if let Some(place) = alone {
                self.marks[cell][place].seen.get_or_insert(ended);
            }
        }
        Ok(())
    }

    /// Judges what a power cut has left.
    pub fn left(&self, bytes: &[u8]) -> Result<(), String> {
        let now = self.now + 1;
        for (cell, bytes) in self.cut(0, bytes) {
            self.judge(cell, bytes, now, now, |write, _, _| write.promised.is_some())?;
        }
        Ok(())
    }

    /// Bytes from cell `first` on, cell by cell.
    fn cut<'a>(&self, first: usize, bytes: &'a [u8]) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let (cells, mut rest) = (self.cells.clone(), bytes);
        (first..cells.count()).map_while(move |cell| {
            let (bytes, behind) = rest.split_at_checked(cells.cell(cell).len())?;
            rest = behind;
            Some((cell, bytes))
        })
    }

    /// Judges what a cell holds. Where only one write can have brought it, its place among the marks.
    fn judge(
        &self,
        cell: usize,
        bytes: &[u8],
        sent: Tick,
        ended: Tick,
        stands: impl Fn(&Write, bool, Tick) -> bool,
    ) -> Result<Option<usize>, String> {
        if !self.cells.is_audited(cell) {
            return Ok(None);
        }
        let marks = &self.marks[cell];
        let at = self.cells.cell(cell).start;
        let is_over = |write: &Write| {
            write.done.is_some_and(|done| {
                marks.iter().any(|mark| {
                    let by = &self.writes[mark.write];
                    by.sent > done && stands(by, mark.seen.is_some_and(|seen| seen < sent), sent)
                })
            })
        };
        let shows = |write: &Write, number: usize| match write.content {
            Content::Pattern => is_pattern(bytes, self.id, number, at),
            Content::Zeros => bytes.iter().all(|byte| *byte == 0),
            Content::Unknown => true,
        };
        let fitting = marks.iter().enumerate().filter(|(_, mark)| {
            let write = &self.writes[mark.write];
            !write.refused && write.sent < ended && shows(write, mark.write) && !is_over(write)
        });
        let mut fitting = fitting.map(|(place, mark)| (place, self.writes[mark.write].content));
        let (found, another) = (fitting.next(), fitting.next());
        match (found, another) {
            (None, _) => Err(self.describe(cell, bytes, sent)),
            (Some((place, Content::Pattern)), None) => Ok(Some(place)),
            _ => Ok(None),
        }
    }

    fn describe(&self, cell: usize, bytes: &[u8], sent: Tick) -> String {
        let range = self.cells.cell(cell);
        let writer = (0..self.writes.len()).rev().find(|number| is_pattern(bytes, self.id, *number, range.start));
        let holds = match writer {
            Some(number) if self.marks[cell].iter().any(|mark| mark.write == number) => {
                format!("write #{number}, which is over")
            }
            Some(number) => format!("write #{number}, which was elsewhere"),
            None if bytes.iter().all(|byte| *byte == 0) => "zeros".to_owned(),
            None => "noise".to_owned(),
        };
        let history = self.marks[cell].iter().map(|mark| {
            let write = &self.writes[mark.write];
            let end = match write {
                Write { refused: true, .. } => "refused".to_owned(),
                Write { done: Some(done), promised, .. } => {
                    format!("done at {done}{}", promised.map_or(String::new(), |at| format!(", promised at {at}")))
                }
                _ => "maybe".to_owned(),
            };
            format!("#{} {:?} sent at {} {end}", mark.write, write.content, write.sent)
        });
        format!(
            "export {}: cell {cell}, bytes {range:?}, asked for at {sent}, holds {holds}; its writes: {}",
            self.id,
            history.collect::<Vec<_>>().join("; ")
        )
    }
}

fn word(export: u64, number: usize, sector: usize) -> u64 {
    sim::mix(&[export, number as u64, sector as u64])
}

/// Fills `bytes`, which begin at byte `at` of the disk, with the pattern of a write.
pub fn fill(bytes: &mut [u8], export: u64, number: usize, at: usize) {
    let (mut words, mut rest) = (Words::new(export, number, at), bytes);
    while !rest.is_empty() {
        let (word, inside) = words.next(rest.len());
        let (piece, behind) = rest.split_at_mut(inside.len());
        match piece.first_chunk_mut::<8>() {
            Some(whole) => *whole = word.to_le_bytes(),
            None => piece.copy_from_slice(&word.to_le_bytes()[inside]),
        }
        rest = behind;
    }
}

fn is_pattern(bytes: &[u8], export: u64, number: usize, at: usize) -> bool {
    let (mut words, mut rest) = (Words::new(export, number, at), bytes);
    while !rest.is_empty() {
        let (word, inside) = words.next(rest.len());
        let (piece, behind) = rest.split_at(inside.len());
        let is_it = match piece.first_chunk::<8>() {
            Some(whole) => u64::from_le_bytes(*whole) == word,
            None => *piece == word.to_le_bytes()[inside],
        };
        if !is_it {
            return false;
        }
        rest = behind;
    }
    true
}

/// Words of the pattern of a write, from a byte of the disk on.
struct Words {
    export: u64,
    number: usize,
    at: usize,
    /// The sector that was asked for last, and its first word.
    known: (usize, u64),
}

impl Words {
    fn new(export: u64, number: usize, at: usize) -> Self {
        Self { export, number, at, known: (usize::MAX, 0) }
    }

    /// The next word, and which of its bytes are meant where `left` are in all.
    fn next(&mut self, left: usize) -> (u64, Range<usize>) {
        let (at, skip) = (self.at, self.at % 8);
        let inside = skip..8.min(skip + left);
        self.at += inside.len();
        let sector = at / SECTOR;
        if self.known.0 != sector {
            self.known = (sector, word(self.export, self.number, sector));
        }
        (self.known.1.wrapping_add(((at % SECTOR / 8) as u64) << 8), inside)
    }
}

impl Export {
    /// Tells if a pattern of this export is anywhere in `bytes`.
    pub fn has_pattern(&self, bytes: &[u8]) -> bool {
        let mut sectors = bytes.chunks_exact(SECTOR);
        sectors.any(|sector| self.words.contains(&u64::from_le_bytes(sector[..8].try_into().expect("eight bytes"))))
    }
}
