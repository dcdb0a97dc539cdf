//! What the ciphers run on here.

/// The backend that the `aes` crate (0.9.4) selects at run time, by the same rules.
pub(crate) fn rustcrypto_aes_backend() -> &'static str {
    if !aes::hardware_accelerated() {
        return "rustcrypto-aes (soft)";
    }
    accelerated()
}

#[cfg(target_arch = "x86_64")]
fn accelerated() -> &'static str {
    if !is_x86_feature_detected!("vaes") {
        "rustcrypto-aes (aesni)"
    } else if is_x86_feature_detected!("avx512f") {
        "rustcrypto-aes (vaes512)"
    } else {
        "rustcrypto-aes (vaes256)"
    }
}

#[cfg(target_arch = "aarch64")]
fn accelerated() -> &'static str {
    "rustcrypto-aes (armv8)"
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn accelerated() -> &'static str {
    "rustcrypto-aes"
}
