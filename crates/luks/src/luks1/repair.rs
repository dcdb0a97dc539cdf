//! What the header says of odd key slots, written anew from what follows from the rest.
//!
//! Where a key slot lies follows from its number and from the length of the key; all have 4000 stripes. So what a disk
//! signature or a partition table has overwritten of that can be had again. State, iterations and salt cannot.

use super::{HEADER_LEN, Header, SLOT_ACTIVE, SLOT_INACTIVE, SLOTS, STRIPES_FIELD, Taken, be32, slot_start};
use crate::af::STRIPES;
use crate::area::{Extent, stripes_len};
use crate::error::Error;

/// First sector of the first slot's stripes, and what slots are aligned to.
const SLOT_ALIGNMENT_SECTORS: u32 = 8;
/// Places in a slot's part of the header.
const ITERATIONS: usize = 4;
const PLACE: usize = 40;

/// The first sector of the stripes of a slot where every program puts it; for [`SLOTS`], where the last one ends.
pub(super) fn usual_sector(number: usize, key_len: u32) -> Option<u32> {
    let sectors = u32::try_from(stripes_len(key_len) / 512).ok()?.next_multiple_of(SLOT_ALIGNMENT_SECTORS);
    let number = u32::try_from(number).ok()?;
    SLOT_ALIGNMENT_SECTORS.checked_add(sectors.checked_mul(number)?)
}

/// The header `raw` with its odd slots repaired. With `force`, those are made free of which too much is lost for
/// anything to open them.
///
/// # Errors
/// [`Error::Repair`] where that does not follow from the rest; without `force`, where a slot would have to be given up.
pub(crate) fn repaired(header: &Header, raw: &[u8; HEADER_LEN], force: bool) -> Result<[u8; HEADER_LEN], Error> {
    let is_odd = |number: usize| header.odd.iter().any(|&(odd, _)| odd as usize == number);
    let usual = |number: usize| usual_sector(number, header.key_len);
    let mut sound = (0..SLOTS).filter(|&number| !is_odd(number)).peekable();
    let known = sound.peek().is_none() || sound.any(|number| usual(number) == Some(header.sectors[number]));
    if !known {
        let why =
            "its key slots do not lie where programs of today put them, so it does not follow where the odd one was";
        return Err(Error::Repair(why.to_owned()));
    }
    let mut taken = Taken::new(header);
    let place = |sector: u32| Extent::of_stripes(u64::from(sector) * 512, header.key_len);
    for number in (0..SLOTS).filter(|&number| !is_odd(number)) {
        let name = format!("key slot {number}");
        taken.take(&name, place(header.sectors[number])).map_err(|why| Error::Repair(format!("{name} {why}")))?;
    }
    let mut repaired = *raw;
    for (number, _) in &header.odd {
        let number = *number as usize;
        let name = format!("key slot {number}");
        let sector = usual(number).ok_or_else(|| Error::Repair("the volume key is too long".to_owned()))?;
        taken.take(&name, place(sector)).map_err(|why| Error::Repair(format!("the usual place of {name} {why}")))?;
        let start = slot_start(number);
        repaired[start + PLACE..start + STRIPES_FIELD].copy_from_slice(&sector.to_be_bytes());
        repaired[start + STRIPES_FIELD..start + STRIPES_FIELD + 4].copy_from_slice(&STRIPES.to_be_bytes());
        let state = be32(raw, start);
        let has_salt = raw[start + ITERATIONS..start + PLACE].iter().any(|&byte| byte != 0);
        let is_whole = match state {
            SLOT_ACTIVE => be32(raw, start + ITERATIONS) != 0,
            SLOT_INACTIVE => true,
            _ => false,
        };
        if is_whole {
            continue;
        }
        if has_salt && !force {
            return Err(Error::Repair(format!(
                "what is left of {name} opens nothing and could be of a passphrase; with --force it is made free"
            )));
        }
        repaired[start..start + ITERATIONS].copy_from_slice(&SLOT_INACTIVE.to_be_bytes());
        repaired[start + ITERATIONS..start + PLACE].fill(0);
    }
    Ok(repaired)
}
