//! Subject of the measurement: a medium, and volumes over it that differ in cipher and dispatch only.
//!
//! All volumes of one bench lie on the same medium, so that none has the better memory.

use clap::Args;
use cryptline::luks::format::{FormatOptions, KdfCost, KdfKind, LuksVersion};
use cryptline::{DispatchOptions, HelperPool, Open, Plain, size};
use cryptline_cipher::{CipherSpec, SectorCipher, SectorOptions};
use cryptline_engine::Gate;
use cryptline_engine::base::RamDevice;
use cryptline_engine::dispatch::DispatchMode;
use cryptline_engine::layer::Exclusion;

use crate::error::{Of as _, Result, fail};
use crate::machine::{available_memory, cores};

/// The cipher that encrypts nothing, as tables name it.
pub const NULL_CIPHER: &str = "cipher_null-ecb";
/// Bytes in a cipher sector: a page, as the volumes that cryptline makes have them.
pub const SECTOR_SIZE: u32 = 4096;
/// Lengths of keys to try for a cipher, the longest of AES-XTS first.
const KEY_LENS: [usize; 5] = [64, 32, 48, 24, 16];

/// Threads that help large requests.
#[derive(Args, Clone, Copy, Debug)]
pub struct HelperArgs {
    /// Threads that help large requests, for `auto` [default: one less than there are processors]
    #[arg(long, value_name = "N")]
    pub helpers: Option<usize>,
}

impl HelperArgs {
    /// How many.
    pub fn count(self) -> Result<usize> {
        let cores = cores();
        let helpers = self.helpers.unwrap_or(cores - 1);
        if helpers > cores {
            fail!("--helpers {helpers}: this machine has {cores} processors; use at most {cores}");
        }
        Ok(helpers)
    }

    /// They, started when a volume needs them.
    pub fn pool(self) -> Result<HelperPool> {
        self.count().map(HelperPool::new)
    }
}

/// A cipher word that this build has, with a key.
pub struct CipherWord {
    word: String,
    spec: CipherSpec,
    key: Vec<u8>,
}

impl CipherWord {
    /// Of a cipher word.
    pub fn new(word: &str) -> Result<Self> {
        let name = || format!("--cipher {word}");
        let spec = CipherSpec::parse(word).of(name())?;
        spec.check_supported().of(name())?;
        let fits = |len: &usize| SectorCipher::check_key_size(&spec, *len).is_ok();
        let len = if spec.is_null() { Some(0) } else { KEY_LENS.into_iter().find(fits) };
        let len = len.ok_or("it takes no key that this bench has").of(name())?;
        let cipher = Self {
            word: word.to_owned(),
            spec,
            // Not secret; all bytes differ, for ciphers that refuse weak keys.
            key: (1..=u8::MAX).take(len).collect(),
        };
        cipher.sectors().map(|_| cipher)
    }

    /// The cipher word.
    pub fn word(&self) -> &str {
        &self.word
    }

    /// Tells if it encrypts nothing.
    pub fn is_null(&self) -> bool {
        self.spec.is_null()
    }

    /// The cipher at work.
    pub fn sectors(&self) -> Result<SectorCipher> {
        let options = SectorOptions { sector_size: SECTOR_SIZE, iv_offset: 0, iv_large_sectors: false };
        SectorCipher::new(&self.spec, &self.key, options).of(format_args!("--cipher {}", self.word))
    }

    /// A volume of this cipher over all of `medium`.
    pub fn over(&self, medium: &Gate, mode: DispatchMode, helpers: &HelperPool) -> Result<Gate> {
        self.opened(Open::device(medium).helpers(helpers.clone()), mode)
    }

    /// The same inline, in blocks of `block` bytes.
    pub fn in_blocks(&self, medium: &Gate, block: u32, exclusion: Exclusion) -> Result<Gate> {
        let open = Open::device(medium).logical_block(block);
        self.opened(open.exclusion(exclusion), DispatchMode::Inline)
    }

    fn opened(&self, open: Open, mode: DispatchMode) -> Result<Gate> {
        let plain = Plain { sector_size: SECTOR_SIZE, ..Plain::new(&self.word, self.key.len()) };
        let dispatch = DispatchOptions { both: Some(mode), ..DispatchOptions::default() };
        let open = open.plain(plain).key(&self.key).dispatch(dispatch);
        Ok(open.discards(true).open()?.gate().clone())
    }
}

/// A LUKS header whose key slots cost next to nothing, so that servers start quickly.
pub fn cheap(version: LuksVersion) -> FormatOptions {
    let cost = KdfCost { iterations: Some(1000), ..KdfCost::default() };
    FormatOptions { version, kdf: Some(KdfKind::Pbkdf2), cost, ..FormatOptions::default() }
}

/// Describes who runs the cipher, for people.
pub fn in_words(mode: DispatchMode) -> &'static str {
    match mode {
        DispatchMode::Inline => "inline",
        DispatchMode::Queue => "our imitation of dm-crypt's queues",
        DispatchMode::Auto => "automatic",
    }
}

/// Returns the name of the implementation that runs AES-XTS here.
pub fn aes_backend() -> &'static str {
    let sectors = CipherWord::new("aes-xts-plain64").and_then(|cipher| cipher.sectors());
    sectors.map_or("unknown", |cipher| cipher.backend_name())
}

/// Verifies that a volume can have `bytes` bytes.
pub fn check_size(bytes: u64) -> Result<()> {
    if bytes > 0 && bytes.is_multiple_of(u64::from(SECTOR_SIZE)) {
        return Ok(());
    }
    fail!("--size {bytes}: use a multiple of {SECTOR_SIZE} bytes, and not 0, such as 1G")
}

/// A RAM disk of `bytes`, when the machine has `needed` bytes of memory to spare.
pub fn ram(bytes: u64, needed: u64, what_else: &str) -> Result<Gate> {
    check_size(bytes)?;
    check_memory(bytes, needed, what_else)?;
    Ok(Gate::new(RamDevice::new(bytes)?))
}

/// Verifies that the machine has `needed` bytes of memory to spare for media of `bytes` bytes.
pub fn check_memory(bytes: u64, needed: u64, what_else: &str) -> Result<()> {
    match available_memory() {
        Some(available) if needed > available => fail!(
            "--size {}: that takes {} of memory{what_else}, and {} are free; use a smaller --size",
            size::human(bytes),
            size::human(needed),
            size::human(available)
        ),
        _ => Ok(()),
    }
}
