//! Options as structs that the caller fills. Each begins with its size as the caller's header has it, so that a newer
//! library serves older programs; what is zero is as if it had not been said.

use std::ffi::{OsStr, c_char, c_void};
use std::time::Duration;

use cryptline::keys::{KeyFile, VolumeKey};
use cryptline::luks::KdfLimits;
use cryptline::luks::edit::NewSlot;
use cryptline::luks::format::{FormatOptions, KdfCost, KdfKind, LuksVersion};
use cryptline::{Create, DirectMode, Header, Open};
use rustix::io::Errno;

use crate::call::{CallFailure, Outcome, bytes, optional_text, utf8};

/// Nothing is written, and others may read at the same time.
pub const CRYPTLINE_READ_ONLY: u32 = 1;
/// Discards are passed down, which shows which blocks are unused.
pub const CRYPTLINE_DISCARDS: u32 = 1 << 1;
/// Others write to the target at the same time.
pub const CRYPTLINE_SHARED: u32 = 1 << 2;
/// `key_slot` says which key slot, also where it is 0.
pub const CRYPTLINE_KEY_SLOT: u32 = 1 << 3;
/// `new_slot` says which key slot, also where it is 0.
pub const CRYPTLINE_NEW_SLOT: u32 = 1 << 4;
/// The last key slot may be removed.
pub const CRYPTLINE_LAST_SLOT: u32 = 1 << 5;
/// Replace a file that is there already.
pub const CRYPTLINE_REPLACE: u32 = 1 << 6;
/// The space of a file is reserved on disk now.
pub const CRYPTLINE_PREALLOCATE: u32 = 1 << 7;
/// LUKS1, and not LUKS2.
pub const CRYPTLINE_LUKS1: u32 = 1 << 8;
/// Data goes through the page cache. Without this and CRYPTLINE_DIRECT it does so only where the file system wants it.
pub const CRYPTLINE_PAGE_CACHE: u32 = 1 << 9;
/// Data bypasses the page cache (O_DIRECT), or opening fails.
pub const CRYPTLINE_DIRECT: u32 = 1 << 10;

/// Bytes such as a passphrase, of which a copy is kept in locked memory. The original is the caller's to wipe.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cryptline_bytes {
    /// The first byte; null for none.
    pub data: *const c_void,
    /// How many.
    pub len: usize,
}

/// Cost of trying a passphrase. A member that is 0 is measured, or taken from the machine.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cryptline_kdf {
    /// "argon2id", "argon2i" or "pbkdf2"; null for what cryptsetup would choose.
    pub name: *const c_char,
    /// Passes of Argon2, iterations of PBKDF2; with it nothing is measured.
    pub iterations: u32,
    /// Memory of Argon2 in KiB.
    pub memory_kib: u32,
    /// Threads of Argon2.
    pub threads: u32,
    /// How long unlocking is to take on this machine, in milliseconds.
    pub target_ms: u32,
}

/// How to open a volume. Set all bytes to zero, then `size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cryptline_open_options {
    /// sizeof(struct cryptline_open_options).
    pub size: usize,
    /// CRYPTLINE_READ_ONLY, CRYPTLINE_DISCARDS, CRYPTLINE_SHARED, CRYPTLINE_KEY_SLOT, and CRYPTLINE_PAGE_CACHE or
    /// CRYPTLINE_DIRECT.
    pub flags: u32,
    /// With CRYPTLINE_KEY_SLOT: only this key slot is tried.
    pub key_slot: u32,
    /// Unlocks with this passphrase.
    pub passphrase: cryptline_bytes,
    /// Opens with the volume key itself.
    pub volume_key: cryptline_bytes,
    /// Unlocks with all bytes of this file.
    pub key_file: *const c_char,
    /// The LUKS header is in this file.
    pub header: *const c_char,
    /// Only this partition of the decrypted disk: its number, label or UUID.
    pub partition: *const c_char,
    /// Most that deriving keys may cost, in milliseconds: a header can ask for anything. 0 for five minutes.
    pub kdf_limit_ms: u64,
    /// A cipher of the LUKS header that is accepted, exactly as it has it, though no key slot vouches for it; several are
    /// separated by spaces.
    pub accept_cipher: *const c_char,
}

