//! Cipher words: what the kernel accepts, and its errors for the rest.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> CipherSpec {
    CipherSpec::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn error(text: &str) -> String {
    CipherSpec::parse(text).expect_err(text).to_string()
}

fn parts(text: &str) -> (String, String, IvMode, u32) {
    let spec = parse(text);
    assert_eq!(spec.as_str(), text);
    (spec.cipher_name().into(), spec.chain_mode().into(), spec.iv_mode().clone(), spec.key_count())
}

#[test]
fn both_forms_give_their_parts() {
    let cases: &[(&str, &str, &str, IvMode, u32)] = &[
        ("aes-xts-plain64", "aes", "xts", IvMode::Plain64, 1),
        ("aes-xts-plain64be", "aes", "xts", IvMode::Plain64Be, 1),
        ("aes-cbc-essiv:sha256", "aes", "cbc", IvMode::Essiv("sha256".into()), 1),
        ("aes:64-cbc-lmk", "aes", "cbc", IvMode::Lmk, 64),
        ("twofish-lrw-benbi", "twofish", "lrw", IvMode::Benbi, 1),
        ("xchacha12,aes-adiantum-plain64", "xchacha12,aes", "adiantum", IvMode::Plain64, 1),
        ("cipher_null-ecb", "cipher_null", "ecb", IvMode::None, 1),
        ("aes-xts-plain64:ignored", "aes", "xts", IvMode::Plain64, 1),
        ("capi:xts(aes)-plain64", "aes", "xts", IvMode::Plain64, 1),
        ("capi:cbc(aes)-essiv:sha3-256", "aes", "cbc", IvMode::Essiv("sha3-256".into()), 1),
        ("capi:cbc(aes)-lmk", "aes", "cbc", IvMode::Lmk, 64),
        ("capi:ecb(cipher_null)", "cipher_null", "ecb", IvMode::None, 1),
    ];
    for (text, cipher, chain, iv, count) in cases {
        assert_eq!(parts(text), ((*cipher).into(), (*chain).into(), iv.clone(), *count), "{text}");
    }
}

#[test]
fn a_bare_cipher_name_means_cbc_plain() {
    for text in ["aes", "aes-plain"] {
        assert_eq!(parts(text), ("aes".into(), "cbc".into(), IvMode::Plain, 1), "{text}");
    }
}

#[test]
fn a_cipher_without_iv_drops_the_iv_mode() {
    for text in ["cipher_null-ecb-plain64", "aes-ecb-nonsense", "capi:ecb(aes)-plain"] {
        assert_eq!(*parse(text).iv_mode(), IvMode::None, "{text}");
    }
}

#[test]
fn every_kernel_error_string_is_said() {
    let long = format!("capi:{}-plain64", "x".repeat(128));
    let cases = [
        ("xts(aes)-plain64", "Bad cipher specification"),
        ("aes-xts-plain64(", "Bad cipher specification"),
        ("aes:-xts-plain64", "Bad cipher key count specification"),
        ("aes:0-xts-plain64", "Bad cipher key count specification"),
        ("aes:3-xts-plain64", "Bad cipher key count specification"),
        ("aes:+4-xts-plain64", "Bad cipher key count specification"),
        ("aes:4x-xts-plain64", "Bad cipher key count specification"),
        ("aes:4294967296-xts-plain64", "Bad cipher key count specification"),
        ("aes-xts", "IV mechanism required"),
        ("capi:xts(aes)", "IV mechanism required"),
        ("capi:", "IV mechanism required"),
        ("aes-cbc-essiv", "Digest algorithm missing for ESSIV mode"),
        ("capi:cbc(aes)-essiv", "Digest algorithm missing for ESSIV mode"),
        (long.as_str(), "Cannot allocate cipher string"),
        ("rot13-xts-plain64", "Error allocating crypto tfm"),
        ("capi:gcm(aes)-random", "Error allocating crypto tfm"),
        ("aes-zts-plain64", "Error allocating crypto tfm"),
        ("capi:xts(rot13)-plain64", "Error allocating crypto tfm"),
        ("", "Error allocating crypto tfm"),
        ("-", "IV mechanism required"),
        ("aes--plain64", "Error allocating crypto tfm"),
        ("aes-adiantum-plain64", "Error allocating crypto tfm"),
        ("xchacha12,aes-xts-plain64", "Error allocating crypto tfm"),
        ("aes-xts-plain65", "Invalid IV mode"),
        ("aes-xts-", "Invalid IV mode"),
        ("aes-xts-Plain64", "Invalid IV mode"),
        ("capi:xts(aes)-plain65", "Invalid IV mode"),
    ];
    for (text, kernel) in cases {
        let message = error(text);
        assert!(message.starts_with(kernel), "{text}: {message}");
    }
}

