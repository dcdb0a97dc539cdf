//! Whether each way writes what it should: on the medium, byte by byte. Before anything is timed.

use std::time::Duration;

use cryptline_engine::blocking::Blocking;
use cryptline_engine::{BackendChoice, Gate};

use super::writer::{Load, Places, stamp};
use super::{Medium, Way, ZONE_SIZE_MIN, ZONES};
use crate::CliError;
use crate::bench::volume::Cipher;

/// Writes stamped blocks to every zone by each way, and looks at the memory below.
///
/// # Errors
/// Exit code 4, naming the way and the place.
pub fn writes_arrive(medium: &mut Medium, memory: &Gate, cipher: &Cipher) -> Result<(), CliError> {
    let sectors = cipher.sectors()?;
    let failed = |fault| CliError::device(format!("cannot read the medium: {fault}"));
    let mut reader = Blocking::new(memory, BackendChoice::Auto)?;
    let load = Load {
        block: 4096,
        depth: 16,
        zones: ZONES,
        stamped: true,
    };
    for way in Way::ALL {
        // Until so much is written or the zones are full, whichever comes first.
        medium.write(way, &load, Duration::from_millis(20))?;
        let zone_size = memory.geometry().size / ZONES;
        let mut places = Places::new(&load, zone_size);
        let (mut found, mut expected) = (vec![0; 4096], vec![0; 4096]);
        // Every zone has some blocks by now, also on a slow medium.
        for _ in 0..ZONES {
            let Some(place) = places.take() else { break };
            stamp(place.offset, &mut expected);
            if way != Way::Plain {
                sectors.encrypt_in_place(place.offset / 512, &mut expected);
            }
            reader.read_at(place.offset, &mut found).map_err(failed)?;
            if found != expected {
                return Err(CliError::device(format!(
                    "{}, {}: byte {} and what follows is not what was written; this is a bug in cryptline, or the memory is bad",
                    way.name(),
                    medium.name(),
                    place.offset
                )));
            }
        }
    }
    debug_assert!(memory.geometry().size >= ZONE_SIZE_MIN * ZONES);
    Ok(())
}