/// How to make a volume. Set all bytes to zero, then `size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cryptline_create_options {
    /// sizeof(struct cryptline_create_options).
    pub size: usize,
    /// CRYPTLINE_REPLACE, CRYPTLINE_PREALLOCATE, CRYPTLINE_LUKS1.
    pub flags: u32,
    /// Bytes in a cipher sector; 0 for what fits.
    pub sector_size: u32,
    /// Size of a file in bytes, header included. A device has its size already.
    pub file_size: u64,
    /// The passphrase.
    pub passphrase: cryptline_bytes,
    /// Cost of trying it.
    pub kdf: cryptline_kdf,
    /// The cipher, such as "aes-xts-plain64", which null stands for.
    pub cipher: *const c_char,
    /// Length of the volume key in bits; 0 for 512.
    pub key_bits: u32,
    /// Always 0.
    pub reserved: u32,
    /// The label (LUKS2); null for none.
    pub label: *const c_char,
    /// The UUID; null for a random one.
    pub uuid: *const c_char,
    /// A broken cipher, which is made only if it is named here, too.
    pub accept_cipher: *const c_char,
}

/// How to change key slots. Set all bytes to zero, then `size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct cryptline_key_options {
    /// sizeof(struct cryptline_key_options).
    pub size: usize,
    /// CRYPTLINE_KEY_SLOT, CRYPTLINE_NEW_SLOT, CRYPTLINE_LAST_SLOT.
    pub flags: u32,
    /// With CRYPTLINE_KEY_SLOT: the key slot that is meant.
    pub key_slot: u32,
    /// Key that opens the volume now: a passphrase,
    pub passphrase: cryptline_bytes,
    /// or the volume key,
    pub volume_key: cryptline_bytes,
    /// or all bytes of a file.
    pub key_file: *const c_char,
    /// The LUKS header is in this file.
    pub header: *const c_char,
    /// The new passphrase.
    pub new_passphrase: cryptline_bytes,
    /// Cost of trying it.
    pub kdf: cryptline_kdf,
    /// With CRYPTLINE_NEW_SLOT: the new key slot. Otherwise the lowest that is free.
    pub new_slot: u32,
    /// Always 0.
    pub reserved: u32,
    /// Most that deriving keys may cost, in milliseconds. 0 for five minutes.
    pub kdf_limit_ms: u64,
    /// A cipher of the LUKS header that is accepted, exactly as it has it, though no key slot vouches for it; several are
    /// separated by spaces.
    pub accept_cipher: *const c_char,
}

/// A struct that begins with its size and may be all zeros.
///
/// # Safety
/// The type is `repr(C)`, begins with a `usize`, and is valid whatever its bytes are.
pub(crate) unsafe trait Sized: Copy {
    const NAME: &'static str;
}

// SAFETY: it is repr(C) with `size` first, and has integers and raw pointers, which any bytes are.
unsafe impl Sized for cryptline_open_options {
    const NAME: &'static str = "cryptline_open_options";
}
// SAFETY: as above.
unsafe impl Sized for cryptline_create_options {
    const NAME: &'static str = "cryptline_create_options";
}
// SAFETY: as above.
unsafe impl Sized for cryptline_key_options {
    const NAME: &'static str = "cryptline_key_options";
}

/// Members of the caller's struct: those that it lacks are zero, and those that are unknown here must be.
///
/// # Safety
/// `given` is null, or a size can be read there, and as many bytes from there on as it says.
pub(crate) unsafe fn options<T: Sized>(given: *const T) -> Outcome<T> {
    const MOST: usize = 4096;
    let name = T::NAME;
    // SAFETY: all zeros are a `T`, by the promise of its trait.
    let mut found: T = unsafe { std::mem::zeroed() };
    if given.is_null() {
        return Ok(found);
    }
    // SAFETY: a size can be read there, which may lie anywhere.
    let size = unsafe { given.cast::<usize>().read_unaligned() };
    if !(size_of::<usize>()..=MOST).contains(&size) {
        let text = format!("{name}: size is {size}; set it to sizeof(struct {name})");
        return Err(CallFailure::invalid(text));
    }
    // SAFETY: as many bytes can be read, as the struct itself says.
    let all = unsafe { bytes(given.cast(), size, name) }?;
    let (known, rest) = all.split_at(size.min(size_of::<T>()));
    if rest.iter().any(|&byte| byte != 0) {
        let text = format!("{name}: it has options that this library does not know; update it");
        return Err(CallFailure::new(Errno::TOOBIG, text));
    }
    // SAFETY: `known` has no more bytes than `found`, which are written one by one and do not overlap with the
    // caller's; whatever they are, it is a `T`.
    unsafe {
        let target = (&raw mut found).cast::<u8>();
        std::ptr::copy_nonoverlapping(known.as_ptr(), target, known.len());
    }
    Ok(found)
}

fn check_flags(flags: u32, known: u32, name: &str) -> Outcome {
    match flags & !known {
        0 => Ok(()),
        others => Err(CallFailure::invalid(format!("{name}: flags {others:#x} have no meaning here"))),
    }
}

/// Ciphers that are accepted.
fn ciphers(words: Option<&OsStr>) -> Outcome<Vec<String>> {
    let words = words.map(|words| utf8(words, "accept_cipher")).transpose()?;
    Ok(words.unwrap_or_default().split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect())
}

