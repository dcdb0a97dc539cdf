//! LUKS1: one binary header of 592 bytes, big-endian, with eight key slots ("LUKS1 On-Disk
//! Format Specification", version 1.2.3).
//!
//! ```text
//!   0    6       8            40           72         104          108        112
//!  +----+-------+------------+------------+----------+------------+----------+------
//!  |LUKS|version|cipher name |cipher mode |hash      |data, sector|key bytes |digest
//!  +----+-------+------------+------------+----------+------------+----------+------
//!   112      132          164          168     208              592
//!  --------+------------+------------+-------+----------------+
//!   digest | its salt   | iterations | UUID  | 8 x key slot   |
//!  --------+------------+------------+-------+----------------+
//!  key slot: state 4, iterations 4, salt 32, first sector of its stripes 4, stripes 4
//! ```

mod format;
mod repair;

use std::io::{Read, Seek};

pub(crate) use self::format::{WORD_LEN_MAX, encode, format, lengths, split_cipher};
pub(crate) use self::repair::{places, repaired};

use crate::af::STRIPES;
use crate::area::{Area, KEY_LEN_MAX, KeyArea};
use crate::device::{check_end, read_at};
use crate::error::{Error, quote};
use crate::hash::{HASH_LEN_MIN, Hash};
use crate::kdf::{Kdf, SALT_LEN};
use crate::luks2::binary::{array, text};
use crate::options::LuksVersion;
use crate::segment::{DataSegment, SegmentPolicy, check_offset, checked_cipher};
use crate::unlock::{KeyDigest, SlotToTry, SlotsToTry, UnlockOptions};
use crate::version::HeaderVersion;

/// Bytes in the header.
pub const HEADER_LEN: usize = 592;
/// Key slots in the header.
pub const SLOTS: usize = 8;
/// Bytes in the volume key's digest.
pub const DIGEST_LEN: usize = 20;

pub(crate) const SLOT_ACTIVE: u32 = 0x00ac_71f3;
pub(crate) const SLOT_INACTIVE: u32 = 0x0000_dead;
/// Where the UUID is, and how long its field is.
pub(crate) const UUID_FIELD: std::ops::Range<usize> = 168..208;
const SLOTS_OFFSET: usize = 208;
/// Places in a slot's part of the header.
pub(crate) const ITERATIONS: usize = 4;
pub(crate) const SALT: usize = 8;
pub(crate) const PLACE: usize = 40;
const STRIPES_FIELD: usize = 44;
pub(crate) const SLOT_LEN: usize = 48;

/// A LUKS1 header that has been checked.
#[derive(Clone, Debug)]
pub struct Luks1Header {
    /// For example `aes`.
    pub cipher_name: String,
    /// For example `xts-plain64`.
    pub cipher_mode: String,
    /// Hash of key derivation, splitter and digest.
    pub hash: String,
    /// Start of the data in 512-byte sectors; 0 in a detached header.
    pub payload_sector: u32,
    /// Length of the volume key in bytes.
    pub key_len: u32,
    /// PBKDF2 of the volume key.
    pub digest: [u8; DIGEST_LEN],
    /// Salt of the digest.
    pub digest_salt: [u8; SALT_LEN],
    /// Iterations of the digest.
    pub digest_iterations: u32,
    /// UUID of the volume, as text. It is only shown, so anything goes.
    pub uuid: String,
    /// Active key slots; `None` where a slot is free.
    pub slots: [Option<KeySlot>; SLOTS],
    /// First 512-byte sector of the stripes of each slot, free ones included.
    pub sectors: [u32; SLOTS],
    /// Key slots of which the header says what cannot be, with what that is. They count as neither free nor in use: the
    /// others open the volume, and nobody changes the header before it is repaired.
    pub odd: Vec<(u32, String)>,
    /// Warnings for the user, one line each.
    pub warnings: Vec<String>,
}

/// An active key slot.
#[derive(Clone, Debug)]
pub struct KeySlot {
    /// PBKDF2 iterations.
    pub iterations: u32,
    /// PBKDF2 salt.
    pub salt: [u8; SALT_LEN],
    /// First 512-byte sector of the stripes.
    pub sector: u32,
}

/// Reads and checks the header at the start of `device`, which has `device_size` bytes.
///
/// # Errors
/// [`Error::Truncated`], [`Error::Invalid`] or [`Error::Io`].
pub fn read(device: &mut (impl Read + Seek), device_size: u64) -> Result<Luks1Header, Error> {
    let mut bytes = [0; HEADER_LEN];
    read_at(device, 0, &mut bytes, "the LUKS1 header")?;
    let mut header = parse(&bytes)?;
    header.check_areas(device_size)?;
    header.warnings = header
        .odd
        .iter()
        .map(|(_, odd)| {
            format!("{odd}, so it is skipped; `cryptline header repair` rewrites what follows from the rest")
        })
        .collect();
    Ok(header)
}

impl Luks1Header {
    /// The cipher word, for example `aes-xts-plain64`.
    #[must_use]
    pub fn encryption(&self) -> String {
        format!("{}-{}", self.cipher_name, self.cipher_mode)
    }

