//! Whether every way writes and reads the same bytes. Before anything is timed.

use cryptline_engine::Buffer;

use super::BLOCK;
use super::places::Place;
use super::ways::Way;
use crate::CliError;
use crate::bench::report::Direction;

/// Each way writes every block with contents of its own, and every way reads them.
///
/// # Errors
/// Exit code 4, naming both ways and the block.
pub fn check(place: &mut Place, size: u64, mut buffer: Buffer) -> Result<Buffer, CliError> {
    let mut expected = vec![0; usize::try_from(BLOCK).unwrap_or(0)];
    let ways = place.ways();
    for (stamp, &writer) in (1..).zip(&ways) {
        for block in 0..size / u64::from(BLOCK) {
            fill(&mut buffer, block, stamp);
            let offset = [block * u64::from(BLOCK)];
            buffer = place.walk(writer, Direction::Write, &offset, buffer)?;
        }
        for block in 0..size / u64::from(BLOCK) {
            fill(&mut expected, block, stamp);
            let offset = [block * u64::from(BLOCK)];
            for &reader in &ways {
                buffer.fill(0);
                buffer = place.walk(reader, Direction::Read, &offset, buffer)?;
                if *buffer != *expected {
                    return Err(differs(place, writer, reader, block));
                }
            }
        }
    }
    Ok(buffer)
}

fn differs(place: &Place, writer: Way, reader: Way, block: u64) -> CliError {
    CliError::device(format!(
        "{}: block {block} was written by {} and came back otherwise by {}; this is a bug in cryptline, or the memory is bad",
        place.name,
        writer.name(),
        reader.name()
    ))
}

/// Bytes that no other block and no other writer has.
fn fill(bytes: &mut [u8], block: u64, stamp: u64) {
    let mut word = (block << 8 | stamp).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for piece in bytes.chunks_exact_mut(8) {
        piece.copy_from_slice(&word.to_le_bytes());
        word = word.rotate_left(9).wrapping_add(0x2545_f491_4f6c_dd1d);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_and_writers_differ() {
        let of = |block, stamp| {
            let mut bytes = vec![0; 4096];
            fill(&mut bytes, block, stamp);
            bytes
        };
        assert_eq!(of(3, 1), of(3, 1));
        assert_ne!(of(3, 1), of(4, 1));
        assert_ne!(of(3, 1), of(3, 2));
    }
}
