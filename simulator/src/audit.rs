//! The judge of what readers see and of what flushes have promised, sector by sector.
//!
//! ```text
//! write ─► sent ─► done, maybe, or refused       done ─► seen by a read ─► promised by a flush
//! ```
//!
//! * A read may return a write that was sent before the read ended, unless a later one, sent after that write was done,
//!   was itself done or seen before the read was sent. So each sector is a linearizable register.
//! * What was refused is never read.
//! * After a power cut, what was promised is there, or something newer.
//! * Once a write was lost below, no flush that begins later says yes.

use std::collections::HashMap;

use crate::sim;

/// Bytes in the unit that is looked at.
pub const SECTOR: usize = 512;

/// A moment; later ones are larger.
pub type Tick = u64;

/// Bytes that a write leaves in its sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A pattern of its number and the sector's.
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
    done: Option<Tick>,
    refused: bool,
    promised: Option<Tick>,
}

/// A write in one sector.
#[derive(Clone)]
struct Mark {
    write: usize,
    /// When the first read that has returned it had ended.
    seen: Option<Tick>,
}

/// One export.
#[derive(Clone)]
pub struct Export {
    id: u64,
    writes: Vec<Write>,
    sectors: Vec<Vec<Mark>>,
    /// The writes by the first word of their pattern in a sector.
    words: HashMap<u64, (usize, usize)>,
    now: Tick,
    /// Writes that a flush has promised.
    pub promised: usize,
}

impl Export {
    /// An export that its write 0 has filled.
    pub fn new(id: u64, sectors: usize) -> Self {
        let mut export = Self {
            id,
            writes: Vec::new(),
            sectors: std::iter::repeat_with(Vec::new).take(sectors).collect(),
            words: HashMap::new(),
            now: 0,
            promised: 0,
        };
        let fill = export.begin_write(0, sectors, Content::Pattern);
        export.end_write(fill, End::Done);
        export.promise(Tick::MAX, None);
        export
    }

    pub fn tick(&mut self) -> Tick {
        self.now += 1;
        self.now
    }

    /// A write is about to be sent. Its number.
    pub fn begin_write(&mut self, first: usize, count: usize, content: Content) -> usize {
        let number = self.writes.len();
        let sent = self.tick();
        self.writes.push(Write { content, sent, done: None, refused: false, promised: None });
        for sector in first..first + count {
            self.sectors[sector].push(Mark { write: number, seen: None });
            if content == Content::Pattern {
                self.words.insert(word(self.id, number, sector), (number, sector));
            }
        }
        number
    }

    pub fn end_write(&mut self, number: usize, end: End) {
        let now = self.tick();
        let write = &mut self.writes[number];
        match end {
            End::Done => write.done = Some(now),
            End::Maybe => {}
            End::Refused => write.refused = true,
        }
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

    /// Judges a read of `bytes` from sector `first` on that was sent at `sent` and has ended now. Where writes were
    /// `lost` below, only what was promised must be there.
    pub fn read(&mut self, first: usize, bytes: &[u8], sent: Tick, lost: bool) -> Result<(), String> {
        let ended = self.tick();
        for (index, bytes) in bytes.chunks_exact(SECTOR).enumerate() {
            self.judge(first + index, bytes, sent, ended, |write, seen, before| {
                let was = |moment: Option<Tick>| moment.is_some_and(|moment| moment < before);
                was(write.promised) || !lost && (was(write.done) || seen)
            })?;
        }
        Ok(())
    }

    /// Judges what a power cut has left.
    pub fn left(&mut self, bytes: &[u8]) -> Result<(), String> {
        let now = self.tick();
        for (sector, bytes) in bytes.chunks_exact(SECTOR).enumerate() {
            self.judge(sector, bytes, now, now, |write, _, _| write.promised.is_some())?;
        }
        Ok(())
    }

    fn judge(
        &mut self,
        sector: usize,
        bytes: &[u8],
        sent: Tick,
        ended: Tick,
        stands: impl Fn(&Write, bool, Tick) -> bool,
    ) -> Result<(), String> {
        let marks = &self.sectors[sector];
        let is_over = |write: &Write| {
            write.done.is_some_and(|done| {
                marks.iter().any(|mark| {
                    let by = &self.writes[mark.write];
                    by.sent > done && stands(by, mark.seen.is_some_and(|seen| seen < sent), sent)
                })
            })
        };
        let shows = |write: &Write, number: usize| match write.content {
            Content::Pattern => is_pattern(bytes, self.id, number, sector),
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
            (None, _) => Err(self.describe(sector, bytes, sent)),
            (Some((place, Content::Pattern)), None) => {
                self.sectors[sector][place].seen.get_or_insert(ended);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn describe(&self, sector: usize, bytes: &[u8], sent: Tick) -> String {
        let first = u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"));
        let holds = match self.words.get(&first) {
            Some((number, of)) if of == &sector => format!("write #{number}, which is over"),
            Some((number, of)) => format!("write #{number} of sector {of}"),
            None if bytes.iter().all(|byte| *byte == 0) => "zeros".to_owned(),
            None => "noise".to_owned(),
        };
        let history = self.sectors[sector].iter().map(|mark| {
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
            "export {}: sector {sector}, asked for at {sent}, holds {holds}; its writes: {}",
            self.id,
            history.collect::<Vec<_>>().join("; ")
        )
    }
}

fn word(export: u64, number: usize, sector: usize) -> u64 {
    sim::mix(&[export, number as u64, sector as u64])
}

/// Fills `bytes`, which begin with sector `first`, with the pattern of a write.
pub fn fill(bytes: &mut [u8], export: u64, number: usize, first: usize) {
    for (index, sector) in bytes.chunks_exact_mut(SECTOR).enumerate() {
        let word = word(export, number, first + index);
        for (place, bytes) in sector.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&word.wrapping_add((place as u64) << 8).to_le_bytes());
        }
    }
}

fn is_pattern(bytes: &[u8], export: u64, number: usize, sector: usize) -> bool {
    let word = word(export, number, sector);
    let mut parts = bytes.chunks_exact(8).enumerate();
    parts.all(|(place, bytes)| bytes == word.wrapping_add((place as u64) << 8).to_le_bytes())
}

impl Export {
    /// Tells if a pattern of this export is anywhere in `bytes`.
    pub fn has_pattern(&self, bytes: &[u8]) -> bool {
        let mut sectors = bytes.chunks_exact(SECTOR);
        sectors.any(|sector| self.words.contains_key(&u64::from_le_bytes(sector[..8].try_into().expect("eight bytes"))))
    }
}
