//! Opening: find the arenas, read their logs, complete what was interrupted.

use super::arena::{ArenaFacts, BttArena};
use super::flog::{FlogEntry, FlogError, FlogGroup, GROUP_LEN, Slots, next_seq};
use super::info::{InfoBlock, InfoError};
use super::lanes::FreeBlock;
use super::layout::{ARENA_MAX, ARENA_MIN, INFO_SIZE, START_V1};
use super::map::MapEntry;
use super::medium::BttMedium;
use crate::Fault;

/// More arenas than this are 32 TiB, or nonsense.
const ARENAS_MAX: usize = 64;

/// Why a table can not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BttError {
    /// There is none.
    #[error("there is no BTT in it (no info block at byte 4096 or 0, and no copy at the end); was it cut short?")]
    Nothing,
    /// An arena's info block and its copy are both bad.
    #[error("arena {arena}: {primary}, and so is its copy ({copy}); restore the image from a backup")]
    Info {
        /// Which arena, from 0.
        arena: usize,
        /// Error in the block at the start.
        primary: InfoError,
        /// Error in the copy at the end.
        copy: InfoError,
    },
    /// A sealed block that can not be served.
    #[error("arena {arena}: {error}")]
    Refused {
        /// Which arena, from 0.
        arena: usize,
        /// Why.
        error: InfoError,
    },
    /// An arena ends behind the medium's end.
    #[error("arena {arena} ends at byte {end}, but there are {size} bytes; was the image cut short?")]
    CutShort {
        /// Which arena, from 0.
        arena: usize,
        /// Where it ends.
        end: u64,
        /// Where the medium ends.
        size: u64,
    },
    /// The arenas are not one table's.
    #[error("arena {arena} belongs to another table than arena 0 (its {what} differs)")]
    Stranger {
        /// Which arena, from 0.
        arena: usize,
        /// Field that differs.
        what: &'static str,
    },
    /// More than [`ARENAS_MAX`].
    #[error("the table has more than {ARENAS_MAX} arenas, which is more than 32 TiB")]
    TooMany,
    /// A lane's log makes no sense.
    #[error("arena {arena}, lane {lane}: {why}")]
    Lane {
        /// Which arena, from 0.
        arena: usize,
        /// Which lane, from 0.
        lane: u32,
        /// Error in the log.
        why: String,
    },
    /// The log as a whole makes no sense.
    #[error("arena {arena}: {error}")]
    Flog {
        /// Which arena, from 0.
        arena: usize,
        /// Error in the log.
        error: FlogError,
    },
    /// The info block's error flag is set.
    #[error("arena {arena} is marked as failed by its last user, so it can only be read")]
    Failed {
        /// Which arena, from 0.
        arena: usize,
    },
    /// The medium failed.
    #[error("{0}")]
    Medium(Fault),
}

impl From<Fault> for BttError {
    fn from(fault: Fault) -> Self {
        Self::Medium(fault)
    }
}

/// An arena's place and info block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Located {
    /// First byte on the medium.
    pub start: u64,
    /// Content of the sound one of its two info blocks.
    pub info: InfoBlock,
    /// Which of the two were good.
    pub copies: Copies,
}

/// Which of an arena's two info blocks were good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Copies {
    /// Both, and they agree.
    Both,
    /// The one at the start; the other is bad, or says something else.
    First,
    /// The one at the end.
    Second,
}

/// Finds the arenas of the table on `medium`, with the copies in place of bad info blocks.
///
/// # Errors
/// No table, or one that can not be used.
pub fn locate(medium: &impl BttMedium) -> Result<Vec<Located>, BttError> {
    let (start, first) = first_info(medium)?;
    let mut arenas: Vec<Located> = vec![arena_at(medium, 0, start, first)?];
    loop {
        let last = arenas[arenas.len() - 1];
        if last.info.next == 0 {
            return Ok(arenas);
        }
        let number = arenas.len();
        if number >= ARENAS_MAX {
            return Err(BttError::TooMany);
        }
        // `next` is below 2^40 + a little wherever the check below has passed.
        let start = last.start.saturating_add(last.info.next);
        let arena = arena_at(medium, number, start, read_info(medium, start)?)?;
        let first = arenas[0].info;
        let differs = [
            (arena.info.uuid != first.uuid, "UUID"),
            (arena.info.version != first.version, "version"),
            (arena.info.layout.external_lbasize != first.layout.external_lbasize, "sector size"),
        ];
        if let Some((_, what)) = differs.into_iter().find(|(differs, _)| *differs) {
            return Err(BttError::Stranger { arena: number, what });
        }
        arenas.push(arena);
    }
}

