//! The feature words at the end of a `crypt` line.

use cryptline_cipher::CipherError;
use zeroize::Zeroizing;

use super::text::parse_u32;
use super::{SECTOR_BYTES, TableError, kernel};
use crate::dispatch::PerfFlags;

/// Feature words that the kernel accepts at most, though it knows ten.
const MAX_OPTIONS: usize = 9;
/// The name that both `no_…_workqueue` flags had together when they were proposed, on dm-devel in
/// 2020. The kernel never took it; it is understood here and printed as the two.
const FORCE_INLINE: &str = "force_inline";
/// Bytes of per-sector metadata at most.
const MAX_INTEGRITY_BYTES: u32 = 480;

/// The feature words of a `crypt` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableOptions {
    /// Pass discards down.
    pub allow_discards: bool,
    /// Flags for the threads that run the cipher.
    pub perf: PerfFlags,
    /// Per-sector metadata.
    pub integrity: Option<Integrity>,
    /// Bytes in a cipher sector: 512, 1024, 2048 or 4096.
    pub sector_size: u32,
    /// Count IVs in cipher sectors.
    pub iv_large_sectors: bool,
    /// Bytes of the MAC key, where given.
    pub integrity_key_size: Option<u32>,
}

/// `integrity:BYTES:PROFILE`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Integrity {
    /// Bytes of metadata for each cipher sector, 1..=480.
    pub tag_bytes: u32,
    /// `aead` or `none`, as written.
    pub profile: String,
}

impl Default for TableOptions {
    fn default() -> Self {
        TableOptions {
            allow_discards: false,
            perf: PerfFlags::default(),
            integrity: None,
            sector_size: SECTOR_BYTES,
            iv_large_sectors: false,
            integrity_key_size: None,
        }
    }
}

impl Integrity {
    /// Tells if the metadata holds the tag of an authenticated cipher.
    #[must_use]
    pub fn is_aead(&self) -> bool {
        self.profile.eq_ignore_ascii_case("aead")
    }

    /// `BYTES:PROFILE`
    fn parse(text: &str) -> Result<Integrity, TableError> {
        let parts = text.split_once(':').and_then(|(bytes, profile)| {
            let tag_bytes = parse_u32(bytes)?;
            (1..=MAX_INTEGRITY_BYTES).contains(&tag_bytes).then(|| (tag_bytes, profile.to_owned()))
        });
        let (tag_bytes, profile) =
            parts.ok_or_else(|| kernel("Invalid integrity arguments", "write integrity:BYTES:aead, 1 to 480 bytes"))?;
        if !["aead", "none"].iter().any(|known| profile.eq_ignore_ascii_case(known)) {
            return Err(kernel("Unknown integrity profile", "aead and none are possible"));
        }
        Ok(Integrity { tag_bytes, profile })
    }
}

impl TableOptions {
    /// `words` are the count and what follows it; words beyond the count are ignored.
    pub(super) fn parse(words: &[Zeroizing<String>], len: u64) -> Result<TableOptions, TableError> {
        let mut options = TableOptions::default();
        let Some((count, words)) = words.split_first() else {
            return Ok(options);
        };
        let count = parse_u32(count)
            .and_then(|count| usize::try_from(count).ok())
            .filter(|count| *count <= MAX_OPTIONS.min(words.len()))
            .ok_or_else(|| {
                let hint = "the number of feature words that follow, 0 to 9";
                kernel("Invalid number of feature args", hint)
            })?;
        for word in &words[..count] {
            options.set(word, len)?;
        }
        Ok(options)
    }

    fn set(&mut self, word: &str, len: u64) -> Result<(), TableError> {
        if let Some(flag) = self.flag(word) {
            *flag = true;
        } else if word.eq_ignore_ascii_case(FORCE_INLINE) {
            let perf = &mut self.perf;
            (perf.no_read_workqueue, perf.no_write_workqueue) = (true, true);
        } else if let Some(text) = word.strip_prefix("integrity:") {
            self.integrity = Some(Integrity::parse(text)?);
        } else if let Some(size) = word.strip_prefix("integrity_key_size:").and_then(parse_u32) {
            if size == 0 {
                let hint = "use the size of the MAC key in bytes";
                return Err(kernel("Invalid integrity_key_size argument", hint));
            }
            self.integrity_key_size = Some(size);
        } else if let Some(size) = word.strip_prefix("sector_size:").and_then(parse_u32) {
            self.set_sector_size(size, len)?;
        } else {
            return Err(kernel("Invalid feature arguments", format!("{word:?} is not known")));
        }
        Ok(())
    }

    fn set_sector_size(&mut self, size: u32, len: u64) -> Result<(), TableError> {
        if !(512..=4096).contains(&size) || !size.is_power_of_two() {
            return Err(CipherError::SectorSize(size).into());
        }
        let multiple = u64::from(size / SECTOR_BYTES);
        if !len.is_multiple_of(multiple) {
            return Err(kernel(
                "Device size is not multiple of sector_size feature",
                format!("make the length a multiple of {multiple} sectors"),
            ));
        }
        self.sector_size = size;
        Ok(())
    }

    fn flag(&mut self, word: &str) -> Option<&mut bool> {
        if word.eq_ignore_ascii_case("allow_discards") {
            Some(&mut self.allow_discards)
        } else if word.eq_ignore_ascii_case("iv_large_sectors") {
            Some(&mut self.iv_large_sectors)
        } else {
            self.perf.by_name(word)
        }
    }

    /// ` COUNT word...` in the kernel's order, or nothing.
    pub(super) fn to_words(&self) -> String {
        let flag = |set: bool, name: &str| set.then(|| name.to_owned());
        let integrity = self.integrity.as_ref();
        let perf = self.perf.named();
        let perf = perf.into_iter().map(|(name, set)| flag(set, name));
        let before = std::iter::once(flag(self.allow_discards, "allow_discards"));
        let after = [
            integrity.map(|it| format!("integrity:{}:{}", it.tag_bytes, it.profile)),
            (self.sector_size != SECTOR_BYTES).then(|| format!("sector_size:{}", self.sector_size)),
            flag(self.iv_large_sectors, "iv_large_sectors"),
            self.integrity_key_size.map(|size| format!("integrity_key_size:{size}")),
        ];
        let words: Vec<String> = before.chain(perf).chain(after).flatten().collect();
        if words.is_empty() {
            return String::new();
        }
        format!(" {} {}", words.len(), words.join(" "))
    }
}
