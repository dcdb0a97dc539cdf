//! Block translation tables: info blocks, maps and logs, sealed and not; opened, read, written,
//! checked and repaired.
//!
//! Input: one byte of choices, then patches of a sound table: an offset in four bytes (the upper two
//! bits choose the part), a length in one, the bytes.

use crate::each_patch;
use cryptline_engine::btt::info::InfoBlock;
use cryptline_engine::btt::layout::START_V1;
use cryptline_engine::btt::{Btt, BttMedium, NewTable, check, locate};
use cryptline_sys::SharedMemory;

const SIZE: usize = (16 << 20) + 4096;

/// Tries one input.
pub fn target(data: &[u8]) {
    let Some((choices, patches)) = data.split_first() else {
        return;
    };
    let memory = SharedMemory::new(SIZE).expect("memory");
    let new = NewTable { sector_size: if choices & 1 == 0 { 512 } else { 4096 }, uuid: [1; 16], is_zero: true };
    new.write(&memory, |_| ()).expect("memory does not fail");
    let layout = locate(&memory).expect("a sound table")[0].info.layout;
    let parts = [0, layout.map, layout.flog, layout.info_copy].map(|part| START_V1 + part);
    each_patch(patches, |place, bytes| {
        let word = u32::from_be_bytes(place);
        let place = parts[(word >> 30) as usize] + u64::from(word & 0xffff);
        if place + bytes.len() as u64 <= SIZE as u64 {
            memory.store(place, bytes).expect("memory does not fail");
        }
    });
    let mut block = [0; 4096];
    memory.read(START_V1.try_into().expect("small"), &mut block);
    if let Ok(info) = InfoBlock::parse(&block) {
        assert_eq!(InfoBlock::parse(&info.encode()), Ok(info));
    }
    if choices & 2 != 0 {
        // Nonsense under a right checksum goes further.
        let sum = block[..4088].chunks(4).fold((0u32, 0u32), |(low, high), word| {
            let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
            let low = low.wrapping_add(word);
            (low, high.wrapping_add(low))
        });
        // The checksum's own two words count as zero.
        let high = sum.1.wrapping_add(sum.0.wrapping_mul(2));
        block[4088..4092].copy_from_slice(&sum.0.to_le_bytes());
        block[4092..].copy_from_slice(&high.to_le_bytes());
        memory.store(START_V1, &block).expect("memory does not fail");
    }
    let _ = check(&memory, choices & 4 != 0, |_| ());
    let Ok(table) = Btt::open(memory, choices & 8 != 0) else {
        return;
    };
    let size = table.size();
    let mut bytes = vec![0; usize::try_from(size).map_or(65536, |size| size.min(65536))];
    let last = size - bytes.len() as u64;
    for offset in [0, last / 8192 * 4096, last / 4096 * 4096] {
        let _ = table.read(0, offset, &mut bytes);
        if choices & 8 == 0 {
            let _ = table.write(0, offset, &bytes);
        }
    }
}