fn limits(limit_ms: u64) -> KdfLimits {
    match limit_ms {
        0 => KdfLimits::default(),
        ms => KdfLimits { time: Duration::from_millis(ms) },
    }
}

/// Key that opens a volume.
struct KeyOption<'a> {
    passphrase: Option<&'a [u8]>,
    volume_key: Option<&'a [u8]>,
    key_file: Option<&'a OsStr>,
}

impl KeyOption<'_> {
    /// The same, if it is no more than one thing.
    fn checked(self, name: &str) -> Outcome<Self> {
        let given = [self.passphrase.is_some(), self.volume_key.is_some(), self.key_file.is_some()];
        if given.into_iter().filter(|given| *given).count() > 1 {
            return Err(CallFailure::invalid(format!("{name}: use one of passphrase, volume_key and key_file")));
        }
        Ok(self)
    }
}

impl cryptline_bytes {
    /// # Safety
    /// `data` is null, or `len` bytes can be read there during `'a`.
    unsafe fn get<'a>(self, what: &str) -> Outcome<Option<&'a [u8]>> {
        if self.data.is_null() && self.len == 0 {
            return Ok(None);
        }
        // SAFETY: the caller's promise is the same.
        unsafe { bytes(self.data, self.len, what) }.map(Some)
    }
}

impl cryptline_kdf {
    /// # Safety
    /// `name` is null or a text.
    unsafe fn cost(self) -> Outcome<(Option<KdfKind>, KdfCost)> {
        // SAFETY: the caller's promise is the same.
        let kind = match unsafe { optional_text(self.name) } {
            None => None,
            Some(name) => match utf8(name, "kdf.name")? {
                "argon2id" => Some(KdfKind::Argon2id),
                "argon2i" => Some(KdfKind::Argon2i),
                "pbkdf2" => Some(KdfKind::Pbkdf2),
                _ => {
                    let text = "kdf.name is none of argon2id, argon2i and pbkdf2";
                    return Err(CallFailure::invalid(text));
                }
            },
        };
        let given = |value: u32| (value != 0).then_some(value);
        let mut cost = KdfCost {
            iterations: given(self.iterations),
            memory_kib: given(self.memory_kib),
            cpus: given(self.threads),
            ..KdfCost::default()
        };
        if let Some(ms) = given(self.target_ms) {
            cost.target = Duration::from_millis(ms.into());
        }
        Ok((kind, cost))
    }
}

impl cryptline_open_options {
    const NAME: &'static str = <Self as Sized>::NAME;

    /// # Safety
    /// Each pointer is null or what its field says, until the call returns.
    pub(crate) unsafe fn open(&self, target: &OsStr) -> Outcome<Open> {
        let known = CRYPTLINE_READ_ONLY | CRYPTLINE_DISCARDS | CRYPTLINE_SHARED;
        let known = known | CRYPTLINE_KEY_SLOT | CRYPTLINE_PAGE_CACHE | CRYPTLINE_DIRECT;
        check_flags(self.flags, known, Self::NAME)?;
        // SAFETY: the caller's promise is the same for each.
        let (way, header, partition, accepted) = unsafe {
            let way = KeyOption {
                passphrase: self.passphrase.get("passphrase")?,
                volume_key: self.volume_key.get("volume_key")?,
                key_file: optional_text(self.key_file),
            };
            let accepted = ciphers(optional_text(self.accept_cipher))?;
            (way.checked(Self::NAME)?, optional_text(self.header), optional_text(self.partition), accepted)
        };
        let partition =
            partition.map(|name| utf8(name, "partition")?.parse().map_err(CallFailure::invalid)).transpose()?;
        Ok(accepted
            .into_iter()
            .fold(Open::new(target), Open::accept_cipher)
            .read_only(self.flags & CRYPTLINE_READ_ONLY != 0)
            .discards(self.flags & CRYPTLINE_DISCARDS != 0)
            .shared(self.flags & CRYPTLINE_SHARED != 0)
            .direct(self.direct()?)
            .kdf_limits(limits(self.kdf_limit_ms))
            .with((self.flags & CRYPTLINE_KEY_SLOT != 0).then_some(self.key_slot), Open::key_slot)
            .with(way.passphrase, Open::passphrase)
            .with(way.volume_key, Open::key)
            .with(way.key_file, Open::key_file)
            .with(header, Open::header)
            .with(partition, Open::partition))
    }