    /// Slots, free ones too since one day they are used, must lie behind the header, before the data,
    /// on the device, and apart. Where the data is says nothing about this device: the header may be
    /// detached. Those at their usual places are looked at first: another one that lies over them is wrong.
    fn check_areas(&mut self, device_size: u64) -> Result<(), Error> {
        let mut taken = TakenAreas::new(self);
        let is_usual = |number: usize| repair::usual_sector(number, self.key_len) == Some(self.sectors[number]);
        let mut numbers: [usize; SLOTS] = std::array::from_fn(|number| number);
        numbers.sort_by_key(|&number| (!is_usual(number), self.slots[number].is_none()));
        let mut odd = Vec::new();
        for number in numbers {
            let name = format!("key slot {number}");
            let extent = self.place(self.sectors[number]);
            if let Err(reason) = taken.take(&name, extent) {
                odd.push((number, format!("{name} {reason}")));
                continue;
            }
            let end = extent.end().unwrap_or(u64::MAX);
            match check_end(|| name.clone(), end, device_size) {
                Err(error) if is_usual(number) => return Err(error),
                Err(_) => odd.push((number, format!("{name} lies beyond the end of the device"))),
                Ok(()) => {}
            }
        }
        for (number, reason) in odd {
            self.pass_over(number, reason);
        }
        self.odd.sort();
        Ok(())
    }

    /// Takes a slot for neither free nor in use. The first that was found wrong with it is told.
    fn pass_over(&mut self, number: usize, reason: String) {
        self.slots[number] = None;
        // Where it would be.
        self.sectors[number] = repair::usual_sector(number, self.key_len).unwrap_or_default();
        let known = u32::try_from(number).unwrap_or(0);
        if self.odd.iter().all(|&(other, _)| other != known) {
            self.odd.push((known, reason));
        }
    }

    pub(crate) fn active_slots(&self) -> impl Iterator<Item = (u32, &KeySlot)> {
        let numbered = (0_u32..).zip(&self.slots);
        numbered.filter_map(|(number, slot)| Some((number, slot.as_ref()?)))
    }

    /// Place of stripes that begin at this 512-byte sector.
    pub(crate) fn place(&self, sector: u32) -> Area {
        Area::of_stripes(sector, self.key_len)
    }

    /// Where the stripes of each slot are or will be.
    pub(crate) fn places(&self) -> [Area; SLOTS] {
        self.sectors.map(|sector| self.place(sector))
    }

    fn pbkdf2(&self, iterations: u32, salt: &[u8]) -> Kdf {
        Kdf::Pbkdf2 { hash: self.hash.clone(), iterations, salt: salt.to_vec() }
    }

    pub(crate) fn key_area(&self, sector: u32, kdf: Kdf) -> Result<KeyArea, Error> {
        Ok(KeyArea {
            offset: self.place(sector).offset,
            encryption: self.encryption(),
            encryption_key_len: self.key_len,
            af_hash: hash(&self.hash)?,
            kdf,
            key_len: self.key_len,
        })
    }

    fn to_try(&self, slot: &KeySlot) -> Result<SlotToTry, Error> {
        let area = self.key_area(slot.sector, self.pbkdf2(slot.iterations, &slot.salt))?;
        Ok(SlotToTry { area, digest: self.key_digest()? })
    }
}

impl HeaderVersion for Luks1Header {
    fn version(&self) -> LuksVersion {
        LuksVersion::Luks1
    }

    fn uuid(&self) -> &str {
        &self.uuid
    }

    fn warnings(&self) -> &[String] {
        &self.warnings
    }

    fn segments(&self, policy: SegmentPolicy) -> Result<Vec<DataSegment>, Error> {
        let cipher = checked_cipher(&self.encryption(), policy)?;
        let offset = self.data_offset();
        check_offset(offset, policy)?;
        Ok(vec![DataSegment { cipher: Some(cipher), sector_size: 512, offset, size: None, iv_tweak: 0 }])
    }

    fn key_len(&self) -> Option<usize> {
        Some(self.key_len as usize)
    }

    fn key_digest(&self) -> Result<KeyDigest, Error> {
        let kdf = self.pbkdf2(self.digest_iterations, &self.digest_salt);
        Ok(KeyDigest { kdf, value: self.digest.to_vec() })
    }

    fn slots_to_try(&self, options: &UnlockOptions) -> Result<SlotsToTry, Error> {
        let wanted = self.active_slots().filter(|(number, _)| options.slot.is_none_or(|slot| slot == *number));
        Ok(wanted.map(|(number, slot)| (number, self.to_try(slot))).collect())
    }

    fn areas(&self) -> Vec<(u32, Area)> {
        self.active_slots().map(|(number, slot)| (number, self.place(slot.sector))).collect()
    }

    fn area_cipher(&self, _: u32) -> Option<String> {
        Some(self.encryption())
    }

    fn data_offset(&self) -> u64 {
        u64::from(self.payload_sector) * 512
    }

    fn metadata_len(&self) -> u64 {
        4096
    }

