//! Helpers for this crate's unit tests: small images in memory, and tools to break them.

use std::collections::HashSet;
use std::io::{self, Cursor, Read, Seek, SeekFrom, Write};
use std::sync::OnceLock;

use serde_json::Value;

use crate::edit::{Edit, HeaderChange, NewSlot, Restore};
use crate::format::{FormatOptions, KdfCost, KdfKind, LuksVersion, format};
use crate::luks2::binary::{BINARY_LEN, Binary, HeaderCopy};
use crate::{Error, LuksHeader, UnlockOptions, UnlockedSlot, read};

/// Passphrase of every test image.
pub(crate) const PASSPHRASE: &[u8] = b"pass phrase";

const DATA_OFFSET: u64 = 1 << 20;
const SIZE: u64 = DATA_OFFSET + 4096;

/// Options whose key derivation costs next to nothing.
pub(crate) fn cheap_options(version: LuksVersion) -> FormatOptions {
    let cost = KdfCost {
        iterations: Some(if version == LuksVersion::Luks1 { 1000 } else { 4 }),
        memory_kib: Some(32),
        cpus: Some(1),
        ..KdfCost::default()
    };
    FormatOptions { version, cost, ..FormatOptions::default() }
}

/// A key slot that costs next to nothing.
pub(crate) fn cheap_slot() -> NewSlot {
    let cost = KdfCost { iterations: Some(1000), ..KdfCost::default() };
    NewSlot { kdf: Some(KdfKind::Pbkdf2), cost, ..NewSlot::default() }
}

/// Counts the sectors of a disk that are as one of these stripes.
pub(crate) fn sectors_left(disk: &[u8], stripes: &[u8]) -> usize {
    let sectors: HashSet<_> = stripes.chunks_exact(512).collect();
    disk.chunks_exact(512).filter(|sector| sectors.contains(sector)).count()
}