    fn direct(&self) -> Outcome<DirectMode> {
        let asked = |flag| self.flags & flag != 0;
        match (asked(CRYPTLINE_PAGE_CACHE), asked(CRYPTLINE_DIRECT)) {
            (false, false) => Ok(DirectMode::Auto),
            (true, false) => Ok(DirectMode::Off),
            (false, true) => Ok(DirectMode::On),
            (true, true) => {
                let text = "CRYPTLINE_PAGE_CACHE and CRYPTLINE_DIRECT contradict each other";
                Err(CallFailure::invalid(text))
            }
        }
    }
}

impl cryptline_create_options {
    const NAME: &'static str = <Self as Sized>::NAME;

    /// # Safety
    /// Each pointer is null or what its field says, until the call returns.
    pub(crate) unsafe fn create(&self, target: &OsStr) -> Outcome<Create> {
        let known = CRYPTLINE_REPLACE | CRYPTLINE_PREALLOCATE | CRYPTLINE_LUKS1;
        check_flags(self.flags, known, Self::NAME)?;
        check_flags(self.reserved, 0, Self::NAME)?;
        let mut format = FormatOptions::default();
        if self.flags & CRYPTLINE_LUKS1 != 0 {
            format.version = LuksVersion::Luks1;
        }
        // SAFETY: the caller's promise is the same for each.
        let (passphrase, cipher, label, uuid) = unsafe {
            (format.kdf, format.cost) = self.kdf.cost()?;
            format.accepted_ciphers = ciphers(optional_text(self.accept_cipher))?;
            (
                self.passphrase.get("passphrase")?,
                optional_text(self.cipher),
                optional_text(self.label),
                optional_text(self.uuid),
            )
        };
        if self.sector_size != 0 {
            format.sector_size = Some(self.sector_size);
        }
        if self.key_bits != 0 {
            if !self.key_bits.is_multiple_of(8) {
                return Err(CallFailure::invalid("key_bits is not a multiple of 8"));
            }
            format.key_len = self.key_bits / 8;
        }
        if let Some(cipher) = cipher {
            utf8(cipher, "cipher")?.clone_into(&mut format.cipher);
        }
        if let Some(label) = label {
            utf8(label, "label")?.clone_into(&mut format.label);
        }
        if let Some(uuid) = uuid {
            format.uuid = Some(utf8(uuid, "uuid")?.to_owned());
        }
        let size = Some(self.file_size).filter(|size| *size != 0);
        Ok(Create::new(target)
            .replace(self.flags & CRYPTLINE_REPLACE != 0)
            .preallocate(self.flags & CRYPTLINE_PREALLOCATE != 0)
            .format(format)
            .with(size, Create::size)
            .with(passphrase, Create::passphrase))
    }
}

impl cryptline_key_options {
    const NAME: &'static str = <Self as Sized>::NAME;

    /// # Safety
    /// Each pointer is null or what its field says, until the call returns.
    pub(crate) unsafe fn header(&self, target: &OsStr) -> Outcome<Header> {
        let known = CRYPTLINE_KEY_SLOT | CRYPTLINE_NEW_SLOT | CRYPTLINE_LAST_SLOT;
        check_flags(self.flags, known, Self::NAME)?;
        check_flags(self.reserved, 0, Self::NAME)?;
        // SAFETY: the caller's promise is the same for each.
        let (way, new, detached, accepted) = unsafe {
            let way = KeyOption {
                passphrase: self.passphrase.get("passphrase")?,
                volume_key: self.volume_key.get("volume_key")?,
                key_file: optional_text(self.key_file),
            };
            let new = self.new_passphrase.get("new_passphrase")?;
            let accepted = ciphers(optional_text(self.accept_cipher))?;
            (way.checked(Self::NAME)?, new, optional_text(self.header), accepted)
        };
        Ok(accepted
            .into_iter()
            .fold(Header::new(target), Header::accept_cipher)
            .kdf_limits(limits(self.kdf_limit_ms))
            .with(way.passphrase, Header::passphrase)
            .with(way.volume_key.map(VolumeKey::new).transpose()?, Header::keys)
            .with(way.key_file.map(KeyFile::new), Header::keys)
            .with(detached, Header::header)
            .with(new, Header::new_passphrase))
    }

    /// # Safety
    /// `kdf.name` is null or a text.
    pub(crate) unsafe fn new_slot(&self) -> Outcome<NewSlot> {
        // SAFETY: the caller's promise is the same.
        let (kdf, cost) = unsafe { self.kdf.cost() }?;
        Ok(NewSlot {
            slot: (self.flags & CRYPTLINE_NEW_SLOT != 0).then_some(self.new_slot),
            kdf,
            cost,
            ..NewSlot::default()
        })
    }

    /// The key slot that is meant.
    pub(crate) fn slot(&self) -> Option<u32> {
        (self.flags & CRYPTLINE_KEY_SLOT != 0).then_some(self.key_slot)
    }
}
