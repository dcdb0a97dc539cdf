//! The power fails: between any two writes to the medium, and in the middle of one.
//!
//! ```text
//! image before ─► 0, 1, 2 … of the writes ─► and of the next one any run of 512-byte blocks ─► opened again
//! ```

use std::ops::Range;

use cryptline_engine::layer::{Exclusion, Zeroes};
use cryptline_testkit::suite::Driver;
use cryptline_testkit::suite::devices::{AES_4096, CBC_4096, Layout};

use super::{BLOCK, SECTOR, SETUPS, in_small_blocks, small};
use cryptline_testkit::scripted::{Manner, Scripted, Written};

/// Writes to make, one after the other: in one sector, over an edge, with a body.
const WRITES: [(u64, u64); 4] = [
    (3 * SECTOR + 2 * BLOCK, BLOCK),
    (4 * SECTOR, 7 * BLOCK),
    (6 * SECTOR - BLOCK, 2 * BLOCK),
    (8 * SECTOR - BLOCK, 2 * SECTOR + 3 * BLOCK),
];

/// History of a disk: its image before, and each request's clear disk before and after, with the writes to the medium
/// that it made.
struct Story {
    layout: &'static Layout,
    image: Vec<u8>,
    steps: Vec<Step>,
}

struct Step {
    before: Vec<u8>,
    after: Vec<u8>,
    written: Vec<Written>,
}

impl Story {
    fn tell(layout: &'static Layout) -> Self {
        let stage = small(Self::manner(layout));
        let mut driver = open(layout, &stage);
        driver.fill_device(1);
        let image = stage.bytes();
        let mut steps = Vec::new();
        for (token, (offset, len)) in (0..).zip(WRITES) {
            let before = clear_of(&mut driver);
            stage.forget();
            assert_eq!(driver.run(driver.write_request(offset, len, 2, token)).result, Ok(()));
            steps.push(Step { written: stage.written(), after: clear_of(&mut driver), before });
        }
        Self { layout, image, steps }
    }

    fn manner(layout: &Layout) -> Manner {
        Manner { block: 512, at_once: true, start: layout.start }
    }

    /// Calls `judge` with every state that a power failure can leave where the medium writes
    /// `unit` bytes at once: the step, what the clear disk shows, and the sectors that were cut.
    fn states(&self, unit: usize, mut judge: impl FnMut(&Step, &[u8], &Range<usize>)) {
        let mut image = self.image.clone();
        for step in &self.steps {
            for (at, data) in &step.written {
                let at = usize::try_from(*at).unwrap();
                let units = data.len().div_ceil(unit);
                for from in 0..units {
                    for to in from..=units {
                        let mut torn = image.clone();
                        let part = from * unit..data.len().min(to * unit);
                        torn[at + part.start..at + part.end].copy_from_slice(&data[part.clone()]);
                        let stage = Scripted::with(Self::manner(self.layout), vec![torn]);
                        let shown = clear_of(&mut open(self.layout, &stage));
                        let start = at - usize::try_from(self.layout.start).unwrap();
                        judge(step, &shown, &(start..start + data.len()));
                    }
                }
                image[at..at + data.len()].copy_from_slice(data);
            }
        }
    }
}

fn open(layout: &Layout, stage: &Scripted) -> Driver {
    let gate = in_small_blocks(stage.gate(), layout, Exclusion::Shared, Zeroes::Decrypt);
    Driver::new(&gate, SETUPS[1])
}

fn clear_of(driver: &mut Driver) -> Vec<u8> {
    driver.read(0, driver.size()).unwrap()
}

/// Tells if each `unit` of `shown` is as it was before the step or as it is after it.
fn is_old_or_new(step: &Step, shown: &[u8], unit: u64) -> bool {
    let unit = usize::try_from(unit).unwrap();
    let same = |at: usize, of: &[u8]| shown[at..at + unit] == of[at..at + unit];
    (0..shown.len()).step_by(unit).all(|at| same(at, &step.before) || same(at, &step.after))
}

#[test]
fn medium_that_writes_sectors_at_once_shows_each_old_or_new() {
    let story = Story::tell(&CBC_4096);
    let mut states = 0;
    story.states(4096, |step, shown, _| {
        assert!(is_old_or_new(step, shown, SECTOR));
        states += 1;
    });
    assert!(states > 12);
}

#[test]
fn torn_rewrite_spoils_its_own_sector_and_no_other() {
    let story = Story::tell(&CBC_4096);
    let (mut whole, mut spoilt) = (0, 0);
    story.states(512, |step, shown, written| {
        let mut judged = shown.to_vec();
        let sector = usize::try_from(SECTOR).unwrap();
        for at in written.clone().step_by(sector) {
            let sector = at..at + sector;
            if is_old_or_new_in(step, shown, sector.clone()) {
                whole += 1
            } else {
                spoilt += 1
            }
            judged[sector.clone()].copy_from_slice(&step.before[sector]);
        }
        assert!(is_old_or_new(step, &judged, SECTOR), "others are spoilt");
    });
    // That it happens is what the documentation says.
    assert!(whole > 0 && spoilt > 0, "{whole} {spoilt}");
}

fn is_old_or_new_in(step: &Step, shown: &[u8], range: Range<usize>) -> bool {
    let shown = &shown[range.clone()];
    *shown == step.before[range.clone()] || *shown == step.after[range]
}

#[test]
fn xts_writes_the_bytes_of_the_written_blocks_and_nothing_else() {
    let story = Story::tell(&AES_4096);
    for ((offset, len), step) in WRITES.iter().zip(&story.steps) {
        let [(at, data)] = &step.written[..] else { panic!("{} writes for one", step.written.len()) };
        assert_eq!((at - AES_4096.start, data.len() as u64), (*offset, *len));
    }
}

#[test]
fn torn_xts_overwrite_shows_each_block_old_or_new() {
    let story = Story::tell(&AES_4096);
    let mut states = 0;
    story.states(512, |step, shown, _| {
        assert!(is_old_or_new(step, shown, BLOCK));
        states += 1;
    });
    assert!(states > 100);
}
