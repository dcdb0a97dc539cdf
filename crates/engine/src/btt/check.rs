//! `check`: does every block of the medium belong to exactly one sector or one lane?
//!
//! Repairs only what has one right answer: an info block whose copy is good, and writes that were
//! interrupted after their commit point. A block that two sectors share was somebody's, and only a
//! backup knows whose.

use super::flog::FlogError;
use super::map::{MapEntry, SectorState};
use super::medium::BttMedium;
use super::open::{BttError, Copies, Located, complete, locate, owed, read_log};
use crate::Fault;

/// Map entries that are read at a time.
const STEP: u32 = 65536;
/// Problems that are told one by one; the rest is counted.
const TOLD_MAX: usize = 100;

/// Results of a check.
#[derive(Debug, Default)]
pub struct Findings {
    /// Damage, the first hundred.
    pub problems: Vec<BttProblem>,
    /// All damage.
    pub count: u64,
    /// Damage that `repair` has put right.
    pub repaired: Vec<Repair>,
    /// Writes that were interrupted after their commit point. No damage: the next opening
    /// completes them.
    pub interrupted_writes: u64,
    /// Sectors that read as zeros by their flag.
    pub zero_sectors: u64,
    /// Sectors whose data the medium has lost.
    pub error_sectors: u64,
    /// Sectors that were written since the table was made.
    pub written_sectors: u64,
}

/// Where something is wrong, and what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BttProblem {
    /// Which arena, from 0.
    pub arena: usize,
    /// Kind of the damage.
    pub what: BttDamage,
}

/// Kinds of damage to a table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BttDamage {
    /// Repairable.
    #[error("the info block at its start is bad; its copy is good")]
    FirstInfo,
    /// Repairable.
    #[error("the copy of its info block is bad or differs")]
    SecondInfo,
    /// The error flag is set.
    #[error("it is marked as failed by its last user")]
    Failed,
    /// The log as a whole makes no sense.
    #[error("{0}")]
    Flog(FlogError),
    /// One lane's log makes no sense.
    #[error("lane {lane}: {error}")]
    Lane {
        /// Which lane.
        lane: u32,
        /// Error in the log.
        error: FlogError,
    },
    /// A lane's log names something outside the arena.
    #[error("lane {lane}: its log names sector {lba}, blocks {old} and {new}, not all in the arena")]
    LaneRange {
        /// Which lane.
        lane: u32,
        /// The sector.
        lba: u32,
        /// The free block.
        old: u32,
        /// The new block.
        new: u32,
    },
    /// A map entry names something outside the arena.
    #[error("sector {lba} is in block {block}, which is not in the arena")]
    MapRange {
        /// The sector.
        lba: u32,
        /// The block.
        block: u32,
    },
    /// A block belongs to two sectors.
    #[error("sector {lba} is in block {block}, which is another sector's or lane's too")]
    SharedBySector {
        /// The sector that was looked at later.
        lba: u32,
        /// The block.
        block: u32,
    },
    /// A block is free for two lanes.
    #[error("lane {lane}: its free block {block} is another lane's too")]
    SharedByLane {
        /// Which lane.
        lane: u32,
        /// The block.
        block: u32,
    },
    /// Blocks that belong to nobody.
    #[error("{count} blocks belong to no sector and no lane; the first is {first}")]
    Lost {
        /// How many.
        count: u64,
        /// The first one.
        first: u32,
    },
}

/// Damage that was put right.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Repair {
    /// From the copy.
    #[error("arena {0}: wrote its info block again, from the copy")]
    FirstInfo(usize),
    /// From the first.
    #[error("arena {0}: wrote the copy of its info block again")]
    SecondInfo(usize),
    /// Rolled forward.
    #[error("arena {arena}: completed {count} interrupted writes")]
    Interrupted {
        /// Which arena.
        arena: usize,
        /// How many.
        count: usize,
    },
}

impl Findings {
    fn add(&mut self, arena: usize, what: BttDamage) {
        self.count += 1;
        if self.problems.len() < TOLD_MAX {
            self.problems.push(BttProblem { arena, what });
        }
    }
}

/// Checks the table on `medium`, and repairs what can be repaired where `repair`. `progress` gets
/// the map entries that are done.
///
/// # Errors
/// Where there is no table to check, or the medium fails.
pub fn check(
    medium: &impl BttMedium,
    repair: bool,
    mut progress: impl FnMut(u64),
) -> Result<(Vec<Located>, Findings), BttError> {
    let mut arenas = locate(medium)?;
    let mut findings = Findings::default();
    for (number, arena) in arenas.iter_mut().enumerate() {
        check_info(medium, number, arena, repair, &mut findings)?;
        Checker {
            medium,
            number,
            arena,
            repair,
            owners: Owners::new(arena.info.layout.internal_nlba)?,
            findings: &mut findings,
        }
        .run(&mut progress)?;
    }
    Ok((arenas, findings))
}

fn check_info(
    medium: &impl BttMedium,
    number: usize,
    arena: &mut Located,
    repair: bool,
    findings: &mut Findings,
) -> Result<(), Fault> {
    if arena.info.has_failed() {
        findings.add(number, BttDamage::Failed);
    }
    let (offset, damage, repaired) = match arena.copies {
        Copies::Both => return Ok(()),
        Copies::First => (arena.start + arena.info.layout.info_copy, BttDamage::SecondInfo, Repair::SecondInfo(number)),
        Copies::Second => (arena.start, BttDamage::FirstInfo, Repair::FirstInfo(number)),
    };
    if !repair {
        findings.add(number, damage);
        return Ok(());
    }
    medium.store(offset, &arena.info.encode())?;
    medium.persist()?;
    arena.copies = Copies::Both;
    findings.repaired.push(repaired);
    Ok(())
}