    fn end(&self) -> u64 {
        self.places().into_iter().filter_map(Area::end).max().unwrap_or(0)
    }

    fn check_understood(&self) -> Result<(), Error> {
        match self.odd.first() {
            None => Ok(()),
            Some((_, odd)) => Err(Error::OddSlot(odd.clone())),
        }
    }
}

/// Places that are taken, each with its name.
struct TakenAreas {
    /// Where the data begins; 0 for a detached header.
    payload: u64,
    places: Vec<(String, Area)>,
}

impl TakenAreas {
    fn new(header: &Luks1Header) -> Self {
        let payload = header.data_offset();
        Self { payload, places: vec![("the header".to_owned(), Area { offset: 0, size: 1024 })] }
    }

    /// Takes a place for stripes, if it is free.
    fn take(&mut self, name: &str, extent: Area) -> Result<(), String> {
        let end = extent.end().unwrap_or(u64::MAX);
        if self.payload != 0 && end > self.payload {
            return Err("reaches into the data".to_owned());
        }
        if let Some((other, _)) = self.places.iter().find(|(_, other)| extent.overlaps(*other)) {
            return Err(format!("overlaps {other}"));
        }
        self.places.push((name.to_owned(), extent));
        Ok(())
    }
}

/// The hash called `name`: in LUKS1 none that is shorter than SHA-1 (as cryptsetup).
pub(crate) fn hash(name: &str) -> Result<Hash, Error> {
    let hash = Hash::by_name(name)?;
    if hash.output_len() < HASH_LEN_MIN {
        let name = quote(name);
        return Err(Error::NotSupported(format!("hash {name} in LUKS1")));
    }
    Ok(hash)
}

pub(crate) fn parse(bytes: &[u8; HEADER_LEN]) -> Result<Luks1Header, Error> {
    let key_len = be32(bytes, 108);
    if !(1..=KEY_LEN_MAX).contains(&key_len) {
        return Err(Error::invalid(format!("a volume key of {key_len} bytes, 1 to {KEY_LEN_MAX} are possible")));
    }
    let digest_iterations = be32(bytes, 164);
    if digest_iterations == 0 {
        return Err(Error::invalid("the digest has 0 PBKDF2 iterations"));
    }
    let mut slots = [const { None }; SLOTS];
    let mut odd = Vec::new();
    for (number, slot) in (0..).zip(&mut slots) {
        match parse_slot(bytes, number) {
            Ok(found) => *slot = found,
            Err(reason) => odd.push((u32::try_from(number).unwrap_or(0), format!("key slot {number} {reason}"))),
        }
    }
    Ok(Luks1Header {
        cipher_name: word(&bytes[8..40], "cipher name")?,
        cipher_mode: word(&bytes[40..72], "cipher mode")?,
        hash: word(&bytes[72..104], "hash")?,
        payload_sector: be32(bytes, 104),
        key_len,
        digest: array(bytes, 112),
        digest_salt: array(bytes, 132),
        digest_iterations,
        uuid: text(&bytes[UUID_FIELD]),
        slots,
        sectors: slot_sectors(bytes),
        odd,
        warnings: Vec::new(),
    })
}

/// The slot, if it is active; or what is wrong with it.
fn parse_slot(bytes: &[u8; HEADER_LEN], number: usize) -> Result<Option<KeySlot>, String> {
    let start = slot_start(number);
    let stripes = be32(bytes, start + STRIPES_FIELD);
    if stripes != STRIPES {
        return Err(format!("has {stripes} stripes, only {STRIPES} are possible"));
    }
    match be32(bytes, start) {
        SLOT_INACTIVE => return Ok(None),
        SLOT_ACTIVE => {}
        state => return Err(format!("is neither active nor free ({state:#x})")),
    }
    let iterations = be32(bytes, start + ITERATIONS);
    if iterations == 0 {
        return Err("has 0 PBKDF2 iterations".to_owned());
    }
    Ok(Some(KeySlot { iterations, salt: array(bytes, start + SALT), sector: be32(bytes, start + PLACE) }))
}

/// The first sector of the stripes of each slot, free ones included.
fn slot_sectors(bytes: &[u8; HEADER_LEN]) -> [u32; SLOTS] {
    std::array::from_fn(|number| be32(bytes, slot_start(number) + PLACE))
}

pub(crate) fn slot_start(number: usize) -> usize {
    SLOTS_OFFSET + number * SLOT_LEN
}

fn be32(bytes: &[u8; HEADER_LEN], offset: usize) -> u32 {
    u32::from_be_bytes(array(bytes, offset))
}

/// Printable ASCII up to the first zero byte; there must be one, and something before it.
fn word(field: &[u8], name: &str) -> Result<String, Error> {
    let end = field.iter().position(|&byte| byte == 0);
    let text = end.map_or(field, |end| &field[..end]);
    let shown = String::from_utf8_lossy(text);
    if end.is_none_or(|end| end == 0) || !text.iter().all(u8::is_ascii_graphic) {
        return Err(Error::invalid(format!("the {name} is {}", quote(&shown))));
    }
    Ok(shown.into_owned())
}

#[cfg(test)]
mod defects_tests;