#[test]
fn every_kernel_error_string_of_authenticated_encryption_is_said() {
    let cases = [
        ("aes-xts-plain64", "Bad cipher specification"),
        ("capi:authenc(hmac(sha256)-random", "Invalid AEAD cipher spec"),
        ("capi:xts(aes)-lmk", "AEAD transforms not supported for LMK"),
    ];
    for (text, kernel) in cases {
        let message = CipherSpec::parse_with_aead(text, true).expect_err(text).to_string();
        assert!(message.starts_with(kernel), "{text}: {message}");
    }
    for text in ["capi:authenc(hmac(sha256),xts(aes))-random", "capi:gcm(aes)-random"] {
        let spec = CipherSpec::parse_with_aead(text, true).expect(text);
        assert_eq!(*spec.iv_mode(), IvMode::Random);
        let message = spec.check_supported().expect_err(text).to_string();
        assert_eq!(message, format!("not supported yet: cipher {text}"));
    }
}

#[test]
fn what_can_be_served_is_told_from_what_cannot_yet() {
    let supported = [
        "aes-xts-plain64",
        "aes-xts-plain",
        "aes-xts-plain64be",
        "aes-xts-null",
        "capi:xts(aes)-plain64",
        "cipher_null-ecb",
        "cipher_null-ecb-plain64",
        "capi:ecb(cipher_null)",
        "aes-cbc-essiv:sha256",
        "aes-cbc-plain64",
        "aes-ecb",
        "aes-xts-benbi",
        "aes-xts-essiv:sha256",
        "aes-xts-spdk",
        "aes:2-xts-plain64",
        "aes:64-cbc-lmk",
        "aes-cbc-essiv:wp256",
        "capi:cbc(aes)-essiv:sha3-256",
        "capi:essiv(cbc(aes),sha256)-plain64",
        "capi:essiv(cbc(aes),sha3-256)-plain64",
        "serpent-xts-plain64",
        "twofish-lrw-benbi",
        "xchacha12,aes-adiantum-plain64",
        "capi:adiantum(xchacha20,aes)-plain64be",
        "xchacha12,aes:2-adiantum-benbi",
    ];
    for text in supported {
        assert_eq!(parse(text).check_supported(), Ok(()), "{text}");
    }
    let later = [
        "aes-lrw-lmk",
        "anubis-cbc-plain64",
        "capi:adiantum(xchacha12,aes)-spdk",
        "capi:essiv(cbc(aes),sha256)-plain",
        "capi:essiv(cbc(aes),sha256)-null",
        "capi:essiv(essiv(cbc(aes),sha256),sha256)-plain64",
        "capi:essiv(authenc(hmac(sha256),cbc(aes)),sha256)-plain64",
        "xchacha12,aes-adiantum-lmk",
        "xchacha12,aes-adiantum-tcw",
        "capi:xts-aes-aesni-plain64",
        "cipher_null-cbc-plain",
        "des3_ede-cbc-plain64",
    ];
    for text in later {
        let message = parse(text).check_supported().expect_err(text).to_string();
        assert_eq!(message, format!("not supported yet: cipher {text}"));
    }
}

#[test]
fn parts_that_do_not_go_together_are_refused_in_the_kernels_words() {
    let cases = [
        ("aes-cbc-essiv:sha512", "Error allocating crypto tfm"),
        ("aes-cbc-essiv:sha1", "Error decoding and setting key"),
        ("sm4-cbc-essiv:sha256", "Error allocating crypto tfm"),
        ("aes-cbc-essiv:rot13", "Error allocating crypto tfm"),
        ("aes-ctr-eboiv", "Error creating IV"),
        ("aes-ctr-elephant", "Error creating IV"),
        ("xchacha12,aes-adiantum-eboiv", "Error creating IV"),
        ("xchacha12,aes-adiantum-essiv:sha256", "Error allocating crypto tfm"),
        ("capi:essiv(cbc(aes),sha512)-plain64", "Error allocating crypto tfm"),
        ("capi:essiv(cbc(aes),sha1)-plain64", "Error decoding and setting key"),
        ("capi:essiv(cbc(aes),)-plain64", "Error allocating crypto tfm"),
        ("capi:essiv(adiantum(xchacha12,aes),sha256)-plain64", "Error allocating crypto tfm"),
        ("aes-cbc-random", "Integrity profile not supported."),
    ];
    for (text, kernel) in cases {
        let message = parse(text).check_supported().expect_err(text).to_string();
        assert!(message.starts_with(kernel), "{text}: {message}");
    }
    for text in ["aes-ecb-essiv:sha256", "capi:essiv(ecb(aes),sha256)-plain64", "capi:essiv(cbc(rot13),sha256)-plain64"]
    {
        let message = error(text);
        assert!(message.starts_with("Error allocating crypto tfm"), "{message}");
    }
}

proptest! {
    #[test]
    fn any_text_is_parsed_or_refused_and_kept_as_it_is(
        text in "(capi:)?([a-z0-9_,]{0,6}|aes|xts|ecb|[-:()]){0,9}|.*",
        aead in any::<bool>(),
    ) {
        if let Ok(spec) = CipherSpec::parse_with_aead(&text, aead) {
            prop_assert_eq!(spec.as_str(), text);
            prop_assert!(spec.key_count().is_power_of_two());
            let _ = spec.check_supported();
        }
    }
}