struct Checker<'a, M: BttMedium> {
    medium: &'a M,
    number: usize,
    arena: &'a Located,
    repair: bool,
    owners: Owners,
    findings: &'a mut Findings,
}

impl<M: BttMedium> Checker<'_, M> {
    fn run(mut self, progress: &mut impl FnMut(u64)) -> Result<(), BttError> {
        let owed = self.check_lanes()?;
        self.check_map(&owed, progress)?;
        if let Some(first) = self.owners.first_free() {
            let count = self.owners.free_count();
            self.add(BttDamage::Lost { count, first });
        }
        if !self.repair {
            self.findings.interrupted_writes += owed.len() as u64;
        } else if !owed.is_empty() {
            complete(self.medium, self.arena, &owed)?;
            self.findings.repaired.push(Repair::Interrupted { arena: self.number, count: owed.len() });
        }
        Ok(())
    }

    /// The free blocks; returns the map entries that interrupted writes owe, by sector.
    fn check_lanes(&mut self) -> Result<Vec<(u32, u32)>, BttError> {
        let layout = self.arena.info.layout;
        let log = match read_log(self.medium, self.arena)? {
            Ok(log) => log,
            Err(error) => {
                self.add(BttDamage::Flog(error));
                return Ok(Vec::new());
            }
        };
        let mut all_owed = Vec::new();
        for (lane, newest) in (0..).zip(&log.newest) {
            let entry = match newest {
                Ok((entry, _)) => *entry,
                Err(error) => {
                    let error = *error;
                    self.add(BttDamage::Lane { lane, error });
                    continue;
                }
            };
            let inside = entry.old < layout.internal_nlba && entry.new < layout.internal_nlba;
            if !inside || entry.lba >= layout.external_nlba {
                let (lba, old, new) = (entry.lba, entry.old, entry.new);
                let what = BttDamage::LaneRange { lane, lba, old, new };
                self.add(what);
                continue;
            }
            if !self.owners.claim(entry.old) {
                let block = entry.old;
                self.add(BttDamage::SharedByLane { lane, block });
            }
            if let Some(raw) = owed(self.medium, self.arena, &entry)? {
                all_owed.push((entry.lba, raw));
            }
        }
        all_owed.sort_unstable();
        Ok(all_owed)
    }

    /// Every sector's block, as it is after the owed entries are written.
    fn check_map(&mut self, owed: &[(u32, u32)], progress: &mut impl FnMut(u64)) -> Result<(), BttError> {
        let layout = self.arena.info.layout;
        let mut bytes = vec![0; STEP as usize * 4];
        for first in (0..layout.external_nlba).step_by(STEP as usize) {
            let count = STEP.min(layout.external_nlba - first);
            let bytes = &mut bytes[..count as usize * 4];
            let offset = self.arena.start + layout.map_offset(first);
            self.medium.read(offset, bytes)?;
            for (lba, entry) in (first..).zip(bytes.chunks_exact(4)) {
                let stored = entry.iter().rev().fold(0, |word, &byte| word << 8 | u32::from(byte));
                let found = owed.binary_search_by_key(&lba, |owed| owed.0);
                self.check_entry(lba, found.map_or(stored, |found| owed[found].1));
            }
            progress(u64::from(count));
        }
        Ok(())
    }

    fn check_entry(&mut self, lba: u32, raw: u32) {
        let MapEntry { block, state } = MapEntry::decode(raw, lba);
        self.findings.written_sectors += u64::from(raw != 0);
        match state {
            SectorState::Data => {}
            SectorState::Zero => self.findings.zero_sectors += 1,
            SectorState::Error => self.findings.error_sectors += 1,
        }
        if block >= self.arena.info.layout.internal_nlba {
            self.add(BttDamage::MapRange { lba, block });
        } else if !self.owners.claim(block) {
            self.add(BttDamage::SharedBySector { lba, block });
        }
    }

    fn add(&mut self, what: BttDamage) {
        self.findings.add(self.number, what);
    }
}

/// A bit for each block, set once it has an owner.
struct Owners {
    words: Vec<u64>,
    blocks: u32,
}

impl Owners {
    fn new(blocks: u32) -> Result<Self, BttError> {
        let len = (blocks as usize).div_ceil(64);
        let mut words = Vec::new();
        words.try_reserve_exact(len).map_err(|_| BttError::Medium(Fault::Io(rustix::io::Errno::NOMEM)))?;
        words.resize(len, 0);
        Ok(Self { words, blocks })
    }

    /// Claims a block. Returns `true` if it had no owner before.
    fn claim(&mut self, block: u32) -> bool {
        let (word, bit) = (block as usize / 64, 1 << (block % 64));
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        is_new
    }

    fn first_free(&self) -> Option<u32> {
        let is_free = |block: &u32| self.words[*block as usize / 64] & 1 << (block % 64) == 0;
        let word = self.words.iter().position(|word| *word != u64::MAX)?;
        let first = u32::try_from(word * 64).ok()?;
        (first..self.blocks.min(first + 64)).find(is_free)
    }

    fn free_count(&self) -> u64 {
        let owned: u64 = self.words.iter().map(|word| u64::from(word.count_ones())).sum();
        u64::from(self.blocks) - owned
    }
}
