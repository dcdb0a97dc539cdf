//! AWS-LC's EVP interface, which has XTS in C only.

use std::ptr;

use aws_lc_sys::{
    EVP_CIPHER_CTX, EVP_CIPHER_CTX_free, EVP_CIPHER_CTX_new, EVP_EncryptInit_ex, EVP_EncryptUpdate, EVP_aes_256_xts,
};

/// A context with its key schedule.
pub struct AwsLc(*mut EVP_CIPHER_CTX);

impl AwsLc {
    /// Expands `key`: the data key, then the tweak key.
    pub fn new(key: &[u8; 64]) -> AwsLc {
        // SAFETY: asks for nothing; the context is checked below and freed by `drop` only.
        let context = unsafe { EVP_CIPHER_CTX_new() };
        assert!(!context.is_null(), "AWS-LC has no memory");
        let aws_lc = AwsLc(context);
        // SAFETY: the context is live; the cipher is AWS-LC's own static; no engine; `key` is the
        // 64 bytes that this cipher reads; a null IV is left for later.
        let done =
            unsafe { EVP_EncryptInit_ex(context, EVP_aes_256_xts(), ptr::null_mut(), key.as_ptr(), ptr::null()) };
        assert_eq!(done, 1, "AWS-LC took the key");
        aws_lc
    }

    /// Encrypts one sector in place.
    pub fn encrypt(&mut self, iv: &[u8; 16], data: &mut [u8]) {
        let len = i32::try_from(data.len()).expect("a sector");
        let start = data.as_mut_ptr();
        let mut written = 0;
        // SAFETY: the context is live, has its cipher and key (`new`), and is borrowed by nobody
        // else; a null cipher and key keep them; `iv` is the 16 bytes that XTS reads.
        let begun = unsafe { EVP_EncryptInit_ex(self.0, ptr::null(), ptr::null_mut(), ptr::null(), iv.as_ptr()) };
        // SAFETY: the context as above; `len` bytes to read and write at `start`, borrowed by nobody
        // else; EVP takes the same place as source and destination; XTS writes as many bytes as it
        // reads; `written` is live.
        let done = unsafe { EVP_EncryptUpdate(self.0, start, &raw mut written, start.cast_const(), len) };
        assert!(begun == 1 && done == 1 && written == len, "AWS-LC encrypts");
    }
}

impl Drop for AwsLc {
    fn drop(&mut self) {
        // SAFETY: made by `new`, not freed before, and not used after.
        unsafe { EVP_CIPHER_CTX_free(self.0) }
    }
}
