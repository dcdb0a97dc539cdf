//! LUKS1 → LUKS2, whose header is 32 KiB long: a key slot that lies there is copied to another place first.
//!
//! The other place is a gap, or that of a free slot, which LUKS1 is told in one sector. Where there is neither, as with
//! eight slots of 512-bit keys, it is refused: cryptsetup moves all of the area, which no order of writes makes safe.

use std::io::{Read, Seek};

use base64ct::{Base64, Encoding};
use serde_json::{Map, Value, json};

use super::{HeaderChange, NewHeader, SECTOR, checked_uuid};
use crate::area::{Area, KeyArea, first_gap, stripes_len};
use crate::device::{read_at, to_u64};
use crate::edit::{Edit, Material};
use crate::error::Error;
use crate::kdf::Kdf;
use crate::luks1::{Luks1Header, PLACE, SLOTS, hash, slot_start};
use crate::luks2::binary::{BINARY_LEN, Binary, HeaderCopy};
use crate::luks2::format::{
    self, AREA_ALIGNMENT, COPY_SIZE, DATA_OFFSET_DEFAULT, Luks2Layout, copy_salt, keyslot_json,
};
use crate::luks2::parse_metadata;
use crate::luks2::validate::KEYSLOTS_SIZE_MAX;
use crate::options::parameters;
use crate::random::Random;
use crate::version::HeaderVersion;

/// Magic of the metadata of luksmeta, which is where clevis keeps its bindings to LUKS1.
const LUKSMETA: [u8; 8] = *b"LUKSMETA";
/// luksmeta begins at a multiple of this.
const LUKSMETA_ALIGNMENT: u64 = 4096;

pub(super) fn plan<'a>(
    edit: &'a Edit,
    header: &Luks1Header,
    device: &mut (impl Read + Seek),
    size: u64,
) -> Result<HeaderChange<'a>, Error> {
    check_behind_slots(header, device, size)?;
    let layout = ConvertedLayout::new(header)?;
    let json = metadata(header, &layout)?.to_string();
    let area = [json.as_bytes(), &[0]].concat();
    let checked = parse_metadata(&area, COPY_SIZE);
    checked.map_err(|error| parameters(format!("it cannot become LUKS2: {error}")))?;
    let binary = Binary {
        copy_size: COPY_SIZE,
        epoch: 1,
        label: String::new(),
        checksum_hash: "sha256".into(),
        salt: copy_salt(HeaderCopy::Secondary, &Random::Kernel)?,
        uuid: checked_uuid(&header.uuid)?.to_owned(),
        subsystem: String::new(),
    };
    let secondary = binary.encode(HeaderCopy::Secondary, json.as_bytes());
    let salt = copy_salt(HeaderCopy::Primary, &Random::Kernel)?;
    let primary = Binary { salt, ..binary }.encode(HeaderCopy::Primary, json.as_bytes());
    let mut writes = layout.moves(edit, device)?;
    if size < layout.end() {
        // That of a detached header: cryptsetup wants its file to have all of the place for key slots.
        writes.insert(0, (layout.end() - 1, vec![0]));
    }
    writes.extend([
        (COPY_SIZE, secondary),
        (to_u64(BINARY_LEN), primary[BINARY_LEN..].to_vec()),
        (0, primary[..SECTOR].to_vec()),
        (to_u64(SECTOR), primary[SECTOR..BINARY_LEN].to_vec()),
    ]);
    let wiped = layout.left_behind();
    Ok(HeaderChange { conversion: writes, wiped, ..HeaderChange::new(edit, NewHeader::default()) })
}

/// LUKS2 takes what lies between the key slots of LUKS1 and the data for its own. There old key material may be, or
/// zeros, or what luksmeta has put there.
fn check_behind_slots(header: &Luks1Header, device: &mut (impl Read + Seek), size: u64) -> Result<(), Error> {
    let offset = header.end().next_multiple_of(LUKSMETA_ALIGNMENT);
    let mut magic = LUKSMETA.map(|_| 0);
    if offset + to_u64(magic.len()) > size {
        return Ok(());
    }
    read_at(device, offset, &mut magic, "the place behind the key slots")?;
    if magic != LUKSMETA {
        return Ok(());
    }
    Err(parameters(format!(
        "it cannot become LUKS2: luksmeta keeps metadata behind its key slots, at byte {offset}, such as bindings of clevis, \
         which would be lost; remove the bindings with `clevis luks unbind` and the rest with `luksmeta nuke` first, and bind \
         it again as LUKS2"
    )))
}

/// Where key slots are and will be.
struct ConvertedLayout {
    keyslots_size: u64,
    /// All eight, free ones too, in bytes.
    offsets: [u64; SLOTS],
    /// From where to where.
    moved: Vec<(Area, Area)>,
    /// Bytes of the stripes, and of the place for them.
    stripes: u64,
    size: u64,
}

impl ConvertedLayout {
    fn new(header: &Luks1Header) -> Result<Self, Error> {
        let stripes = stripes_len(header.key_len);
        let size = stripes.next_multiple_of(AREA_ALIGNMENT);
        let end = match header.data_offset() {
            0 => DATA_OFFSET_DEFAULT,
            offset => offset,
        };
        let keyslots_size = end.saturating_sub(2 * COPY_SIZE).min(KEYSLOTS_SIZE_MAX);
        let mut layout = Self {
            keyslots_size: keyslots_size - keyslots_size % AREA_ALIGNMENT,
            offsets: header.sectors.map(|sector| u64::from(sector) * 512),
            moved: Vec::new(),
            stripes,
            size,
        };
        for (number, _) in header.active_slots() {
            let number = number as usize;
            if !layout.fits(header, number, layout.offsets[number]) {
                layout.make_room(header, number)?;
            }
        }
        Ok(layout)
    }

