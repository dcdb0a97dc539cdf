//! Before anything is measured: does each way write what it is given, and nothing else?

use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Gate};

use super::Subject;
use crate::CliError;

/// Bytes that are looked at.
const AREA: usize = 256 * 1024;

/// Writes all of an area in small pieces, in no order, and reads it by whole sectors.
///
/// # Errors
/// Exit code 4 where something else comes back.
pub fn writes_arrive(subject: &Subject, whole: &Gate) -> Result<(), CliError> {
    let failed = |fault| CliError::device(format!("a request failed: {fault}"));
    let block = usize::try_from(subject.gate.geometry().logical_block).unwrap_or(AREA);
    let area = AREA.min(usize::try_from(whole.geometry().size).unwrap_or(AREA));
    let data: Vec<u8> = (0..area).map(|at| pattern(at, block)).collect();
    let mut writer = Blocking::new(&subject.gate, BackendChoice::Auto)?;
    let blocks = area / block;
    // An odd step visits every place of a power of two, or of its half, once.
    for turn in 0..blocks {
        let at = (turn * 37 % blocks) * block;
        writer
            .write_at(at as u64, &data[at..at + block], false)
            .map_err(failed)?;
    }
    let mut found = vec![0; area];
    let mut reader = Blocking::new(whole, BackendChoice::Auto)?;
    reader.read_at(0, &mut found).map_err(failed)?;
    match found
        .iter()
        .zip(&data)
        .position(|(found, data)| found != data)
    {
        None => Ok(()),
        Some(byte) => Err(CliError::device(format!(
            "byte {byte} is not what was written to it ({}); nothing was measured",
            subject.cipher
        ))),
    }
}

/// Every block differs from every other, and from what another subject with other blocks wrote.
fn pattern(at: usize, block: usize) -> u8 {
    let word = (at as u64 / 8 + block as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_be_bytes()[at % 8]
}