/// Where the table starts, and what its first info block says: version 1.1 at byte 4096, version
/// 2.0 at byte 0. Where neither is there but a copy at the end says that one was, that place.
fn first_info(medium: &impl BttMedium) -> Result<(u64, Result<InfoBlock, InfoError>), BttError> {
    let places = [(START_V1, (1, 1)), (0, (2, 0))];
    let mut damaged = None;
    for (start, version) in places {
        match read_info(medium, start)? {
            Ok(info) if info.version == version => return Ok((start, Ok(info))),
            Ok(_) | Err(InfoError::NoSignature) => {}
            Err(error) => damaged = damaged.or(Some((start, Err(error)))),
        }
    }
    let copy_of = |(start, version): (u64, (u16, u16))| {
        let found = guess_copy(medium, start)?;
        let fits = found.is_some_and(|info| info.version == version);
        Ok::<_, BttError>(fits.then_some((start, Err(InfoError::NoSignature))))
    };
    if damaged.is_some() {
        return damaged.ok_or(BttError::Nothing);
    }
    for place in places {
        if let Some(found) = copy_of(place)? {
            return Ok(found);
        }
    }
    Err(BttError::Nothing)
}

/// The arena at `start`, from whichever of its info blocks is good.
fn arena_at(
    medium: &impl BttMedium,
    number: usize,
    start: u64,
    primary: Result<InfoBlock, InfoError>,
) -> Result<Located, BttError> {
    let (info, copies) = match primary {
        Ok(info) => {
            let copy = read_info(medium, start.saturating_add(info.layout.info_copy))?;
            let copies = if copy == Ok(info) { Copies::Both } else { Copies::First };
            (info, copies)
        }
        Err(error @ (InfoError::Version { .. } | InfoError::SectorSize(_))) => {
            return Err(BttError::Refused { arena: number, error });
        }
        Err(primary) => match guess_copy(medium, start)? {
            Some(info) => (info, Copies::Second),
            None => {
                return Err(BttError::Info { arena: number, primary, copy: InfoError::NoSignature });
            }
        },
    };
    let end = start.saturating_add(info.layout.size);
    if end > medium.size() {
        return Err(BttError::CutShort { arena: number, end, size: medium.size() });
    }
    Ok(Located { start, info, copies })
}

/// The copy of a bad info block at `start`: an arena ends 512 GiB on, or with the medium.
fn guess_copy(medium: &impl BttMedium, start: u64) -> Result<Option<InfoBlock>, BttError> {
    let rest = medium.size().saturating_sub(start).min(ARENA_MAX);
    let size = rest - rest % INFO_SIZE;
    if size < ARENA_MIN {
        return Ok(None);
    }
    let found = read_info(medium, start + size - INFO_SIZE)?;
    // It must be the copy of this one and not of another that ends here.
    Ok(found.ok().filter(|info| info.layout.size == size))
}

/// The info block at `offset`; what lies outside the medium is no info block.
pub(super) fn read_info(medium: &impl BttMedium, offset: u64) -> Result<Result<InfoBlock, InfoError>, Fault> {
    let mut bytes = [0; 4096];
    let end = offset.checked_add(INFO_SIZE);
    if end.is_none_or(|end| end > medium.size()) {
        return Ok(Err(InfoError::NoSignature));
    }
    medium.read(offset, &mut bytes)?;
    Ok(InfoBlock::parse(&bytes))
}

/// Content of an arena's flog.
pub(super) struct FlogContents {
    /// The slots in use.
    pub(super) slots: Slots,
    /// For each lane its newer entry, and whether that is the second of the pair.
    pub(super) newest: Vec<Result<(FlogEntry, bool), FlogError>>,
}

