//! Linux's own AES-XTS, assembled by `build.rs`, called as dm-crypt has it called: one call for each
//! cipher sector, without what the kernel's layers add.

use std::mem::MaybeUninit;

use aws_lc_sys::{AES_KEY, AES_set_encrypt_key};

unsafe extern "C" {
    fn aes_xts_encrypt_iv(tweak_key: *const Context, iv: *mut [u8; 16]);
    fn aes_xts_encrypt_vaes_avx2(
        key: *const Context,
        source: *const u8,
        destination: *mut u8,
        len: u32,
        tweak: *mut [u8; 16],
    );
    fn aes_xts_encrypt_vaes_avx10_512(
        key: *const Context,
        source: *const u8,
        destination: *mut u8,
        len: u32,
        tweak: *mut [u8; 16],
    );
}

/// Linux's `crypto_aes_ctx`.
#[repr(C, align(64))]
struct Context {
    encrypt: [u32; 60],
    decrypt: [u32; 60],
    key_len: u32,
}

/// Both schedules of AES-256-XTS.
pub struct Linux {
    data: Context,
    tweak: Context,
    wide: bool,
}

impl Linux {
    /// Expands `key`: the data key, then the tweak key. `wide` takes 512-bit registers instead of
    /// 256-bit ones. Nothing where this CPU lacks what that takes.
    pub fn new(key: &[u8; 64], wide: bool) -> Option<Linux> {
        let narrow = is_x86_feature_detected!("vaes")
            && is_x86_feature_detected!("vpclmulqdq")
            && is_x86_feature_detected!("avx2");
        let wider = is_x86_feature_detected!("avx512bw") && is_x86_feature_detected!("avx512vl");
        let (data, tweak) = key.split_at(32);
        (narrow && (wider || !wide)).then(|| Linux { data: Context::new(data), tweak: Context::new(tweak), wide })
    }

    /// Encrypts one sector in place.
    pub fn encrypt(&self, iv: &[u8; 16], data: &mut [u8]) {
        let len = u32::try_from(data.len()).expect("a sector");
        assert!(len > 0 && len.is_multiple_of(16), "whole blocks");
        let crypt = if self.wide { aes_xts_encrypt_vaes_avx10_512 } else { aes_xts_encrypt_vaes_avx2 };
        let mut tweak = *iv;
        let start = data.as_mut_ptr();
        // SAFETY: `new` found the features that both functions take; the contexts are laid out as
        // Linux's, with 15 round keys and their key's length; `len` bytes to read and write at
        // `start`, borrowed by nobody else, in whole blocks, and the functions take the same place
        // as source and destination; the tweak is 16 bytes to read and write.
        unsafe {
            aes_xts_encrypt_iv(&raw const self.tweak, &raw mut tweak);
            crypt(&raw const self.data, start.cast_const(), start, len, &raw mut tweak);
        }
    }
}

impl Context {
    /// The schedule is AWS-LC's, which has it as Linux does on a CPU with AES instructions; the
    /// comparison before anything is measured would show if not.
    fn new(key: &[u8]) -> Context {
        let mut schedule = MaybeUninit::<AES_KEY>::zeroed();
        // SAFETY: `key` is 256 bits to read, and the schedule is room for its kind to write.
        let done = unsafe { AES_set_encrypt_key(key.as_ptr(), 256, schedule.as_mut_ptr()) };
        assert_eq!(done, 0, "AWS-LC took the key");
        // SAFETY: numbers all through, zero where the call wrote nothing.
        let schedule = unsafe { schedule.assume_init() };
        Context { encrypt: schedule.rd_key, decrypt: [0; 60], key_len: 32 }
    }
}