    fn end(&self) -> u64 {
        2 * COPY_SIZE + self.keyslots_size
    }

    fn place(&self, offset: u64) -> Area {
        let size = self.size;
        Area { offset, size }
    }

    /// Tells if a LUKS2 header can have the key slot there.
    fn fits(&self, header: &Luks1Header, number: usize, offset: u64) -> bool {
        let place = self.place(offset);
        let mut others = header.active_slots().filter(|(it, _)| *it as usize != number);
        offset.is_multiple_of(AREA_ALIGNMENT)
            && offset >= 2 * COPY_SIZE
            && place.end().is_some_and(|end| end <= self.end())
            && others.all(|(it, _)| !place.overlaps(self.place(self.offsets[it as usize])))
    }

    /// Moves a key slot to where nothing is, or to the place of a slot that is free, which takes its place. Those must be
    /// told in the same sector: between two, no two slots may be in one place.
    fn make_room(&mut self, header: &Luks1Header, number: usize) -> Result<(), Error> {
        let from = self.offsets[number];
        let size = self.stripes;
        let at = |offset| Area { offset, size };
        let mut taken: Vec<_> = self.offsets.iter().map(|&it| self.place(it)).collect();
        taken.extend(self.moved.iter().map(|(from, _)| *from));
        let gap = first_gap(&mut taken, 2 * COPY_SIZE, self.end(), self.size);
        let to = if let Some(gap) = gap {
            gap.offset
        } else {
            let needed = self.size;
            // The old header still names them when the place is written, all of it.
            let mut sources: Vec<_> = self.moved.iter().map(|(from, _)| *from).collect();
            sources.push(at(from));
            let free = (0..SLOTS).find(|&other| {
                let place = self.place(self.offsets[other]);
                header.slots[other].is_none()
                    && sector_of(other) == sector_of(number)
                    && self.fits(header, number, place.offset)
                    && !sources.iter().any(|source| source.overlaps(place))
            });
            let free = free.ok_or(Error::NoRoom { needed })?;
            std::mem::replace(&mut self.offsets[free], from)
        };
        self.offsets[number] = to;
        self.moved.push((at(from), at(to)));
        Ok(())
    }

    /// Copies, and the LUKS1 header that names them: both its sectors are good with either of the other.
    fn moves(&self, edit: &Edit, device: &mut (impl Read + Seek)) -> Result<Vec<Material>, Error> {
        let mut writes = Vec::new();
        for (from, to) in &self.moved {
            let mut stripes = vec![0; usize::try_from(from.size).unwrap_or(0)];
            read_at(device, from.offset, &mut stripes, "a key slot")?;
            // The header names all of the place, so the file of a detached one must have it.
            stripes.resize(usize::try_from(self.size).unwrap_or(stripes.len()), 0);
            writes.push((to.offset, stripes));
        }
        let mut raw = edit.found.raw.clone();
        for (number, offset) in self.offsets.iter().enumerate() {
            let sector = u32::try_from(offset / 512).unwrap_or(u32::MAX);
            let field = slot_start(number) + PLACE;
            raw[field..field + 4].copy_from_slice(&sector.to_be_bytes());
        }
        let (first, second) = raw.split_at(SECTOR);
        for (offset, new) in [(SECTOR, second), (0, first)] {
            if *new != edit.found.raw[offset..offset + new.len()] {
                writes.push((to_u64(offset), new.to_vec()));
            }
        }
        Ok(writes)
    }

    /// Returns the key material that was moved, as far as the new header does not lie over it.
    fn left_behind(&self) -> Vec<Area> {
        let old = self.moved.iter().filter_map(|(from, _)| {
            let offset = from.offset.max(2 * COPY_SIZE);
            let size = from.end()?.checked_sub(offset)?;
            Some(Area { offset, size })
        });
        old.collect()
    }
}

/// Which sector of the header says where a slot is.
fn sector_of(slot: usize) -> usize {
    (slot_start(slot) + PLACE) / SECTOR
}

fn metadata(header: &Luks1Header, layout: &ConvertedLayout) -> Result<Value, Error> {
    let hash = hash(&header.hash)?.name();
    let mut keyslots = Map::new();
    for (number, slot) in header.active_slots() {
        let kdf = Kdf::Pbkdf2 { hash: hash.to_owned(), iterations: slot.iterations, salt: slot.salt.to_vec() };
        let area = KeyArea { offset: layout.offsets[number as usize], ..header.key_area(slot.sector, kdf)? };
        keyslots.insert(number.to_string(), keyslot_json(&area, layout.size));
    }
    let names: Vec<_> = keyslots.keys().cloned().collect();
    let digest = json!({
        "type": "pbkdf2",
        "keyslots": names,
        "segments": ["0"],
        "hash": hash,
        "iterations": header.digest_iterations,
        "salt": Base64::encode_string(&header.digest_salt),
        // Shorter than that of a new LUKS2 header; cryptsetup has it so, too.
        "digest": Base64::encode_string(&header.digest),
    });
    let layout = Luks2Layout {
        copy_size: COPY_SIZE,
        keyslots_size: layout.keyslots_size,
        data_offset: header.data_offset(),
        sector_size: 512,
        slot_size: layout.size,
    };
    Ok(format::metadata(&layout, &header.encryption(), keyslots.into(), digest))
}