/// Paths of all values inside `json`.
pub(crate) fn paths(json: &Value) -> Vec<String> {
    fn add(json: &Value, path: &str, found: &mut Vec<String>) {
        let mut go = |name: &str, value: &Value| {
            let path = format!("{path}/{name}");
            found.push(path.clone());
            add(value, &path, found);
        };
        match json {
            Value::Object(members) => members.iter().for_each(|(name, value)| go(name, value)),
            Value::Array(items) => items.iter().enumerate().for_each(|(at, value)| go(&at.to_string(), value)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    add(json, "", &mut found);
    found
}

/// A whole device in memory.
#[derive(Clone)]
pub(crate) struct Image {
    pub bytes: Vec<u8>,
}

impl Image {
    /// A sound LUKS2 device: Argon2id, 64-byte key, 4096-byte sectors.
    pub fn luks2() -> Self {
        static MADE: OnceLock<Image> = OnceLock::new();
        let mut options = cheap_options(LuksVersion::Luks2);
        options.data_offset = Some(DATA_OFFSET);
        options.label = "label".into();
        MADE.get_or_init(|| Self::format(SIZE, &options)).clone()
    }

    /// A sound LUKS1 device: 32-byte key.
    pub fn luks1() -> Self {
        static MADE: OnceLock<Image> = OnceLock::new();
        let mut options = cheap_options(LuksVersion::Luks1);
        options.key_len = 32;
        options.kdf = Some(KdfKind::Pbkdf2);
        MADE.get_or_init(|| Self::format((2 << 20) + 4096, &options)).clone()
    }

    pub fn format(size: u64, options: &FormatOptions) -> Self {
        let mut device = Cursor::new(vec![0; usize::try_from(size).unwrap()]);
        format(&mut device, size, PASSPHRASE, options).unwrap();
        Self { bytes: device.into_inner() }
    }

    pub fn read(&self) -> Result<LuksHeader, Error> {
        read(&mut self.device(), self.size())
    }

    pub fn size(&self) -> u64 {
        self.bytes.len() as u64
    }

    pub fn device(&self) -> Cursor<&[u8]> {
        Cursor::new(&self.bytes)
    }

    pub fn unlock(&self, options: &UnlockOptions) -> Result<UnlockedSlot, Error> {
        self.read()?.unlock(&mut self.device(), PASSPHRASE, options)
    }

    /// The volume key.
    pub fn key(&self) -> Vec<u8> {
        self.unlock(&UnlockOptions::default()).unwrap().key.to_vec()
    }

    pub fn load(&self) -> Result<Edit, Error> {
        Edit::load(&mut self.device(), self.size())
    }

    pub fn look(&self) -> Edit {
        Edit::look(&mut self.device(), self.size()).unwrap()
    }

    pub fn commit(&mut self, change: HeaderChange<'_>) -> Result<LuksHeader, Error> {
        let size = self.size();
        change.commit(&mut Cursor::new(&mut self.bytes), size)
    }

    /// Makes a change of the header.
    pub fn change(
        &mut self,
        change: impl FnOnce(&Edit) -> Result<HeaderChange<'_>, Error>,
    ) -> Result<LuksHeader, Error> {
        let edit = self.load()?;
        self.commit(change(&edit)?)
    }

    pub fn repaired(&self, force: bool) -> Result<Self, Error> {
        let mut repaired = self.clone();
        repaired.commit(self.look().repair(force)?.expect("something to repair"))?;
        Ok(repaired)
    }

    pub fn backup(&self) -> Vec<u8> {
        self.look().backup(&mut self.device(), self.size()).unwrap().bytes().to_vec()
    }

    pub fn prepare(&self, backup: Vec<u8>) -> Result<Restore, Error> {
        Restore::prepare(backup, &mut self.device(), self.size())
    }

    pub fn restore(&mut self, backup: Vec<u8>) -> Result<LuksHeader, Error> {
        let (restore, size) = (self.prepare(backup)?, self.size());
        restore.commit(&mut Cursor::new(&mut self.bytes), size)
    }

    /// The metadata of a LUKS2 image.
    pub fn json(&self) -> Value {
        let area = &self.bytes[BINARY_LEN..];
        let end = area.iter().position(|&byte| byte == 0).unwrap();
        serde_json::from_slice(&area[..end]).unwrap()
    }

    /// Changes the JSON of both copies and corrects their checksums.
    pub fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        let mut json = self.json();
        change(&mut json);
        self.set_json(json.to_string().as_bytes());
    }

    /// Replaces the JSON area's start in both copies and corrects their checksums.
    pub fn set_json(&mut self, json: &[u8]) {
        for copy in [HeaderCopy::Primary, HeaderCopy::Secondary] {
            self.rewrite(copy, json, |_| ());
        }
    }

    /// Changes the binary part of one copy and corrects its checksum.
    pub fn edit_binary(&mut self, copy: HeaderCopy, change: impl FnOnce(&mut Binary)) {
        let json = self.json().to_string();
        self.rewrite(copy, json.as_bytes(), change);
    }

    pub fn rewrite(&mut self, copy: HeaderCopy, json: &[u8], change: impl FnOnce(&mut Binary)) {
        let offset = self.offset(copy);
        let binary = Binary::decode(&self.bytes[offset..], copy, offset as u64);
        let mut binary = binary.unwrap_or_else(|damage| panic!("{damage}"));
        change(&mut binary);
        let whole = binary.encode(copy, json);
        self.bytes[offset..offset + whole.len()].copy_from_slice(&whole);
    }

    /// Where a copy of a LUKS2 image starts.
    pub fn offset(&self, copy: HeaderCopy) -> usize {
        if copy == HeaderCopy::Primary { 0 } else { 0x4000 }
    }
}

/// A device in memory whose writes a function carries out, and which cannot be read from byte `readable` on.
pub(crate) struct Device<W> {
    pub disk: Cursor<Vec<u8>>,
    pub readable: u64,
    pub write: W,
}

impl<W> Read for Device<W> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.disk.position() + out.len() as u64 > self.readable {
            return Err(io::Error::from_raw_os_error(5));
        }
        self.disk.read(out)
    }
}

impl<W> Seek for Device<W> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.disk.seek(to)
    }
}

impl<W: FnMut(&mut Cursor<Vec<u8>>, &[u8]) -> io::Result<usize>> Write for Device<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (self.write)(&mut self.disk, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
