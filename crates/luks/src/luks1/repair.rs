//! Repair of odd key slots: their part of the header, written anew from what follows from the rest.
//!
//! Where a key slot lies follows from its number and from the length of the key; all have 4000 stripes. So what a disk
//! signature or a partition table has overwritten of that can be had again, and so can the state of a slot whose iterations
//! and salt are whole, since a free one has none. Iterations and salt cannot.

use super::{
    HEADER_LEN, ITERATIONS, Luks1Header, PLACE, SALT, SLOT_ACTIVE, SLOT_INACTIVE, SLOTS, STRIPES_FIELD, TakenAreas,
    be32, slot_start,
};
use crate::af::STRIPES;
use crate::area::stripes_len;
use crate::device::{ReadSeek, read_at};
use crate::error::{Error, Guess};

/// First sector of the first slot's stripes, and what slots are aligned to.
const SLOT_ALIGNMENT_SECTORS: u32 = 8;

/// First sector of a place for stripes that lies on the device, and whether anything is there.
type StripeArea = (u32, bool);

/// How much of an odd key slot is left.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SlotRemains {
    /// All that opens it, but for its place.
    InUse,
    /// All of it but its state.
    AllButState,
    /// Too little for anything to open it.
    TooLittle,
    /// Nothing: the slot is free.
    Free,
}

/// The first sector of the stripes of a slot where every program puts it; for [`SLOTS`], where the last one ends.
pub(super) fn usual_sector(number: usize, key_len: u32) -> Option<u32> {
    let sectors = u32::try_from(stripes_len(key_len) / 512).ok()?.next_multiple_of(SLOT_ALIGNMENT_SECTORS);
    let number = u32::try_from(number).ok()?;
    SLOT_ALIGNMENT_SECTORS.checked_add(sectors.checked_mul(number)?)
}

/// Where the odd slots of the header `raw` may lie on `device`, which has `size` bytes: where it says so, and where they
/// usually do.
pub(crate) fn places(device: &mut dyn ReadSeek, header: &Luks1Header, raw: &[u8], size: u64) -> Vec<StripeArea> {
    let Some(raw) = raw.first_chunk::<HEADER_LEN>() else {
        return Vec::new();
    };
    let numbers = header.odd.iter().map(|&(number, _)| number as usize);
    let sectors = numbers.flat_map(|number| [Some(stated(raw, number)), usual_sector(number, header.key_len)]);
    let place = |sector: u32| {
        let extent = header.place(sector);
        extent.end().filter(|&end| end <= size)?;
        let mut start = [0; 512];
        read_at(device, extent.offset, &mut start, "a key slot").ok()?;
        Some((sector, start.iter().any(|&byte| byte != 0)))
    };
    sectors.flatten().filter_map(place).collect()
}

fn stated(raw: &[u8; HEADER_LEN], number: usize) -> u32 {
    be32(raw, slot_start(number) + PLACE)
}

fn left(raw: &[u8; HEADER_LEN], number: usize) -> SlotRemains {
    let start = slot_start(number);
    let (state, iterations) = (be32(raw, start), be32(raw, start + ITERATIONS));
    let is_set = |bytes: &[u8]| bytes.iter().any(|&byte| byte != 0);
    // Of 32 random bytes, no eight are zero.
    let is_salted = raw[start + SALT..start + PLACE].chunks(8).all(is_set);
    match state {
        SLOT_INACTIVE => SlotRemains::Free,
        SLOT_ACTIVE if iterations != 0 => SlotRemains::InUse,
        SLOT_ACTIVE => SlotRemains::TooLittle,
        _ if iterations != 0 && is_salted && be32(raw, start + STRIPES_FIELD) == STRIPES => SlotRemains::AllButState,
        _ if is_set(&raw[start + ITERATIONS..start + PLACE]) => SlotRemains::TooLittle,
        _ => SlotRemains::Free,
    }
}

/// Chooses places for odd key slots.
struct Choice<'a> {
    header: &'a Luks1Header,
    raw: &'a [u8; HEADER_LEN],
    places: &'a [StripeArea],
    taken: TakenAreas,
    /// The others lie where programs of today put them.
    is_usual: bool,
}

impl<'a> Choice<'a> {
    fn new(header: &'a Luks1Header, raw: &'a [u8; HEADER_LEN], places: &'a [StripeArea]) -> Result<Self, Error> {
        let is_odd = |number: usize| header.odd.iter().any(|&(odd, _)| odd as usize == number);
        let usual = |number: usize| usual_sector(number, header.key_len);
        let sound: Vec<usize> = (0..SLOTS).filter(|&number| !is_odd(number)).collect();
        let is_usual = sound.is_empty() || sound.iter().any(|&number| usual(number) == Some(header.sectors[number]));
        let mut taken = TakenAreas::new(header);
        for number in sound {
            let name = format!("key slot {number}");
            let place = header.place(header.sectors[number]);
            taken.take(&name, place).map_err(|why| Error::Repair(format!("{name} {why}")))?;
        }
        Ok(Self { header, raw, places, taken, is_usual })
    }

