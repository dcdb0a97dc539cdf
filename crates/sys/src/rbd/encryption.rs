//! The library's own encryption, which ours is compared with.

use std::ffi::{c_char, c_int, c_void};

use super::image::RbdImage;
use super::library::{Handle, Library};
use super::{RbdCall, RbdError};

/// From librbd.h: `RBD_ENCRYPTION_FORMAT_LUKS2`.
const FORMAT_LUKS2: c_int = 1;

/// `rbd_encryption_luks2_format_options_t`.
#[repr(C)]
struct Luks2Options {
    /// How to format; not looked at for loading.
    algorithm: c_int,
    passphrase: *const c_char,
    passphrase_len: usize,
}

/// `rbd_encryption_load`.
pub(super) type EncryptionLoadFn = unsafe extern "C" fn(Handle, c_int, *mut c_void, usize) -> c_int;

impl RbdImage {
    /// From now on the library decrypts what is read, and encrypts what is written. Before there is any queue.
    ///
    /// Errors: the library is older than Ceph 16, or the image has no LUKS2 header that it can open.
    pub fn decrypt_luks2(&self, passphrase: &[u8]) -> Result<(), RbdError> {
        let load = Library::encryption_load()?;
        let mut options =
            Luks2Options { algorithm: 0, passphrase: passphrase.as_ptr().cast(), passphrase_len: passphrase.len() };
        let len = size_of::<Luks2Options>();
        // SAFETY: the image is open; the options are those of the format, as long as said, and they and the passphrase
        // live through the call, which copies what it keeps.
        let code = unsafe {
            let options = (&raw mut options).cast::<c_void>();
            load(self.0.handle, FORMAT_LUKS2, options, len)
        };
        RbdError::check(RbdCall::Decrypt, code).map(|_| ())
    }
}
