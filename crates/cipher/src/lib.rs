//! Bytes in, bytes out: the dm-crypt cipher grammar and the sector ciphers behind it. No I/O.
//!
//! ```text
//!   "aes-xts-plain64" ──► CipherSpec ─┐
//!                              key ───┼──► SectorCipher::encrypt_in_place(sector, data)
//!      sector size, iv_offset, ... ───┘          │
//!                                   IV of every cipher sector (iv)
//!                                                │
//!                      AES-XTS: one kernel over the whole request (xts)
//!                      all else: batches of sectors (modes)
//! ```
//!
//! The bytes are those of the Linux dm-crypt target (`drivers/md/dm-crypt.c`, target 1.28). One more IV
//! mode, `spdk`, is for volumes of SPDK's crypto device, which dm-crypt cannot open.

#![deny(unsafe_code)]

/// Has a type wiped when it is dropped: by all its fields, none of which can be left out.
macro_rules! wiped_when_dropped {
    ($keys:ident { $($field:tt),+ }) => {
        impl zeroize::Zeroize for $keys {
            fn zeroize(&mut self) {
                let Self { $($field: _),+ } = self;
                $(self.$field.zeroize();)+
            }
        }

        impl Drop for $keys {
            fn drop(&mut self) {
                zeroize::Zeroize::zeroize(self);
            }
        }

        impl zeroize::ZeroizeOnDrop for $keys {}
    };
}

pub mod ceiling;
mod cpu;
mod iv;
mod modes;
mod range;
mod sector;
mod spec;
mod strength;
#[cfg(test)]
mod tests;
mod xts;

pub use cpu::{BackendError, CPU_VARIABLE, XtsBackend};
pub use sector::{CipherError, SectorCipher, SectorOptions};
pub use spec::{CipherSpec, IvMode, SpecError};
pub use strength::Strength;

/// The bytes of hexadecimal digits.
#[cfg(test)]
fn unhex(digits: &str) -> Vec<u8> {
    base16ct::mixed::decode_vec(digits).expect("hexadecimal digits")
}

/// So many random cases; a hundredth of them under Miri, which interprets each instruction, and a
/// tenth on other architectures, since those are emulated when the project is checked.
#[cfg(test)]
fn cases(cases: u32) -> proptest::test_runner::Config {
    let fewer = match () {
        () if cfg!(miri) => 100,
        () if cfg!(not(target_arch = "x86_64")) => 10,
        () => 1,
    };
    proptest::test_runner::Config::with_cases(cases.div_ceil(fewer))
}

/// Says that the running test does not apply to this machine, and why.
#[cfg(test)]
fn skip(why: &str) {
    use std::io::Write as _;
    let thread = std::thread::current();
    // Not `eprintln!`, which the test harness hides when the test passes.
    _ = writeln!(std::io::stderr(), "SKIP {}: {why}", thread.name().unwrap_or("?"));
}