    /// Takes the place that the header states, if something is there, or for a free slot, if it is one.
    fn stated(&mut self, number: usize, is_free: bool) -> Option<u32> {
        let sector = stated(self.raw, number);
        let is_there = self.places.iter().any(|&(place, is_filled)| place == sector && (is_filled || is_free));
        let name = format!("key slot {number}");
        (is_there && self.taken.take(&name, self.header.place(sector)).is_ok()).then_some(sector)
    }

    /// Takes the place where the slot usually is. One that is in use is not looked for where nothing is.
    fn usual(&mut self, number: usize, is_free: bool) -> Result<u32, Error> {
        let name = format!("key slot {number}");
        if !self.is_usual {
            let why = "its key slots do not lie where programs of today put them, so it does not follow where the odd one was";
            return Err(Error::Repair(why.to_owned()));
        }
        let sector = usual_sector(number, self.header.key_len);
        let sector = sector.ok_or_else(|| Error::Repair("the volume key is too long".to_owned()))?;
        if !is_free && !self.places.contains(&(sector, true)) {
            return Err(Error::Repair(format!(
                "{name} is in use, and nothing is at its usual place, so it does not follow where it was; \
                 only a backup of the header says that"
            )));
        }
        let place = self.header.place(sector);
        self.taken.take(&name, place).map_err(|why| Error::Repair(format!("the usual place of {name} {why}")))?;
        Ok(sector)
    }

    /// Takes a place. A slot that is in use is where the header says, if it can be there.
    fn place(&mut self, number: usize, is_free: bool) -> Result<u32, Error> {
        if !is_free && let Some(sector) = self.stated(number, is_free) {
            return Ok(sector);
        }
        let usual = self.usual(number, is_free);
        usual.or_else(|error| if is_free { self.stated(number, is_free).ok_or(error) } else { Err(error) })
    }
}

/// The header `raw` with its odd slots repaired, each at one of `places`. With `force`, one of which only the state is lost
/// counts as in use: a wrong guess opens nothing and loses nothing. Those are made free of which too much is lost for
/// anything to open them, unless none would be left that opens.
///
/// # Errors
/// [`Error::Repair`] where that does not follow from the rest; without `force`, where a slot would have to be guessed at
/// or given up.
pub(crate) fn repaired(
    header: &Luks1Header,
    raw: &[u8; HEADER_LEN],
    places: &[StripeArea],
    force: bool,
) -> Result<[u8; HEADER_LEN], Error> {
    let mut choice = Choice::new(header, raw, places)?;
    let mut odd: Vec<_> = header.odd.iter().map(|&(number, _)| (left(raw, number as usize), number as usize)).collect();
    // No free slot takes the place of one in use.
    odd.sort();
    let opens = header.active_slots().next().is_some() || odd.iter().any(|&(left, _)| left == SlotRemains::InUse);
    let mut repaired = *raw;
    for (mut left, number) in odd {
        let name = format!("key slot {number}");
        let guessed = if left == SlotRemains::AllButState { choice.stated(number, false) } else { None };
        if left == SlotRemains::AllButState && guessed.is_none() {
            left = SlotRemains::TooLittle;
        }
        let is_free = matches!(left, SlotRemains::TooLittle | SlotRemains::Free);
        let sector = guessed.map_or_else(|| choice.place(number, is_free), Ok)?;
        let start = slot_start(number);
        repaired[start + PLACE..start + STRIPES_FIELD].copy_from_slice(&sector.to_be_bytes());
        repaired[start + STRIPES_FIELD..start + STRIPES_FIELD + 4].copy_from_slice(&STRIPES.to_be_bytes());
        match left {
            SlotRemains::InUse => continue,
            SlotRemains::AllButState if !force => {
                let odd = format!("{name} could be of a passphrase and does not say so any more");
                return Err(Error::Guess { odd, would: Guess::InUse });
            }
            SlotRemains::AllButState => {
                repaired[start..start + ITERATIONS].copy_from_slice(&SLOT_ACTIVE.to_be_bytes());
                continue;
            }
            SlotRemains::TooLittle if !force => {
                let odd = format!("what is left of {name} opens nothing and could be of a passphrase");
                return Err(Error::Guess { odd, would: Guess::Free });
            }
            SlotRemains::TooLittle if !opens => {
                return Err(Error::Repair(format!(
                    "what is left of {name} opens nothing, and it could be the last one; only a backup of the header \
                     has the rest"
                )));
            }
            SlotRemains::Free if be32(raw, start) == SLOT_INACTIVE => continue,
            SlotRemains::TooLittle | SlotRemains::Free => {}
        }
        repaired[start..start + ITERATIONS].copy_from_slice(&SLOT_INACTIVE.to_be_bytes());
        repaired[start + ITERATIONS..start + PLACE].fill(0);
    }
    Ok(repaired)
}