/// Reads the flog.
pub(super) fn read_log(medium: &impl BttMedium, arena: &Located) -> Result<Result<FlogContents, FlogError>, Fault> {
    let layout = &arena.info.layout;
    let mut groups = Vec::with_capacity(layout.nfree as usize);
    for lane in 0..layout.nfree {
        let mut bytes = [0; GROUP_LEN];
        medium.read(arena.start + layout.flog_offset(lane), &mut bytes)?;
        groups.push(FlogGroup::parse(&bytes));
    }
    Ok(Slots::detect(&groups)
        .map(|slots| FlogContents { slots, newest: groups.iter().map(|group| slots.newer(group)).collect() }))
}

/// The map entry that an interrupted write still owes, if `entry` is one: the map still says
/// `old`. Linux, UEFI and this program complete such a write. `None` also where the numbers are
/// out of range.
pub(super) fn owed(medium: &impl BttMedium, arena: &Located, entry: &FlogEntry) -> Result<Option<u32>, Fault> {
    let layout = &arena.info.layout;
    if !entry.is_write() || entry.lba >= layout.external_nlba {
        return Ok(None);
    }
    let raw = medium.load32(arena.start + layout.map_offset(entry.lba))?;
    let mapped = MapEntry::decode(raw, entry.lba).block;
    let owed = mapped == entry.old && entry.new < layout.internal_nlba;
    Ok(owed.then(|| MapEntry::normal(entry.new)))
}

/// Opens one arena; completes interrupted writes on the medium unless `read_only`.
pub(super) fn open_arena(
    medium: &impl BttMedium,
    number: usize,
    arena: &Located,
    read_only: bool,
) -> Result<BttArena, BttError> {
    if arena.info.has_failed() && !read_only {
        return Err(BttError::Failed { arena: number });
    }
    let log = read_log(medium, arena)?;
    let log = log.map_err(|error| BttError::Flog { arena: number, error })?;
    let layout = arena.info.layout;
    let mut free = Vec::with_capacity(log.newest.len());
    let mut pending = Vec::new();
    for (lane, newest) in (0..).zip(&log.newest) {
        let wrong = |why: String| BttError::Lane { arena: number, lane, why };
        let (entry, second) = newest.map_err(|error| wrong(error.to_string()))?;
        let inside = [entry.old, entry.new].iter().all(|&block| block < layout.internal_nlba);
        if !inside || entry.lba >= layout.external_nlba {
            return Err(wrong(format!(
                "its log names sector {}, blocks {} and {}, which are not all in the arena",
                entry.lba, entry.old, entry.new
            )));
        }
        if let Some(raw) = owed(medium, arena, &entry)? {
            pending.push((entry.lba, raw));
        }
        free.push(FreeBlock { block: entry.old, second: !second, seq: next_seq(entry.seq) });
    }
    if let Some(lane) = shared_block(&free) {
        return Err(BttError::Lane { arena: number, lane, why: "its free block is another lane's too".into() });
    }
    if !read_only {
        complete(medium, arena, &pending)?;
        pending.clear();
    }
    pending.sort_unstable();
    Ok(BttArena::new(ArenaFacts { start: arena.start, layout, slots: log.slots, free, pending }))
}

/// Writes the map entries that interrupted writes owe.
pub(super) fn complete(medium: &impl BttMedium, arena: &Located, owed: &[(u32, u32)]) -> Result<(), Fault> {
    for (lba, raw) in owed {
        medium.store32(arena.start + arena.info.layout.map_offset(*lba), *raw)?;
    }
    if owed.is_empty() { Ok(()) } else { medium.persist() }
}

/// A lane whose free block is also an earlier lane's: two writers would share it.
fn shared_block(free: &[FreeBlock]) -> Option<u32> {
    let mut seen = std::collections::HashSet::with_capacity(free.len());
    let shared = free.iter().position(|free| !seen.insert(free.block));
    shared.and_then(|lane| u32::try_from(lane).ok())
}
