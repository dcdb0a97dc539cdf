//! Remains that a copy may leave.

use std::collections::HashSet;
use std::ffi::OsStr;

use cryptline_testkit::cache::Left;

use super::place::{DEST, PART, START, WITHIN};
use super::{From, Place, Plan};
use crate::cells::SECTOR;

/// The judge of one copy.
pub struct Judge<'a> {
    pub place: &'a Place,
    pub plan: &'a Plan,
    /// The source's.
    pub bytes: &'a [u8],
    /// Contents of the folder before.
    pub found: &'a Left,
    /// First words of the source's sectors.
    words: HashSet<u64>,
}

/// The rule that was broken, and how.
pub type Wrong = (&'static str, String);

impl<'a> Judge<'a> {
    pub fn new(place: &'a Place, plan: &'a Plan, bytes: &'a [u8], found: &'a Left) -> Self {
        let words = bytes.chunks_exact(SECTOR).map(first_word).filter(|word| *word != 0).collect();
        Self { place, plan, bytes, found, words }
    }

    /// Judges what is in the folder. Where the copy has said that it is done, all of it must be there; `is_spoilt` once
    /// a byte was changed behind its back.
    pub fn judge(&self, left: &Left, is_done: bool, is_spoilt: bool) -> Result<(), Wrong> {
        if self.plan.into.is_encrypted() {
            for (name, file) in left {
                if file.chunks_exact(SECTOR).any(|sector| self.words.contains(&first_word(sector))) {
                    return Err(("A6", format!("{} has bytes of the source in the clear", name.display())));
                }
            }
        }
        let dest = left.get(OsStr::new(DEST));
        if let Some(dest) = dest.filter(|_| is_done && self.plan.into.is_encrypted() && !self.plan.keeps_holes) {
            let data = dest.get(START..START + self.plan.needs()).unwrap_or(&[]);
            if data.chunks_exact(SECTOR).any(|sector| sector.iter().all(|byte| *byte == 0)) {
                return Err(("A6", "what lies on the medium shows which sectors are zeros".to_owned()));
            }
        }
        if self.plan.into.is_in_place() {
            let dest = dest.ok_or_else(|| ("A2", "the file that was copied into is gone".to_owned()))?;
            return self.judge_in_place(dest, is_done, is_spoilt);
        }
        if is_spoilt {
            return Ok(());
        }
        let old = self.found.get(OsStr::new(DEST));
        match dest {
            Some(dest) if !is_done && Some(dest) == old => {}
            Some(dest) => self.judge_whole(dest).map_err(|wrong| ("A4", wrong))?,
            None if is_done => return Err(("A4", "the copy is done, and not there".to_owned())),
            None if old.is_some() => return Err(("A2", "the file that should be replaced is gone".to_owned())),
            None => {}
        }
        let part = left.get(OsStr::new(PART));
        if let Some((part, mark)) = part.and_then(|part| Some((part, mark(part)?))) {
            let clear =
                self.place.clear(self.plan, part, mark).map_err(|wrong| ("A4", format!("of a part: {wrong}")))?;
            if let Some(at) = differs(&clear, self.bytes.get(..mark).unwrap_or(&[])) {
                return Err(("A4", format!("{mark} bytes are told to be there, and byte {at} is not")));
            }
        }
        Ok(())
    }

    /// A file that has its name is whole.
    fn judge_whole(&self, file: &[u8]) -> Result<(), String> {
        let len = if self.plan.into.is_sealed() { START + self.plan.needs() } else { self.plan.size() };
        if file.len() != len {
            return Err(format!("the copy has {} bytes, and not {len}", file.len()));
        }
        let clear = self.place.clear(self.plan, file, self.plan.size())?;
        match differs(&clear, self.bytes) {
            Some(at) => Err(format!("byte {at} of the copy is not the source's")),
            None => Ok(()),
        }
    }

    /// Sectors of the range are the source's or what they were, and all others what they were.
    fn judge_in_place(&self, file: &[u8], is_done: bool, is_spoilt: bool) -> Result<(), Wrong> {
        let plan = self.plan;
        let before = self.place.old(plan.into);
        if file.len() != before.len() {
            return Err(("A2", format!("the file has {} bytes, and not {}", file.len(), before.len())));
        }
        let is_outside = |at: &usize| !(START..START + WITHIN).contains(at);
        if let Some(at) = (0..file.len())
            .step_by(SECTOR)
            .filter(is_outside)
            .find(|at| file[*at..][..SECTOR] != before[*at..][..SECTOR])
        {
            return Err(("A2", format!("byte {at} lies outside of the range and has changed")));
        }
        if is_spoilt {
            return Ok(());
        }
        let clear = self.place.clear(plan, file, WITHIN).map_err(|wrong| ("A4", wrong))?;
        let old = &self.place.old(super::Into::Range)[START..];
        let mut copied = self.bytes.to_vec();
        copied.resize(plan.needs(), 0);
        for (number, sector) in clear.chunks_exact(SECTOR).enumerate() {
            let at = number * SECTOR;
            let new = copied.get(at..at + SECTOR);
            let is_new = new == Some(sector);
            // A stream ends with zeros, up to a page.
            let is_behind = plan.from == From::Stream && at < plan.size().next_multiple_of(4096) && new.is_none();
            let is_old = old[at..at + SECTOR] == *sector || is_behind && sector.iter().all(|byte| *byte == 0);
            let may_be_old = new.is_none() || !is_done;
            if !(is_new || may_be_old && is_old) {
                let rule = if new.is_none() { "A2" } else { "A4" };
                return Err((rule, format!("sector {number} of the range is neither what was copied nor what it was")));
            }
        }
        Ok(())
    }
}

fn first_word(sector: &[u8]) -> u64 {
    u64::from_le_bytes(sector[..8].try_into().expect("eight bytes"))
}

fn differs(one: &[u8], other: &[u8]) -> Option<usize> {
    if one.len() != other.len() {
        return Some(one.len().min(other.len()));
    }
    (one != other).then(|| one.iter().zip(other).take_while(|(one, other)| one == other).count())
}

/// Contents of the last record of an unfinished copy.
fn mark(part: &[u8]) -> Option<usize> {
    let number = |at: usize| u64::from_le_bytes(part[at..at + 8].try_into().expect("eight bytes"));
    let places = [2, 1].into_iter().filter_map(|back| part.len().checked_sub(back * 4096));
    let records = places.filter(|&at| part[at..].starts_with(b"cryptline copy 1"));
    let last = records.max_by_key(|&at| number(at + 16))?;
    usize::try_from(number(last + 32)).ok()
}
