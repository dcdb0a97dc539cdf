//! The state file of an emulated zoned device, byte by byte; docs/zoned.md has the same as tables.
//!
//! ```text
//! copy 0:  header │ state block 0 │ state block 1 │ …      blocks of 4096 bytes
//! copy 1:  header │ state block 0 │ state block 1 │ …
//! ```
//!
//! Little-endian. Each block ends with a checksum. A state block has the records of 168 zones and a
//! generation: of two copies that are whole the one with the higher generation is the newer.

use crate::btt::info::checksum;

use super::{LayoutError, Saved, ZoneCondition as Condition, ZoneLayout};

/// Bytes in a block.
pub const BLOCK: usize = 4096;
/// Records in a state block.
pub const RECORDS: u32 = 168;

const HEADER_MAGIC: [u8; 16] = *b"cryptline zones\0";
const BLOCK_MAGIC: [u8; 8] = *b"clzones\0";
const VERSION: u32 = 1;
const CHECKSUM: usize = BLOCK - 8;
const RECORDS_START: usize = 32;
const RECORD: usize = 24;

/// A block's bytes.
pub type Block = [u8; BLOCK];

/// How many state blocks a layout has.
#[must_use]
pub fn blocks(layout: &ZoneLayout) -> u32 {
    layout.count.div_ceil(RECORDS)
}

/// Where block `number` of a copy is in the file; the header is block 0.
#[must_use]
pub fn offset_of(layout: &ZoneLayout, copy: u32, number: u32) -> u64 {
    let each = u64::from(blocks(layout)) + 1;
    (u64::from(copy) * each + u64::from(number)) * BLOCK as u64
}

/// Bytes in the file.
#[must_use]
pub fn file_len(layout: &ZoneLayout) -> u64 {
    offset_of(layout, 2, 0)
}

/// Encodes the header.
#[must_use]
pub fn encode_header(layout: &ZoneLayout) -> Block {
    let mut block = [0; BLOCK];
    put(&mut block, 0, &HEADER_MAGIC);
    put(&mut block, 16, &VERSION.to_le_bytes());
    put(&mut block, 20, &layout.count.to_le_bytes());
    put(&mut block, 24, &layout.zone_size.to_le_bytes());
    put(&mut block, 32, &layout.capacity.to_le_bytes());
    put(&mut block, 40, &layout.conventional.to_le_bytes());
    put(&mut block, 44, &layout.max_open.to_le_bytes());
    put(&mut block, 48, &layout.max_active.to_le_bytes());
    put(&mut block, 52, &layout.write_granularity.to_le_bytes());
    seal(&mut block);
    block
}

/// Decodes a header; `None` where it is damaged or none at all.
///
/// Errors: a whole header of another version, or of a layout that can not be.
pub fn decode_header(block: &Block) -> Option<Result<ZoneLayout, LayoutError>> {
    if block[..16] != HEADER_MAGIC || !is_whole(block) {
        return None;
    }
    let version = u32_at(block, 16);
    if version != VERSION {
        return Some(Err(LayoutError(format!("its version is {version}; this program knows {VERSION}"))));
    }
    let zone_size = u64_at(block, 24);
    let size = zone_size.checked_mul(u64::from(u32_at(block, 20)));
    let layout = ZoneLayout::new(size.unwrap_or(u64::MAX), zone_size);
    Some(layout.and_then(|mut layout| {
        layout.capacity = u64_at(block, 32);
        layout.conventional = u32_at(block, 40);
        layout.max_open = u32_at(block, 44);
        layout.max_active = u32_at(block, 48);
        layout.write_granularity = u32_at(block, 52);
        layout.check()
    }))
}

/// An empty state block: every sequential zone empty.
#[must_use]
pub fn new_block(layout: &ZoneLayout, number: u32) -> Block {
    let mut block = [0; BLOCK];
    put(&mut block, 0, &BLOCK_MAGIC);
    put(&mut block, 16, &number.to_le_bytes());
    let first = number * RECORDS;
    for index in first..layout.count.min(first + RECORDS) {
        if layout.is_sequential(index) {
            let condition = Condition::Empty;
            set_record(&mut block, index, &Saved { condition, ..Saved::default() });
        }
    }
    seal(&mut block);
    block
}

/// Tells if a block is state block `number`, whole, with records that can be.
#[must_use]
pub fn is_sound(block: &Block, layout: &ZoneLayout, number: u32) -> bool {
    let first = number * RECORDS;
    let mut zones = first..layout.count.min(first + RECORDS);
    block[..8] == BLOCK_MAGIC
        && u32_at(block, 16) == number
        && is_whole(block)
        && zones.all(|index| !layout.is_sequential(index) || can_be(&record(block, index), layout))
}

/// The generation of a state block.
#[must_use]
pub fn generation(block: &Block) -> u64 {
    u64_at(block, 8)
}

/// Sets a state block's generation and checksum, after its records.
pub fn finish(block: &mut Block, generation: u64) {
    put(block, 8, &generation.to_le_bytes());
    seal(block);
}

