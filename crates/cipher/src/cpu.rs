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
    // Its detection asks for the 512-bit register state before it uses VAES at all, so on a CPU
    // with VAES but without AVX-512 it runs AES-NI.
    if is_x86_feature_detected!("vaes") && is_x86_feature_detected!("avx512f") {
        "rustcrypto-aes (vaes512)"
    } else {
        "rustcrypto-aes (aesni)"
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
