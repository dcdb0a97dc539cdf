//! The state file of emulated zones: any bytes, and a sound file with any bytes in it.
//!
//! Input: one byte of choices, then the file; or, where the choice is so, patches of a sound file: an
//! offset in two bytes, a length in one, the bytes.

use std::cell::RefCell;
use std::io;

use crate::each_patch;
use cryptline_engine::zone::journal::{StateStore, ZoneJournal, create, load};
use cryptline_engine::zone::state::{BLOCK, Block, finish};
use cryptline_engine::zone::{ZoneLayout, ZoneTable};

struct Memory(RefCell<Vec<u8>>);

impl StateStore for Memory {
    fn read(&self, offset: u64, block: &mut Block) -> io::Result<()> {
        let bytes = self.0.borrow();
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start.checked_add(BLOCK).ok_or(io::ErrorKind::UnexpectedEof)?;
        let found = bytes.get(start..end).ok_or(io::ErrorKind::UnexpectedEof)?;
        block.copy_from_slice(found);
        Ok(())
    }

    fn write(&self, offset: u64, block: &Block) -> io::Result<()> {
        let mut bytes = self.0.borrow_mut();
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start + BLOCK;
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        bytes[start..end].copy_from_slice(block);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}

/// Tries one input.
pub fn target(data: &[u8]) {
    let Some((choices, rest)) = data.split_first() else {
        return;
    };
    let store = Memory(RefCell::new(Vec::new()));
    if choices & 1 == 0 {
        store.0.borrow_mut().extend_from_slice(rest);
    } else {
        patched(&store, choices & 2 != 0, rest);
    }
    let len = store.0.borrow().len() as u64;
    let Ok(loaded) = load(&store, len) else {
        return;
    };
    assert_eq!(loaded.saved.len(), loaded.layout.count as usize);
    let layout = loaded.layout;
    let saved = loaded.saved.clone();
    // Whatever it says, the table over it holds together.
    let table = ZoneTable::load(layout, |index| saved[index as usize]);
    let index = layout.conventional;
    let _ = table.readable(index);
    let granularity = u64::from(layout.write_granularity);
    if table.begin_write(index, None, granularity).is_ok() {
        table.end_write(index, granularity);
    }
    let _ = table.finish(index);
    if loaded.lost.is_empty() {
        let journal = ZoneJournal::open(Box::new(store), &loaded).expect("memory does not fail");
        let mut unsaved = Vec::new();
        table.each_unsaved(|index, saved| unsaved.push((index, saved)));
        journal.commit(&unsaved, &table).expect("memory does not fail");
    }
}

/// A sound state with patches; with right checksums again where `sealed`.
fn patched(store: &Memory, sealed: bool, patches: &[u8]) {
    let mut layout = ZoneLayout::new(200 << 20, 1 << 20).expect("a layout");
    layout.conventional = 2;
    create(store, &layout).expect("memory does not fail");
    let mut bytes = store.0.borrow_mut();
    each_patch(patches, |place, patch| {
        let place = usize::from(u16::from_be_bytes(place));
        let end = (place + patch.len()).min(bytes.len());
        if place < end {
            bytes[place..end].copy_from_slice(&patch[..end - place]);
        }
    });
    if sealed {
        // Blocks 1 and 2 of each copy are state blocks.
        for number in [1, 2, 4, 5] {
            let place = number * BLOCK;
            let mut block = [0; BLOCK];
            block.copy_from_slice(&bytes[place..place + BLOCK]);
            let generation = u64::from(block[8]);
            finish(&mut block, generation);
            bytes[place..place + BLOCK].copy_from_slice(&block);
        }
    }
}