/// The record of zone `index`, which must be in this block.
#[must_use]
pub fn record(block: &Block, index: u32) -> Saved {
    let at = place(index);
    Saved {
        // What is no condition can not be; `NotWritePointer` can not be of a sequential zone.
        condition: Condition::from_code(block[at]).unwrap_or_default(),
        pointer: u64_at(block, at + 8),
        written: u64_at(block, at + 16),
        life: 0,
    }
}

/// Changes the record of zone `index`, which must be in this block.
pub fn set_record(block: &mut Block, index: u32, saved: &Saved) {
    let at = place(index);
    block[at] = saved.condition.code();
    put(block, at + 8, &saved.pointer.to_le_bytes());
    put(block, at + 16, &saved.written.to_le_bytes());
}

/// Tells if a sequential zone can be in such a state.
fn can_be(saved: &Saved, layout: &ZoneLayout) -> bool {
    let granularity = u64::from(layout.write_granularity);
    let (pointer, written) = (saved.pointer, saved.written);
    let in_place = written <= layout.capacity && written.is_multiple_of(granularity);
    in_place
        && match saved.condition {
            Condition::Empty => pointer == 0 && written == 0,
            Condition::Closed => pointer == written && (1..layout.capacity).contains(&pointer),
            Condition::Full => pointer == layout.zone_size || (pointer == layout.capacity && written == pointer),
            Condition::ReadOnly | Condition::Offline => pointer <= layout.zone_size,
            _ => false,
        }
}

fn place(index: u32) -> usize {
    // At most 167, so it fits.
    RECORDS_START + usize::try_from(index % RECORDS).unwrap_or(0) * RECORD
}

fn seal(block: &mut Block) {
    let sum = checksum(block);
    put(block, CHECKSUM, &sum.to_le_bytes());
}

fn is_whole(block: &Block) -> bool {
    u64_at(block, CHECKSUM) == checksum(block)
}

fn put(block: &mut Block, at: usize, bytes: &[u8]) {
    block[at..at + bytes.len()].copy_from_slice(bytes);
}

fn u32_at(block: &Block, at: usize) -> u32 {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(&block[at..at + 4]);
    u32::from_le_bytes(bytes)
}

fn u64_at(block: &Block, at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&block[at..at + 8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> ZoneLayout {
        let mut layout = ZoneLayout::new(400 << 20, 1 << 20).unwrap();
        (layout.capacity, layout.conventional) = (768 << 10, 3);
        (layout.max_open, layout.max_active) = (5, 9);
        layout.check().unwrap()
    }

    #[test]
    fn header_comes_back_as_it_went_and_a_changed_one_does_not() {
        let block = encode_header(&layout());
        assert_eq!(decode_header(&block), Some(Ok(layout())));
        for at in (0..BLOCK).filter(|at| *at < 64 || at % 61 == 0 || *at >= CHECKSUM) {
            let mut other = block;
            other[at] ^= 0x10;
            assert_eq!(decode_header(&other), None, "byte {at}");
        }
        let mut newer = block;
        newer[16] = 2;
        seal(&mut newer);
        let error = decode_header(&newer).unwrap().unwrap_err();
        assert!(error.0.contains("version is 2"), "{error}");
        let mut odd = block;
        odd[26] = 3;
        seal(&mut odd);
        assert!(decode_header(&odd).unwrap().is_err());
    }

    #[test]
    fn records_fill_their_blocks_and_are_found_again() {
        let layout = layout();
        assert_eq!(blocks(&layout), 3);
        assert_eq!(file_len(&layout), 2 * 4 * 4096);
        let mut block = new_block(&layout, 1);
        assert!(is_sound(&block, &layout, 1) && !is_sound(&block, &layout, 0));
        let saved = |index: u32| Saved {
            condition: Condition::Closed,
            pointer: u64::from(index) * 4096 % (768 << 10) + 4096,
            written: u64::from(index) * 4096 % (768 << 10) + 4096,
            life: 0,
        };
        (168..336).for_each(|index| set_record(&mut block, index, &saved(index)));
        finish(&mut block, 77);
        assert_eq!(generation(&block), 77);
        assert!((168..336).all(|index| record(&block, index) == saved(index)));
    }

    #[test]
    fn record_that_can_not_be_makes_its_block_unsound() {
        let layout = layout();
        let wrong = |condition, pointer, written| {
            let mut block = new_block(&layout, 0);
            let saved = Saved { condition, pointer, written, life: 0 };
            set_record(&mut block, 9, &saved);
            finish(&mut block, 1);
            !is_sound(&block, &layout, 0)
        };
        assert!(!wrong(Condition::Closed, 4096, 4096));
        assert!(!wrong(Condition::Full, 1 << 20, 4096));
        assert!(!wrong(Condition::Full, 768 << 10, 768 << 10));
        assert!(wrong(Condition::Closed, 4096, 8192));
        assert!(wrong(Condition::Closed, 0, 0));
        assert!(wrong(Condition::Closed, 100, 100));
        assert!(wrong(Condition::Closed, 768 << 10, 768 << 10));
        assert!(wrong(Condition::Empty, 4096, 4096));
        assert!(wrong(Condition::Full, 4096, 4096));
        assert!(wrong(Condition::Full, 1 << 20, 1 << 20));
        assert!(wrong(Condition::ImplicitOpen, 4096, 4096));
        assert!(wrong(Condition::NotWritePointer, 0, 0));
    }
}
